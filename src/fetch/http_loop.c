/* SPDX-License-Identifier: MIT */
/*
 * The loop. libcurl does not let its handles be freed inside of its callbacks: what is cancelled in
 * them is freed after the round.
 */
#include <weightfs/cleanup.h>
#include "fetch/clock.h"
#include "fetch/http.h"
#include "fetch/http_credentials.h"
#include "fetch/http_engine.h"

#include <assert.h>
#include <string.h>

/* Does all that is due. Returns the time until something will be; -1: nothing. Each act may change
 * the list, so it is looked through from the beginning after it. */
static int64_t run_due(struct http *http)
{
    int64_t least = -1;
    struct http_transfer *transfer = TAILQ_FIRST(&http->transfers);
    while (transfer != NULL) {
        const int64_t ms = http_transfer_ms(transfer, now_ms());
        if (ms == 0) {
            http_transfer_act(transfer);
            transfer = TAILQ_FIRST(&http->transfers);
            least = -1;
            continue;
        }
        if (ms > 0 && (least < 0 || ms < least))
            least = ms;
        transfer = TAILQ_NEXT(transfer, link);
    }
    return least;
}

/* A round of libcurl, and what it has ended. */
static int run_requests(struct http *http)
{
    int n_running;
    http->is_busy = true;
    const CURLMcode result = curl_multi_perform(http->multi, &n_running);
    http->is_busy = false;
    if (result != CURLM_OK)
        return result == CURLM_OUT_OF_MEMORY ? -ENOMEM : -EIO;
    CURLMsg *message;
    int n_left;
    while ((message = curl_multi_info_read(http->multi, &n_left)) != NULL) {
        char *transfer;
        if (message->msg == CURLMSG_DONE &&
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer) == CURLE_OK)
            http_transfer_ended((struct http_transfer *)transfer, message->data.result);
    }
    return 0;
}

/* Waits until a descriptor is ready or ms are over. Returns 1 for one of extra. */
static int wait_ready(struct http *http, struct pollfd *extra, unsigned n_extra, int64_t ms)
{
    enum { N_EXTRA_MAX = 8 };
    struct curl_waitfd fds[N_EXTRA_MAX];
    assert(n_extra <= N_EXTRA_MAX);
    for (unsigned i = 0; i < n_extra; i++)
        fds[i] = (struct curl_waitfd){
            .fd = extra[i].fd,
            .events = (extra[i].events & POLLIN ? CURL_WAIT_POLLIN : 0) |
                      (extra[i].events & POLLOUT ? CURL_WAIT_POLLOUT : 0),
        };
    const CURLMcode result =
        curl_multi_poll(http->multi, fds, n_extra, (int)(ms < 0 || ms > 60000 ? 60000 : ms), NULL);
    if (result != CURLM_OK)
        return result == CURLM_OUT_OF_MEMORY ? -ENOMEM : -EIO;
    return n_extra > 0 && poll(extra, n_extra, 0) > 0;
}

static int64_t least_ms(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* By itself, libcurl closes those that are idle for a moment. */
static void keep_idle(const struct http *http, long n)
{
    (void)curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, n);
}

/* Closes those that nobody has used. Returns the time until that is due; -1: never. */
static int64_t age_spares(struct http *http)
{
    const int64_t ms = http_spares_age(&http->spares, now_ms());
    if (ms != 0)
        return ms;
    keep_idle(http, HTTP_FEW);
    return -1;
}

int http_wait(struct http *http, struct pollfd *extra, unsigned n_extra, int ms)
{
    const uint64_t n_before = http->n_calls;
    const int64_t until = now_ms() + ms;
    for (unsigned i = 0; i < n_extra; i++)
        extra[i].revents = 0;
    for (;;) {
        const int rc = run_requests(http);
        if (rc < 0)
            return rc;
        const int64_t due = least_ms(run_due(http), age_spares(http));
        const bool has_called = http->n_calls != n_before;
        const int64_t left = ms < 0 ? -1 : until > now_ms() ? until - now_ms() : 0;
        const int ready = wait_ready(http, extra, n_extra, has_called ? 0 : least_ms(left, due));
        if (ready != 0 || has_called || left == 0)
            return ready < 0 ? ready : 0;
    }
}

/* ---- objects ---- */

int http_get(struct http_object *object, uint64_t offset, uint64_t n_bytes,
             const struct http_calls *calls, void *ctx, struct http_transfer **out)
{
    assert(object->known.is_open && n_bytes > 0 && offset < object->known.n_bytes &&
           n_bytes <= object->known.n_bytes - offset);
    return http_transfer_new(object, offset, offset + n_bytes, calls, ctx, out);
}

void http_cancel(struct http_transfer *transfer)
{
    if (transfer->object->http->is_busy)
        transfer->is_cancelled = true;
    else
        http_transfer_free(transfer);
}

int http_object_open(struct http *http, const char *name, uint64_t head_bytes,
                     const struct http_calls *calls, void *ctx, struct http_object **out,
                     struct wfs_error *err)
{
    struct http_object *object = calloc(1, sizeof(*object));
    struct http_transfer *transfer;
    if (object == NULL)
        return wfs_fail_memory(err);
    object->http = http;
    object->is_freed = true; /* until it is complete */
    object->name = http_place_try(name, 0);
    object->repository = object->name == NULL ? NULL : strdup(name);
    if (object->name == NULL)
        object->name = strdup(name);
    int rc = object->name == NULL
                 ? wfs_fail_memory(err)
                 : http_place_find(&object->place, object->name, &http->credentials, err);
    if (rc == 0 && http_transfer_new(object, 0, head_bytes, calls, ctx, &transfer) < 0)
        rc = wfs_fail_memory(err);
    if (rc < 0) {
        http_object_release(object);
        return rc;
    }
    transfer->is_question = head_bytes == 0;
    object->is_freed = false;
    *out = object;
    return 0;
}

struct http_transfer *http_object_opening(const struct http_object *object)
{
    struct http_transfer *transfer;
    TAILQ_FOREACH(transfer, &object->http->transfers, link)
    {
        if (transfer->object == object && transfer->calls->opened != NULL)
            return transfer;
    }
    return NULL;
}

void http_object_prepare(struct http_object *object, uint64_t n)
{
    struct http *http = object->http;
    keep_idle(http, http->settings.n_requests);
    http_spares_open(&http->spares, object->is_multiplexed || n > SIZE_MAX ? 0 : (size_t)n);
}

void http_object_free(struct http_object *object)
{
    if (object == NULL)
        return;
    struct http *http = object->http;
    struct http_transfer *transfer, *next;
    object->n_transfers++; /* of its own, until the end */
    for (transfer = TAILQ_FIRST(&http->transfers); transfer != NULL; transfer = next) {
        next = TAILQ_NEXT(transfer, link);
        if (transfer->object == object)
            http_cancel(transfer);
    }
    object->n_transfers--;
    object->is_freed = true;
    http_object_release(object);
}

/* Returns the value of a variable, from now on an absolute path: this process leaves its directory
 * before it opens the file. */
static const char *path_variable(const char *name)
{
    const char *value = environment(name);
    autofree char *path = value == NULL ? NULL : realpath(value, NULL);
    if (path != NULL)
        setenv(name, path, 1);
    return environment(name);
}

/* As the program curl does. */
static void read_trust(struct http_trust *trust)
{
    trust->file = path_variable("CURL_CA_BUNDLE");
    if (trust->file != NULL)
        return;
    trust->file = path_variable("SSL_CERT_FILE");
    trust->directory = path_variable("SSL_CERT_DIR");
}

int http_new(struct http **out, const struct http_settings *settings, struct wfs_error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return wfs_fail_memory(err);
    struct http *http = calloc(1, sizeof(*http));
    if (http == NULL)
        return wfs_fail_memory(err);
    TAILQ_INIT(&http->transfers);
    http->settings = *settings;
    http->settings.endpoint = NULL;
    if (settings->pause_ms == 0)
        http->settings.pause_ms = 300;
    if (settings->n_requests == 0)
        http->settings.n_requests = HTTP_FEW;
    read_trust(&http->trust);
    const int rc = http_credentials_read(&http->credentials, settings->endpoint);
    http->multi = curl_multi_init();
    if (rc < 0 || http->multi == NULL ||
        curl_multi_setopt(http->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                          (long)http->settings.n_requests) != 0) {
        http_free(http);
        return wfs_fail_memory(err);
    }
    keep_idle(http, HTTP_FEW);
    *out = http;
    return 0;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    struct http_transfer *transfer;
    while ((transfer = TAILQ_FIRST(&http->transfers)) != NULL)
        http_transfer_free(transfer);
    curl_multi_cleanup(http->multi);
    http_spares_close(&http->spares);
    http_credentials_done(&http->credentials);
    free(http);
    curl_global_cleanup();
}
