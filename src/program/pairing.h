/* SPDX-License-Identifier: MIT */
/*
 * The tensors of two checkpoints side by side: which both have, and which of the others are the
 * same under another key.
 */
#ifndef WFS_PAIRING_H
#define WFS_PAIRING_H

#include "program/comparison.h"

#include <weightfs/catalog.h>
#include <weightfs/patch.h>

/* A tensor of both, or of one of them: the other is NULL then, and nothing was compared. Two keys
 * are a rename. */
struct diff_row {
    const struct wfs_tensor *a, *b;
    const struct wfs_tensor *failed; /* could not be read */
    bool is_equal;
    struct comparison comparison;
};

/* Makes the rows: of the tensors of A, then of those that only B has; B may be NULL. malloc'ed.
 * -ENOMEM. */
int diff_rows_make(const struct wfs_catalog *a, const struct wfs_catalog *b, struct diff_row **out,
                   size_t *ret_n);

/*
 * Makes one row of a tensor that only A has and one that only B has, where they have the same
 * dtype, shape and digest: it was renamed. Views that are much larger than their bytes are not
 * read, and nothing is where the renames are known. If a read fails, returns its negative errno and
 * sets *ret_failed to the tensor; -ENOMEM.
 */
int diff_rows_pair(struct diff_row *rows, size_t *n_rows, const struct wfs_patch_rename *renames,
                   size_t n_renames, const struct wfs_tensor **ret_failed);

bool diff_row_is_renamed(const struct diff_row *row);

/* Compares two rows by their keys, for qsort. */
int diff_row_order(const void *a, const void *b);

/* Puts them in the order of keys. */
void diff_rows_sort(struct diff_row *rows, size_t n_rows);

/* Returns the tensor of A, or that of B where A has none. */
const struct wfs_tensor *diff_row_tensor(const struct diff_row *row);

#endif
