/* SPDX-License-Identifier: MIT */
/*
 * GGUF, the format of llama.cpp: typed metadata, tensors of plain numbers, and tensors of blocks.
 */
#ifndef WFS_GGUF_H
#define WFS_GGUF_H

#include "format/core/format.h"

extern const struct wfs_format format_gguf;

#endif
