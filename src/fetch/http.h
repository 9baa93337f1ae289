/* SPDX-License-Identifier: MIT */
/*
 * Ranges of objects by HTTP: one loop of one thread that runs many transfers at a time. Retries,
 * redirects, validators and credentials are dealt with in here; the caller gets bytes, or one line
 * that says why there are none. libcurl is used in this room only.
 *
 * No text that leaves this room has a query, a user or a password of a URL, or a credential, in it.
 */
#ifndef WFS_HTTP_H
#define WFS_HTTP_H

#include "fetch/http_calls.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>

struct http;
struct http_object;
struct http_transfer;

/*
 * Makes the loop of this process. Reads all that identifies the user, from the environment and the
 * home directory; later on, only the certificates and what the resolver needs are opened. Settings
 * that are wrong are reported when they are needed.
 */
int http_new(struct http **out, const struct http_settings *settings, struct wfs_error *err);

/* Objects have been freed. */
void http_free(struct http *http);

/*
 * Runs transfers, until a descriptor of extra is ready (its revents are set), something was called
 * back, or ms are over (-1: no limit). -ENOMEM, -EIO when the loop itself fails.
 */
int http_wait(struct http *http, struct pollfd *extra, unsigned n_extra, int ms);

/*
 * Begins the first request for an object, which asks for head_bytes (at least 1) of it: opened,
 * received, done. Where the server has no ranges, received gets the whole object. -EINVAL for a
 * name that is none, -ENOMEM; err gets a sentence then, and nothing is called.
 */
int http_object_open(struct http *http, const char *name, uint64_t head_bytes,
                     const struct http_calls *calls, void *ctx, struct http_object **out,
                     struct wfs_error *err);

/* Returns the transfer that opens it, until that is done; then NULL. */
struct http_transfer *http_object_opening(const struct http_object *object);

/* Prepares for n requests at once to where an open object came from. */
void http_object_prepare(struct http_object *object, uint64_t n);

/* Cancels its transfers. */
void http_object_free(struct http_object *object);

/*
 * Begins a transfer of n_bytes (at least 1) at offset, inside of the object, which has been opened.
 * -ENOMEM. *out is valid until done is called.
 */
int http_get(struct http_object *object, uint64_t offset, uint64_t n_bytes,
             const struct http_calls *calls, void *ctx, struct http_transfer **out);

/* Ends a transfer without calling done. */
void http_cancel(struct http_transfer *transfer);

#endif
