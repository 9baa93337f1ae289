/* SPDX-License-Identifier: MIT */
/*
 * The metadata of the checkpoint: that of the catalog, until metadata.json is written; then what is
 * in that file.
 */
#ifndef WFS_TREE_METADATA_H
#define WFS_TREE_METADATA_H

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

#endif
