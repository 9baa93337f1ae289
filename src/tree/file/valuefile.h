/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint holds besides tensors, as JSON files. Their text is made when somebody looks;
 * the one made last is kept. What was edited is staged as any file, and read by a commit.
 */
#ifndef WFS_TREE_VALUEFILE_H
#define WFS_TREE_VALUEFILE_H

#include "tree/node/node.h"

#define VALUEFILE_SUFFIX ".json"

enum { VALUEFILE_MAX = 64 << 20 }; /* bytes of an edited one */

struct valuefiles;

int valuefiles_new(const struct wfs_catalog *catalog, struct valuefiles **out);
void valuefiles_free(struct valuefiles *files);

/* -ENOMEM. */
int valuefile_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                      uint64_t *ret_n_bytes);
ssize_t valuefile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                       void *buf, size_t n_bytes);

/* The node is the file of its value. */
void valuefile_add(struct wfs_tree *tree, const struct wfs_node *node);

/* False: the value never had a file, and stays. */
bool valuefile_is_shown(const struct wfs_tree *tree, size_t value);

/*
 * Is it a value, and no tensor? The files of values are, and new ones whose names end in .json and
 * that were given neither dtype nor shape.
 */
bool valuefile_is_one(const struct entry *entry);

/* The value that the catalog had under the file with that order, be it replaced; SIZE_MAX: it is
 * new. */
size_t valuefile_origin(const struct wfs_tree *tree, uint32_t id, uint32_t order);

/*
 * The name that a value has where its file is now, made in the arena where it is not the loaded
 * one. NULL: a cut name on its path is not known. -ENOMEM.
 */
int valuefile_name(const struct wfs_tree *tree, uint32_t id, struct arena *arena, const char **ret);

#endif
