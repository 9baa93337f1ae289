/* SPDX-License-Identifier: MIT */
/*
 * Byte strings of a pickle, whatever the protocol: bytes, texts that stand for bytes, and calls
 * that encode a text.
 */
#ifndef WFS_TORCH_BYTES_H
#define WFS_TORCH_BYTES_H

#include "format/pytorch/object/torch.h"

/* Finds the range of a source that holds the bytes. Returns 1; 0 when the value is not a byte
 * string; -ENOMEM. */
int torch_bytes_of(struct torch *torch, uint32_t id, struct value_bytes *ret);

#endif
