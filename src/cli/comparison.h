/* SPDX-License-Identifier: MIT */
/*
 * Two tensors, element by element, and tables of how two checkpoints differ. Numbers are compared
 * as numbers, whatever their dtypes: NaN equals NaN and zero equals minus zero. What has no
 * arithmetic meaning, quantized and opaque elements among it, is compared by its bytes.
 */
#ifndef WFS_COMPARISON_H
#define WFS_COMPARISON_H

#include "cli/args.h"

#include <weightfs/patch.h>
#include <weightfs/tensor.h>

/* Two lists of numbers as vectors: sums of products, over all elements that are finite in both. */
struct measures {
    long double aa, bb, ab;
    long double dd; /* of the differences */
};

void measures_add(struct measures *total, const struct measures *more);

/* Returns the L2 norm of the difference; that divided by the norm of A; and the cosine of the angle
 * between both, NaN where one is zero. */
double measures_l2(const struct measures *measures);
double measures_relative(const struct measures *measures);
double measures_cosine(const struct measures *measures);

struct comparison_options {
    bool is_exact;     /* numbers of one dtype are compared bit for bit */
    bool has_measures; /* also compute the measures, which takes longer where bytes are equal */
};

struct comparison {
    bool has_content; /* false: dtype, shape or quantization do not allow a comparison */
    bool has_numbers; /* false: n_elems and n_changed count bytes */
    uint64_t n_elems, n_changed;
    uint64_t n_nan;           /* of those: NaN on one side only */
    double max_abs, max_rel;  /* over the others; max_rel is of the larger of the two numbers */
    struct measures measures; /* 0 where they were not asked for, or there are no numbers */
};

bool comparison_is_one_quantization(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns true for the same dtype, shape and quantization. */
bool comparison_is_alike(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns true when dtype and shape allow a comparison of the elements. */
bool comparison_has_content(const struct wfs_tensor *a, const struct wfs_tensor *b);

/*
 * Compares two tensors, reading both in bounded pieces. If a read fails, returns its negative errno
 * and sets *ret_failed to the tensor; -ENOMEM may leave it NULL.
 */
int comparison_make(const struct wfs_io *io, const struct wfs_tensor *a, const struct wfs_tensor *b,
                    struct comparison_options options, struct comparison *ret,
                    const struct wfs_tensor **ret_failed);

/* ---- tables ---- */

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

/* Puts them in the order of keys. */
void diff_rows_sort(struct diff_row *rows, size_t n_rows);

/* Returns the tensor of A, or that of B where A has none. */
const struct wfs_tensor *diff_row_tensor(const struct diff_row *row);

/* Checks the value of --sort, or prints a line: EXIT_USAGE. */
enum exit_code diff_tables_check(const struct args *args);

/* Prints a row for each tensor that differs, or with --stat one with a bar for each module that has
 * one; and puts the rows in their order. json: an array is open for the modules; NULL: a table.
 * -ENOMEM. */
int diff_tables_print(struct diff_row *rows, size_t n_rows, const struct args *args,
                      struct json_out *json);

#endif
