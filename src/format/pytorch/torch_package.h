/* SPDX-License-Identifier: MIT */
/*
 * What torch.package writes: a zip with any number of pickles, the TorchScript modules that they
 * refer to, and source code.
 */
#ifndef WFS_TORCH_PACKAGE_H
#define WFS_TORCH_PACKAGE_H

#include "format/pytorch/torch_records.h"

/* Returns whether the zip is a package, and makes its folder the root. pickle is the data.pkl that
 * would make it a checkpoint; NULL: there is none. */
bool torch_package_is(struct torch_records *records, const struct zip_entry *pickle);

/* Lists every pickle of the package; with the path of the pickle in the keys, if there are several.
 * As torch_zip_load. */
int torch_package_load(struct torch *torch, struct torch_records *records);

#endif
