/* SPDX-License-Identifier: MIT */
/*
 * Lists of weights in an exported program.
 */
#ifndef WFS_TORCH_WEIGHTS_H
#define WFS_TORCH_WEIGHTS_H

#include "archive/zip.h"
#include "format/pytorch/object/torch.h"

/* Reads the list in an entry of a zip, and adds its weights, whose records are in the same folder,
 * to the catalog. -EBADMSG, -EOPNOTSUPP, -E2BIG, -EIO, -ENOMEM. */
int torch_weights_load(struct torch *torch, struct zip *zip, struct zip_entry *entry);

#endif
