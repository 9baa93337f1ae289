/* SPDX-License-Identifier: MIT */
/*
 * The staged file of an edited node: its bytes, its place in the journal, and whether it is on the
 * disk. What was shown before the edit is none of its business.
 */
#ifndef WFS_TREE_EDITFILE_H
#define WFS_TREE_EDITFILE_H

#include "base/source.h"
#include "tree/node/edit.h"

/* Reads the content of a staged node up to its end. Returns the count; -EIO when bytes are missing.
 */
ssize_t editfile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes);

/*
 * Reads the whole content of a staged node, malloc'ed and ended by NUL. -EFBIG above n_max bytes,
 * -EIO, -ENOMEM.
 */
int editfile_read_all(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_max,
                      char **ret, size_t *ret_n_bytes);

/* Makes the staged file the content of a node that has an edit, and notes it in the journal. The
 * file is removed when this fails. */
int editfile_adopt(struct wfs_tree *tree, struct wfs_node *node, uint64_t number, uint64_t n_bytes);

/* Makes a staged file with all of the bytes the content of the node. Nothing has changed when this
 * fails. */
int editfile_put(struct wfs_tree *tree, struct wfs_node *node, const char *bytes, size_t n_bytes);

/* Counts a change of the staged content. */
void editfile_touch(struct wfs_tree *tree, struct wfs_node *node);

/* fdatasync, where the content has writes that need it. */
int editfile_sync(struct wfs_tree *tree, struct wfs_node *node);

/* Replaces the file of a failed sync by a copy, which is yet to be synced. The content is lost for
 * good when that fails. */
void editfile_rescue(struct wfs_tree *tree, struct edit *edit);

/* Makes a source of the staged file that borrows from the tree. -ENOMEM. */
int editfile_source(const struct wfs_tree *tree, const struct wfs_node *node, struct source **out);

#endif
