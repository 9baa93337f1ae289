/* SPDX-License-Identifier: MIT */
/*
 * The colours of a report, and the treemap of it.
 */
#include "cli/picture.h"

#include "cli/treemap.h"

#include <math.h>

/* ---- colours ---- */

static const char *const dtype_colours[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"};

enum { N_DTYPE_COLOURS = sizeof(dtype_colours) / sizeof(dtype_colours[0]) };

const char *report_dtype_colour(size_t i)
{
    return dtype_colours[i < N_DTYPE_COLOURS ? i : N_DTYPE_COLOURS - 1];
}

/* Of changes: below each limit, as a part of the norm of A. */
static const struct {
    double limit;
    struct treemap_legend legend;
} changes[] = {
    {0, {"c0", "equal"}},
    {1e-4, {"c1", "below 0.0001"}},
    {1e-3, {"c2", "below 0.001"}},
    {1e-2, {"c3", "below 0.01"}},
    {1e-1, {"c4", "below 0.1"}},
    {1, {"c5", "below 1"}},
    {INFINITY, {"c6", "1 or more"}},
    {NAN, {"ca", "only in B"}},
    {NAN, {"cr", "only in A"}},
    {NAN, {"cx", "not comparable"}},
};

enum { N_CHANGES = sizeof(changes) / sizeof(changes[0]) };

bool report_has_relative(const struct diff_row *row)
{
    const struct comparison *comparison = &row->comparison;
    return row->a != NULL && row->b != NULL && comparison->has_content && comparison->has_numbers &&
           !isnan(measures_relative(&comparison->measures));
}

const char *report_change(const struct diff_row *row)
{
    return row->b == NULL   ? "only in A"
           : row->a == NULL ? "only in B"
           : row->is_equal  ? "equal"
                            : "changed";
}

static const char *colour_of_change(const struct diff_row *row)
{
    if (row->a == NULL || row->b == NULL)
        return row->a == NULL ? "ca" : "cr";
    if (row->is_equal)
        return changes[0].legend.colour;
    if (!report_has_relative(row))
        return "cx";
    const double relative = measures_relative(&row->comparison.measures);
    size_t i = 1;
    while (relative >= changes[i].limit && changes[i].limit < INFINITY)
        i++;
    return changes[i].legend.colour;
}

const char *report_colour(const struct report *report, size_t i)
{
    if (report->paths[1] != NULL)
        return colour_of_change(&report->rows[i]);
    size_t k = 0;
    while (report->dtypes[k].dtype != report->tensors[i]->dtype)
        k++;
    return report_dtype_colour(k);
}

/* ---- the map ---- */

static const char *map_colour(void *ctx, size_t i)
{
    return report_colour(ctx, i);
}

static void describe(void *ctx, size_t i, struct strbuf *out)
{
    const struct report *report = ctx;
    const struct diff_row *row = &report->rows[i];
    if (report->paths[1] != NULL)
        strbuf_printf(out, "\n%s", report_change(row));
    if (report->paths[1] != NULL && report_has_relative(row) && !row->is_equal)
        strbuf_printf(out, ", relative %.3g", measures_relative(&row->comparison.measures));
    if (report->values != NULL && report->values[i].has_stats)
        strbuf_printf(out, "\nmean %.3g, std %.3g", report->values[i].stats.mean,
                      report->values[i].stats.std);
}

int report_draw_map(const struct report *report, struct strbuf *out)
{
    struct treemap_legend legend[N_CHANGES + WFS_N_DTYPES];
    struct treemap map = {.tree = &report->tree,
                          .legend = legend,
                          .label = report->paths[1] != NULL
                                       ? "Treemap of the parameters by module, coloured by change"
                                       : "Treemap of the parameters by module, coloured by dtype",
                          .colour = map_colour,
                          .describe = describe,
                          .ctx = (void *)report};
    for (size_t i = 0; report->paths[1] != NULL && i < N_CHANGES; i++)
        legend[map.n_legend++] = changes[i].legend;
    for (size_t i = 0; report->paths[1] == NULL && i < report->n_dtypes; i++) {
        const struct report_dtype *dtype = &report->dtypes[i];
        const bool is_last = i + 1 >= N_DTYPE_COLOURS && i + 1 < report->n_dtypes;
        legend[map.n_legend++] = (struct treemap_legend){
            report_dtype_colour(i), is_last ? "others" : wfs_dtype_name(dtype->dtype)};
        if (is_last)
            break;
    }
    return treemap_draw(&map, out);
}
