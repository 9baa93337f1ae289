/* SPDX-License-Identifier: MIT */
/*
 * The reader's side of a process that fetches sources on the network: many threads ask over one
 * socket. A program that has one gives it to wfs_load. For weightfs itself, not installed.
 */
#ifndef WFS_REMOTE_H
#define WFS_REMOTE_H

#include <stdint.h>

struct wfs_catalog;
struct wfs_error;
struct wfs_io;
struct wfs_remote;
struct source;

#pragma GCC visibility push(default)

/* Takes the socket. -ENOMEM closes it. */
int wfs_remote_new(int socket, struct wfs_remote **out);

/* Lets go of it; sources that came from it keep it until they are freed. NULL is allowed. */
void wfs_remote_free(struct wfs_remote *remote);

/*
 * Asks the Hub, once, of which commit the file is that "hf://…@REVISION/PATH" names now: *ret is
 * the name with the commit, malloc'ed, and *ret_digest that of its entity tag. Errors as a source
 * that cannot be opened.
 */
int wfs_remote_ask(struct wfs_remote *remote, const char *url, char **ret, uint64_t *ret_digest,
                   struct wfs_error *err);

/* Adds to the findings of a checkpoint where it came from. -ENOMEM. */
int wfs_remote_tell(struct wfs_catalog *catalog, const char *text);

/* Lets only this process ask: one that it forks gets an error, and disturbs nothing. opening, which
 * is borrowed until the next call, stops who waits without a reader that can be stopped; NULL:
 * nothing does. */
void wfs_remote_bind(struct wfs_remote *remote, const struct wfs_io *opening);

/*
 * Asked by a read that nobody can stop (see struct wfs_io), in its thread, before it waits for what
 * has not been fetched: 0, or a negative errno, with which it fails at once. The range is all that
 * the reader is known to need.
 */
typedef int wfs_remote_gate(void *ctx, const struct source *source, uint64_t offset, uint64_t end);

/* Sets the gate of all sources that come from it, before others use it. */
void wfs_remote_set_gate(struct wfs_remote *remote, wfs_remote_gate *gate, void *ctx);

/* Fetches a range of a source that the gate was asked for. As a read of it. */
int wfs_remote_fetch(const struct wfs_io *io, const struct source *source, uint64_t offset,
                     uint64_t end);

/* Returns the bytes that were fetched for its sources, and those together with what readers wait
 * for, as of the last answer. */
void wfs_remote_progress(const struct wfs_remote *remote, uint64_t *ret_fetched,
                         uint64_t *ret_needed);

#pragma GCC visibility pop

#endif
