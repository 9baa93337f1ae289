/* SPDX-License-Identifier: MIT */
/*
 * weightfs diff: which tensors of two checkpoints differ, and by how much. The order of tensors
 * does not matter; metadata, values and hidden bytes are compared on request.
 */
#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>

#include "cli/comparison.h"
#include "cli/diff_tables.h"
#include "cli/input.h"
#include <weightfs/json_out.h>
#include "cli/mounted.h"
#include "cli/progress.h"
#include "cli/args.h"
#include "program/print.h"
#include "program/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- metadata and values ---- */

/* A metadata text, or the index of a value, whose text is made when it is compared. */
struct text {
    const char *name;
    const struct wfs_text *meta;
    size_t value;
};

struct texts {
    const struct wfs_catalog *catalog;
    struct text *texts;
    size_t n_texts;
};

struct differences {
    struct json_out *json;
    const char *kind;
    uint64_t n;
};

static int compare_names(const void *a, const void *b)
{
    const struct text *one = a, *other = b;
    return strcmp(one->name, other->name);
}

static int collect_texts(const struct wfs_catalog *catalog, bool is_meta, struct texts *ret)
{
    size_t n = is_meta ? 0 : wfs_catalog_n_values(catalog);
    const struct wfs_text *first = is_meta ? wfs_catalog_meta(catalog) : NULL;
    for (const struct wfs_text *meta = first; meta != NULL; meta = meta->next)
        n++;
    *ret = (struct texts){catalog, calloc(n + 1, sizeof(*ret->texts)), n};
    if (ret->texts == NULL)
        return -ENOMEM;
    const struct wfs_text *meta = first;
    for (size_t i = 0; i < n; i++) {
        ret->texts[i] =
            (struct text){is_meta ? meta->name : wfs_catalog_value_name(catalog, i), meta, i};
        meta = is_meta ? meta->next : NULL;
    }
    qsort(ret->texts, n, sizeof(*ret->texts), compare_names);
    return 0;
}

static int is_equal(const struct texts *a, const struct text *x, const struct texts *b,
                    const struct text *y)
{
    if (x->meta != NULL)
        return x->meta->n_bytes == y->meta->n_bytes &&
               memcmp(x->meta->value, y->meta->value, x->meta->n_bytes) == 0;
    autofree char *one = NULL, *other = NULL;
    size_t n_one, n_other;
    int code = wfs_catalog_value_text(a->catalog, x->value, &one, &n_one);
    if (code == 0)
        code = wfs_catalog_value_text(b->catalog, y->value, &other, &n_other);
    if (code < 0)
        return code;
    return n_one == n_other && memcmp(one, other, n_one) == 0;
}

static void put_text(struct differences *differences, const char *name, const char *change)
{
    differences->n++;
    if (differences->json == NULL) {
        printf("%s %s: ", differences->kind, change);
        print_escaped(stdout, name);
        putchar('\n');
        return;
    }
    json_out_open_object(differences->json, NULL);
    json_out_text(differences->json, "kind", differences->kind);
    json_out_text(differences->json, "name", name);
    json_out_text(differences->json, "change", change);
    json_out_close(differences->json);
}

static int walk_texts(const struct texts *a, const struct texts *b, struct differences *differences)
{
    for (size_t i = 0, j = 0; i < a->n_texts || j < b->n_texts;) {
        const int order = i == a->n_texts   ? 1
                          : j == b->n_texts ? -1
                                            : strcmp(a->texts[i].name, b->texts[j].name);
        if (order == 0) {
            const int code = is_equal(a, &a->texts[i], b, &b->texts[j]);
            if (code < 0)
                return code;
            if (code == 0)
                put_text(differences, a->texts[i].name, "changed");
        } else {
            put_text(differences, order < 0 ? a->texts[i].name : b->texts[j].name,
                     order < 0 ? "only in A" : "only in B");
        }
        i += order <= 0;
        j += order >= 0;
    }
    return 0;
}

static int compare_texts(const struct wfs_catalog *a, const struct wfs_catalog *b, bool is_meta,
                         struct differences *differences)
{
    struct texts one = {0}, other = {0};
    int code = collect_texts(a, is_meta, &one);
    if (code == 0)
        code = collect_texts(b, is_meta, &other);
    if (code == 0)
        code = walk_texts(&one, &other, differences);
    free(one.texts);
    free(other.texts);
    return code;
}

/*
 * Prints the differences: as lines if json is NULL, otherwise as a member "texts" of the open
 * object. *ret_n counts them. -ENOMEM.
 */
static int diff_texts_print(const struct wfs_catalog *a, const struct wfs_catalog *b,
                            struct json_out *json, uint64_t *ret_n)
{
    struct differences differences = {.json = json, .kind = "metadata"};
    if (json != NULL)
        json_out_open_array(json, "texts");
    int code = compare_texts(a, b, true, &differences);
    differences.kind = "value";
    if (code == 0)
        code = compare_texts(a, b, false, &differences);
    if (json != NULL)
        json_out_close(json);
    *ret_n = differences.n;
    return code;
}

/* ---- bytes that no tensor shows ---- */

struct part {
    const struct wfs_hidden *hidden;
    uint64_t digest;
};

struct parts {
    struct part *parts;
    size_t n_parts;
};

/* Storages without a tensor precede all others. */
static int compare_hidden_keys(const struct part *x, const struct part *y)
{
    const char *one = x->hidden->key, *other = y->hidden->key;
    if (one == NULL || other == NULL)
        return (one != NULL) - (other != NULL);
    return strcmp(one, other);
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    const int order = compare_hidden_keys(x, y);
    return order != 0 ? order : x->digest < y->digest ? -1 : x->digest > y->digest;
}

static int collect_hidden(const struct wfs_catalog *catalog, struct parts *ret)
{
    const size_t n = wfs_catalog_n_hidden(catalog);
    int code = 0;
    *ret = (struct parts){calloc(n + 1, sizeof(*ret->parts)), n};
    if (ret->parts == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n && code == 0; i++) {
        ret->parts[i].hidden = wfs_catalog_hidden(catalog, i);
        code = wfs_catalog_hidden_digest(catalog, i, &ret->parts[i].digest);
    }
    if (code == 0)
        qsort(ret->parts, n, sizeof(*ret->parts), compare_parts);
    return code;
}

static void put_hidden(struct json_out *json, const struct wfs_hidden *hidden, const char *change)
{
    if (json == NULL) {
        printf("storage %s: '%s', %s that no tensor shows", change, wfs_quote(hidden->storage).text,
               wfs_count(hidden->n_bytes, "byte").text);
        if (hidden->key != NULL) {
            printf(", beside ");
            print_escaped(stdout, hidden->key);
        }
        putchar('\n');
        return;
    }
    json_out_open_object(json, NULL);
    json_out_text(json, "storage", hidden->storage);
    json_out_text(json, "key", hidden->key);
    json_out_u64(json, "bytes", hidden->n_bytes);
    json_out_text(json, "change", change);
    json_out_close(json);
}

/* Both are sorted. Parts with one key and two hashes have changed. */
static uint64_t walk_hidden(const struct parts *a, const struct parts *b, struct json_out *json)
{
    uint64_t n = 0;
    for (size_t i = 0, j = 0; i < a->n_parts || j < b->n_parts;) {
        const struct part *x = &a->parts[i], *y = &b->parts[j];
        const int order = i == a->n_parts ? 1 : j == b->n_parts ? -1 : compare_parts(x, y);
        const bool has_changed = order != 0 && i < a->n_parts && j < b->n_parts &&
                                 x->hidden->key != NULL && compare_hidden_keys(x, y) == 0;
        if (has_changed)
            put_hidden(json, x->hidden, "changed");
        else if (order != 0)
            put_hidden(json, order < 0 ? x->hidden : y->hidden,
                       order < 0 ? "only in A" : "only in B");
        n += order != 0;
        i += order <= 0 || has_changed;
        j += order >= 0 || has_changed;
    }
    return n;
}

/* Prints a line for each storage with different hidden bytes, or an array in json unless that is
 * NULL; *ret_n counts them. *ret_failed is the catalog whose bytes cannot be read. -EIO, -ENOMEM.
 */
static int diff_hidden_print(const struct wfs_catalog *a, const struct wfs_catalog *b,
                             struct json_out *json, uint64_t *ret_n,
                             const struct wfs_catalog **ret_failed)
{
    struct parts one = {0}, other = {0};
    if (json != NULL)
        json_out_open_array(json, "hidden");
    *ret_failed = a;
    int code = collect_hidden(a, &one);
    if (code == 0) {
        *ret_failed = b;
        code = collect_hidden(b, &other);
    }
    if (code == 0)
        *ret_n = walk_hidden(&one, &other, json);
    if (json != NULL)
        json_out_close(json);
    free(one.parts);
    free(other.parts);
    return code;
}

/* ---- tensors ---- */

/* One of the two checkpoints, with its tensors sorted by key. */
struct side {
    const char *path;
    struct wfs_catalog *catalog;
    const struct wfs_tensor **by_key;
};

/* What was found in a pair of tensors, kept for pairs that show the same. */
struct known {
    bool is_set;
    struct comparison comparison;
};

struct diff {
    struct side sides[2];
    char *made[2];                 /* paths of the sides in a mount, malloc'ed */
    struct wfs_workload *workload; /* of the pairs of each tensor of A */
    struct known *known;           /* of each group of it */
    struct json_out *json;         /* NULL: lines of text */
    bool has_failed;               /* a row was lost: out of memory */
    bool has_table;                /* rows are kept for it, and no lines are printed */
    struct diff_rows rows;
    struct comparison_options options;
    struct progress progress;
    uint64_t n_only[2], n_changed, n_equal, n_texts, n_hidden;
};

static int compare_keys(const void *a, const void *b)
{
    const struct wfs_tensor *const *one = a, *const *other = b;
    return strcmp((*one)->key, (*other)->key);
}

static enum exit_code open_side(struct side *side, const struct args *args, const char *path)
{
    side->path = path;
    const enum exit_code exit_code = input_load(args, path, &side->catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const size_t n = wfs_catalog_n_tensors(side->catalog);
    side->by_key = calloc(n + 1, sizeof(*side->by_key));
    if (side->by_key == NULL)
        return print_memory(path);
    for (size_t i = 0; i < n; i++)
        side->by_key[i] = wfs_catalog_tensor(side->catalog, i);
    qsort(side->by_key, n, sizeof(*side->by_key), compare_keys);
    return EXIT_DONE;
}

static void close_side(struct side *side)
{
    free(side->by_key);
    wfs_catalog_free(side->catalog);
}

static const struct wfs_tensor *find_twin(const struct side *side, const struct wfs_tensor *tensor)
{
    const struct wfs_tensor **found =
        bsearch(&tensor, side->by_key, wfs_catalog_n_tensors(side->catalog), sizeof(*side->by_key),
                compare_keys);
    return found == NULL ? NULL : *found;
}

/* Keeps a row for a table. */
static void keep_row(struct diff *diff, const struct wfs_tensor *a, const struct wfs_tensor *b,
                     const struct comparison *comparison, bool is_equal)
{
    struct diff_row row = {.a = a, .b = b, .is_equal = is_equal};
    if (comparison != NULL)
        row.comparison = *comparison;
    diff->has_failed = diff->has_failed || diff_rows_add(&diff->rows, &row) < 0;
}

/* ---- what is only in one ---- */

static void put_tensor(struct json_out *json, const char *name, const struct wfs_tensor *tensor)
{
    const char *quantization = wfs_tensor_attr(tensor, "quantization");
    json_out_open_object(json, name);
    if (name == NULL)
        json_out_text(json, "key", tensor->key);
    json_out_text(json, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    json_out_u64s(json, "shape", tensor->shape.dims, tensor->shape.rank);
    if (quantization != NULL)
        json_out_text(json, "quantization", quantization);
    json_out_close(json);
}

static void print_kind(const struct wfs_tensor *tensor)
{
    screen_paint(stdout, COLOUR_DTYPE, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    putchar(' ');
    print_shape(stdout, &tensor->shape);
}

static void print_only(size_t which, const struct wfs_tensor *tensor)
{
    screen_paint(stdout, which == 0 ? COLOUR_REMOVED : COLOUR_ADDED,
                 which == 0 ? "only in A:" : "only in B:");
    putchar(' ');
    print_escaped(stdout, tensor->key);
    putchar(' ');
    print_kind(tensor);
    putchar('\n');
}

static void report_only(struct diff *diff, size_t which, const struct wfs_tensor *tensor)
{
    diff->n_only[which]++;
    if (diff->has_table)
        keep_row(diff, which == 0 ? tensor : NULL, which == 0 ? NULL : tensor, NULL, false);
    else if (diff->json != NULL)
        put_tensor(diff->json, NULL, tensor);
    else
        print_only(which, tensor);
}

static void print_only_in(struct diff *diff, size_t which)
{
    const struct side *side = &diff->sides[which];
    if (diff->json != NULL)
        json_out_open_array(diff->json, which == 0 ? "only_a" : "only_b");
    for (size_t i = 0; i < wfs_catalog_n_tensors(side->catalog) && !ferror(stdout); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(side->catalog, i);
        if (find_twin(&diff->sides[1 - which], tensor) == NULL)
            report_only(diff, which, tensor);
    }
    if (diff->json != NULL)
        json_out_close(diff->json);
}

/* ---- what is in both ---- */

/* JSON has no infinities. */
static void put_number(struct json_out *json, const char *name, double number)
{
    if (isinf(number))
        json_out_text(json, name, "Infinity");
    else
        json_out_double(json, name, number);
}

static void put_measures(struct json_out *json, const struct comparison *comparison)
{
    const bool has_measures = comparison->has_content && comparison->has_numbers;
    put_number(json, "l2", has_measures ? measures_l2(&comparison->measures) : NAN);
    put_number(json, "relative", has_measures ? measures_relative(&comparison->measures) : NAN);
    put_number(json, "cosine", has_measures ? measures_cosine(&comparison->measures) : NAN);
}

static void put_change(const struct diff *diff, const struct wfs_tensor *a,
                       const struct wfs_tensor *b, const struct comparison *comparison)
{
    struct json_out *json = diff->json;
    const bool has_max = comparison->has_numbers && comparison->n_changed > comparison->n_nan;
    json_out_open_object(json, NULL);
    json_out_text(json, "key", a->key);
    put_tensor(json, "a", a);
    put_tensor(json, "b", b);
    if (comparison->has_content) {
        json_out_text(json, "unit", comparison->has_numbers ? "elements" : "bytes");
        json_out_u64(json, "compared", comparison->n_elems);
        json_out_u64(json, "changed", comparison->n_changed);
    }
    if (comparison->has_content && comparison->has_numbers)
        json_out_u64(json, "nan_in_one", comparison->n_nan);
    put_number(json, "max_abs", has_max ? comparison->max_abs : NAN);
    put_number(json, "max_rel", has_max ? comparison->max_rel : NAN);
    if (diff->options.has_measures)
        put_measures(json, comparison);
    json_out_close(json);
}

static void print_change(const struct wfs_tensor *a, const struct wfs_tensor *b,
                         const struct comparison *comparison)
{
    fputs(screen_on(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    print_escaped(stdout, a->key);
    fputs(screen_off(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    printf(": ");
    print_kind(a);
    if (!comparison_is_alike(a, b)) {
        printf(" -> ");
        print_kind(b);
    }
    if (!comparison_is_one_quantization(a, b))
        printf(", quantized differently");
    if (a->n_bytes != b->n_bytes && a->dtype == b->dtype)
        printf(", %" PRIu64 " -> %s", a->n_bytes, wfs_count(b->n_bytes, "byte").text);
    if (!comparison->has_content || comparison->n_changed == 0) {
        putchar('\n');
        return;
    }
    printf(", %" PRIu64 " of %s %s", comparison->n_changed,
           wfs_count(comparison->n_elems, comparison->has_numbers ? "element" : "byte").text,
           comparison->n_changed == 1 ? "differs" : "differ");
    if (comparison->n_nan > 0)
        printf(", %s NaN in only one", wfs_count_as(comparison->n_nan, "is", "are").text);
    if (comparison->has_numbers && comparison->n_changed > comparison->n_nan)
        printf(", by at most %.6g, relative %.6g", comparison->max_abs, comparison->max_rel);
    putchar('\n');
}

static void report_pair(struct diff *diff, const struct wfs_tensor *a, const struct wfs_tensor *b,
                        const struct comparison *comparison)
{
    const bool is_equal =
        comparison_is_alike(a, b) && comparison->has_content && comparison->n_changed == 0;
    diff->n_equal += is_equal;
    diff->n_changed += !is_equal;
    if (diff->has_table)
        keep_row(diff, a, b, comparison, is_equal);
    else if (is_equal)
        return;
    else if (diff->json != NULL)
        put_change(diff, a, b, comparison);
    else
        print_change(a, b, comparison);
}

/* known: what is known of pairs that show the same. */
static enum exit_code compare_pair(struct diff *diff, const struct wfs_tensor *a,
                                   const struct wfs_tensor *b, struct known *known)
{
    const struct wfs_tensor *failed;
    int code = 0;
    if (!known->is_set)
        code = comparison_make(a, b, diff->options, &known->comparison, &failed);
    if (code < 0 && failed == NULL)
        return print_memory(diff->sides[0].path);
    if (code < 0)
        return input_read_error(diff->sides[failed == b].path, failed, code);
    known->is_set = true;
    report_pair(diff, a, b, &known->comparison);
    return EXIT_DONE;
}

/* Returns how many bytes a comparison of what is in both reads. */
static uint64_t count_bytes(const struct diff *diff)
{
    const struct wfs_catalog *catalog = diff->sides[0].catalog;
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *a = wfs_catalog_tensor(catalog, i);
        const struct wfs_tensor *b = find_twin(&diff->sides[1], a);
        if (b != NULL)
            n_bytes = input_add(n_bytes, input_add(a->n_bytes, b->n_bytes));
    }
    return n_bytes;
}

/* Finds out what there is to read, before anything is printed. */
static enum exit_code prepare(struct diff *diff, bool allows_large)
{
    const struct wfs_catalog *catalog = diff->sides[0].catalog;
    const size_t n = wfs_catalog_n_tensors(catalog);
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; i < n && works != NULL; i++) {
        const struct wfs_tensor *a = wfs_catalog_tensor(catalog, i);
        const struct wfs_tensor *b = find_twin(&diff->sides[1], a);
        if (b != NULL && comparison_has_content(a, b))
            works[i] = (struct wfs_work){a, b};
    }
    const char *path = diff->sides[0].path;
    const enum exit_code exit_code =
        input_workload(path, works, n, allows_large, INPUT_CHOOSE_FEWER, &diff->workload);
    if (exit_code != EXIT_DONE)
        return exit_code;
    diff->known = calloc(wfs_workload_n_groups(diff->workload) + 1, sizeof(*diff->known));
    return diff->known != NULL ? EXIT_DONE : print_memory(path);
}

static enum exit_code print_changed(struct diff *diff)
{
    enum exit_code exit_code = EXIT_DONE;
    const struct wfs_catalog *catalog = diff->sides[0].catalog;
    progress_start(&diff->progress, "comparing", count_bytes(diff));
    if (diff->json != NULL)
        json_out_open_array(diff->json, "changed");
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog) && exit_code == EXIT_DONE; i++) {
        const struct wfs_tensor *a = wfs_catalog_tensor(catalog, i);
        const struct wfs_tensor *b = find_twin(&diff->sides[1], a);
        if (ferror(stdout))
            break;
        diff->known[0].is_set = false; /* of those that are alone */
        if (b == NULL)
            continue;
        exit_code = compare_pair(diff, a, b, &diff->known[wfs_workload_group(diff->workload, i)]);
        progress_add(&diff->progress, input_add(a->n_bytes, b->n_bytes));
    }
    progress_end(&diff->progress);
    if (diff->json != NULL)
        json_out_close(diff->json);
    return exit_code;
}

/* ---- both ---- */

static bool is_different(const struct diff *diff)
{
    return diff->n_only[0] + diff->n_only[1] + diff->n_changed + diff->n_texts + diff->n_hidden > 0;
}

static void print_counts(const struct diff *diff)
{
    if (diff->json != NULL) {
        json_out_u64(diff->json, "n_equal", diff->n_equal);
        json_out_bool(diff->json, "is_equal", !is_different(diff));
    } else if (is_different(diff)) {
        printf("%" PRIu64 " only in A, %" PRIu64 " only in B, %" PRIu64 " changed, %" PRIu64
               " equal\n",
               diff->n_only[0], diff->n_only[1], diff->n_changed, diff->n_equal);
    }
}

/* Compares what tensors do not show. */
static enum exit_code print_rest(struct diff *diff)
{
    const struct wfs_catalog *a = diff->sides[0].catalog, *b = diff->sides[1].catalog, *failed;
    if (diff_texts_print(a, b, diff->json, &diff->n_texts) < 0)
        return print_memory(diff->sides[0].path);
    const int code = diff_hidden_print(a, b, diff->json, &diff->n_hidden, &failed);
    const char *path = diff->sides[code < 0 && failed == b].path;
    if (code == -ENOMEM)
        return print_memory(path);
    return code == 0 ? EXIT_DONE
                     : print_error(EXIT_DAMAGED, path,
                                   "cannot read bytes of a storage that no tensor shows: %s",
                                   strerror(-code));
}

/* ---- a mount ---- */

/* A tree that cannot be committed makes no file; the trial of a commit prints why. */
static bool can_make(const struct mounted *mounted, const char *path)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 || !mounted->is_writable;
}

/* Finds the two files that a mount makes of itself: its source, and what was edited of that. */
static enum exit_code find_made(const char *mountpoint, char *paths[2])
{
    static const char *const endings[] = {"safetensors", "pth", "bpk", "mpk"};
    static const char *const names[] = {"source", "model"};
    auto_mounted struct mounted mounted = {.fd = -1};
    struct stat st;
    if (stat(mountpoint, &st) == 0 && !S_ISDIR(st.st_mode))
        return print_error(EXIT_USAGE, NULL, "missing B; usage: weightfs diff A B");
    const enum exit_code exit_code = mounted_open(&mounted, mountpoint);
    size_t i = 0;
    if (exit_code != EXIT_DONE)
        return exit_code;
    for (; i < sizeof(endings) / sizeof(*endings); i++) {
        for (size_t j = 0; j < 2; j++) {
            free(paths[j]);
            if (asprintf(&paths[j], "%s/" WFS_CONTROL_NAME "/" WFS_OUT_NAME "/%s.%s", mountpoint,
                         names[j], endings[i]) < 0) {
                paths[j] = NULL;
                return print_memory(mountpoint);
            }
        }
        if (access(paths[0], F_OK) == 0)
            return can_make(&mounted, paths[1]) ? EXIT_DONE : mounted_try(&mounted, false);
    }
    return print_error(EXIT_MOUNT, mountpoint, "cannot read the source of the mount: %s",
                       strerror(errno));
}

static enum exit_code open_sides(struct diff *diff, const struct args *args)
{
    const bool is_mount = args->n_operands == 1;
    enum exit_code exit_code = is_mount ? find_made(args->operands[0], diff->made) : EXIT_DONE;
    for (size_t i = 0; i < 2 && exit_code == EXIT_DONE; i++)
        exit_code = open_side(&diff->sides[i], args, is_mount ? diff->made[i] : args->operands[i]);
    return exit_code;
}

static enum exit_code print_table(struct diff *diff, const struct args *args)
{
    if (!diff->has_failed &&
        (args_has(args, "stat") ? diff_tables_stat : diff_tables_long)(&diff->rows, args) == 0)
        return EXIT_DONE;
    return print_memory(diff->sides[0].path);
}

static enum exit_code check_options(const struct args *args)
{
    const bool has_long = args_has(args, "long"), has_stat = args_has(args, "stat");
    if (has_stat && (has_long || args_has(args, "json")))
        return print_error(EXIT_USAGE, NULL, "--stat cannot be combined with --long or --json");
    if (args_has(args, "sort") && (args_has(args, "json") || (!has_long && !has_stat)))
        return print_error(EXIT_USAGE, NULL, "--sort needs the table of --long or --stat");
    return diff_tables_check(args);
}

static enum exit_code run(struct diff *diff, const struct args *args)
{
    enum exit_code exit_code = open_sides(diff, args);
    if (exit_code == EXIT_DONE)
        exit_code = prepare(diff, args_has(args, "large"));
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (diff->json != NULL)
        json_out_open_object(diff->json, NULL);
    print_only_in(diff, 0);
    print_only_in(diff, 1);
    exit_code = print_changed(diff);
    if (exit_code == EXIT_DONE && diff->has_table)
        exit_code = print_table(diff, args);
    if (exit_code == EXIT_DONE && args_has(args, "all"))
        exit_code = print_rest(diff);
    print_counts(diff);
    if (diff->json != NULL)
        json_out_close(diff->json);
    return exit_code != EXIT_DONE ? exit_code : is_different(diff) ? EXIT_FOUND : EXIT_DONE;
}

static enum exit_code run_diff(const struct args *args)
{
    enum exit_code exit_code = check_options(args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct json_out json = {.file = stdout, .spelling = JSON_ASCII};
    const bool is_json = args_has(args, "json");
    const bool has_measures = args_has(args, "long") || args_has(args, "stat");
    struct diff diff = {.json = is_json ? &json : NULL,
                        .has_table = has_measures && !is_json,
                        .options = {args_has(args, "exact"), has_measures}};
    exit_code = run(&diff, args);
    diff_rows_done(&diff.rows);
    wfs_workload_free(diff.workload);
    free(diff.known);
    close_side(&diff.sides[0]);
    close_side(&diff.sides[1]);
    free(diff.made[0]);
    free(diff.made[1]);
    return exit_code;
}

static const struct args_option diff_options[] = {
    {"all", NULL, "also metadata, values and bytes no tensor shows"},
    {"exact", NULL, "compare tensors of the same dtype bit for bit"},
    {"json", NULL, "print one JSON object"},
    {"large", NULL, INPUT_LARGE_HELP},
    {"long", NULL, "-l: a table with L2, cosine, most changed first"},
    {"sort", "ORDER", "of --long and --stat: change or key"},
    {"stat", NULL, "a line with a bar for each module that differs"},
    {NULL, NULL, NULL},
};

const struct verb verb_diff = {
    .name = "diff",
    .operands = "A|MOUNTPOINT [B]",
    .text = "Compare two checkpoints tensor by tensor. Reports tensors that only one of them\n"
            "has, and tensors that differ in dtype, shape or content, with the largest\n"
            "absolute and relative difference. The exit code is 1 if there are differences.\n"
            "With --long and --stat, 'relative' is the L2 norm of the difference divided by\n"
            "that of A, 'cosine' the angle between A and B; elements that are not finite in\n"
            "both are left out.\n"
            "View options apply to both A and B. For a mount, A is its source as it is shown,\n"
            "and B what a commit would write.",
    .n_min = 1,
    .n_max = 2,
    .has_source = true,
    .options = diff_options,
    .run = run_diff,
};
