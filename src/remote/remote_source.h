/* SPDX-License-Identifier: MIT */
/*
 * Sources on the network: the same as files for all rooms above. This room knows the messages
 * between the process that reads and the one that fetches, and the cache file between them; it
 * speaks to no server.
 */
#ifndef WFS_REMOTE_SOURCE_H
#define WFS_REMOTE_SOURCE_H

#include <weightfs/remote.h>
#include "base/source.h"

/*
 * Opens what a URL names. remote NULL: refused, nothing was prepared to fetch it. The path of the
 * source is what of the URL may be shown. err gets a sentence.
 */
int remote_source_open(struct wfs_remote *remote, const char *url, struct source **out,
                       struct wfs_error *err);

/* Returns what a read without a struct wfs_io gets at once, in this thread, when something of the
 * source is missing: a negative errno, or 0 where it would wait. */
int remote_source_pass(const struct source *source);

/* Begins to open what remote_source_open is called for soon: one of many. */
void remote_source_open_early(struct wfs_remote *remote, const char *url);

/* Begins to fetch a range of a header, which is read soon. Does nothing for a file. */
void remote_source_expect_header(const struct source *source, uint64_t offset, uint64_t n_bytes);

/* Tells that n sources beside it will be opened when all of it has been read; 0: it is not known
 * how many. Does nothing for a file. */
void remote_source_expect_siblings(const struct source *source, uint64_t n);

/* Returns the whole URL of a source that was opened so, for what is beside it; NULL: a file. */
const char *remote_source_url(const struct source *source);

#endif
