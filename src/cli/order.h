/* SPDX-License-Identifier: MIT */
/*
 * Orders in which tensors are listed: the values of --sort.
 */
#ifndef WFS_ORDER_H
#define WFS_ORDER_H

#include <weightfs/tensor.h>

#include "cli/args.h"

enum order {
    ORDER_NONE, /* as in the file */
    ORDER_KEY,  /* numbers by value */
    ORDER_NAME, /* by the last component of the key */
    ORDER_SIZE, /* the largest first */
    ORDER_DTYPE,
};

/* What stands for the value of --sort in help texts. */
#define ORDER_ARGUMENT "ORDER"

/* Reads --sort; *ret is not touched without it. Unless EXIT_DONE, a line was printed. */
enum exit_code order_parse(const struct args *args, enum order *ret);

/* Compares keys, runs of digits by their value; a key is directly followed by those that it is a
 * prefix of. */
int order_of_keys(const char *a, const char *b);

void order_sort(const struct wfs_tensor **tensors, size_t n_tensors, enum order order);

#endif
