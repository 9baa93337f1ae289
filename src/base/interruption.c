/* SPDX-License-Identifier: MIT */
/*
 * One question for each thread: passing it along would give a parameter to every function that
 * reads.
 */
#include <weightfs/interruption.h>

#include <errno.h>
#include <stddef.h>

static _Thread_local const struct wfs_interruption *current;

void wfs_interruption_set(const struct wfs_interruption *interruption)
{
    current = interruption;
}

int wfs_interruption_check(void)
{
    return current != NULL && current->is_wanted(current->ctx) ? -EINTR : 0;
}
