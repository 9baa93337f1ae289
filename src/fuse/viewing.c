/* SPDX-License-Identifier: MIT */
/*
 * One function for each form of the report.
 */
#include "fuse/viewing.h"

static int make_text(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_TEXT, ret, ret_n_bytes);
}

static int make_json(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_JSON, ret, ret_n_bytes);
}

static int make_plan(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_PLAN, ret, ret_n_bytes);
}

void viewing_texts(const struct wfs_report *report, struct wfs_tree_text texts[VIEWING_N_TEXTS])
{
    texts[0] = (struct wfs_tree_text){"report.txt", make_text, report};
    texts[1] = (struct wfs_tree_text){"report.json", make_json, report};
    texts[2] = (struct wfs_tree_text){"plan.tsv", make_plan, report};
}
