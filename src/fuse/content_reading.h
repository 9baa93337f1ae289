/* SPDX-License-Identifier: MIT */
/*
 * Reading content for a request, without a lock that others need while the source is waited for.
 */
#ifndef WFS_CONTENT_READING_H
#define WFS_CONTENT_READING_H

#include "fuse/request.h"

/*
 * Reads up to n_bytes; returns the count or a negative errno. What may take long to read is a
 * reading, which the caller frees; *ret stays NULL for other content. *ret_is_later becomes true
 * when a thread will get the request again, which no longer exists; NULL: the read is part of a
 * change, and waits here.
 */
ssize_t content_read(fuse_req_t req, fuse_ino_t ino, uint64_t offset, char *buffer, size_t n_bytes,
                     struct wfs_reading **ret, bool *ret_is_later);

#endif
