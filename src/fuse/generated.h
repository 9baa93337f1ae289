/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint that a commit would write now, one file for each format, as files of the control
 * directory that are made while they are read. Who has one open reads the tree as it was then, and
 * gets ESTALE once something is edited.
 */
#ifndef WFS_GENERATED_H
#define WFS_GENERATED_H

#include <stdint.h>

#include <weightfs/tree.h>

struct driver;
struct generated;

/* One for each format that can be written, as options for a tree. -ENOMEM. */
int generated_new(struct driver *driver, struct generated **out);
void generated_free(struct generated *all);
const struct wfs_tree_made *generated_files(const struct generated *all, size_t *ret_n);

/*
 * Opens one; *ret_handle is what the others are called with, never 0. Logs why it cannot be made.
 * The tree is held for all of these.
 */
int generated_open(const struct driver *driver, const struct wfs_tree_made *file,
                   uint64_t *ret_handle);
void generated_close(const struct wfs_tree_made *file);

/* -ESTALE when the tree has changed since the file was opened; 0 for a handle of 0. */
int generated_check(const struct driver *driver, uint64_t handle);

#endif
