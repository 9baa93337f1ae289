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

/* The node, which has an entry by now, is the file of its value. */
void valuefile_add(struct wfs_tree *tree, const struct wfs_node *node);

/* The file is unlinked: a commit leaves the value out. */
void valuefile_remove(struct wfs_tree *tree, const struct wfs_node *node);
bool valuefile_is_removed(const struct wfs_tree *tree, size_t value);

/*
 * The name that a value has where its file is now: it follows directories that are renamed. Made in
 * the arena where it is not the loaded one. -ENOMEM.
 */
int valuefile_name(const struct wfs_tree *tree, size_t value, struct arena *arena,
                   const char **ret);

#endif
