/* SPDX-License-Identifier: MIT */
/*
 * Shared by the targets of views: a small catalog with content, to apply one to. Whatever the rules
 * were, what is shown afterwards has the bytes that dtype and shape say, and can be read.
 */
#ifndef WFS_FUZZ_VIEW_H
#define WFS_FUZZ_VIEW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weightfs/format.h>
#include <weightfs/view.h>

#include "base/source.h"
#include "catalog/catalog.h"

static inline void demand(bool is_so)
{
    if (!is_so)
        abort();
}

static const struct {
    const char *key;
    enum wfs_dtype dtype;
    uint32_t rank;
    uint64_t dims[4];
} fuzz_tensors[] = {
    {"model.layers.0.attn.qkv.weight", WFS_F32, 2, {6, 4}},
    {"model.layers.0.attn.qkv.bias", WFS_F32, 1, {6}},
    {"model.layers.3.attn.qkv.weight", WFS_F32, 2, {6, 4}},
    {"model.layers.3.norm.weight", WFS_BF16, 1, {4}},
    {"model.layers.3.norm.bias", WFS_F64, 1, {4}},
    {"model.conv.BaseConv.weight", WFS_F16, 4, {2, 3, 1, 2}},
    {"model.embed.weight", WFS_F32, 2, {4, 4}},
    {"head.weight", WFS_I64, 2, {2, 4}},
    {"head.mask", WFS_BOOL, 3, {1, 0, 2}},
    {"step", WFS_U8, 0, {0}},
    {"packed", WFS_F4, 1, {8}},
};

static inline struct wfs_catalog *fuzz_catalog(void)
{
    static char content[4096];
    struct wfs_catalog *catalog;
    struct source *source;
    uint64_t offset = 0;
    demand(catalog_new(&catalog) == 0 &&
           source_new_memory("m", content, sizeof(content), &source) == 0 &&
           catalog_adopt_source(catalog, source) == 0);
    for (size_t i = 0; i < sizeof(fuzz_tensors) / sizeof(*fuzz_tensors); i++) {
        struct wfs_tensor *tensor = catalog_add(catalog);
        demand(tensor != NULL);
        tensor->key = fuzz_tensors[i].key;
        tensor->dtype = tensor->stored.dtype = (uint8_t)fuzz_tensors[i].dtype;
        tensor->shape = (struct wfs_shape){fuzz_tensors[i].rank, fuzz_tensors[i].dims};
        tensor->stored.source = source;
        tensor->stored.offset = offset;
        demand(wfs_shape_bytes(&tensor->shape, fuzz_tensors[i].dtype, &tensor->n_bytes) == 0);
        offset += tensor->n_bytes;
    }
    catalog->format = wfs_format_by_name("pytorch");
    return catalog;
}

static inline void fuzz_look(const struct wfs_catalog *catalog)
{
    char bytes[4096];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        uint64_t n_bytes;
        demand(wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &n_bytes) == 0);
        demand(n_bytes == tensor->n_bytes && n_bytes <= sizeof(bytes));
        demand(wfs_tensor_read(tensor, 0, bytes, sizeof(bytes)) == (ssize_t)n_bytes);
    }
}

static inline int fuzz_load(void *ctx, const char *path, struct wfs_catalog **out,
                            struct wfs_error *err)
{
    *out = fuzz_catalog();
    return 0;
}

static inline void fuzz_apply(const struct wfs_view *view)
{
    struct wfs_catalog *catalog = fuzz_catalog();
    const struct wfs_view_loader loader = {.load = fuzz_load};
    struct wfs_report *report = NULL;
    struct wfs_error err = {0};
    const int code = wfs_view_apply(view, catalog, &loader, &report, &err);
    demand(code == 0 ? err.code == 0 : err.code == -code);
    if (code == 0)
        fuzz_look(catalog);
    for (int form = WFS_REPORT_TEXT; report != NULL && form <= WFS_REPORT_PLAN; form++) {
        char *text;
        size_t n;
        demand(wfs_report_write(report, (enum wfs_report_form)form, &text, &n) == 0);
        demand(strlen(text) == n);
        free(text);
    }
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

#endif
