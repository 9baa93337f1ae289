/* SPDX-License-Identifier: MIT */
/*
 * The control directory. Its texts are generated when they are looked up. A text that has changed
 * is a new version with a number of its own; the older one stays for as long as it has references.
 *
 * The room src/tree/control knows the texts that the tree generates: tensors.csv, metadata.json,
 * status.json, and those that the caller brings. It leaves reading and writing of files to the
 * tree.
 */
#ifndef WFS_TREE_CONTROL_H
#define WFS_TREE_CONTROL_H

#include "tree/node/node.h"

/* Makes the directory and its files. -ENOMEM. */
int control_new(struct wfs_tree *tree);
void control_done(struct wfs_tree *tree);

/* What stat shows of a version of a file. One that cannot be generated has one byte: that makes
 * programs read, and get the error; an empty file would look complete. */
struct control_look {
    uint64_t number, n_bytes;
    struct timespec mtime;
};

/*
 * Looks at the version that is shown now, which is generated first where there is a change, and
 * takes n references to it. An error of the content; without memory for a version its number is 0.
 */
int control_look(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_refs,
                 struct control_look *ret);

/* Looks at a version that has references. -ESTALE: it does not exist (any more). */
int control_look_at(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                    struct control_look *ret);

/* Drops n references to a version. */
void control_unref(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                   uint64_t n_refs);

/*
 * Reads the version with the number, or with 0 the one that was generated last. -ESTALE: it does
 * not exist, or the tree has changed under a file that is generated while it is read. That file is
 * one of options.made, whose content can be held and is then read without the tree;
 * control_check_held returns whether the tree has changed since.
 */
int control_hold(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                 const void **ret_held);
int control_check_held(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number);
ssize_t control_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                     uint64_t offset, void *buf, size_t n_bytes);

#endif
