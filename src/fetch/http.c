/* SPDX-License-Identifier: MIT */
/*
 * The loop and its transfers. A transfer waits, for its turn or for the end of a pause, or has a
 * request at work; when that ends without all of the bytes, it waits again. libcurl does not let
 * its handles be freed inside of its callbacks, so that is done after each round.
 */
#include "fetch/http.h"

#include "fetch/http_request.h"
#include "fetch/http_verdict.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <time.h>

enum {
    ACTIVE_MAX = 16,          /* requests at a time, and connections */
    ERROR_BODY_MAX = 16384,   /* bytes of an answer that is not used, read to keep the connection */
    ERROR_BODY_MS = 2000,     /* time for that */
    HELD_RANGE_MAX = 4 << 20, /* bytes of a range whose answer has no length, held until complete */
    PROGRESS = 1 << 20, /* bytes of an attempt after which failures are counted from 0 again */
    PAUSE_MS = 300,     /* before the first retry; three times as long before each later one */
    PAUSE_MAX_MS = 60000,
};

struct http_transfer {
    TAILQ_ENTRY(http_transfer) link;
    struct http_object *object;
    const struct http_calls *calls;
    void *ctx;
    bool is_cancelled;
    uint64_t position, end; /* what is still to come */
    unsigned n_failures;    /* in a row */
    int64_t due_ms;         /* waiting: not before */

    /* Of the request at work. */
    bool is_active;
    struct http_request request;
    struct http_answer answer;
    uint64_t start, stop; /* what it asks for */
    uint64_t at;          /* of the object, where the next byte of the body belongs */
    uint64_t n_body;      /* bytes of it so far */
    struct strbuf held;   /* a body that is only known to be right when it is complete */
    int64_t moved_ms;     /* when a byte arrived, or the verdict */
    enum http_verdict verdict;
    struct wfs_error err; /* with it */
};

TAILQ_HEAD(transfers, http_transfer);

struct http_object {
    struct http *http;
    char *name;
    char *url;
    struct http_known known;
    unsigned n_transfers;
    bool is_freed; /* lives as long as its transfers */
    bool has_changed;
    bool is_held; /* its ranges come without a length */
};

struct http {
    CURLM *multi;
    struct http_settings settings;
    struct http_trust trust;
    struct transfers transfers;
    unsigned n_active;
    uint64_t n_calls; /* calls back so far */
    bool is_busy;     /* transfers are in use: none is freed */
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool http_is_name(const char *name)
{
    return strncasecmp(name, "https://", 8) == 0 || strncasecmp(name, "http://", 7) == 0;
}

/* ---- the request at work ---- */

/* Gives bytes of the object at offset to the caller, those that are still to come. */
static void deliver(struct http_transfer *transfer, uint64_t offset, const char *bytes, size_t n)
{
    const uint64_t end = offset + n < transfer->end ? offset + n : transfer->end;
    if (transfer->is_cancelled || offset > transfer->position || end <= transfer->position)
        return;
    const uint64_t at = transfer->position;
    transfer->position = end;
    if (transfer->n_body >= PROGRESS)
        transfer->n_failures = 0;
    transfer->object->http->n_calls++;
    transfer->calls->received(transfer->ctx, at, bytes + (at - offset), (size_t)(end - at));
}

/* Notes the first good answer, and reports it. */
static void learn(struct http_transfer *transfer, uint64_t n_bytes)
{
    struct http_object *object = transfer->object;
    if (object->known.is_open || transfer->is_cancelled)
        return;
    http_learn(&object->known, &transfer->answer, n_bytes);
    if (object->known.is_whole || transfer->end > n_bytes)
        transfer->end = n_bytes;
    const struct http_facts facts = {
        .name = object->name,
        .n_bytes = n_bytes,
        .kind = object->known.kind,
        .validator = object->known.validator,
        .is_whole = object->known.is_whole,
    };
    object->http->n_calls++;
    transfer->calls->opened(transfer->ctx, &facts);
}

static void judge(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    const struct http_answer *answer = &transfer->answer;
    transfer->moved_ms = now_ms();
    transfer->verdict =
        http_judge(answer, &object->known, transfer->start, transfer->stop, &transfer->err);
    object->has_changed |= transfer->err.code == ESTALE;
    if (transfer->verdict != HTTP_TAKE)
        return;
    transfer->at = answer->status == 206 ? answer->first : 0;
    if (answer->has_length)
        learn(transfer, answer->status == 206 ? answer->n_total : answer->length);
    else
        transfer->held.n_max = answer->status == 206 ? HELD_RANGE_MAX : HTTP_WHOLE_MAX;
}

static bool give_up(struct http_transfer *transfer, enum http_verdict verdict, int code,
                    const char *text)
{
    transfer->verdict = verdict;
    wfs_fail(&transfer->err, code, "%s", text);
    return false;
}

/* Takes bytes of the body. Returns false when the request is to end. */
static bool take(struct http_transfer *transfer, const char *bytes, size_t n)
{
    if (transfer->answer.has_length) {
        if (n > transfer->answer.length - transfer->n_body)
            return give_up(transfer, HTTP_RETRY, EIO, "the server sends more than it announces");
        transfer->n_body += n;
        transfer->at += n;
        deliver(transfer, transfer->at - n, bytes, n);
        return !transfer->is_cancelled;
    }
    strbuf_add(&transfer->held, bytes, n);
    transfer->n_body += n;
    if (transfer->held.has_failed)
        return give_up(transfer, HTTP_FAIL, ENOMEM, "out of memory");
    if (!transfer->held.is_cut)
        return true;
    if (transfer->answer.status == 200)
        return give_up(transfer, HTTP_FAIL, EOPNOTSUPP,
                       "the server does not send ranges of it, and it is larger than the 64 MiB "
                       "that are read whole; download it");
    if (transfer->stop - transfer->start > HELD_RANGE_MAX) {
        transfer->object->is_held = true;
        return give_up(transfer, HTTP_AGAIN, EIO, "the range is asked for in pieces");
    }
    return give_up(transfer, HTTP_RETRY, EIO, "the server sends more than it was asked for");
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    struct http_transfer *transfer = ctx;
    transfer->moved_ms = now_ms();
    if (transfer->is_cancelled)
        return 0;
    if (transfer->verdict == HTTP_NO_VERDICT)
        judge(transfer);
    if (transfer->is_cancelled)
        return 0;
    if (transfer->verdict == HTTP_TAKE)
        return take(transfer, bytes, n) ? n : 0;
    transfer->n_body += n;
    const bool is_short = transfer->answer.has_length && transfer->answer.length <= ERROR_BODY_MAX;
    return is_short && transfer->n_body <= ERROR_BODY_MAX ? n : 0;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
    struct http_transfer *transfer = ctx;
    transfer->moved_ms = now_ms();
    if (transfer->is_cancelled)
        return 0;
    /* Trailers are not looked at, but count. */
    const bool is_trailer = transfer->verdict != HTTP_NO_VERDICT || transfer->n_body > 0;
    const int rc = is_trailer ? http_answer_skip(&transfer->answer, n)
                              : http_answer_line(&transfer->answer, bytes, n);
    if (rc == -E2BIG)
        give_up(transfer, HTTP_FAIL, EIO, "the headers of the server are longer than 64 KiB");
    else if (rc < 0)
        give_up(transfer, HTTP_FAIL, ENOMEM, "out of memory");
    return rc < 0 ? 0 : n;
}

/* ---- a transfer ---- */

static void request_end(struct http_transfer *transfer)
{
    struct http *http = transfer->object->http;
    if (!transfer->is_active)
        return;
    transfer->is_active = false;
    http->n_active--;
    curl_multi_remove_handle(http->multi, transfer->request.easy);
    http_request_done(&transfer->request);
    http_answer_done(&transfer->answer);
    strbuf_done(&transfer->held);
}

static void release_object(struct http_object *object)
{
    if (!object->is_freed || object->n_transfers > 0)
        return;
    free(object->name);
    free(object->url);
    free(object);
}

static void transfer_free(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    request_end(transfer);
    TAILQ_REMOVE(&object->http->transfers, transfer, link);
    free(transfer);
    object->n_transfers--;
    release_object(object);
}

/* Ends it and reports that; err is NULL when it is complete. */
static void finish(struct http_transfer *transfer, const struct wfs_error *err)
{
    const struct http_calls *calls = transfer->calls;
    void *ctx = transfer->ctx;
    transfer->object->http->n_calls++;
    transfer_free(transfer);
    calls->done(ctx, err);
}

static void fail(struct http_transfer *transfer, int code, const char *text)
{
    struct wfs_error err = {0};
    wfs_fail(&err, code, "%s", text);
    finish(transfer, &err);
}

/* The time to the next attempt: three times as long each time, with a random part, so that not all
 * clients of a server come back at once. */
static int64_t pause_ms(const struct http_transfer *transfer, int64_t asked_s)
{
    int64_t ms = PAUSE_MS;
    for (unsigned i = 1; i < transfer->n_failures && ms < PAUSE_MAX_MS; i++)
        ms *= 3;
    uint8_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = 128;
    ms = ms * (384 + random) / 512;
    if (asked_s > 0 && asked_s < PAUSE_MAX_MS / 1000 && asked_s * 1000 > ms)
        ms = asked_s * 1000;
    else if (asked_s >= PAUSE_MAX_MS / 1000)
        ms = PAUSE_MAX_MS;
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

/* Waits for another attempt, or reports that there were enough. */
static void retry(struct http_transfer *transfer)
{
    curl_off_t asked_s = 0;
    curl_easy_getinfo(transfer->request.easy, CURLINFO_RETRY_AFTER, &asked_s);
    request_end(transfer);
    if (++transfer->n_failures > transfer->object->http->settings.retries) {
        struct wfs_error err = {0};
        if (transfer->n_failures == 1)
            wfs_fail(&err, transfer->err.code, "%s", transfer->err.text);
        else
            wfs_fail(&err, transfer->err.code, "%s; tried %u times", transfer->err.text,
                     transfer->n_failures);
        finish(transfer, &err);
        return;
    }
    transfer->due_ms = now_ms() + pause_ms(transfer, asked_s);
}

/* A body that was held back has arrived whole; says whether it is what its header says. */
static void release_held(struct http_transfer *transfer)
{
    const struct http_answer *answer = &transfer->answer;
    struct http_object *object = transfer->object;
    const uint64_t n = transfer->held.n_bytes;
    if (answer->status == 206 && n != answer->last - answer->first + 1) {
        give_up(transfer, HTTP_RETRY, EIO, "the server sends another number of bytes than it says");
        return;
    }
    if (answer->status == 200 && object->known.is_open && n != object->known.n_bytes) {
        object->has_changed = true;
        give_up(transfer, HTTP_FAIL, ESTALE, "the object on the server has another size now");
        return;
    }
    learn(transfer, answer->status == 206 ? answer->n_total : n);
    if (n > 0)
        deliver(transfer, transfer->at, transfer->held.bytes, (size_t)n);
}

/* The body has ended as its framing says. */
static void complete(struct http_transfer *transfer)
{
    if (!transfer->answer.has_length)
        release_held(transfer);
    else if (transfer->n_body < transfer->answer.length)
        give_up(transfer, HTTP_RETRY, EIO, "the server sends less than it announces");
    else if (transfer->n_body == 0)
        learn(transfer, transfer->answer.length);
}

/* Comes to a verdict about a request that has ended. */
static void conclude(struct http_transfer *transfer, CURLcode result)
{
    const bool was_open = transfer->verdict == HTTP_NO_VERDICT || transfer->verdict == HTTP_TAKE;
    if (transfer->verdict == HTTP_NO_VERDICT && result == CURLE_OK)
        judge(transfer);
    if (transfer->verdict == HTTP_TAKE && result == CURLE_OK)
        complete(transfer);
    else if (transfer->verdict == HTTP_EMPTY)
        learn(transfer, 0);
    else if (was_open && result != CURLE_OK)
        transfer->verdict = http_request_failure(&transfer->request, result,
                                                 &transfer->object->known, &transfer->err);
}

/* A request has ended: what now. */
static void attempt_end(struct http_transfer *transfer, CURLcode result)
{
    struct http *http = transfer->object->http;
    http->is_busy = true;
    conclude(transfer, result);
    http->is_busy = false;
    const struct wfs_error err = transfer->err;
    if (transfer->is_cancelled)
        transfer_free(transfer);
    else if (transfer->verdict == HTTP_RETRY)
        retry(transfer);
    else if (transfer->verdict == HTTP_AGAIN)
        request_end(transfer);
    else if (transfer->verdict != HTTP_TAKE && transfer->verdict != HTTP_EMPTY)
        finish(transfer, &err);
    else if (transfer->verdict == HTTP_EMPTY || transfer->position >= transfer->end)
        finish(transfer, NULL);
    else
        request_end(transfer);
}

/* Begins the next request of a transfer. */
static int attempt_begin(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    struct http *http = object->http;
    const uint64_t n_left = transfer->end - transfer->position;
    transfer->start = transfer->position;
    transfer->stop = object->is_held && n_left > HELD_RANGE_MAX
                         ? transfer->position + HELD_RANGE_MAX
                         : transfer->end;
    transfer->answer = (struct http_answer){0};
    transfer->held = (struct strbuf){0};
    transfer->n_body = 0;
    transfer->verdict = HTTP_NO_VERDICT;
    transfer->err = (struct wfs_error){0};
    transfer->moved_ms = now_ms();
    const struct http_asked asked = {
        .url = object->url,
        .known = &object->known,
        .start = transfer->start,
        .end = transfer->stop,
        .trust = &http->trust,
        .timeout_s = http->settings.timeout_s,
    };
    const int rc = http_request_make(&transfer->request, &asked, on_header, on_body, transfer);
    if (rc < 0)
        return rc;
    if (curl_multi_add_handle(http->multi, transfer->request.easy) != CURLM_OK) {
        http_request_done(&transfer->request);
        return -ENOMEM;
    }
    transfer->is_active = true;
    http->n_active++;
    return 0;
}

static int transfer_new(struct http_object *object, uint64_t start, uint64_t end,
                        const struct http_calls *calls, void *ctx, struct http_transfer **out)
{
    struct http_transfer *transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL)
        return -ENOMEM;
    transfer->object = object;
    transfer->calls = calls;
    transfer->ctx = ctx;
    transfer->position = start;
    transfer->end = end;
    object->n_transfers++;
    TAILQ_INSERT_TAIL(&object->http->transfers, transfer, link);
    *out = transfer;
    return 0;
}

int http_get(struct http_object *object, uint64_t offset, uint64_t n_bytes,
             const struct http_calls *calls, void *ctx, struct http_transfer **out)
{
    assert(object->known.is_open && n_bytes > 0 && offset < object->known.n_bytes &&
           n_bytes <= object->known.n_bytes - offset);
    return transfer_new(object, offset, offset + n_bytes, calls, ctx, out);
}

void http_cancel(struct http_transfer *transfer)
{
    if (transfer->object->http->is_busy)
        transfer->is_cancelled = true;
    else
        transfer_free(transfer);
}

/* ---- the loop ---- */

/* How long until something has to be done about the transfer; 0: now. -1: nothing. */
static int64_t ms_left(const struct http *http, const struct http_transfer *transfer, int64_t now)
{
    int64_t due = transfer->due_ms;
    if (transfer->is_cancelled)
        return 0;
    if (!transfer->is_active && http->n_active >= ACTIVE_MAX)
        return -1;
    if (transfer->is_active && transfer->verdict != HTTP_NO_VERDICT &&
        transfer->verdict != HTTP_TAKE)
        due = transfer->moved_ms + ERROR_BODY_MS;
    else if (transfer->is_active && http->settings.timeout_s == 0)
        return -1;
    else if (transfer->is_active)
        due = transfer->moved_ms + (int64_t)http->settings.timeout_s * 1000;
    return due > now ? due - now : 0;
}

/* Does what is due for the transfer. */
static void act(struct http_transfer *transfer)
{
    if (transfer->is_cancelled) {
        transfer_free(transfer);
    } else if (!transfer->is_active) {
        if (transfer->object->has_changed)
            fail(transfer, ESTALE, "the object on the server was replaced");
        else if (attempt_begin(transfer) < 0)
            fail(transfer, ENOMEM, "out of memory");
    } else if (transfer->verdict == HTTP_NO_VERDICT || transfer->verdict == HTTP_TAKE) {
        wfs_fail(&transfer->err, EIO, "the server sent nothing for %u s",
                 transfer->object->http->settings.timeout_s);
        retry(transfer);
    } else {
        attempt_end(transfer, CURLE_OK);
    }
}

/* Does all that is due. Returns the time until something will be; -1: nothing. Each act may change
 * the list, so it is looked through from the beginning after it. */
static int64_t run_due(struct http *http)
{
    int64_t least = -1;
    struct http_transfer *transfer = TAILQ_FIRST(&http->transfers);
    while (transfer != NULL) {
        const int64_t ms = ms_left(http, transfer, now_ms());
        if (ms == 0) {
            act(transfer);
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
            attempt_end((struct http_transfer *)transfer, message->data.result);
    }
    return 0;
}

/* Waits until a descriptor is ready or ms are over. Returns true for one of extra. */
static int wait_ready(struct http *http, struct pollfd *extra, unsigned n_extra, int64_t ms)
{
    enum { N_EXTRA_MAX = 8 };
    struct curl_waitfd fds[N_EXTRA_MAX];
    bool is_ready = false;
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
    if (n_extra > 0 && poll(extra, n_extra, 0) > 0)
        is_ready = true;
    return is_ready;
}

static int64_t least_ms(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
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
        const int64_t due = run_due(http);
        const bool has_called = http->n_calls != n_before;
        const int64_t left = ms < 0 ? -1 : until > now_ms() ? until - now_ms() : 0;
        const int ready = wait_ready(http, extra, n_extra, has_called ? 0 : least_ms(left, due));
        if (ready != 0 || has_called || left == 0)
            return ready < 0 ? ready : 0;
    }
}

int http_object_open(struct http *http, const char *name, uint64_t head_bytes,
                     const struct http_calls *calls, void *ctx, struct http_object **out,
                     struct wfs_error *err)
{
    assert(head_bytes > 0);
    if (!http_is_name(name))
        return wfs_fail(err, EINVAL, "not a URL");
    struct http_object *object = calloc(1, sizeof(*object));
    struct http_transfer *transfer;
    if (object == NULL)
        return wfs_fail_memory(err);
    object->http = http;
    object->name = strdup(name);
    object->url = strdup(name);
    if (object->name == NULL || object->url == NULL ||
        transfer_new(object, 0, head_bytes, calls, ctx, &transfer) < 0) {
        object->is_freed = true;
        release_object(object);
        return wfs_fail_memory(err);
    }
    *out = object;
    return 0;
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
    release_object(object);
}

/* As the program curl does. */
static void read_trust(struct http_trust *trust)
{
    trust->file = getenv("CURL_CA_BUNDLE");
    if (trust->file != NULL)
        return;
    trust->file = getenv("SSL_CERT_FILE");
    trust->directory = getenv("SSL_CERT_DIR");
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
    read_trust(&http->trust);
    http->multi = curl_multi_init();
    if (http->multi == NULL ||
        curl_multi_setopt(http->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)ACTIVE_MAX) != 0) {
        http_free(http);
        return wfs_fail_memory(err);
    }
    *out = http;
    return 0;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    struct http_transfer *transfer;
    while ((transfer = TAILQ_FIRST(&http->transfers)) != NULL)
        transfer_free(transfer);
    curl_multi_cleanup(http->multi);
    free(http);
    curl_global_cleanup();
}
