/* SPDX-License-Identifier: MIT */
/*
 * The time in milliseconds.
 */
#ifndef WFS_CLOCK_H
#define WFS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Of a clock that only goes forward. */
static inline int64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

#endif
