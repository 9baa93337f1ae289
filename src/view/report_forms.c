/* SPDX-License-Identifier: MIT */
/*
 * The choice among the forms of a report, and the form that is a table: the plan.
 */
#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <stdio.h>

#include "view/item.h"
#include "view/report_json.h"
#include "view/report_text.h"

static void put_plan(const struct wfs_report *report, FILE *out)
{
    fputs("old_key\tnew_key\tdtype\tshape\tclass\tcertainty\trow\twhy\n", out);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct item *item = &report->items[i];
        const bool is_examined = item->verdict.row != ROW_NONE;
        char shape[256];
        wfs_shape_format(&item->tensor.shape, shape, sizeof(shape));
        report_put_escaped(item->source_key, out);
        fputc('\t', out);
        report_put_escaped(item_is_shown(item) ? item->tensor.key : "-", out);
        fprintf(out, "\t%s\t%s\t%s\t%s\t%s\t", wfs_dtype_name((enum wfs_dtype)item->tensor.dtype),
                shape, class_name(item->verdict.class_),
                is_examined ? certainty_name(item->verdict.certainty) : "",
                row_name(item->verdict.row));
        if (!item_is_shown(item))
            fprintf(out, "dropped: %s", item_drop_name(item));
        else
            report_put_escaped(item->tensor.changes != NULL ? item->tensor.changes : "", out);
        fputc('\n', out);
    }
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
    if (form == WFS_REPORT_TEXT)
        report_put_text(report, out);
    else if (form == WFS_REPORT_JSON)
        report_put_json(report, out);
    else
        put_plan(report, out);
    const bool is_bad = fflush(out) != 0 || ferror(out);
    close_stream(&out);
    out = NULL;
    if (is_bad)
        return -ENOMEM;
    *ret = steal(&text);
    return 0;
}
