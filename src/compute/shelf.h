/* SPDX-License-Identifier: MIT */
/*
 * Decoded factors that are in use, and as many of the others as fit: one shelf for the process,
 * bounded, with its own lock.
 */
#ifndef WFS_SHELF_H
#define WFS_SHELF_H

#include <stddef.h>
#include <stdint.h>

/* What an array of doubles is: number `part` of a step of a computation. */
struct shelf_key {
    uint64_t owner, step, part;
};

/* Fills the array. Negative errno. */
typedef int shelf_fill(void *ctx, double *to);

/*
 * Returns the array of n doubles, which is filled when nobody has it yet: once, also when many ask
 * for it. It stays until shelf_give_back is called with it. -ENOMEM, or what fill returned.
 */
int shelf_take(const struct shelf_key *key, size_t n, shelf_fill *fill, void *ctx,
               const double **ret);
void shelf_give_back(const double *array);

/* Forgets what the owner has. Nobody uses it. */
void shelf_forget(uint64_t owner);

#endif
