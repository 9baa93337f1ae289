/* SPDX-License-Identifier: MIT */
/*
 * What it takes to look at all elements of many tensors. Tensors of a small file can be thousands
 * of views of the same bytes: equal ones are looked at once, and what the others take is known
 * before it is done. For weightfs itself, not installed.
 */
#ifndef WFS_WORKLOAD_H
#define WFS_WORKLOAD_H

#include <weightfs/tensor.h>

/* A tensor that is looked at; `beside` is one of the same shape that it is compared with, or NULL.
 * Without a tensor there is nothing to do. */
struct wfs_work {
    const struct wfs_tensor *tensor, *beside;
    bool reads_shown; /* hashes every element as often as it is shown, and not once */
};

struct wfs_workload;

/*
 * The elements of a tensor without their repetitions. A view of a few bytes can show 2^40 elements;
 * what looks at each (statistics, comparisons) reads the stored ones once, and counts them as often
 * as they are shown.
 */
struct wfs_distinct {
    struct wfs_tensor tensor; /* shows each of them once */
    uint64_t n_times;         /* how often each is shown, times the number below */
    uint64_t *times;          /* one for each element; NULL: 1 */
    uint64_t *dims;           /* memory of the shape and strides */
};

#pragma GCC visibility push(default)

/* Borrows the tensors, and the list for the call only. -ENOMEM. */
int wfs_workload_new(const struct wfs_work *works, size_t n, struct wfs_workload **out);
void wfs_workload_free(struct wfs_workload *workload);

/*
 * Returns the group of those that give the same result as that work, numbered from 1; 0 for one
 * whose result no other has.
 */
size_t wfs_workload_group(const struct wfs_workload *workload, size_t i);
size_t wfs_workload_n_groups(const struct wfs_workload *workload);

/* Returns how many bytes are shown by all tensors, each group counted once; UINT64_MAX: too many.
 */
uint64_t wfs_workload_n_shown(const struct wfs_workload *workload);

/*
 * Returns 0, or -EFBIG with a sentence when it would take longer than looking at 256 MiB of F32
 * and 16 times the bytes of all files of the tensors.
 */
int wfs_workload_check(const struct wfs_workload *workload, struct wfs_error *err);

/*
 * Borrows from the tensor. `beside` is a tensor of the same shape that is read in step with it, or
 * NULL: only what both repeat is left out then, so that the elements of both correspond. -ENOMEM,
 * -EINTR; *ret needs wfs_distinct_done in any case.
 */
int wfs_distinct_init(const struct wfs_io *io, struct wfs_distinct *ret,
                      const struct wfs_tensor *tensor, const struct wfs_tensor *beside);
void wfs_distinct_done(struct wfs_distinct *distinct);

/* Returns how often the element is shown. */
uint64_t wfs_distinct_times(const struct wfs_distinct *distinct, uint64_t index);

/* Elements in parts, each of which several threads can work on. */
struct wfs_parts {
    uint64_t n_elems;
    size_t n_part;   /* elements of a part; the last has fewer */
    size_t n_result; /* bytes; 0 at the beginning */
    /* Works on a part, in any thread; 0 or a negative errno. */
    int (*make)(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result);
    /* Gets each result in order, in the caller's thread. */
    void (*take)(void *ctx, void *result);
    void *ctx;
};

/* Returns a number of elements that is worth a thread: 2^20, more where pieces of that size are
 * slow to read. A power of 2. */
size_t wfs_tensor_part_elems(const struct wfs_tensor *tensor);

/* Works on all parts, some at a time. Ends with the first whose make fails, and returns that: the
 * last result that is taken is its. -ENOMEM. */
int wfs_parts_run(const struct wfs_io *io, const struct wfs_parts *parts);

/* Gets n elements, from number `first` on, as bytes. Not 0: the end. */
typedef int (*wfs_visit)(void *ctx, const void *bytes, size_t n, uint64_t first);

/* Reads n elements of a tensor in pieces of whole groups of every dtype; first is a multiple of
 * 2^15, or of the elements in a part. What visit returned, -EIO, -EINTR, -ENOMEM. */
int wfs_tensor_scan(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t first,
                    uint64_t n, wfs_visit visit, void *ctx);

/* Returns the number of elements that are stored once. */
uint64_t wfs_distinct_count(const struct wfs_distinct *distinct);

/* How two lists of numbers differ: NaN equals NaN, and zero minus zero. */
struct wfs_difference {
    uint64_t n_changed, n_nan; /* of those: NaN in one list only */
    double max_abs, max_rel;   /* over the others; max_rel is of the larger of the two numbers */
};

/* Adds that of n numbers, all exact in single precision. */
void wfs_difference_add(const double *a, const double *b, size_t n, struct wfs_difference *total);

/* The sums of a * a, b * b, a * b and (a - b)^2, over the numbers that are finite in both lists. */
struct wfs_products {
    double aa, bb, ab, dd;
};

/* Computes them for at most 2^11 numbers that are exact in single precision. */
struct wfs_products wfs_products_of(const double *a, const double *b, size_t n);

enum { WFS_BINS_MAX = 64 };

/* Adds the finite ones of the numbers to n_bins equal bins from the smallest to the largest number
 * of the statistics, which are not the same. */
void wfs_bins_add(const struct wfs_stats *stats, const double *numbers, size_t n, size_t n_bins,
                  uint64_t *counts);

/* Counts the elements of a tensor of numbers in this way. -EIO, -EINTR, -ENOMEM, -EOPNOTSUPP. */
int wfs_tensor_histogram(const struct wfs_io *io, const struct wfs_tensor *tensor,
                         const struct wfs_stats *stats, size_t n_bins, uint64_t *counts);

/*
 * Returns true when reading everything that the tensor shows would take much longer than reading
 * the file that it is in: more than 16 times its bytes, and more than 64 MiB.
 */
bool wfs_tensor_is_large(const struct wfs_tensor *tensor);

#pragma GCC visibility pop

#endif
