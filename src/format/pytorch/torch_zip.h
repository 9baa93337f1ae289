/* SPDX-License-Identifier: MIT */
/*
 * What PyTorch writes as zips: checkpoints, TorchScript, packages, exported programs.
 */
#ifndef WFS_TORCH_ZIP_H
#define WFS_TORCH_ZIP_H

#include "archive/zip.h"
#include "format/pytorch/object/torch.h"

/* Loads the zip of n_bytes at start. depth: how many zips it is in. -EBADMSG, -EOPNOTSUPP,
 * -EMEDIUMTYPE, -E2BIG, -EIO, -ENOMEM. */
int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);

/*
 * Adds findings about bytes of the zip that belong to no record and about local headers, as far as
 * entries are located, and unless the catalog has them. -ENOMEM.
 */
int torch_zip_tell(struct wfs_catalog *catalog, const struct zip *zip);

#endif
