/* SPDX-License-Identifier: MIT */
/*
 * What passes do to an item: other keys, other dimensions, and a note of it.
 */
#include "view/pass.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pass_matches(const struct pass *pass, const struct rule *rule, const struct item *item)
{
    const int code =
        rule->regex == NULL ? 1 : regex_search(rule->regex, item->tensor.key, pass->err);
    if (code > 0)
        pass_use(pass, rule);
    return code;
}

int pass_warn(const struct pass *pass, const char *about, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    if (pass->view->is_strict)
        return wfs_fail(pass->err, EINVAL, "strict: %s: %s", wfs_quote(about).text, text);
    report_add_line(pass->report, REPORT_NOTICES, &(struct report_line){{about, text}, true});
    return 0;
}

struct wfs_counted pass_more(size_t n)
{
    struct wfs_counted more = {""};
    if (n > 1)
        snprintf(more.text, sizeof(more.text), " (and %zu more)", n - 1);
    return more;
}

void pass_note(const struct pass *pass, struct item *item, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    const char *before = item->tensor.changes;
    item->tensor.changes =
        arena_print(&pass->catalog->arena, "%s%s%s", before != NULL ? before : "",
                    before != NULL ? "; " : "", text);
    pass->report->has_failed = pass->report->has_failed || item->tensor.changes == NULL;
}

void pass_rename(const struct pass *pass, struct item *item, const char *key, const char *why)
{
    if (key == NULL)
        pass->report->has_failed = true;
    if (key == NULL || strcmp(item->tensor.key, key) == 0)
        return;
    if (item->tensor.origin == NULL)
        item->tensor.origin = item->tensor.key;
    item->tensor.key = key;
    pass_note(pass, item, "%s", why);
}

void pass_permute(const struct pass *pass, struct item *item, const uint32_t *order)
{
    struct wfs_tensor *tensor = &item->tensor;
    const uint32_t rank = tensor->shape.rank;
    const uint64_t *old = tensor->stored.strides;
    uint64_t *dims = arena_calloc(&pass->catalog->arena, rank, sizeof(*dims));
    uint64_t *strides = arena_calloc(&pass->catalog->arena, rank, sizeof(*strides));
    if (old == NULL)
        old = catalog_dense_strides(pass->catalog, &tensor->shape);
    if (dims == NULL || strides == NULL || old == NULL) {
        pass->report->has_failed = true;
        return;
    }
    for (uint32_t i = 0; i < rank; i++) {
        dims[i] = tensor->shape.dims[order[i]];
        strides[i] = old[order[i]];
    }
    tensor->shape.dims = dims;
    tensor->stored.strides = strides;
}

void pass_swap_last(const struct pass *pass, struct item *item)
{
    uint32_t order[RULE_MAX_PARTS];
    const uint32_t rank = item->tensor.shape.rank;
    for (uint32_t i = 0; i < rank; i++)
        order[i] = i;
    order[rank - 1] = rank - 2;
    order[rank - 2] = rank - 1;
    pass_permute(pass, item, order);
}
