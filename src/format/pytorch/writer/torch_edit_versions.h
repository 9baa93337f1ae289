/* SPDX-License-Identifier: MIT */
/*
 * The versions of modules, which follow the tensors of the modules.
 */
#ifndef WFS_TORCH_EDIT_VERSIONS_H
#define WFS_TORCH_EDIT_VERSIONS_H

#include "format/pytorch/writer/torch_edit.h"

/* Makes the tables of versions at the end, after everything has its container. -ENOMEM. */
int torch_edit_versions(struct torch_edit *edit);

#endif
