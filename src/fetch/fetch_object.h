/* SPDX-License-Identifier: MIT */
/*
 * One object that is fetched: who waits for which range, what is on its way, what is to be fetched
 * ahead. It knows cache files and transfers, and no socket.
 */
#ifndef WFS_FETCH_OBJECT_H
#define WFS_FETCH_OBJECT_H

#include <weightfs/cachestore.h>
#include <weightfs/described.h>
#include <weightfs/fetching.h>
#include "fetch/http.h"

enum { FETCH_HEADERS_MAX = 100 }; /* requests at a time, of headers of a set */

struct fetch_object;

/* What all objects share. */
struct fetching_room {
    struct http *http;
    int spool;               /* an unnamed store of cache files */
    const char *folder_name; /* where it is */
    int kept, kept_read;     /* one in a directory, for writing and for readers; -1: none */
    const char *kept_name;   /* the directory */
    uint64_t most[2];        /* bytes of spool and kept on the disk; 0: as there is room for */
    bool is_usual;           /* kept is used without being asked for */
    uint64_t n_untrimmed;    /* bytes written since that was looked at */
    unsigned n_transfers;    /* at work, without those of headers */
    unsigned n_headers;
    uint64_t n_fetched; /* bytes */
    /* Called once for each request. err NULL: what was asked is present. */
    void (*answered)(void *ctx, uint32_t request, struct fetch_object *object,
                     const struct wfs_error *err);
    void *ctx;
};

struct fetch_object {
    struct fetching_room *room;
    struct fetch_object *next; /* the owner's */
    uint32_t number;
    uint32_t request;   /* that opens it */
    bool is_open;       /* the request was answered */
    bool is_question;   /* which commit it is of; nothing is fetched */
    bool has_failed;    /* to be opened; nobody asks for it any more */
    bool is_hasty;      /* others wait until all of it is present */
    int32_t flags;      /* FETCHING_IS_WEAK, ... */
    bool is_kept;       /* the cache file is */
    uint64_t validator; /* hash of it */
    char *name;         /* malloc'ed; as it was opened */
    bool is_named; /* by the user, or as a folder of a pipeline: the files beside it may be opened
                      that its content names */
    struct described described; /* that content, once it was asked for; text NULL: not yet */
    struct http_object *http;
    struct cachefile cache;
    struct fetch_want *wants;
    struct fetch_transfer *transfers;
    struct fetch_span *spans; /* ahead, in the order in which they came */
};

/* Begins to open what a message asks for, which is answered when its first bytes are present.
 * -ENOMEM, or -EINVAL with a sentence. */
int fetch_object_new(struct fetching_room *room, const char *url, const struct fetching *message,
                     struct fetch_object **out, struct wfs_error *err);
void fetch_object_free(struct fetch_object *object);

/* Returns whether the user named it, and its content, all of which is present, names the file that
 * a URL below its folder leads to; of a pipeline, the folder. */
bool fetch_object_names(struct fetch_object *object, const char *url);

/* Asks for a range of an open object, whose reader goes on with n_more bytes. -ENOMEM, -EINVAL: it
 * is not in the object. */
int fetch_object_want(struct fetch_object *object, uint32_t request, uint64_t offset,
                      uint64_t n_bytes, uint64_t n_more);
int fetch_object_ahead(struct fetch_object *object, uint64_t offset, uint64_t n_bytes);

/* Returns how many bytes are missing of what somebody waits for, and of what its reader goes on
 * with. */
uint64_t fetch_object_missing(const struct fetch_object *object);

/* Starts to fetch a range of an open object at once, as opening it does. */
int fetch_object_header(struct fetch_object *object, uint64_t offset, uint64_t n_bytes);

/* Prepares for n objects beside it, 0: it is not known how many. They cannot be opened before all
 * of this one is present, so it is fetched in small ranges at the same time. */
void fetch_object_beside(struct fetch_object *object, uint64_t n);

/* Nobody waits for the request; what is not on its way yet is not fetched ahead either. */
void fetch_object_cancel(struct fetch_object *object, uint32_t request);

/* Starts what may be started: what somebody waits for. */
void fetch_object_serve(struct fetch_object *object);

/* The same with what is fetched ahead. */
void fetch_object_serve_ahead(struct fetch_object *object);

#endif
