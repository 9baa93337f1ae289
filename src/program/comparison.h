/* SPDX-License-Identifier: MIT */
/*
 * Two tensors, element by element. Numbers are compared
 * as numbers, whatever their dtypes: NaN equals NaN and zero equals minus zero. What has no
 * arithmetic meaning, quantized and opaque elements among it, is compared by its bytes.
 */
#ifndef WFS_COMPARISON_H
#define WFS_COMPARISON_H

#include <weightfs/interruption.h>
#include <weightfs/json_out.h>
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

/* Puts an object with both tensors, the first of which gives the key, and how they differ. */
void comparison_put(struct json_out *json, const struct wfs_tensor *a, const struct wfs_tensor *b,
                    const struct comparison *comparison, bool has_measures);

/* Puts an object with dtype and shape of one of both; name NULL: as an item, with its key. */
void comparison_put_tensor(struct json_out *json, const char *name,
                           const struct wfs_tensor *tensor);

#endif
