/* SPDX-License-Identifier: MIT */
/*
 * The grids of the IQ types, from GGML (MIT licence): each entry is the codes of eight elements of
 * two bits, or of four elements of four.
 */
#ifndef WFS_BLOCK_GRIDS_H
#define WFS_BLOCK_GRIDS_H

#include <stdint.h>

extern const uint16_t block_grid_iq1[2048];
extern const uint16_t block_grid_iq2_xxs[256];
extern const uint16_t block_grid_iq2_xs[512];
extern const uint16_t block_grid_iq2_s[1024];
extern const uint16_t block_grid_iq3_xxs[256];
extern const uint16_t block_grid_iq3_s[512];

#endif
