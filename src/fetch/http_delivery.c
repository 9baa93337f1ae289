/* SPDX-License-Identifier: MIT */
/*
 * A body whose length the header announces is delivered as it comes: libcurl ends a request that
 * is cut, and what was delivered is right. Any other is held until it is complete, because a server
 * that dies may look like its end.
 */
#include "fetch/http_delivery.h"

#include "fetch/clock.h"

#include <errno.h>
#include <string.h>

enum { PROGRESS = 1 << 20 }; /* bytes of a body after which failures are counted from 0 again */

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

static void judge(struct http_transfer *transfer)
{
    struct http_object *object = transfer->object;
    const struct http_answer *answer = &transfer->answer;
    long version = CURL_HTTP_VERSION_NONE;
    curl_easy_getinfo(transfer->request.easy, CURLINFO_HTTP_VERSION, &version);
    object->is_multiplexed = version >= CURL_HTTP_VERSION_2_0;
    transfer->moved_ms = now_ms();
    transfer->held.n_max = HTTP_DRAIN_MAX;
    transfer->verdict =
        http_judge(answer, &object->known, transfer->start, transfer->stop, &transfer->err);
    object->has_changed |= transfer->err.code == ESTALE;
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
        transfer->held.n_max = answer->status == 206 ? HTTP_HELD_MAX : HTTP_WHOLE_MAX;
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
    if (transfer->object->http->n_held > HTTP_HELD_ALL_MAX)
        return give_up(transfer, HTTP_RETRY, EIO,
                       "the server sends too many bodies without a length at the same time");
    if (!transfer->held.is_cut)
        return true;
    if (transfer->answer.status == 200)
        return give_up(transfer, HTTP_FAIL, EOPNOTSUPP,
                       "the server does not send ranges of it, and it is larger than the 64 MiB "
                       "that are read whole; download it");
    if (transfer->stop - transfer->start > HTTP_HELD_MAX) {
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

size_t http_delivery_body(char *bytes, size_t size, size_t n, void *ctx)
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
    const bool is_long = transfer->answer.has_length && transfer->answer.length > HTTP_DRAIN_MAX;
    return is_long || transfer->held.is_cut ? 0 : n;
}

size_t http_delivery_header(char *bytes, size_t size, size_t n, void *ctx)
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

void http_delivery_end(struct http_transfer *transfer, CURLcode result)
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
