/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint consists of, for a terminal: a table with a bar for each module, as du has it,
 * and one for each dtype.
 */
#ifndef WFS_MODULES_H
#define WFS_MODULES_H

#include <weightfs/tensor.h>

#include "cli/args.h"
#include "cli/key_tree.h"

struct module_totals {
    uint64_t n_tensors, n_bytes, n_elems;
};

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

/* Prints the modules of a sorted tree, the largest first. -ENOMEM. */
int modules_print(const struct key_tree *tree, const struct args *args);

/* Prints the totals of each dtype that occurs. -ENOMEM. */
int modules_print_dtypes(const struct module_totals by_dtype[WFS_N_DTYPES],
                         const struct args *args);

#endif
