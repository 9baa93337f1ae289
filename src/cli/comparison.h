/* SPDX-License-Identifier: MIT */
/*
 * Two tensors, element by element. Numbers are compared as numbers, whatever their dtypes: NaN
 * equals NaN and zero equals minus zero. What has no arithmetic meaning, quantized and opaque
 * elements among it, is compared by its bytes.
 */
#ifndef WFS_COMPARISON_H
#define WFS_COMPARISON_H

#include <weightfs/tensor.h>

struct comparison {
    bool has_content; /* false: dtype, shape or quantization do not allow a comparison */
    bool has_numbers; /* false: n_elems and n_changed count bytes */
    uint64_t n_elems, n_changed;
    uint64_t n_nan;          /* of those: NaN on one side only */
    double max_abs, max_rel; /* over the others; max_rel is of the larger of the two numbers */
};

bool comparison_is_one_quantization(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns true for the same dtype, shape and quantization. */
bool comparison_is_alike(const struct wfs_tensor *a, const struct wfs_tensor *b);

/* Returns true when dtype and shape allow a comparison of the elements. */
bool comparison_has_content(const struct wfs_tensor *a, const struct wfs_tensor *b);

/*
 * Compares two tensors, reading both in bounded pieces. With is_exact, numbers of one dtype are
 * compared bit for bit. If a read fails, returns its negative errno and sets *ret_failed to the
 * tensor; -ENOMEM may leave it NULL.
 */
int comparison_make(const struct wfs_tensor *a, const struct wfs_tensor *b, bool is_exact,
                    struct comparison *ret, const struct wfs_tensor **ret_failed);

#endif
