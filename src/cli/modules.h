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

/*
 * Prints the modules of a sorted tree, the largest first: the top level, of which a module that has
 * most of the bytes is replaced by what is in it. -ENOMEM.
 */
int modules_print(const struct key_tree *tree, const struct args *args);

/* Prints the totals of each dtype that occurs. -ENOMEM. */
int modules_print_dtypes(const struct module_totals by_dtype[WFS_N_DTYPES],
                         const struct args *args);

#endif
