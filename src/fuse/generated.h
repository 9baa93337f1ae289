/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint that a commit would write now, one file for each format, as files of the control
 * directory that are made while they are read. Whoever has one open reads the tree as it was then,
 * and gets ESTALE once something is edited.
 */
#ifndef WFS_GENERATED_H
#define WFS_GENERATED_H

#include "program/commit.h"

struct generated;

/*
 * Makes one file for each format that can be written; each is a commit with the given fields of the
 * draft. Errors are logged; with is_redacted, only the text of their errno. -ENOMEM.
 */
int generated_new(const struct commit *draft, bool is_redacted, struct generated **out);
void generated_free(struct generated *generated);

/* Returns them as options for a tree. */
const struct wfs_tree_made *generated_files(const struct generated *generated, size_t *ret_n);

/* Connects them to the tree that was made with them, before anything is read. */
void generated_attach(struct generated *generated, const struct wfs_tree *tree);

/*
 * Opens one; *ret_handle is passed to the other functions and is never 0. Logs why it cannot be
 * made. The caller holds the lock of the tree for all of these.
 */
int generated_open(const struct wfs_tree_made *file, uint64_t *ret_handle);
void generated_close(const struct wfs_tree_made *file);

/* Returns -ESTALE when the tree has changed since the file was opened; 0 for a handle of 0. */
int generated_check(const struct wfs_tree *tree, uint64_t handle);

#endif
