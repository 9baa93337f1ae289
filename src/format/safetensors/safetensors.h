/* SPDX-License-Identifier: MIT */
/*
 * The room of the safetensors format. It knows what a file looks like, what the reference reads,
 * what other readers refuse, and the canonical form that is written. Checkpoints of several files
 * are left to format/set.
 */
#ifndef WFS_SAFETENSORS_H
#define WFS_SAFETENSORS_H

#include "format/core/format.h"

extern const struct wfs_format format_safetensors;

#endif
