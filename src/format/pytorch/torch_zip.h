/* SPDX-License-Identifier: MIT */
/*
 * What PyTorch writes as zips: checkpoints, TorchScript, packages, exported programs.
 */
#ifndef WFS_TORCH_ZIP_H
#define WFS_TORCH_ZIP_H

#include "archive/zip.h"
#include "format/pytorch/torch_records.h"

/* Loads the zip of n_bytes at start. depth: how many zips it is in. -EBADMSG, -EOPNOTSUPP,
 * -EMEDIUMTYPE, -E2BIG, -EIO, -ENOMEM. */
int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);

/*
 * Adds findings about bytes of the zip that belong to no record and about local headers, as far as
 * entries are located, and unless the catalog has them. -ENOMEM.
 */
int torch_zip_tell(struct wfs_catalog *catalog, const struct zip *zip);

/*
 * Reads the pickle of a checkpoint in a range of the source, without listing what is in it: the zip
 * fills the range, and its records are stored. zip and records are used while storages are looked
 * up; zip_close is needed in any case.
 */
int torch_zip_read(struct torch *torch, uint64_t start, uint64_t n_bytes, struct zip *zip,
                   struct torch_records *records, uint32_t *ret_root);

#endif
