/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint holds besides tensors, as JSON files. Their texts are generated on demand, and
 * the last one is kept. An edited one is staged like any other file and parsed by a commit.
 */
#ifndef WFS_TREE_VALUEFILE_H
#define WFS_TREE_VALUEFILE_H

#include "tree/node/node.h"

#define VALUEFILE_SUFFIX ".json"

/* Returns the length of the suffix of a name; 0: it has none, or nothing before it. */
size_t valuefile_n_suffix(const char *name);

struct valuefiles;

int valuefiles_new(const struct wfs_catalog *catalog, struct valuefiles **out);
void valuefiles_free(struct valuefiles *files);

/* Returns the size of the text that the catalog gives. -ENOMEM. */
int valuefile_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                      uint64_t *ret_n_bytes);
ssize_t valuefile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                       void *buf, size_t n_bytes);

/* Notes that the value of the node has a file. */
void valuefile_add(struct wfs_tree *tree, const struct wfs_node *node);

/* Returns false for a value that never had a file: it stays as it was loaded. */
bool valuefile_is_shown(const struct wfs_tree *tree, size_t value);

/*
 * Returns true for a file that is a value, not a tensor: files of loaded values, and new files
 * whose names end in .json and that have neither dtype nor shape.
 */
bool valuefile_is_one(const struct entry *entry);

/* Returns the value that the catalog has for the file with that order, even if the file was
 * replaced; SIZE_MAX: the file is new. */
size_t valuefile_origin(const struct wfs_tree *tree, uint32_t id, uint32_t order);

/*
 * Returns the name of a value by the place of its file, made in the arena where it is not the name
 * that was loaded; NULL: its path has a cut name that is not known. -ENOMEM.
 */
int valuefile_name(const struct wfs_tree *tree, uint32_t id, struct arena *arena, const char **ret);

#endif
