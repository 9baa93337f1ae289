/* SPDX-License-Identifier: MIT */
/*
 * The room of the PyTorch format: it knows in which containers PyTorch writes pickles (zip, stream,
 * tar, bare), and where each keeps the bytes of storages. What the pickles mean is read in
 * format/pytorch/object; a new checkpoint is laid out in format/pytorch/writer.
 */
#ifndef WFS_PYTORCH_H
#define WFS_PYTORCH_H

#include "format/core/format.h"

extern const struct wfs_format format_pytorch;

#endif
