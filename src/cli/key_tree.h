/* SPDX-License-Identifier: MIT */
/*
 * Tensors sorted by key, and the runs of them that share leading components: what a tree is drawn
 * from.
 */
#ifndef WFS_KEY_TREE_H
#define WFS_KEY_TREE_H

#include <stdio.h>

#include <weightfs/tensor.h>

/* Tensors borrowed, array the caller's. */
struct key_tree {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
};

/* Sorts in place: by key, numbers by value. Keys with the same leading components stand together
 * then. */
void key_tree_sort(struct key_tree *tree);

/*
 * All tensors of [i, end) begin with the same n_prefix bytes of key. The end of the run from i on
 * whose next component is the same; a key that ends with that component can only be the first of
 * the run.
 */
size_t key_tree_end(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix);

/* Bytes of the longest run of whole components, dots included, that every key of [i, end) begins
 * with. */
size_t key_tree_common_prefix(const struct key_tree *tree, size_t i, size_t end);

/* Bytes of the tensors of [i, end); UINT64_MAX when that is more. */
uint64_t key_tree_n_bytes(const struct key_tree *tree, size_t i, size_t end);

/* Returns the bytes of the component at n_prefix, without the dot. */
size_t key_tree_component(const char *key, size_t n_prefix);

/* Sorts the tensors and draws them as a tree, with counts and bytes. -ENOMEM. */
int key_tree_draw(FILE *out, struct key_tree *tree);

#endif
