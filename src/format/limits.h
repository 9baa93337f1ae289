/* SPDX-License-Identifier: MIT */
/*
 * Caps on what a file may ask for, checked before memory is taken. Each can be replaced with `-o
 * limit.NAME=N`. Name, default, and why.
 */
#ifndef WFS_LIMITS_H
#define WFS_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>

#define LIMITS(X)                                                                                  \
    X(tensors, 1000000, "the largest published model has half as many")                            \
    X(header, 100000000, "safetensors header bytes, as the reference")                             \
    X(rank, 16384, "torch and safetensors have none; a header of 64 KiB names that many")          \
    X(key, 1048576, "key bytes; 70,000 has been seen")                                             \
    X(index_memory, 2147483648, "bytes of memory for everything but tensor data")

struct limits {
#define X(name, value, reason) uint64_t name;
    LIMITS(X)
#undef X
};

void limits_init(struct limits *limits);

/* text is "NAME=NUMBER". -EINVAL names the limits that exist. */
int limits_set(struct limits *limits, const char *text, struct wfs_error *err);

#endif
