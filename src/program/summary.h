/* SPDX-License-Identifier: MIT */
/*
 * A summary of a checkpoint, without its elements; and what is found in it, as JSON.
 */
#ifndef WFS_SUMMARY_H
#define WFS_SUMMARY_H

#include <weightfs/catalog.h>
#include <weightfs/json_out.h>
#include "program/key_tree.h"

struct totals {
    uint64_t n_tensors, n_bytes, n_elems;
};

struct summary {
    const char *path; /* borrowed, as the catalog */
    const struct wfs_catalog *catalog;
    struct key_tree tree; /* sorted; its array is malloc'ed */
    struct totals all;
    struct totals by_dtype[WFS_N_DTYPES];
};

/* -ENOMEM. */
int summary_make(struct summary *summary, const char *path, const struct wfs_catalog *catalog);
void summary_done(struct summary *summary);

/* Returns the first metadata text that names the writer of the file, or NULL. */
const char *summary_writer(const struct wfs_catalog *catalog);

/* Puts all of it as an object. */
void summary_put(const struct summary *summary, struct json_out *json);

/* Puts an object of the texts of the metadata. */
void summary_put_metadata(const struct wfs_catalog *catalog, const char *name,
                          struct json_out *json);

/* Puts {"severity", "text"}. */
void summary_put_finding(struct json_out *json, const struct wfs_finding *finding);

/* Returns "info", "low", "medium" or "high". */
const char *summary_severity(const struct wfs_finding *finding);

/* Puts the member "stats"; NULL: the elements are not numbers. */
void summary_put_stats(struct json_out *out, const struct wfs_stats *stats);

/* Puts architecture and sizes of the model as the member "model", or prints them as a line of text
 * where json is NULL; nothing where there is no such file. */
void model_config_put(struct json_out *json, const struct wfs_catalog *catalog);

#endif
