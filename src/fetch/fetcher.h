/* SPDX-License-Identifier: MIT */
/*
 * The process that fetches: it talks to servers and fills cache files, and cannot read a
 * checkpoint. It is forked before anything of a checkpoint is read, and ends when nobody needs it.
 */
#ifndef WFS_FETCHER_H
#define WFS_FETCHER_H

#include <weightfs/error.h>
#include <weightfs/remote.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed one asks for what is usual. */
struct fetcher_settings {
    bool is_unconfined; /* without a sandbox */
    bool is_guest; /* the process is not ours: it gets no child that it would have to wait for */
    bool has_retries, has_timeout;
    unsigned retries;     /* of a request */
    unsigned timeout_s;   /* without a byte; 0: no limit */
    const char *endpoint; /* of s3://; NULL: what the environment says */
    /* What may be opened, and files beside it that their content names: whoever takes over the
     * reader reaches no other server and no other object. */
    const char *const *urls;
    size_t n_urls;
    const char *cache;   /* the directory of a cache that is kept; NULL: none is */
    bool is_usual_cache; /* which nobody asked for: where it cannot be used it is done without */
    uint64_t cache_size; /* bytes of the cache on the disk; 0: as many as there is room for, but
                            a usual one has a limit */
};

/* Starts one. A negative errno; err gets a sentence. */
#pragma GCC visibility push(default)
int fetcher_start(const struct fetcher_settings *settings, struct wfs_remote **out,
                  struct wfs_error *err);
#pragma GCC visibility pop

/* The same for programs, which do not have it before they need it: loads the module that does.
 * -EOPNOTSUPP where there is none. */
int fetcher_load(const struct fetcher_settings *settings, struct wfs_remote **out,
                 struct wfs_error *err);

#endif
