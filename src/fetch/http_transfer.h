/* SPDX-License-Identifier: MIT */
/*
 * A transfer: it waits, for its turn or for the end of a pause, or has a request at work. When that
 * ends without all of the bytes, it waits again.
 */
#ifndef WFS_HTTP_TRANSFER_H
#define WFS_HTTP_TRANSFER_H

#include "fetch/http_state.h"

enum { HTTP_FEW = 16 }; /* requests at a time, and connections that are kept while they are idle */

/* Makes one for [start, end), which waits. -ENOMEM. */
int http_transfer_new(struct http_object *object, uint64_t start, uint64_t end,
                      const struct http_calls *calls, void *ctx, struct http_transfer **out);

/* Ends it without a call. Frees its object, too, if nothing else uses it. */
void http_transfer_free(struct http_transfer *transfer);

/* Returns the time until something has to be done about it, 0: now; -1: it is not known when. */
int64_t http_transfer_ms(const struct http_transfer *transfer, int64_t now);

/* Does what is due: begins a request, ends one that is too slow, frees one that was cancelled. */
void http_transfer_act(struct http_transfer *transfer);

/* Its request has ended, for libcurl. */
void http_transfer_ended(struct http_transfer *transfer, CURLcode result);

/* Frees an object that its owner has freed and that has no transfers. */
void http_object_release(struct http_object *object);

#endif
