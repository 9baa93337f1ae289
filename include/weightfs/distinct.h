/* SPDX-License-Identifier: MIT */
/*
 * The elements of a tensor without their repetitions. A view of a few bytes can show 2^40 elements;
 * what looks at each (statistics, comparisons) reads the stored ones once, and counts them as often
 * as they are shown. For weightfs itself, not installed.
 */
#ifndef WFS_DISTINCT_H
#define WFS_DISTINCT_H

#include <weightfs/tensor.h>

struct wfs_distinct {
    struct wfs_tensor tensor; /* shows each of them once */
    uint64_t n_times;         /* how often each is shown, times the number below */
    uint64_t *times;          /* one for each element; NULL: 1 */
    uint64_t *dims;           /* memory of the shape and strides */
};

#pragma GCC visibility push(default)

/*
 * Borrows from the tensor. `beside` is a tensor of the same shape that is read in step with it, or
 * NULL: only what both repeat is left out then, so that the elements of both correspond. -ENOMEM,
 * -EINTR; *ret needs wfs_distinct_done in any case.
 */
int wfs_distinct_init(struct wfs_distinct *ret, const struct wfs_tensor *tensor,
                      const struct wfs_tensor *beside);
void wfs_distinct_done(struct wfs_distinct *distinct);

/*
 * Computes the time that it takes to look at each of these elements once, as the number of bytes of
 * a plain tensor of F32 that take as long. -ENOMEM.
 */
int wfs_distinct_cost(const struct wfs_tensor *tensor, const struct wfs_tensor *beside,
                      uint64_t *ret_n_bytes);

/* Returns the same for a hash of all bytes that the tensor shows. */
uint64_t wfs_tensor_cost(const struct wfs_tensor *tensor);

/* Returns how often the element is shown. */
uint64_t wfs_distinct_times(const struct wfs_distinct *distinct, uint64_t index);

/*
 * Returns true when reading everything that the tensor shows would take much longer than reading
 * the file that it is in: more than 16 times its bytes, and more than 64 MiB.
 */
bool wfs_tensor_is_large(const struct wfs_tensor *tensor);

#pragma GCC visibility pop

#endif
