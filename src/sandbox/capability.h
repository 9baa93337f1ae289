/* SPDX-License-Identifier: MIT */
/*
 * The capabilities of this process, as bits.
 */
#ifndef WFS_CAPABILITY_H
#define WFS_CAPABILITY_H

#include <stdint.h>

uint64_t capability_permitted(void);

/* 0, or a negative errno. */
int capability_set(uint64_t permitted, uint64_t effective);

#endif
