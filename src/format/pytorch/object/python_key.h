/* SPDX-License-Identifier: MIT */
/*
 * Keys and byte strings of Python.
 */
#ifndef WFS_PYTHON_KEY_H
#define WFS_PYTHON_KEY_H

#include <weightfs/strbuf.h>

#include "value/value.h"

/*
 * Adds a key that is not text as Python shows it: numbers, True, False and None, bytes, tuples of
 * few of those. Returns false for all others, and may have added a part then.
 */
bool python_add_key(struct strbuf *text, const struct graph *graph, uint32_t id);

/*
 * Returns a number for a key that has no such name. It depends on what the key is, and neither on
 * other keys nor on the protocol of the pickle; keys that contain tensors are all alike.
 */
uint32_t python_key_digest(const struct graph *graph, uint32_t id);

/* Copies a byte string, or what stands for one in old protocols, into malloc'ed memory. Returns 1;
 * 0 when the value is neither or large (over a MiB); -EIO, -ENOMEM. */
int python_copy_bytes(const struct graph *graph, uint32_t id, uint8_t **ret, size_t *ret_n);

#endif
