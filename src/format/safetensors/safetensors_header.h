/* SPDX-License-Identifier: MIT */
/*
 * The header of a safetensors file.
 */
#ifndef WFS_SAFETENSORS_HEADER_H
#define WFS_SAFETENSORS_HEADER_H

#include "format/safetensors/safetensors_load.h"

/* Parses it into entries, metadata and findings. */
int safetensors_header_parse(struct safetensors_load *load);

#endif
