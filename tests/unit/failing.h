/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out when a test wants it to. The program must be linked with failing_link_args,
 * which put these functions in the place of the C library's.
 */
#ifndef WFS_FAILING_H
#define WFS_FAILING_H

#include <stddef.h>
#include <stdlib.h>

/* Allocations until one fails, 0: none will; and how many there were. */
static unsigned long failing_countdown, failing_n_calls;

static inline int failing_now(void)
{
    failing_n_calls++;
    return failing_countdown > 0 && --failing_countdown == 0;
}

#define FAILING(function, parameters, arguments)                                                   \
    void *__real_##function parameters;                                                            \
    void *__wrap_##function parameters;                                                            \
    void *__wrap_##function parameters                                                             \
    {                                                                                              \
        return failing_now() ? NULL : __real_##function arguments;                                 \
    }

FAILING(malloc, (size_t n), (n))
FAILING(calloc, (size_t n, size_t size), (n, size))
FAILING(realloc, (void *old, size_t n), (old, n))
FAILING(reallocarray, (void *old, size_t n, size_t size), (old, n, size))
FAILING(strdup, (const char *text), (text))
FAILING(strndup, (const char *text, size_t n), (text, n))

#endif
