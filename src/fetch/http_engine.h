/* SPDX-License-Identifier: MIT */
/*
 * The state of the engine: its loop, its objects and their transfers. A transfer waits, for its
 * turn or for the end of a pause, or has a request at work. When that ends without all of the
 * bytes, it waits again.
 */
#ifndef WFS_HTTP_ENGINE_H
#define WFS_HTTP_ENGINE_H

#include <weightfs/strbuf.h>
#include "fetch/http.h"
#include "fetch/http_answer.h"
#include "fetch/http_place.h"

#include <curl/curl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

/*
 * One HTTP request as libcurl takes it: options, headers, its connection, and why it failed. It
 * does not know what is done with the answer.
 */

enum { HTTP_SPARE_MAX = 100 };

/*
 * Connections that are opened before there are requests for them, so that many requests that begin
 * at once need not wait for that. What is not used soon is closed. A zeroed one has none.
 */
struct http_spares {
    struct sockaddr_storage address; /* of the connection that was opened last */
    socklen_t n_address;             /* 0: there was none */
    int type, protocol;
    int fds[HTTP_SPARE_MAX]; /* to that address; connected, or about to be */
    size_t n;
    int64_t until_ms; /* 0: no time is known */
    bool has_taken;   /* libcurl has just got one */
    int taken;
};

/* Begins to connect n times to where the last connection went. */
void http_spares_open(struct http_spares *spares, size_t n);

/* Closes them when their time is over. Returns the time until that, 0: it was just over; -1: never.
 */
int64_t http_spares_age(struct http_spares *spares, int64_t now);
void http_spares_close(struct http_spares *spares);

/* The places of certificates: curl's own or those that the environment names. NULL: curl's. */
struct http_trust {
    const char *file, *directory;
};

struct http_request {
    CURL *easy;
    struct curl_slist *headers;
    char message[CURL_ERROR_SIZE];
};

/* What a request is for; all is copied. */
struct http_asked {
    const char *url;
    const struct http_place *identity; /* NULL: the request is nobody's */
    const struct http_known *known;
    uint64_t start, end;
    const struct http_trust *trust;
    unsigned timeout_s;
    struct http_spares *spares;
    bool is_question; /* the header alone is asked for */
    bool is_fresh;    /* on a connection of its own: the one before was silent */
};

/* Both get ctx; as CURLOPT_HEADERFUNCTION and CURLOPT_WRITEFUNCTION. */
typedef size_t (*http_chunk)(char *bytes, size_t size, size_t n, void *ctx);

/* Makes a request that calls back with ctx, which curl_easy_getinfo finds as CURLINFO_PRIVATE.
 * -ENOMEM. The request stays where it is: curl points into it. */
int http_request_make(struct http_request *request, const struct http_asked *asked,
                      http_chunk on_header, http_chunk on_body, void *ctx);

/* Returns HTTP_RETRY or HTTP_FAIL for a request that curl gave up, and its reason. */
enum http_verdict http_request_failure(const struct http_request *request, CURLcode result,
                                       const struct http_known *known, struct wfs_error *err);
void http_request_done(struct http_request *request);

struct http_transfer {
    TAILQ_ENTRY(http_transfer) link;
    struct http_object *object;
    const struct http_calls *calls;
    void *ctx;
    bool is_cancelled;
    uint64_t position, end; /* what is still to come */
    unsigned n_failures;    /* in a row */
    int64_t due_ms;         /* waiting: not before */
    struct http_url detour; /* where a redirect leads; no text: not redirected */
    unsigned n_redirects;   /* up to there */
    bool was_silent;        /* the last request; a connection that is shared may be dead */
    bool has_asked_again;   /* the first server, after the kept location had expired */
    bool is_question;       /* asks for the header alone */
    bool has_waited;        /* until a young object had a validator of its own */

    /* Of the request at work. */
    bool is_active;
    char *url;
    bool uses_location; /* the kept one, of `generation` */
    unsigned generation;
    bool is_first; /* it goes to the server that the name leads to */
    struct http_request request;
    struct http_answer answer;
    uint64_t start, stop; /* what it asks for */
    uint64_t at;          /* of the object, where the next byte of the body belongs */
    uint64_t n_body;      /* bytes of it so far */
    struct strbuf held;   /* a body that is only known to be right when it is complete, or the
                             text of an error */
    int64_t moved_ms;     /* when it began, when the verdict came, or the last byte after it */
    enum http_verdict verdict;
    struct wfs_error err; /* with it */
};

TAILQ_HEAD(http_transfers, http_transfer);

struct http_object {
    struct http *http;
    char *name;       /* with the file, for a repository of the Hub or a folder */
    char *repository; /* the name without it, while files are tried; NULL: none */
    unsigned n_tries;
    struct http_place place;
    struct http_url location; /* where redirects led to; no text: nowhere */
    unsigned generation;      /* of the location */
    char commit[41];          /* of the Hub's repository; "": not known */
    struct http_known known;
    bool has_changed;
    bool is_multiplexed; /* one connection takes all requests */
    bool is_held;        /* its ranges come without a length */
    bool is_freed;       /* lives as long as its transfers */
    unsigned n_transfers;
};

struct http {
    CURLM *multi;
    struct http_settings settings;
    struct http_trust trust;
    struct http_credentials credentials;
    struct http_transfers transfers; /* in the order of their beginning */
    struct http_spares spares;
    unsigned n_active;
    uint64_t n_held;  /* bytes of bodies that are held, of all transfers */
    uint64_t n_calls; /* calls back so far */
    bool is_busy;     /* transfers are in use: none is freed */
};

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
