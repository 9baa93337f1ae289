/* SPDX-License-Identifier: MIT */
/*
 * Sizes in bytes as people write them.
 */
#ifndef WFS_SIZE_H
#define WFS_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* Reads "5000", "5GB" (10^9), "5GiB" or "5G" (2^30), in any case; returns false for all else. */
bool wfs_size_parse(const char *text, uint64_t *ret);

#pragma GCC visibility pop

#endif
