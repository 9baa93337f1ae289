/* SPDX-License-Identifier: MIT */
/*
 * The containers that PyTorch writes. Loading one fails with -EBADMSG, -EOPNOTSUPP, -EMEDIUMTYPE
 * for what is not from PyTorch, -E2BIG, -EIO, -ENOMEM.
 */
#ifndef WFS_TORCH_CONTAINERS_H
#define WFS_TORCH_CONTAINERS_H

#include "format/pytorch/torch_records.h"

/* Loads the tar archive that PyTorch wrote before 0.1.10. */
int torch_tar_load(struct torch *torch);

/* Loads the zip of n_bytes at start: a checkpoint, TorchScript, a package, an exported program.
 * depth: how many zips it is in. */
int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);

/*
 * Reads the pickle of a checkpoint in a range of the source, without listing what is in it: the zip
 * fills the range, and its records are stored. zip and records are used while storages are looked
 * up; zip_close is needed in any case.
 */
int torch_zip_read(struct torch *torch, uint64_t start, uint64_t n_bytes, struct zip *zip,
                   struct torch_records *records, uint32_t *ret_root);

/* For struct wfs_format: reads every record of a zip once, in bounded pieces, and adds a finding
 * for each that does not match its checksum. -EBADMSG, -EIO, -ENOMEM. */
int torch_zip_verify(const struct source *source, struct wfs_catalog *catalog,
                     struct wfs_error *err);

/* Reads a list of weights of an exported program in an entry of a zip, and adds its weights, whose
 * records are in the same folder, to the catalog. role: what they are, if state_dict() does not
 * return them; else NULL. */
int torch_weights_load(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       const char *role);

/* Loads a torch.package: any number of pickles, the TorchScript modules that they refer to, and
 * source code. Lists every pickle; with its path in the keys, if there are several. */
int torch_package_load(struct torch *torch, struct torch_records *records);

/* Returns whether the zip is a package, and makes its folder the root. pickle is the data.pkl that
 * would make it a checkpoint; NULL: there is none. */
bool torch_package_is(struct torch_records *records, const struct zip_entry *pickle);

#endif
