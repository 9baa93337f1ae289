/* SPDX-License-Identifier: MIT */
/*
 * The order of the passes, and what several of them need.
 */
#include "view/pass.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

int pass_matches(const struct pass *pass, const struct rule *rule, const struct item *item)
{
    return rule->regex == NULL ? 1 : regex_search(rule->regex, item->tensor.key, pass->err);
}

int pass_note(const struct pass *pass, struct item *item, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *before = item->tensor.changes;
    item->tensor.changes =
        arena_print(&pass->catalog->arena, "%s%s%s", before != NULL ? before : "",
                    before != NULL ? "; " : "", text);
    return item->tensor.changes == NULL ? wfs_fail_memory(pass->err) : 0;
}

int pass_rename(const struct pass *pass, struct item *item, const char *key, const char *why)
{
    if (strcmp(item->tensor.key, key) == 0)
        return 0;
    if (item->tensor.origin == NULL)
        item->tensor.origin = item->tensor.key;
    item->tensor.key = key;
    return pass_note(pass, item, "%s", why);
}

bool item_is_rigid(const struct item *item)
{
    const struct wfs_tensor *tensor = &item->tensor;
    return tensor->dtype == WFS_OPAQUE || wfs_dtype_bits((enum wfs_dtype)tensor->dtype) % 8 != 0 ||
           wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) % 8 != 0;
}

const char *item_leaf(const struct item *item)
{
    const char *dot = strrchr(item->tensor.key, '.');
    return dot == NULL ? item->tensor.key : dot + 1;
}

int pass_permute(const struct pass *pass, struct item *item, const uint32_t *order)
{
    struct wfs_tensor *tensor = &item->tensor;
    const uint32_t rank = tensor->shape.rank;
    const uint64_t *old = tensor->stored.strides;
    uint64_t *dims = arena_calloc(&pass->catalog->arena, rank, sizeof(*dims));
    uint64_t *strides = arena_calloc(&pass->catalog->arena, rank, sizeof(*strides));
    if (old == NULL)
        old = catalog_dense_strides(pass->catalog, &tensor->shape);
    if (dims == NULL || strides == NULL || old == NULL)
        return wfs_fail_memory(pass->err);
    for (uint32_t i = 0; i < rank; i++) {
        dims[i] = tensor->shape.dims[order[i]];
        strides[i] = old[order[i]];
    }
    tensor->shape.dims = dims;
    tensor->stored.strides = strides;
    return 0;
}

int pass_swap_last(const struct pass *pass, struct item *item)
{
    uint32_t order[RULE_MAX_PARTS];
    const uint32_t rank = item->tensor.shape.rank;
    for (uint32_t i = 0; i < rank; i++)
        order[i] = i;
    order[rank - 1] = rank - 2;
    order[rank - 2] = rank - 1;
    return pass_permute(pass, item, order);
}

static int take_out(struct pass *pass)
{
    const size_t n = pass->catalog->n_tensors;
    struct wfs_report *report = pass->report;
    report->items = calloc(n + 1, sizeof(*report->items));
    if (report->items == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < n; i++) {
        report->items[i].tensor = pass->catalog->tensors[i];
        report->items[i].source_key = wfs_tensor_origin(&pass->catalog->tensors[i]);
    }
    report->n_items = n;
    return 0;
}

/* As they are, unless `like` has said another order. */
static int make_order(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    if (report->order != NULL)
        return 0;
    report->order = calloc(report->n_items + 1, sizeof(*report->order));
    if (report->order == NULL)
        return wfs_fail_memory(pass->err);
    for_items(item, pass)
    {
        report->order[report->n_order++] = (uint32_t)(item - report->items);
    }
    return 0;
}

static int put_back(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    struct wfs_catalog *catalog = pass->catalog;
    if (catalog_reserve(catalog, report->n_order) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < report->n_order; i++)
        catalog->tensors[i] = report->items[report->order[i]].tensor;
    catalog->n_tensors = report->n_order;
    return 0;
}

/* What there is to adapt to: said by `to`, else by what `like` looks like. */
static enum direction find_direction(const struct pass *pass)
{
    if (pass->view->to != TO_UNSAID || pass->like == NULL)
        return pass->view->to;
    const struct wfs_format *format = wfs_catalog_format(pass->like);
    if (format != NULL && format->convention == WFS_CONVENTION_BURN)
        return TO_BURN;
    for (size_t i = 0; i < pass->like->n_tensors; i++) {
        const char *dot = strrchr(pass->like->tensors[i].key, '.');
        if (dot != NULL && strcmp(dot, ".gamma") == 0)
            return TO_BURN;
    }
    return TO_TORCH;
}

static int run(struct pass *pass)
{
    static int (*const passes[])(struct pass *) = {
        take_out,     pass_top_level_key, pass_judge,    pass_remap,  pass_contiguous,
        pass_classes, pass_filter,        pass_variants, pass_adapt,  pass_like,
        pass_surgery, make_order,         pass_collide,  pass_values, put_back,
    };
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof(passes) / sizeof(*passes); i++)
        code = passes[i](pass);
    return code;
}

int wfs_view_apply(const struct wfs_view *view, struct wfs_catalog *catalog,
                   const struct wfs_catalog *like, struct wfs_report **out, struct wfs_error *err)
{
    struct wfs_report *report = calloc(1, sizeof(*report));
    *out = report;
    if (report == NULL)
        return wfs_fail_memory(err);
    report->has_like = like != NULL;
    report->covers = catalog->covers;
    report->n_covers = catalog->n_covers;
    struct pass pass = {
        .view = view, .catalog = catalog, .like = like, .report = report, .err = err};
    pass.to = find_direction(&pass);
    if (view->has_backslash &&
        report_add(report, &report->notices, "remap", "\\1 in a replacement is taken for $1") < 0)
        return wfs_fail_memory(err);
    return run(&pass);
}
