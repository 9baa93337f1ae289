/* SPDX-License-Identifier: MIT */
/*
 * Tensors that show the same are looked at once.
 */
#include "program/checkup.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>
#include "program/checkpoint.h"
#include "program/threads.h"

#include <nettle/sha2.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_DECODED = 512 }; /* elements */

/* Says whether an element of n parts, 2 for complex ones, is meant. */
typedef bool (*element_test)(const double *parts, size_t n);

static bool is_nan(const double *parts, size_t n)
{
    return isnan(parts[0]) || isnan(parts[n - 1]);
}

static bool is_infinite(const double *parts, size_t n)
{
    return !is_nan(parts, n) && (isinf(parts[0]) || isinf(parts[n - 1]));
}

struct search {
    enum wfs_dtype dtype;
    element_test test;
    uint64_t index; /* of the element that was found */
};

/* The parts of a complex element are numbers. */
static int find_in(void *ctx, const void *bytes, size_t n, uint64_t first)
{
    struct search *search = ctx;
    const enum wfs_dtype dtype = search->dtype;
    const size_t n_parts = wfs_dtype_kind(dtype) == WFS_KIND_COMPLEX ? 2 : 1;
    double numbers[2 * N_DECODED];
    for (size_t i = 0; i < n; i += N_DECODED) {
        const size_t n_now = n - i < N_DECODED ? n - i : N_DECODED;
        wfs_dtype_decode(n_parts == 2 ? wfs_dtype_part(dtype) : dtype,
                         (const char *)bytes + i / 8 * wfs_dtype_bits(dtype), n_now * n_parts,
                         numbers);
        for (size_t k = 0; k < n_now; k++) {
            search->index = first + i + k;
            if (search->test(numbers + k * n_parts, n_parts))
                return 1;
        }
    }
    return 0;
}

/* Finds the first such element, by its place in the order of rows. Returns 1, 0 if there is none;
 * -EIO, -ENOMEM. */
static int find(const struct wfs_tensor *tensor, element_test test, uint64_t *ret_index)
{
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    int code = wfs_numbers_init(&numbers, tensor);
    struct search search = {(enum wfs_dtype)numbers.tensor->dtype, test, 0};
    uint64_t n_elems = 0;
    (void)wfs_shape_count(&numbers.tensor->shape, &n_elems);
    if (code == 0)
        code = wfs_tensor_scan(NULL, numbers.tensor, 0, n_elems, find_in, &search);
    *ret_index = search.index;
    return code;
}

/* ---- lines ---- */

/* What is counted in a tensor. */
struct counts {
    bool has_numbers;
    struct wfs_odd odd;
};

enum { N_PLACE_DIMS = 8 };

struct spot {
    char text[160];
};

static void report(struct checkup *checkup, enum wfs_severity severity, const char *text)
{
    const struct wfs_finding finding = {.severity = severity, .text = text};
    if (severity > checkup->worst)
        checkup->worst = severity;
    checkup->visit(checkup->ctx, &finding);
}

/* Returns ", first at [3, 0]"; empty for a scalar, and where it would take long to find. */
static struct spot find_first(const struct wfs_tensor *tensor, element_test test)
{
    struct spot place = {""};
    uint64_t index = 0, indices[N_PLACE_DIMS];
    const struct wfs_shape *shape = &tensor->shape;
    if (shape->rank == 0 || shape->rank > N_PLACE_DIMS || wfs_tensor_is_large(tensor) ||
        find(tensor, test, &index) <= 0)
        return place;
    for (uint32_t i = shape->rank; i-- > 0; index /= shape->dims[i])
        indices[i] = index % shape->dims[i];
    const struct wfs_shape found = {shape->rank, indices};
    char text[sizeof(place.text) - sizeof(", first at ")];
    if (wfs_shape_format(&found, text, sizeof(text)) < sizeof(text))
        snprintf(place.text, sizeof(place.text), ", first at %s", text);
    return place;
}

static void report_count(struct checkup *checkup, const struct wfs_tensor *tensor, const char *what,
                         element_test test, uint64_t n, uint64_t n_elems)
{
    char text[WFS_ERROR_TEXT_MAX];
    if (n == 0)
        return;
    snprintf(text, sizeof(text), "tensor '%s': %" PRIu64 " of %s %s %s%s",
             wfs_quote(tensor->key).text, n, wfs_count(n_elems, "element").text,
             n == 1 ? "is" : "are", what, find_first(tensor, test).text);
    report(checkup, WFS_MEDIUM, text);
}

/* Adds a tensor to those that a line is about; n is how many there are. */
static void add_alike(struct strbuf *names, size_t n, const struct wfs_tensor *tensor)
{
    enum { N_NAMED = 3 };
    if (n <= N_NAMED)
        strbuf_printf(names, "%s'%s'", n > 1 ? ", " : "", wfs_quote(tensor->key).text);
}

/* Reports tensors of which all elements are one number: as new ones are, and such that were never
 * read. */
static void report_alike(struct checkup *checkup, size_t n, struct strbuf *names, const char *what)
{
    enum { N_NAMED = 3 };
    char text[2 * WFS_ERROR_TEXT_MAX], more[48] = "";
    if (n > N_NAMED)
        snprintf(more, sizeof(more), " and %zu more", n - N_NAMED);
    if (n > 0 && !names->has_failed) {
        snprintf(text, sizeof(text), "%s %s %s: %s%s", wfs_count(n, "tensor").text,
                 n == 1 ? "has" : "have", what, names->bytes, more);
        report(checkup, WFS_INFO, text);
    }
    strbuf_done(names);
}

/* Tensors of which all elements are one number. */
struct alike {
    size_t n_zero, n_constant;
    struct strbuf zero, constant; /* the first names */
};

static void count_alike(struct alike *alike, const struct wfs_tensor *tensor,
                        const struct wfs_odd *odd)
{
    if (odd->n_elems < 2 || !odd->is_constant)
        return;
    if (odd->constant == 0)
        add_alike(&alike->zero, ++alike->n_zero, tensor);
    else
        add_alike(&alike->constant, ++alike->n_constant, tensor);
}

/* ---- all elements ---- */

struct counting {
    struct pool pool; /* first: its functions are given that */
    struct checkup *checkup;
    struct alike alike;
    struct wfs_error *err;
};

static int make_counts(struct pool *pool, size_t i, void *result)
{
    const struct counting *counting = (struct counting *)pool;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(counting->checkup->catalog, i);
    struct counts *counts = result;
    const int code = wfs_tensor_is_damaged(tensor)
                         ? -EOPNOTSUPP
                         : wfs_tensor_count_odd(&pool->io, tensor, &counts->odd);
    counts->has_numbers = code == 0;
    return code == -EOPNOTSUPP ? 0 : code;
}

/* A tensor that does not hold numbers has no NaN and no infinities. */
static int report_counts(struct pool *pool, size_t i, const void *result)
{
    struct counting *counting = (struct counting *)pool;
    struct checkup *checkup = counting->checkup;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(checkup->catalog, i);
    const struct counts *counts = result;
    const struct wfs_odd *odd = &counts->odd;
    if (counts->has_numbers) {
        report_count(checkup, tensor, "NaN", is_nan, odd->n_nan, odd->n_elems);
        report_count(checkup, tensor, "infinite", is_infinite, odd->n_inf, odd->n_elems);
        count_alike(&counting->alike, tensor, odd);
        checkup->n_looked_at++;
        checkup->n_elems += odd->n_elems;
    }
    return checkup->step(checkup->ctx, tensor->n_bytes);
}

static int fail_counts(struct pool *pool, size_t i, int code)
{
    struct counting *counting = (struct counting *)pool;
    return wfs_tensor_fail_read(counting->err, wfs_catalog_tensor(counting->checkup->catalog, i),
                                code);
}

static int count_all(struct checkup *checkup, const struct wfs_workload *workload,
                     struct wfs_error *err)
{
    struct counting counting = {.checkup = checkup, .err = err};
    struct alike *alike = &counting.alike;
    counting.pool = (struct pool){.workload = workload,
                                  .n = wfs_catalog_n_tensors(checkup->catalog),
                                  .n_result = sizeof(struct counts),
                                  .make = make_counts,
                                  .visit = report_counts,
                                  .fail = fail_counts};
    const int code = pool_run(&counting.pool);
    if (code < 0)
        alike->n_zero = alike->n_constant = 0;
    report_alike(checkup, alike->n_zero, &alike->zero, "only zeros");
    report_alike(checkup, alike->n_constant, &alike->constant, "the same number in all elements");
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

static int check_values(struct checkup *checkup, struct wfs_error *err)
{
    const size_t n = wfs_catalog_n_tensors(checkup->catalog);
    struct wfs_workload *workload = NULL;
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; works != NULL && i < n; i++)
        works[i].tensor = wfs_catalog_tensor(checkup->catalog, i);
    if (works == NULL || wfs_workload_new(works, n, &workload) < 0)
        return wfs_fail_memory(err);
    int code = checkup->allows_large ? 0 : wfs_workload_check(workload, err);
    if (code == 0)
        code = count_all(checkup, workload, err);
    wfs_workload_free(workload);
    return code;
}

/* ---- descriptions ---- */

static void survey(struct checkup *checkup)
{
    for (size_t i = 0; i < wfs_catalog_n_tensors(checkup->catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(checkup->catalog, i);
        struct wfs_error err = {0};
        if (!wfs_tensor_is_damaged(tensor))
            continue;
        (void)wfs_tensor_fail_read(&err, tensor, -EIO);
        report(checkup, WFS_HIGH, err.text);
    }
}

static int compare_folded(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;
    const int order = strcasecmp(*one, *other);
    return order != 0 ? order : strcmp(*one, *other);
}

/* Reports keys that are one name where case does not count, as on some filesystems. */
static int check_case(struct checkup *checkup)
{
    const size_t n = wfs_catalog_n_tensors(checkup->catalog);
    autofree const char **keys = calloc(n + 1, sizeof(*keys));
    const char **first = NULL;
    size_t n_twins = 0;
    char text[WFS_ERROR_TEXT_MAX], more[48] = "";
    if (keys == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        keys[i] = wfs_catalog_tensor(checkup->catalog, i)->key;
    qsort(keys, n, sizeof(*keys), compare_folded);
    for (size_t i = 1; i < n; i++) {
        if (strcasecmp(keys[i - 1], keys[i]) != 0)
            continue;
        first = first == NULL ? &keys[i - 1] : first;
        n_twins++;
    }
    if (n_twins > 1)
        snprintf(more, sizeof(more), " (and %zu more)", n_twins - 1);
    if (n_twins > 0) {
        snprintf(text, sizeof(text), "the keys '%s' and '%s' differ in case only%s",
                 wfs_quote(first[0]).text, wfs_quote(first[1]).text, more);
        report(checkup, WFS_INFO, text);
    }
    return 0;
}

enum { N_DIGEST = SHA256_DIGEST_SIZE, N_PIECE = 1 << 20 };

/* Returns the name of a blob in its path, which no links lead through; NULL: it is none. */
static const char *name_in(const char *path)
{
    static const char folder[] = "/blobs/";
    const char *slash = strrchr(path, '/');
    const size_t n_folder = sizeof(folder) - 1;
    if (slash == NULL || slash - path + 1 < (ptrdiff_t)n_folder ||
        memcmp(slash + 1 - n_folder, folder, n_folder) != 0)
        return NULL;
    const char *name = slash + 1;
    return strlen(name) == (size_t)2 * N_DIGEST && strspn(name, "0123456789abcdef") == strlen(name)
               ? name
               : NULL;
}

static int digest_of(int fd, char text[2 * N_DIGEST + 1])
{
    struct sha256_ctx sha256;
    unsigned char digest[N_DIGEST];
    autofree unsigned char *piece = malloc(N_PIECE);
    if (piece == NULL)
        return -ENOMEM;
    sha256_init(&sha256);
    for (ssize_t n; (n = read(fd, piece, N_PIECE)) != 0;) {
        if (n < 0 && errno != EINTR)
            return -errno;
        sha256_update(&sha256, n < 0 ? 0 : (size_t)n, piece);
    }
    sha256_digest(&sha256, N_DIGEST, digest);
    for (size_t i = 0; i < N_DIGEST; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

/* Compares a file of the cache of Hugging Face with the SHA-256 that is its name. 1: its content is
 * another; 0: it is not, or the file is not such a one. -errno where it cannot be read; -ENOMEM. */
static int blob_check(const char *path)
{
    struct stat st;
    char digest[2 * N_DIGEST + 1];
    autofree char *target = realpath(path, NULL);
    const char *name = target == NULL ? NULL : name_in(target);
    if (name == NULL)
        return 0;
    autoclose int fd = open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    const int code = S_ISREG(st.st_mode) ? digest_of(fd, digest) : 0;
    return code < 0 || !S_ISREG(st.st_mode) ? code : strcmp(digest, name) != 0;
}

/* Reports files of the cache of Hugging Face whose content is not what their names say. */
static int check_blobs(struct checkup *checkup, struct wfs_error *err)
{
    char text[WFS_ERROR_TEXT_MAX];
    for (size_t i = 0; i < wfs_catalog_n_sources(checkup->catalog); i++) {
        const char *path = wfs_catalog_source_path(checkup->catalog, i);
        const int code = blob_check(path);
        if (code < 0) {
            checkup->failed_path = path;
            return wfs_fail(err, -code, "%s", strerror(-code));
        }
        snprintf(text, sizeof(text),
                 "'%s' in the cache of Hugging Face has another SHA-256 than its name: it is "
                 "damaged; remove it and download it again",
                 wfs_quote(path).text);
        if (code > 0)
            report(checkup, WFS_HIGH, text);
    }
    return 0;
}

int checkup_run(struct checkup *checkup, struct wfs_error *err)
{
    size_t changed;
    for (size_t i = 0; i < wfs_catalog_n_findings(checkup->catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(checkup->catalog, i);
        report(checkup, finding->severity, finding->text);
    }
    survey(checkup);
    if (check_case(checkup) < 0)
        return wfs_fail_memory(err);
    int code = check_blobs(checkup, err);
    if (code == 0 && checkup->has_values)
        code = check_values(checkup, err);
    if (code == 0 && wfs_catalog_check_sources(checkup->catalog, &changed) < 0)
        code = wfs_fail(err, EIO, "the file changed while it was read");
    return code;
}

void checkup_put(const struct checkup *checkup, struct json_out *out)
{
    if (!checkup->has_values)
        return;
    json_out_u64(out, "n_looked_at", checkup->n_looked_at);
    json_out_u64(out, "n_elems_looked_at", checkup->n_elems);
}
