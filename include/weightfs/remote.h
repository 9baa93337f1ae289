/* SPDX-License-Identifier: MIT */
/*
 * The reader's side of a process that fetches sources on the network: many threads ask over one
 * socket. A program that has one gives it to wfs_load. For weightfs itself, not installed.
 */
#ifndef WFS_REMOTE_H
#define WFS_REMOTE_H

#include <stdint.h>

struct wfs_remote;

#pragma GCC visibility push(default)

/* Takes the socket. -ENOMEM closes it. */
int wfs_remote_new(int socket, struct wfs_remote **out);

/* Lets go of it; sources that came from it keep it until they are freed. NULL is allowed. */
void wfs_remote_free(struct wfs_remote *remote);

/* Returns the bytes that were fetched for its sources, and those together with what readers wait
 * for, as of the last answer. */
void wfs_remote_progress(const struct wfs_remote *remote, uint64_t *ret_fetched,
                         uint64_t *ret_needed);

#pragma GCC visibility pop

#endif
