/* SPDX-License-Identifier: MIT */
/*
 * src/format/pytorch: what a catalog of a PyTorch file has besides bytes: texts of composites,
 * ties, values, modules; and that a file with any byte changed or cut off is read or rejected.
 */
#include "check.h"

#include <errno.h>
#include <stdlib.h>

#include <weightfs/value.h>

#include "format/registry.h"

static struct wfs_catalog *load(const char *name)
{
    struct wfs_catalog *catalog = NULL;
    struct wfs_error err = {0};
    char path[256];
    snprintf(path, sizeof(path), "tests/data/reject/pytorch/%s", name);
    check_int(wfs_load(path, NULL, &catalog, &err), 0);
    return catalog;
}

static void check_attr(const struct wfs_catalog *catalog, const char *key, const char *name,
                       const char *want)
{
    const struct wfs_tensor *tensor = wfs_catalog_find(catalog, key);
    if (check(tensor != NULL))
        check_str(wfs_tensor_attr(tensor, name), want);
}

static void quantized_tensors_keep_their_scales(void)
{
    struct wfs_catalog *catalog = load("good/quantized.pth");
    check_attr(catalog, "q", "quantization",
               "{\"scheme\": \"per_tensor_affine\", \"scale\": 0.5, \"zero_point\": 3}");
    check_attr(catalog, "c", "quantization",
               "{\"scheme\": \"per_channel_affine\", \"axis\": 1, \"scales\": \"scales\", "
               "\"zero_points\": \"zero_points\"}");
    check_uint(wfs_catalog_find(catalog, "q")->dtype, WFS_I8);
    wfs_catalog_free(catalog);
}

static void parts_of_sparse_tensors_know_the_whole(void)
{
    struct wfs_catalog *catalog = load("good/sparse.pth");
    check_uint(wfs_catalog_n_tensors(catalog), 2);
    check_attr(catalog, "s.indices", "sparse",
               "{\"layout\": \"sparse_coo\", \"shape\": [5, 6], \"is_coalesced\": true}");
    check_attr(catalog, "s.values", "sparse",
               "{\"layout\": \"sparse_coo\", \"shape\": [5, 6], \"is_coalesced\": true}");
    wfs_catalog_free(catalog);
}

static bool is_same_place(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return a->stored.source == b->stored.source && a->stored.offset == b->stored.offset &&
           a->stored.dtype == b->stored.dtype && a->shape.rank == b->shape.rank &&
           memcmp(a->shape.dims, b->shape.dims, a->shape.rank * sizeof(uint64_t)) == 0;
}

static void ties_are_the_same_place(void)
{
    struct wfs_catalog *catalog = load("good/tied.pth");
    check(is_same_place(wfs_catalog_find(catalog, "a"), wfs_catalog_find(catalog, "b")));
    check(!is_same_place(wfs_catalog_find(catalog, "a"), wfs_catalog_find(catalog, "c")));
    check(wfs_tensor_is_plain(wfs_catalog_find(catalog, "c")));
    check_uint(wfs_catalog_n_values(catalog), 1);
    check_str(wfs_catalog_value_name(catalog, 0), "epoch");
    char *text = NULL;
    size_t n;
    check_int(wfs_catalog_value_text(catalog, 0, &text, &n), 0);
    check_str(text, "3\n");
    free(text);
    wfs_catalog_free(catalog);
}

static void modules_are_listed_with_what_their_state_dict_leaves_out(void)
{
    struct wfs_catalog *catalog = load("good/module.pth");
    check_uint(wfs_catalog_n_tensors(catalog), 4);
    check_str(wfs_catalog_tensor(catalog, 0)->key, "w");
    check(wfs_tensor_attr(wfs_catalog_tensor(catalog, 0), "role") == NULL);
    check_str(wfs_catalog_tensor(catalog, 1)->key, "kept");
    check_str(wfs_catalog_tensor(catalog, 2)->key, "dropped");
    check_str(wfs_tensor_attr(wfs_catalog_tensor(catalog, 2), "role"), "non-persistent buffer");
    check_str(wfs_catalog_tensor(catalog, 3)->key, "anchors");
    check_str(wfs_tensor_attr(wfs_catalog_tensor(catalog, 3), "role"), "attribute");
    check_uint(wfs_catalog_n_values(catalog), 1);
    check_str(wfs_catalog_value_name(catalog, 0), "__dict__");
    char *text = NULL;
    size_t n;
    struct wfs_error err = {0};
    check_int(wfs_catalog_config(catalog, "__dict__", &text, &n, &err), 0);
    check(text != NULL && strstr(text, "\"w\": {\"$tensor\": \"w\"}") != NULL);
    check(text != NULL && strstr(text, "\"width\": 4") != NULL);
    free(text);
    wfs_catalog_free(catalog);
}

static void shared_containers_are_listed_each_time(void)
{
    struct wfs_catalog *catalog = load("good/shared-module.pth");
    check_uint(wfs_catalog_n_tensors(catalog), 2);
    check_str(wfs_catalog_tensor(catalog, 0)->key, "model.w");
    check_str(wfs_catalog_tensor(catalog, 1)->key, "ema.w");
    const struct catalog_place *places = catalog->values.places;
    check_uint(places[wfs_catalog_tensor(catalog, 0)->place].id,
               places[wfs_catalog_tensor(catalog, 1)->place].id);
    wfs_catalog_free(catalog);
}

static uint8_t *read_file(const char *name, size_t *ret_n)
{
    char path[256];
    snprintf(path, sizeof(path), "tests/data/reject/pytorch/%s", name);
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(1 << 16);
    *ret_n = file == NULL ? 0 : fread(bytes, 1, 1 << 16, file);
    if (file != NULL)
        fclose(file);
    check(*ret_n > 0);
    return bytes;
}

/* Loads a copy of just this size, and reads all tensors. Returns 0, or what load returned. */
static int load_bytes(const uint8_t *bytes, size_t n_bytes)
{
    struct load_context context = {0};
    struct wfs_catalog *catalog;
    struct source *source;
    struct wfs_error err = {0};
    char buf[64];
    uint8_t *copy = malloc(n_bytes + 1);
    memcpy(copy, bytes, n_bytes);
    limits_init(&context.limits);
    int code = source_new_memory("x.pth", copy, n_bytes, &source);
    if (code == 0)
        code = load_source(source, &context, &catalog, &err);
    for (size_t i = 0; code == 0 && i < wfs_catalog_n_tensors(catalog); i++)
        (void)!wfs_tensor_read(wfs_catalog_tensor(catalog, i), 0, buf, sizeof(buf));
    if (code == 0)
        wfs_catalog_free(catalog);
    else
        check(err.text[0] != '\0');
    free(copy);
    return code;
}

static void damage(const char *name)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    size_t n;
    uint8_t *bytes = read_file(name, &n);
    check_int(load_bytes(bytes, n), 0);
    for (size_t i = 0; i < n; i++) {
        load_bytes(bytes, i);
        for (size_t k = 0; k < sizeof(masks); k++) {
            bytes[i] ^= masks[k];
            load_bytes(bytes, n);
            bytes[i] ^= masks[k];
        }
    }
    free(bytes);
}

static void damaged_zips_are_read_or_refused(void)
{
    damage("zip/50-zip64.pth");
    damage("zip/deflated.pth");
}

static void damaged_streams_are_read_or_refused(void)
{
    damage("legacy/good.pth");
    damage("legacy/62-tensor-beyond-view.pth");
}

static void damaged_archives_are_read_or_refused(void)
{
    damage("tar/good.pth");
}

static void damaged_pickles_are_read_or_refused(void)
{
    damage("pickle/42-numpy-length.pkl");
    damage("pickle/40-stream-cut.pkl");
}

static const uint8_t *readable;
static long n_reads_left;
static int read_code;

/* One read fails, the others do not. */
static int read_or_fail(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    (void)source;
    if (n_reads_left-- == 0)
        return read_code;
    memcpy(buf, readable + offset, n_bytes);
    return 0;
}

/* Returns what loading gives when the i-th read fails; 1 when there are not so many. */
static int load_with_failing_read(const char *name, size_t n, long i, struct wfs_error *err)
{
    static const struct source_kind kind = {.read = read_or_fail};
    struct wfs_catalog *catalog;
    struct load_context context = {0};
    struct source *source;
    limits_init(&context.limits);
    check_int(catalog_new(&catalog), 0);
    check_int(source_new(&kind, name, NULL, n, &source), 0);
    check_int(catalog_adopt_source(catalog, source), 0);
    n_reads_left = i;
    const int code = format_pytorch.functions->load(source, &context, catalog, err);
    wfs_catalog_free(catalog);
    return n_reads_left >= 0 ? 1 : code;
}

static void check_failing_reads(const char *name)
{
    static const int codes[] = {-EIO, -ENOMEM, -ESTALE};
    size_t n;
    uint8_t *bytes = read_file(name, &n);
    readable = bytes;
    for (size_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++) {
        read_code = codes[k];
        for (long i = 0;; i++) {
            struct wfs_error err = {0};
            const int code = load_with_failing_read(name, n, i, &err);
            if (code == 1)
                break;
            if (!check_int(code, read_code))
                printf("# %s, read %ld: %s\n", name, i, err.text);
        }
    }
    free(bytes);
}

static void reads_that_fail_are_not_called_malformed(void)
{
    static const char *const names[] = {
        "zip/50-zip64.pth", "zip/deflated.pth",   "good/program.pt2",
        "legacy/good.pth",  "tar/good.pth",       "tar/views.pth",
        "good/dates.pkl",   "good/quantized.pth", "zip/56-version-0.pth",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_failing_reads(names[i]);
}

static void dates_keep_their_unit(void)
{
    struct wfs_catalog *catalog = load("good/dates.pkl");
    check_attr(catalog, "d", "numpy", "<M8[1000001D]");
    wfs_catalog_free(catalog);
}

int main(void)
{
    check_run(reads_that_fail_are_not_called_malformed);
    check_run(dates_keep_their_unit);
    check_run(quantized_tensors_keep_their_scales);
    check_run(parts_of_sparse_tensors_know_the_whole);
    check_run(ties_are_the_same_place);
    check_run(modules_are_listed_with_what_their_state_dict_leaves_out);
    check_run(shared_containers_are_listed_each_time);
    check_run(damaged_zips_are_read_or_refused);
    check_run(damaged_streams_are_read_or_refused);
    check_run(damaged_archives_are_read_or_refused);
    check_run(damaged_pickles_are_read_or_refused);
    return check_done();
}
