/* SPDX-License-Identifier: MIT */
/*
 * The content of a node, whatever it is: its size, and the copy that its first change needs.
 */
#ifndef WFS_TREE_CONTENT_H
#define WFS_TREE_CONTENT_H

#include "tree/node/edit.h"
#include "tree/node/node.h"

/* Copies the first n_keep bytes of what the file shows into a new staged one and makes that its
 * content. The node is as it was when this fails. -EFBIG: the tensor shows much more than its file
 * has; -EINPROGRESS: see wfs_tree_set_change. */
int staging_begin(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_keep);

/* Returns the size that stat shows. */
uint64_t content_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

/*
 * What needs all bytes of a tensor: its digest and its statistics. Computed on demand and kept
 * until the content changes. Here are the functions of the attributes; those of jobs are public.
 */

struct digests;

int digests_new(struct digests **out);
void digests_free(struct digests *digests);

enum digest_kind { DIGEST_XXH3, DIGEST_STATS, DIGEST_N_KINDS };

/* Adds 16 hex digits, or a JSON object. -ENODATA: the elements are not numbers, or their dtype is
 * not known; -EIO, -ENOMEM. */
int digests_get(const struct wfs_tree *tree, const struct wfs_node *node, enum digest_kind kind,
                struct strbuf *text);

#endif
