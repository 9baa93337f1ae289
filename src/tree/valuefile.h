/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint holds besides tensors, as JSON files that are only read. Their text is made
 * when somebody looks; the one made last is kept.
 */
#ifndef WFS_TREE_VALUEFILE_H
#define WFS_TREE_VALUEFILE_H

#include "tree/node.h"

#define VALUEFILE_SUFFIX ".json"

struct valuefiles;

int valuefiles_new(const struct wfs_catalog *catalog, struct valuefiles **out);
void valuefiles_free(struct valuefiles *files);

/* -ENOMEM. */
int valuefile_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                      uint64_t *ret_n_bytes);
ssize_t valuefile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                       void *buf, size_t n_bytes);

/* The file is unlinked: a commit leaves the value out. */
void valuefile_remove(struct wfs_tree *tree, const struct wfs_node *node);
bool valuefile_is_removed(const struct wfs_tree *tree, size_t value);

#endif
