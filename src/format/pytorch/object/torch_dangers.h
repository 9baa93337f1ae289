/* SPDX-License-Identifier: MIT */
/*
 * Names in a pickle that could do harm when Python loads it.
 */
#ifndef WFS_TORCH_DANGERS_H
#define WFS_TORCH_DANGERS_H

#include "format/pytorch/object/torch.h"

/* Adds a finding for each dangerous name, up to a bound. -ENOMEM. */
int torch_dangers_report(struct torch *torch);

#endif
