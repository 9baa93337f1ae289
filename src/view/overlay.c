/* SPDX-License-Identifier: MIT */
/*
 * Overlays: tensors of other checkpoints replace or join those of the source, before any other
 * option is applied. Only tensors are taken; metadata and values stay those of the source.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "catalog/catalog.h"
#include "view/pass.h"

struct laying {
    const struct rule *rule;
    struct wfs_catalog *catalog;
    struct catalog_keys keys;
    const char *change; /* the note in `changes` of each tensor */
    size_t n_covered, n_added;
    struct wfs_report *report;
    struct wfs_error *err;
};

static void laying_done(struct laying *laying)
{
    catalog_keys_done(&laying->keys);
}

/* "F32 [2, 3]" */
static void describe(const struct wfs_tensor *tensor, char ret[300])
{
    char shape[256];
    wfs_shape_format(&tensor->shape, shape, sizeof(shape));
    snprintf(ret, 300, "%s %s", wfs_dtype_name((enum wfs_dtype)tensor->dtype), shape);
}

/* The tensor takes the place of the covered one in the order and in the graph. */
static void cover(struct laying *laying, struct wfs_tensor *covered,
                  const struct wfs_tensor *tensor)
{
    struct report_line line = {{tensor->key, NULL, laying->rule->argument}, false};
    char was[300], is[300];
    if (covered->stored.source != NULL)
        line.texts[1] = covered->stored.source->path;
    if (covered->dtype != tensor->dtype || !wfs_shape_is_equal(&covered->shape, &tensor->shape)) {
        describe(covered, was);
        describe(tensor, is);
        line.texts[3] = was;
        line.texts[4] = is;
    }
    report_add_line(laying->report, REPORT_COVERED, &line);
    const uint32_t place = covered->place;
    *covered = *tensor;
    covered->place = place;
    covered->changes = laying->change;
    laying->n_covered++;
}

static int add(struct laying *laying, const struct wfs_tensor *tensor)
{
    struct wfs_tensor *added = catalog_add(laying->catalog);
    if (added == NULL)
        return wfs_fail_memory(laying->err);
    *added = *tensor;
    added->place = 0; /* it is a number in the overlay */
    added->changes = laying->change;
    laying->n_added++;
    return catalog_keys_add(&laying->keys, laying->catalog, laying->catalog->n_tensors - 1) < 0
               ? wfs_fail_memory(laying->err)
               : 0;
}

static int lay_tensors(struct laying *laying, const struct wfs_catalog *over)
{
    for (size_t i = 0; i < over->n_tensors; i++) {
        const struct wfs_tensor *tensor = &over->tensors[i];
        int code = rule_takes(laying->rule, tensor->key, laying->err);
        if (code == 0)
            continue;
        const uint32_t found = catalog_keys_find(&laying->keys, tensor->key);
        if (code > 0 && found != TEXT_INDEX_NONE)
            cover(laying, &laying->catalog->tensors[found], tensor);
        else if (code > 0)
            code = add(laying, tensor);
        if (code < 0)
            return code;
    }
    if (laying->n_covered + laying->n_added == 0 && over->n_tensors > 0)
        return wfs_fail(laying->err, EINVAL, "overlay '%s': the filter matches none of its %s",
                        wfs_quote(laying->rule->argument).text,
                        wfs_count(over->n_tensors, "tensor").text);
    return laying->report->has_failed ? wfs_fail_memory(laying->err) : 0;
}

/* Adds findings: what was replaced, and the findings of the overlay itself. */
static int add_findings(struct laying *laying, const struct wfs_catalog *over)
{
    struct wfs_catalog *catalog = laying->catalog;
    const struct wfs_quoted file = wfs_quote(laying->rule->argument);
    int code = catalog_add_finding(catalog, WFS_INFO,
                                   "overlay '%s': tensors replaced: %zu, added: %zu, values "
                                   "ignored: %zu",
                                   file.text, laying->n_covered, laying->n_added, over->values.n);
    for (size_t i = 0; code == 0 && i < over->findings.n; i++)
        code = catalog_add_finding(catalog,
                                   over->findings.list[i].severity | over->findings.list[i].flags,
                                   "overlay '%s': %s", file.text, over->findings.list[i].text);
    return code < 0 ? wfs_fail_memory(laying->err) : 0;
}

int overlay_lay(const struct rule *rule, struct wfs_catalog *catalog, struct wfs_catalog *over,
                struct wfs_report *report, struct wfs_error *err)
{
    cleanup(laying_done) struct laying laying = {
        .rule = rule, .catalog = catalog, .report = report, .err = err};
    laying.change = arena_print(&catalog->arena, "overlay %s", wfs_quote(rule->argument).text);
    int code = 0;
    if (catalog->n_tensors + over->n_tensors >= UINT32_MAX)
        code = wfs_fail(err, E2BIG, "too many tensors: %zu", catalog->n_tensors + over->n_tensors);
    else if (laying.change == NULL || catalog_keys_add(&laying.keys, catalog, 0) < 0)
        code = wfs_fail_memory(err);
    code = code < 0 ? code : lay_tensors(&laying, over);
    code = code < 0 ? code : add_findings(&laying, over);
    if (catalog_adopt_part(catalog, over) < 0)
        return wfs_fail_memory(err);
    return code;
}
