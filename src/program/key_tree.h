/* SPDX-License-Identifier: MIT */
/*
 * Tensors sorted by key, and the runs of them that share leading components: directories of a tree,
 * and modules. Runs that differ in nothing but a number, as equal layers do, can be folded into
 * one.
 */
#ifndef WFS_KEY_TREE_H
#define WFS_KEY_TREE_H

#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>

#include <stdbool.h>

/* Compares keys, runs of digits by their value; a key is directly followed by those that it is a
 * prefix of. */
int order_of_keys(const char *a, const char *b);

/* The tensors are borrowed, the array belongs to the caller. */
struct key_tree {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
};

/* What one line of a tree is about: a tensor, a directory, or equal ones of either. */
struct key_run {
    size_t start, end; /* of its tensors */
    size_t end_one;    /* of the first copy; end, where there is one only */
    uint64_t n_copies;
    size_t n_number; /* bytes of the key before the number in which the copies differ */
    size_t n_prefix; /* bytes of the keys that lead into the directory, or into its first copy */
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

/*
 * Returns the run that a directory begins with: tensors [i, end), which share n_prefix bytes.
 * Directories that have one entry only are part of its name.
 */
struct key_run key_tree_run(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix,
                            bool folds_equals);

/* Adds the name of a run, without the n_prefix bytes of its directory: "layer.{0..11}". */
void key_tree_name(const struct key_tree *tree, const struct key_run *run, size_t n_prefix,
                   struct strbuf *out);

/* Returns the bytes of the tensors of [i, end), at most UINT64_MAX; and their elements. */
uint64_t key_tree_n_bytes(const struct key_tree *tree, size_t i, size_t end);
uint64_t key_tree_n_elems(const struct key_tree *tree, size_t i, size_t end);

/* Returns the bytes of the component at n_prefix, without the dot. */
size_t key_tree_component(const char *key, size_t n_prefix);

/* ---- modules ---- */

struct module {
    struct key_run run;
    uint64_t n_bytes;
};

struct modules {
    const struct key_tree *tree;
    bool folds_equals; /* equal layers are one */
    size_t n_most;     /* none is replaced where there were more */
    struct module *items;
    size_t n_items, n_room;
};

/*
 * Finds the modules of a sorted tree, the caller sets what is above `items`: the top level, of
 * which a module that has most of the bytes is replaced by what is in it. -ENOMEM.
 */
int modules_find(struct modules *modules);
void modules_done(struct modules *modules);

#endif
