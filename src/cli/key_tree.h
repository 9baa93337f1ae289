/* SPDX-License-Identifier: MIT */
/*
 * Tensors sorted by key, the runs of them that share leading components, and the tree that is drawn
 * from these.
 */
#ifndef WFS_KEY_TREE_H
#define WFS_KEY_TREE_H

#include <stdio.h>

#include <weightfs/tensor.h>

/* The tensors are borrowed, the array belongs to the caller. */
struct key_tree {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
};

/*
 * Sorts in place: by key, with numbers by value. Keys with the same leading components are then
 * adjacent.
 */
void key_tree_sort(struct key_tree *tree);

/*
 * Returns the end of the run from i on whose next component is the same. All tensors of [i, end)
 * begin with the same n_prefix bytes of key; only the first key of a run can end with that
 * component.
 */
size_t key_tree_end(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix);

/* Returns the bytes of the tensors of [i, end), at most UINT64_MAX. */
uint64_t key_tree_n_bytes(const struct key_tree *tree, size_t i, size_t end);

/* Returns the bytes of the component at n_prefix, without the dot. */
size_t key_tree_component(const char *key, size_t n_prefix);

/* Sorts the tensors and draws them as a tree, with counts and bytes. -ENOMEM. */
int key_tree_draw(FILE *out, struct key_tree *tree);

#endif
