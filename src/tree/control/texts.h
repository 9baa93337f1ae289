/* SPDX-License-Identifier: MIT */
/*
 * The texts that the tree itself has to show. metadata.json: the metadata of the catalog, until it
 * is written; then what is in that file. status.json: the status that the driver set, the counts of
 * the tree, the state of the sources.
 */
#ifndef WFS_TEXTS_H
#define WFS_TEXTS_H

#include "tree/node/node.h"

struct texts;

int texts_new(struct texts **out);
void texts_free(struct texts *texts);

/*
 * Returns the metadata, borrowed until the next change of the tree. -EBADMSG: metadata.json is not
 * a JSON object of strings, err has the place; -EIO, -ENOMEM.
 */
int metadata_list(const struct wfs_tree *tree, const struct wfs_text **ret, struct wfs_error *err);

/* Adds the text of metadata.json with one text set; value NULL removes it. name NULL: the text is
 * the one before it was ever written. -EBADMSG as above. */
int metadata_render(const struct wfs_tree *tree, const char *name, const char *value,
                    size_t n_bytes, struct strbuf *text);

/* Adds the text of status.json as it is now. */
void status_render(const struct wfs_tree *tree, struct strbuf *text);

#endif
