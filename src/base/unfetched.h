/* SPDX-License-Identifier: MIT */
/*
 * What a thread that must not wait has missed: the side of the sources.
 */
#ifndef WFS_BASE_UNFETCHED_H
#define WFS_BASE_UNFETCHED_H

#include <weightfs/unfetched.h>

#include "base/source.h"

/* Returns true for a thread that must not wait for others either, which may wait for the network.
 */
bool unfetched_is_refused(void);

/* Returns 0 where the thread may wait for a range that has not been fetched; else -EAGAIN, or why
 * it cannot be fetched. */
int unfetched_note(const struct source *source, uint64_t offset, uint64_t n_bytes);

#endif
