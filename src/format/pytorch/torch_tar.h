/* SPDX-License-Identifier: MIT */
/*
 * The tar archive that PyTorch wrote before 0.1.10.
 */
#ifndef WFS_TORCH_TAR_H
#define WFS_TORCH_TAR_H

#include "format/pytorch/object/torch.h"

/* -EBADMSG, -EOPNOTSUPP, -EMEDIUMTYPE for a tar of something else, -E2BIG, -EIO, -ENOMEM. */
int torch_tar_load(struct torch *torch);

#endif
