/* SPDX-License-Identifier: MIT */
/*
 * The choice among the forms of a report, and the form that is a table: the plan.
 */
#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <stdio.h>
#include <weightfs/strbuf.h>

#include "view/item.h"
#include "view/report_json.h"
#include "view/report_text.h"

struct plan {
    FILE *out;
    enum wfs_report_form form;
    bool has_failed; /* out of memory */
};

/* Writes a text as the form spells it, and what separates it from the next. */
static void put_cell(struct plan *plan, const char *text, char end)
{
    autostrbuf struct strbuf cell = {0};
    if (plan->form == WFS_REPORT_TSV)
        strbuf_cell(&cell, text, '\t');
    if (plan->form == WFS_REPORT_NULL)
        fputs(text, plan->out);
    else
        report_put_escaped(cell.bytes != NULL ? cell.bytes : text, plan->out);
    fputc(end, plan->out);
    plan->has_failed |= cell.has_failed;
}

static void put_row(struct plan *plan, const struct item *item)
{
    const bool is_examined = item->verdict.row != ROW_NONE, is_shown = item_is_shown(item);
    const char end = plan->form == WFS_REPORT_NULL ? '\0' : '\n';
    char shape[256];
    wfs_shape_format(&item->tensor.shape, shape, sizeof(shape));
    put_cell(plan, item->source_key, '\t');
    if (is_shown)
        put_cell(plan, item->tensor.key, '\t');
    else
        fputs("-\t", plan->out);
    fprintf(plan->out, "%s\t%s\t%s\t%s\t%s\t", wfs_dtype_name((enum wfs_dtype)item->tensor.dtype),
            shape, class_name(item->verdict.class_),
            is_examined ? certainty_name(item->verdict.certainty) : "",
            row_name(item->verdict.row));
    if (is_shown)
        put_cell(plan, item->tensor.changes != NULL ? item->tensor.changes : "", end);
    else
        fprintf(plan->out, "dropped: %s%c", item_drop_name(item), end);
}

/* Returns false when out of memory. */
static bool put_plan(const struct wfs_report *report, enum wfs_report_form form, FILE *out)
{
    struct plan plan = {.out = out, .form = form};
    if (form != WFS_REPORT_NULL)
        fputs("old_key\tnew_key\tdtype\tshape\tclass\tcertainty\trow\twhy\n", out);
    for (size_t i = 0; i < report->n_items && !plan.has_failed; i++)
        put_row(&plan, &report->items[i]);
    return !plan.has_failed;
}

static void close_stream(FILE **stream)
{
    if (*stream != NULL)
        fclose(*stream);
}

int wfs_report_write(const struct wfs_report *report, enum wfs_report_form form, char **ret,
                     size_t *ret_n)
{
    autofree char *text = NULL;
    cleanup(close_stream) FILE *out = open_memstream(&text, ret_n);
    if (out == NULL)
        return -ENOMEM;
    bool is_bad = false;
    if (form == WFS_REPORT_TEXT)
        report_put_text(report, out);
    else if (form == WFS_REPORT_JSON)
        report_put_json(report, out);
    else
        is_bad = !put_plan(report, form, out);
    is_bad = is_bad || fflush(out) != 0 || ferror(out);
    close_stream(&out);
    out = NULL;
    if (is_bad)
        return -ENOMEM;
    *ret = steal(&text);
    return 0;
}
