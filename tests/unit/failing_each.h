/* SPDX-License-Identifier: MIT */
/*
 * An operation with each of its allocations failing once.
 */
#ifndef WFS_FAILING_EACH_H
#define WFS_FAILING_EACH_H

#include <errno.h>

#include <weightfs/error.h>

#include "check.h"
#include "failing.h"

/* Each time it has to give -ENOMEM and to say so. */
static void check_each_allocation(int (*operation)(struct wfs_error *err))
{
    struct wfs_error err = {0};
    failing_countdown = failing_n_calls = 0;
    if (!check_int(operation(&err), 0))
        printf("# %s\n", err.text);
    const unsigned long n_calls = failing_n_calls;
    check(n_calls > 5);
    for (unsigned long i = 1; i <= n_calls; i++) {
        err = (struct wfs_error){0};
        failing_countdown = i;
        const int code = operation(&err);
        failing_countdown = 0;
        if (!check_int(code, -ENOMEM) || !check_str(err.text, "out of memory"))
            printf("# allocation %lu of %lu\n", i, n_calls);
    }
}

#endif
