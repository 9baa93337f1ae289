/* SPDX-License-Identifier: MIT */
/*
 * Tensors sorted by key, and the runs of them that share leading components: what a tree is drawn
 * from.
 */
#ifndef WFS_GROUPING_H
#define WFS_GROUPING_H

#include <weightfs/tensor.h>

/* Tensors borrowed, array the caller's. */
struct grouping {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
};

/* Sorts in place: by key, numbers by value. Keys with the same leading components stand together
 * then. */
void grouping_sort(struct grouping *grouping);

/*
 * All tensors of [i, end) begin with the same n_prefix bytes of key. The end of the run from i on
 * whose next component is the same; a key that ends with that component can only be the first of
 * the run.
 */
size_t grouping_end(const struct grouping *grouping, size_t i, size_t end, size_t n_prefix);

/* Bytes of the longest run of whole components, dots included, that every key of [i, end) begins
 * with. */
size_t grouping_common_prefix(const struct grouping *grouping, size_t i, size_t end);

/* Bytes of the tensors of [i, end); UINT64_MAX when that is more. */
uint64_t grouping_n_bytes(const struct grouping *grouping, size_t i, size_t end);

/* Bytes of the component at n_prefix, without the dot. */
size_t grouping_component(const char *key, size_t n_prefix);

#endif
