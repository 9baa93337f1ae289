/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint that a commit would write now, one file for each format, and the edits as a patch,
 * as files of the control directory that are made while they are read. Each shows the tree as it is
 * now.
 */
#ifndef WFS_GENERATED_H
#define WFS_GENERATED_H

#include "program/commit.h"

struct generated;

/*
 * Makes the patch, one file for each format that can be written, and a hidden one of the source as
 * it is shown, in the loaded format if possible; each is a commit with the given fields of the
 * draft. Errors are logged; with is_redacted, only the text of their errno. -ENOMEM.
 */
int generated_new(const struct commit *draft, const struct wfs_format *loaded, bool is_redacted,
                  struct generated **out);
void generated_free(struct generated *generated);

/* Returns them as options for a tree. */
const struct wfs_tree_made *generated_files(const struct generated *generated, size_t *ret_n);

/* Connects them to the tree that was made with them, before anything is read. */
void generated_attach(struct generated *generated, const struct wfs_tree *tree);

/*
 * Opens one, or logs why it cannot be made. The caller holds the lock of the tree for both.
 */
int generated_open(const struct wfs_tree_made *file);
void generated_close(const struct wfs_tree_made *file);

#endif
