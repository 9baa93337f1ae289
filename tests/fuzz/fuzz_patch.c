/* SPDX-License-Identifier: MIT */
/*
 * The list of edits of a patch: what is read can be shown, written and read again as the same, and
 * applied; whatever fits, the result has the bytes that dtype and shape say, under keys of its own.
 */
#include "view.h"

#include <weightfs/patch.h>
#include <weightfs/value.h>

#include "base/text_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct wfs_catalog *make_file(const char *list, size_t n_list)
{
    static const struct {
        const char *name;
        enum wfs_dtype dtype;
        uint64_t dims[1];
    } contents[] = {{"w", WFS_F32, {4}}, {"u", WFS_U8, {2}}, {"v.json", WFS_U8, {7}}};
    struct wfs_catalog *file;
    struct source *source;
    demand(catalog_new(&file) == 0 &&
           source_new_memory("p", "{\"a\":1}12345678901234567", 24, &source) == 0 &&
           catalog_adopt_source(file, source) == 0);
    for (size_t i = 0; i < sizeof(contents) / sizeof(*contents); i++) {
        struct wfs_tensor *tensor = catalog_add(file);
        demand(tensor != NULL);
        tensor->key = contents[i].name;
        tensor->dtype = tensor->stored.dtype = (uint8_t)contents[i].dtype;
        tensor->shape = (struct wfs_shape){1, contents[i].dims};
        tensor->stored.source = source;
        demand(wfs_shape_bytes(&tensor->shape, contents[i].dtype, &tensor->n_bytes) == 0);
    }
    demand(catalog_add_meta_bytes(file, "weightfs.patch", list, n_list) == 0);
    return file;
}

static int count_line(void *ctx, const char *line)
{
    demand(strchr(line, '\n') == NULL);
    ++*(uint64_t *)ctx;
    return 0;
}

static void look_at_keys(const struct wfs_catalog *catalog)
{
    struct text_index keys = {0};
    uint32_t number;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        demand(text_index_add(&keys, key, strlen(key), &number) == 0 && number == i);
    }
    text_index_done(&keys);
}

static void refuse(void *ctx, const char *line)
{
    demand(strchr(line, '\n') == NULL);
    ++*(uint64_t *)ctx;
}

static void apply(const struct wfs_patch *patch)
{
    struct wfs_catalog *catalog = fuzz_catalog(), *out;
    uint64_t n_told = 0, n_refused = 0;
    struct wfs_error err = {0};
    const struct wfs_patch_options options = {true, refuse, &n_told};
    demand(catalog_add_meta(catalog, "c", "d") == 0);
    if (wfs_patch_apply(patch, catalog, &options, &n_refused, &out, &err) == 0) {
        bool has_opaque = false;
        for (size_t i = 0; i < wfs_catalog_n_tensors(out); i++)
            has_opaque |= wfs_catalog_tensor(out, i)->dtype == WFS_OPAQUE;
        if (!has_opaque)
            fuzz_look(out);
        look_at_keys(out);
        wfs_catalog_free(out);
    }
    demand(n_told == n_refused && n_refused <= wfs_patch_n_edits(patch));
    wfs_catalog_free(catalog);
}

/* What is written can be read, and gives the same list again. */
static void write_and_read(const struct wfs_patch *patch, bool has_digests)
{
    struct wfs_catalog *file, *second;
    struct wfs_patch *again;
    struct wfs_error err = {0};
    demand(wfs_patch_file(patch, has_digests, &file, &err) == 0);
    demand(wfs_patch_parse(file, &again, &err) == 0);
    demand(wfs_patch_n_edits(again) == wfs_patch_n_edits(patch));
    demand(wfs_patch_file(again, has_digests, &second, &err) == 0);
    const struct wfs_text *a = wfs_catalog_meta(file), *b = wfs_catalog_meta(second);
    demand(a->n_bytes == b->n_bytes && memcmp(a->value, b->value, a->n_bytes) == 0);
    wfs_patch_free(again);
    wfs_catalog_free(second);
    wfs_catalog_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct wfs_catalog *file = make_file((const char *)data, n_bytes);
    struct wfs_patch *patch;
    struct wfs_error err = {0};
    const int code = wfs_patch_parse(file, &patch, &err);
    demand(code == 0 || err.code == -code);
    if (code == 0) {
        uint64_t n = 0;
        demand(wfs_patch_each(patch, count_line, &n) == 0 && n == wfs_patch_n_edits(patch));
        write_and_read(patch, true);
        write_and_read(patch, false);
        apply(patch);
        wfs_patch_free(patch);
    }
    wfs_catalog_free(file);
    return 0;
}
