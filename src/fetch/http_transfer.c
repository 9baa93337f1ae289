/* SPDX-License-Identifier: MIT */
/*
 * From an answer to the caller, and what a verdict leads to: the end, another request at once or
 * after a pause, another server.
 *
 * A body whose length the header announces is delivered as it comes: libcurl ends a request that
 * is cut, and what was delivered is right. Any other is held until it is complete, because a server
 * that dies may look like its end.
 */
#include "fetch/http_engine.h"

#include "fetch/clock.h"
#include "fetch/http_place.h"

#include <weightfs/format.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

enum {
    REDIRECTS_MAX = 5,
    PAUSE_MAX_MS = 60000,
    HELD_MAX = 4 << 20,       /* bytes of a range whose answer has no length, held until complete */
    HELD_ALL_MAX = 128 << 20, /* of all bodies that are held at the same time */
    DRAIN_MAX = 16384,        /* bytes of an answer that is not used, read to keep the connection */
    DRAIN_MS = 2000,          /* time for that */
    PROGRESS = 1 << 20,       /* bytes of a body after which failures are counted from 0 again */
};

/* ---- the body of an answer ---- */

static bool give_up(struct http_transfer *transfer, enum http_verdict verdict, int code,
                    const char *text)
{
    transfer->verdict = verdict;
    wfs_fail(&transfer->err, code, "%s", text);
    return false;
}

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
    object->known.is_private = http_place_is_private(&object->place);
    if (object->known.is_whole || transfer->end > n_bytes)
        transfer->end = n_bytes;
    object->http->n_calls++;
    transfer->calls->opened(transfer->ctx, object->name, &object->known);
}

/* Later requests name the commit: all files of a set come from the same one. */
static int pin(struct http_object *object)
{
    struct http_place place;
    char *name = http_place_pin(object->name, object->commit);
    if (name == NULL || http_place_find(&place, name, &object->http->credentials, NULL) < 0) {
        free(name);
        return -ENOMEM;
    }
    free(object->name);
    http_place_done(&object->place);
    object->name = name;
    object->place = place;
    return 0;
}

/* What an answer says beside its body. */
static int keep(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    if (transfer->is_first && object->place.service == HTTP_HUB && !object->known.is_open &&
        transfer->answer.commit[0] != '\0')
        memcpy(object->commit, transfer->answer.commit, sizeof(object->commit));
    if (transfer->verdict != HTTP_TAKE && transfer->verdict != HTTP_EMPTY)
        return 0;
    if (transfer->detour.text != NULL) {
        http_url_done(&object->location);
        object->location = transfer->detour;
        object->generation++;
        transfer->detour = (struct http_url){0};
    }
    return !object->known.is_open && object->commit[0] != '\0' ? pin(object) : 0;
}

/* Judges the answer to a question, which has no body. The Hub knows the commit before it redirects.
 */
static enum http_verdict judge_question(struct http_transfer *transfer)
{
    const struct http_answer *answer = &transfer->answer;
    const enum http_verdict verdict =
        http_judge(answer, &transfer->object->known, 0, 1, &transfer->err);
    const bool is_told = answer->commit[0] != '\0' && verdict == HTTP_REDIRECT;
    return is_told || verdict == HTTP_TAKE ? HTTP_EMPTY : verdict;
}

static void judge(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    const struct http_answer *answer = &transfer->answer;
    long version = CURL_HTTP_VERSION_NONE;
    curl_easy_getinfo(transfer->request.easy, CURLINFO_HTTP_VERSION, &version);
    object->is_multiplexed = version >= CURL_HTTP_VERSION_2_0;
    transfer->moved_ms = now_ms();
    transfer->held.n_max = DRAIN_MAX;
    transfer->verdict = transfer->is_question ? judge_question(transfer)
                                              : http_judge(answer, &object->known, transfer->start,
                                                           transfer->stop, &transfer->err);
    object->has_changed |= transfer->err.code == ESTALE;
    if (transfer->verdict == HTTP_TAKE && !object->known.is_open && !transfer->has_waited &&
        http_is_young(answer))
        transfer->verdict = HTTP_LATER;
    if (keep(transfer) < 0) {
        give_up(transfer, HTTP_FAIL, ENOMEM, "out of memory");
        return;
    }
    if (transfer->verdict != HTTP_TAKE)
        return;
    transfer->at = answer->status == 206 ? answer->first : 0;
    if (answer->has_length)
        learn(transfer, answer->status == 206 ? answer->n_total : answer->length);
    else
        transfer->held.n_max = answer->status == 206 ? HELD_MAX : HTTP_WHOLE_MAX;
}

static void add_held(struct http_transfer *transfer, const char *bytes, size_t n)
{
    const size_t n_before = transfer->held.n_bytes;
    strbuf_add(&transfer->held, bytes, n);
    transfer->object->http->n_held += transfer->held.n_bytes - n_before;
}

/* Takes bytes of a body whose end is not known. Returns false when the request is to end. */
static bool hold(struct http_transfer *transfer, const char *bytes, size_t n)
{
    add_held(transfer, bytes, n);
    if (transfer->held.has_failed)
        return give_up(transfer, HTTP_FAIL, ENOMEM, "out of memory");
    if (transfer->object->http->n_held > HELD_ALL_MAX)
        return give_up(transfer, HTTP_RETRY, EIO,
                       "the server sends too many bodies without a length at the same time");
    if (!transfer->held.is_cut)
        return true;
    if (transfer->answer.status == 200)
        return give_up(transfer, HTTP_FAIL, EOPNOTSUPP,
                       "the server does not send ranges of it, and it is larger than the 64 MiB "
                       "that are read whole; download it");
    if (transfer->stop - transfer->start > HELD_MAX) {
        transfer->object->is_held = true;
        return give_up(transfer, HTTP_AGAIN, EIO, "the range is asked for in pieces");
    }
    return give_up(transfer, HTTP_RETRY, EIO, "the server sends more than it was asked for");
}

/* Takes bytes of the body. Returns false when the request is to end. */
static bool take(struct http_transfer *transfer, const char *bytes, size_t n)
{
    const uint64_t n_before = transfer->n_body;
    transfer->n_body += n;
    if (!transfer->answer.has_length)
        return hold(transfer, bytes, n);
    if (n > transfer->answer.length - n_before)
        return give_up(transfer, HTTP_RETRY, EIO, "the server sends more than it announces");
    deliver(transfer, transfer->at + n_before, bytes, n);
    return !transfer->is_cancelled;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    struct http_transfer *transfer = ctx;
    if (!transfer->is_cancelled && transfer->verdict == HTTP_NO_VERDICT)
        judge(transfer);
    if (transfer->is_cancelled)
        return 0;
    if (transfer->verdict == HTTP_TAKE) {
        transfer->moved_ms = now_ms();
        return take(transfer, bytes, n) ? n : 0;
    }
    transfer->n_body += n;
    add_held(transfer, bytes, n);
    const bool is_long = transfer->answer.has_length && transfer->answer.length > DRAIN_MAX;
    return is_long || transfer->held.is_cut ? 0 : n;
}

/* For libcurl; ctx is the transfer. */
static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
    struct http_transfer *transfer = ctx;
    if (transfer->is_cancelled)
        return 0;
    /* Trailers are not looked at, but count. */
    const bool is_trailer = transfer->verdict != HTTP_NO_VERDICT;
    const int rc = is_trailer ? http_answer_skip(&transfer->answer, n)
                              : http_answer_line(&transfer->answer, bytes, n);
    if (rc == -E2BIG)
        give_up(transfer, HTTP_FAIL, EIO, "the server sends more than 64 KiB of headers");
    else if (rc < 0)
        give_up(transfer, HTTP_FAIL, ENOMEM, "out of memory");
    return rc < 0 ? 0 : n;
}

/* A body that was held has arrived whole. */
static void release_held(struct http_transfer *transfer)
{
    const struct http_answer *answer = &transfer->answer;
    struct http_object *object = transfer->object;
    const uint64_t n = transfer->held.n_bytes;
    if (answer->status == 206 && n != answer->last - answer->first + 1) {
        give_up(transfer, HTTP_RETRY, EIO, "the body is not as long as its Content-Range");
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
}

/* Comes to a verdict about a request that has ended, for which libcurl has a result. */
static void end_body(struct http_transfer *transfer, CURLcode result)
{
    if (transfer->is_cancelled)
        return;
    if (transfer->verdict == HTTP_NO_VERDICT && result == CURLE_OK)
        judge(transfer);
    if (transfer->verdict == HTTP_TAKE && result == CURLE_OK)
        complete(transfer);
    else if (transfer->verdict == HTTP_EMPTY)
        learn(transfer, 0);
    else if (transfer->verdict == HTTP_NO_VERDICT || transfer->verdict == HTTP_TAKE)
        transfer->verdict = http_request_failure(&transfer->request, result,
                                                 &transfer->object->known, &transfer->err);
}

/* ---- beginning and end ---- */

void http_object_release(struct http_object *object)
{
    if (!object->is_freed || object->n_transfers > 0)
        return;
    free(object->name);
    free(object->repository);
    http_place_done(&object->place);
    http_url_done(&object->location);
    free(object);
}

int http_transfer_new(struct http_object *object, uint64_t start, uint64_t end,
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

static void end_request(struct http_transfer *transfer)
{
    struct http *http = transfer->object->http;
    cleanup_free(&transfer->url);
    transfer->url = NULL;
    if (!transfer->is_active)
        return;
    transfer->is_active = false;
    http->n_active--;
    curl_multi_remove_handle(http->multi, transfer->request.easy);
    http_request_done(&transfer->request);
    http_answer_done(&transfer->answer);
    http->n_held -= transfer->held.n_bytes;
    strbuf_done(&transfer->held);
}

void http_transfer_free(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    end_request(transfer);
    TAILQ_REMOVE(&object->http->transfers, transfer, link);
    http_url_done(&transfer->detour);
    free(transfer);
    object->n_transfers--;
    http_object_release(object);
}

/* Ends it and reports that; err is NULL when it is complete. */
static void finish(struct http_transfer *transfer, const struct wfs_error *err)
{
    const struct http_calls *calls = transfer->calls;
    void *ctx = transfer->ctx;
    transfer->object->http->n_calls++;
    http_transfer_free(transfer);
    calls->done(ctx, err);
}

static void fail(struct http_transfer *transfer, int code, const char *text)
{
    struct wfs_error err = {0};
    wfs_fail(&err, code, "%s", text);
    finish(transfer, &err);
}

/* ---- another server ---- */

/* Goes where a redirect leads to. */
static void follow(struct http_transfer *transfer)
{
    struct wfs_error err = {0};
    struct http_url next;
    if (++transfer->n_redirects > REDIRECTS_MAX)
        wfs_fail(&err, EIO, "the server redirects more than %d times", REDIRECTS_MAX);
    if (err.code == 0 &&
        http_url_follow(&next, transfer->url, transfer->answer.location, &err) == 0) {
        end_request(transfer);
        http_url_done(&transfer->detour);
        transfer->detour = next;
        return;
    }
    finish(transfer, &err);
}

/* Goes back to the server that the name leads to. */
static void start_over(struct http_transfer *transfer)
{
    end_request(transfer);
    http_url_done(&transfer->detour);
    transfer->n_redirects = 0;
}

/* Takes the next file that a repository or a folder may have. Returns false when there is none. */
static bool try_next(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    struct http_place place;
    const bool is_missing =
        http_is_missing(&object->place, &transfer->answer, transfer->held.bytes);
    char *name =
        object->repository == NULL ? NULL : http_place_try(object->repository, object->n_tries + 1);
    if (!is_missing || name == NULL ||
        http_place_find(&place, name, &object->http->credentials, NULL) < 0) {
        free(name);
        return false;
    }
    object->n_tries++;
    free(object->name);
    object->name = name;
    http_place_done(&object->place);
    object->place = place;
    return true;
}

/* A kept location expires: the first server knows another one. A server that the transfer was just
 * sent to has no such excuse. */
static bool has_expired(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    if (!transfer->uses_location || transfer->has_asked_again || transfer->answer.status == 404)
        return false;
    transfer->has_asked_again = true;
    if (object->generation == transfer->generation)
        http_url_done(&object->location);
    return true;
}

static void report_refusal(struct http_transfer *transfer)
{
    const struct http_object *object = transfer->object;
    const unsigned status = transfer->answer.status;
    /* S3 answers so to keys that have expired, or are for another region. */
    const bool is_access = object->place.service == HTTP_S3 && (status == 301 || status == 400);
    const size_t n_path = strcspn(transfer->url, "?#");
    const bool is_directory = n_path > 0 && transfer->url[n_path - 1] == '/';
    struct strbuf text cleanup(strbuf_done) = {0};
    strbuf_puts(&text, transfer->err.text);
    if (is_directory && (status == 403 || status == 404))
        strbuf_puts(&text, "; the URL names a directory: name a file in it");
    else if (object->repository != NULL && status == 404 &&
             http_is_missing(&object->place, &transfer->answer, transfer->held.bytes))
        strbuf_printf(&text, "; the %s has no file of a known name, such as %s: name the file",
                      http_place_is_repository(object->repository) ? "repository" : "folder",
                      wfs_folder_file(1));
    else
        http_hint(&text, &object->place, &transfer->answer, transfer->is_first,
                  transfer->held.bytes);
    fail(transfer, is_access ? EACCES : transfer->err.code,
         text.has_failed ? transfer->err.text : text.bytes);
}

/* ---- another time ---- */

/* The time to the next attempt: three times as long each time, with a random part, so that not all
 * clients of a server come back at once. */
static int64_t pause_ms(const struct http_transfer *transfer, int64_t asked_s)
{
    int64_t ms = transfer->object->http->settings.pause_ms;
    uint8_t random = 128;
    for (unsigned i = 1; i < transfer->n_failures && ms < PAUSE_MAX_MS; i++)
        ms *= 3;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = 128;
    ms = ms * (384 + random) / 512;
    const int64_t asked_ms = asked_s > PAUSE_MAX_MS / 1000 ? PAUSE_MAX_MS : asked_s * 1000;
    ms = ms > asked_ms ? ms : asked_ms;
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

/* Waits for another attempt, or reports that there were enough. */
static void retry(struct http_transfer *transfer)
{
    curl_off_t asked_s = 0;
    curl_easy_getinfo(transfer->request.easy, CURLINFO_RETRY_AFTER, &asked_s);
    if (transfer->answer.status == 429 || transfer->answer.status == 503)
        transfer->object->http->settings.n_requests = HTTP_FEW;
    const unsigned n_most = transfer->is_question ? 0 : transfer->object->http->settings.retries;
    if (++transfer->n_failures > n_most) {
        struct wfs_error err = {0};
        if (transfer->n_failures == 1)
            wfs_fail(&err, transfer->err.code, "%s", transfer->err.text);
        else
            wfs_fail(&err, transfer->err.code, "%s; tried %s", transfer->err.text,
                     wfs_count(transfer->n_failures, "time").text);
        finish(transfer, &err);
        return;
    }
    start_over(transfer);
    transfer->due_ms = now_ms() + pause_ms(transfer, asked_s);
}

static void wait_for_age(struct http_transfer *transfer)
{
    end_request(transfer);
    transfer->has_waited = true;
    transfer->due_ms = now_ms() + (int64_t)HTTP_YOUNG_S * 1000;
}

/* ---- requests ---- */

void http_transfer_ended(struct http_transfer *transfer, CURLcode result)
{
    struct http *http = transfer->object->http;
    http->is_busy = true;
    end_body(transfer, result);
    http->is_busy = false;
    const struct wfs_error err = transfer->err;
    if (transfer->is_cancelled)
        http_transfer_free(transfer);
    else if (transfer->verdict == HTTP_RETRY)
        retry(transfer);
    else if (transfer->verdict == HTTP_LATER)
        wait_for_age(transfer);
    else if (transfer->verdict == HTTP_REDIRECT && transfer->answer.location != NULL)
        follow(transfer);
    else if (transfer->verdict == HTTP_REFUSED && (has_expired(transfer) || try_next(transfer)))
        start_over(transfer);
    else if (transfer->verdict == HTTP_REDIRECT || transfer->verdict == HTTP_REFUSED)
        report_refusal(transfer);
    else if (transfer->verdict == HTTP_FAIL)
        finish(transfer, &err);
    else if (transfer->verdict == HTTP_EMPTY || transfer->position >= transfer->end)
        finish(transfer, NULL);
    else
        end_request(transfer); /* the next piece, or a smaller one */
}

/* Sets where the next request goes to. */
static int direct(struct http_transfer *transfer)
{
    const struct http_object *object = transfer->object;
    const struct http_url *first = &object->place.url;
    transfer->uses_location = transfer->detour.text == NULL && object->location.text != NULL;
    transfer->generation = object->generation;
    const struct http_url *url = transfer->detour.text != NULL ? &transfer->detour
                                 : transfer->uses_location     ? &object->location
                                                               : first;
    transfer->is_first = strcmp(url->origin, first->origin) == 0;
    transfer->url = strdup(url->text);
    return transfer->url == NULL ? -ENOMEM : 0;
}

/* Returns how long a server may be silent; 0: no limit. */
static unsigned patience_s(const struct http_transfer *transfer)
{
    const unsigned s = transfer->object->http->settings.timeout_s;
    return transfer->is_question && (s == 0 || s > HTTP_QUESTION_S) ? HTTP_QUESTION_S : s;
}

/* Begins the next request. */
static int begin(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    struct http *http = object->http;
    const bool is_piece = object->is_held && transfer->end - transfer->position > HELD_MAX;
    transfer->start = transfer->position;
    transfer->stop = is_piece ? transfer->position + HELD_MAX : transfer->end;
    transfer->answer = (struct http_answer){0};
    transfer->held = (struct strbuf){0};
    transfer->n_body = 0;
    transfer->verdict = HTTP_NO_VERDICT;
    transfer->err = (struct wfs_error){0};
    transfer->moved_ms = now_ms();
    if (direct(transfer) < 0)
        return -ENOMEM;
    const struct http_asked asked = {
        .url = transfer->url,
        .identity = transfer->is_first ? &object->place : NULL,
        .known = &object->known,
        .start = transfer->start,
        .end = transfer->stop,
        .trust = &http->trust,
        .timeout_s = patience_s(transfer),
        .is_question = transfer->is_question,
        .spares = &http->spares,
        .is_fresh = transfer->was_silent,
    };
    if (http_request_make(&transfer->request, &asked, on_header, on_body, transfer) < 0)
        return -ENOMEM;
    if (curl_multi_add_handle(http->multi, transfer->request.easy) != CURLM_OK) {
        http_request_done(&transfer->request);
        return -ENOMEM;
    }
    transfer->was_silent = false;
    transfer->is_active = true;
    http->n_active++;
    return 0;
}

static bool is_draining(const struct http_transfer *transfer)
{
    return transfer->verdict != HTTP_NO_VERDICT && transfer->verdict != HTTP_TAKE;
}

int64_t http_transfer_ms(const struct http_transfer *transfer, int64_t now)
{
    const struct http *http = transfer->object->http;
    int64_t due = transfer->due_ms;
    if (transfer->is_cancelled)
        return 0;
    if (!transfer->is_active && http->n_active >= http->settings.n_requests)
        return -1;
    if (transfer->is_active && is_draining(transfer))
        due = transfer->moved_ms + DRAIN_MS;
    else if (transfer->is_active && patience_s(transfer) == 0)
        return -1;
    else if (transfer->is_active)
        due = transfer->moved_ms + (int64_t)patience_s(transfer) * 1000;
    return due > now ? due - now : 0;
}

void http_transfer_act(struct http_transfer *transfer)
{
    if (transfer->is_cancelled) {
        http_transfer_free(transfer);
    } else if (!transfer->is_active) {
        if (transfer->object->has_changed)
            fail(transfer, ESTALE, "the object on the server was replaced");
        else if (begin(transfer) < 0)
            fail(transfer, ENOMEM, "out of memory");
    } else if (is_draining(transfer)) {
        http_transfer_ended(transfer, CURLE_OK);
    } else {
        transfer->was_silent = true;
        wfs_fail(&transfer->err, EIO, "the server sent nothing for %u s", patience_s(transfer));
        retry(transfer);
    }
}
