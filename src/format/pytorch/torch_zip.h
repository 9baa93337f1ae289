/* SPDX-License-Identifier: MIT */
/*
 * What PyTorch writes as zips: checkpoints, TorchScript, packages, exported programs.
 */
#ifndef WFS_TORCH_ZIP_H
#define WFS_TORCH_ZIP_H

#include "format/pytorch/object/torch.h"

/* Loads the zip of n_bytes at start. depth: how many zips it is in. -EBADMSG, -EOPNOTSUPP,
 * -EMEDIUMTYPE, -E2BIG, -EIO, -ENOMEM. */
int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);

#endif
