/* SPDX-License-Identifier: MIT */
/*
 * The texts that the tree itself has to show. metadata.json: the metadata of the catalog, until it
 * is written; then what is in that file. status.json: the status that the driver set, the counts of
 * the tree, the state of the sources.
 */
#ifndef WFS_TEXTS_H
#define WFS_TEXTS_H

#include "tree/node/node.h"

struct metadata;

int metadata_new(struct metadata **out);
void metadata_free(struct metadata *metadata);

/*
 * Calls visit with each text until it returns false. -EBADMSG: metadata.json is not a JSON object
 * of strings, err has the place; -EIO, -ENOMEM.
 */
typedef bool (*metadata_visit)(void *ctx, const struct wfs_text *text);
int metadata_each(const struct wfs_tree *tree, metadata_visit visit, void *ctx,
                  struct wfs_error *err);

/* Adds the text of metadata.json as it is before it was ever written. */
void metadata_render(const struct wfs_tree *tree, struct strbuf *text);

/* Adds the text of metadata.json with one text set; value NULL removes it. -EBADMSG as above. */
int metadata_render_with(const struct wfs_tree *tree, const char *name, const char *value,
                         size_t n_bytes, struct strbuf *text);

/* Copies all of it into the catalog. */
struct wfs_catalog;
int metadata_fill(const struct wfs_tree *tree, struct wfs_catalog *catalog, struct wfs_error *err);

struct status;

int status_new(struct status **out);
void status_free(struct status *status);

/* Adds the text as it is now. */
void status_render(const struct wfs_tree *tree, struct strbuf *text);

#endif
