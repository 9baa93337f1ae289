/* SPDX-License-Identifier: MIT */
/*
 * What needs all bytes of a tensor: its digest and its statistics. Computed on demand and kept
 * until the content changes. Here are the functions of the attributes; those of jobs are public.
 */
#ifndef WFS_TREE_DIGESTS_H
#define WFS_TREE_DIGESTS_H

#include "tree/node/node.h"

struct digests;

int digests_new(struct digests **out);
void digests_free(struct digests *digests);

enum digest_kind { DIGEST_XXH3, DIGEST_STATS, DIGEST_N_KINDS };

/* Adds 16 hex digits, or a JSON object. -ENODATA: the elements are not numbers, or their dtype is
 * not known; -EIO, -ENOMEM. */
int digests_get(const struct wfs_tree *tree, const struct wfs_node *node, enum digest_kind kind,
                struct strbuf *text);

#endif
