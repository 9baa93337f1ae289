/* SPDX-License-Identifier: MIT */
/*
 * The rules for ranges and validators.
 */
#include "fetch/http_verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An answer that breaks the protocol is asked for again: a proxy may have had a bad moment. */
static enum http_verdict reject(struct wfs_error *err, const char *text)
{
    wfs_fail(err, EIO, "%s", text);
    return HTTP_RETRY;
}

static enum http_verdict report_change(struct wfs_error *err)
{
    wfs_fail(err, ESTALE,
             "the object on the server is not the one that was opened: it was replaced");
    return HTTP_FAIL;
}

/* Of an answer with a body of the object, against the first one. */
static enum http_verdict check_validator(const struct http_answer *answer,
                                         const struct http_known *known, uint64_t n_total,
                                         struct wfs_error *err)
{
    const char *got = known->kind == HTTP_BY_ETAG ? answer->tag : answer->modified;
    if (n_total != known->n_bytes)
        return report_change(err);
    if (known->kind == HTTP_BY_SIZE || strcmp(got, known->validator) == 0)
        return HTTP_TAKE;
    if (*got != '\0')
        return report_change(err);
    return reject(err, "the server sends an answer without the validator of its first one");
}

static enum http_verdict judge_range(const struct http_answer *answer,
                                     const struct http_known *known, uint64_t start, uint64_t end,
                                     struct wfs_error *err)
{
    if (!answer->has_range || answer->is_empty_range)
        return reject(err, "the server sends a range that it does not name");
    if (known->is_whole)
        return reject(err, "the server sends a range of an object that it had no ranges of");
    if (known->is_open) {
        const enum http_verdict verdict = check_validator(answer, known, answer->n_total, err);
        if (verdict != HTTP_TAKE)
            return verdict;
    }
    const uint64_t last = (end < answer->n_total ? end : answer->n_total) - 1;
    const uint64_t n_bytes = answer->last - answer->first + 1;
    if (answer->first != start || answer->last != last) {
        wfs_fail(err, EIO,
                 "the server sends bytes %" PRIu64 "-%" PRIu64 " in place of %" PRIu64 "-%" PRIu64,
                 answer->first, answer->last, start, last);
        return HTTP_RETRY;
    }
    if (answer->has_length && answer->length != n_bytes) {
        wfs_fail(err, EIO, "the server sends %s for a range of %" PRIu64,
                 wfs_count(answer->length, "byte").text, n_bytes);
        return HTTP_RETRY;
    }
    return HTTP_TAKE;
}

static enum http_verdict judge_whole(const struct http_answer *answer,
                                     const struct http_known *known, struct wfs_error *err)
{
    if (known->is_open && !known->is_whole)
        return reject(err, "the server sends the whole object in place of a range");
    if (known->is_open)
        return check_validator(answer, known, answer->has_length ? answer->length : known->n_bytes,
                               err);
    if (answer->has_length && answer->length > HTTP_WHOLE_MAX) {
        wfs_fail(err, EOPNOTSUPP,
                 "the server does not send ranges of it, and it has %s, more than the 64 MiB that "
                 "are read whole; download it",
                 wfs_count(answer->length, "byte").text);
        return HTTP_FAIL;
    }
    return HTTP_TAKE;
}

static enum http_verdict judge_unsatisfied(const struct http_answer *answer,
                                           const struct http_known *known, struct wfs_error *err)
{
    const bool is_empty = !answer->has_range || (answer->is_empty_range && answer->n_total == 0);
    if (!known->is_open && is_empty)
        return HTTP_EMPTY; /* a range that begins at 0 can be satisfied in every other case */
    if (known->is_open && answer->is_empty_range && answer->n_total != known->n_bytes)
        return report_change(err);
    return reject(err, "the server answers that the range is outside of the object (416)");
}

static enum http_verdict judge_success(const struct http_answer *answer,
                                       const struct http_known *known, uint64_t start, uint64_t end,
                                       struct wfs_error *err)
{
    if (answer->is_bad)
        return reject(err, "the server sends a header that contradicts itself or is malformed");
    if (answer->is_encoded)
        return reject(err, "the server sends an encoded body, which it was asked not to");
    return answer->status == 206 ? judge_range(answer, known, start, end, err)
                                 : judge_whole(answer, known, err);
}

static const struct {
    unsigned status;
    enum http_verdict verdict;
    int code;
    const char *text; /* what the status means */
} statuses[] = {
    {301, HTTP_REDIRECT, EIO, "moved"},
    {302, HTTP_REDIRECT, EIO, "moved"},
    {303, HTTP_REDIRECT, EIO, "moved"},
    {307, HTTP_REDIRECT, EIO, "moved"},
    {308, HTTP_REDIRECT, EIO, "moved"},
    {400, HTTP_REFUSED, EIO, "bad request"},
    {401, HTTP_REFUSED, EACCES, "authentication required"},
    {403, HTTP_REFUSED, EACCES, "access denied"},
    {404, HTTP_REFUSED, ENOENT, "not found"},
    {407, HTTP_FAIL, EACCES, "the proxy requires authentication: put it into the URL of the proxy"},
    {408, HTTP_RETRY, EIO, "request timeout"},
    {410, HTTP_REFUSED, ENOENT, "gone"},
    {425, HTTP_RETRY, EIO, "too early"},
    {429, HTTP_RETRY, EIO, "too many requests"},
    {500, HTTP_RETRY, EIO, "internal error"},
    {502, HTTP_RETRY, EIO, "bad gateway"},
    {503, HTTP_RETRY, EIO, "service unavailable"},
    {504, HTTP_RETRY, EIO, "gateway timeout"},
};

enum http_verdict http_judge(const struct http_answer *answer, const struct http_known *known,
                             uint64_t start, uint64_t end, struct wfs_error *err)
{
    if (answer->status == 206 || answer->status == 200)
        return judge_success(answer, known, start, end, err);
    if (answer->status == 412 && known->is_open)
        return report_change(err);
    if (answer->status == 416)
        return judge_unsatisfied(answer, known, err);
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
        if (statuses[i].status == answer->status) {
            if (statuses[i].verdict == HTTP_REDIRECT && answer->is_bad)
                break;
            wfs_fail(err, statuses[i].code, "the server answers %u (%s)", answer->status,
                     statuses[i].text);
            return statuses[i].verdict;
        }
    }
    wfs_fail(err, EIO, "the server answers %u%s", answer->status,
             answer->is_bad ? " with a malformed header" : "");
    return HTTP_FAIL;
}

void http_learn(struct http_known *known, const struct http_answer *answer, uint64_t n_bytes)
{
    const bool has_tag = *answer->tag != '\0', has_date = *answer->modified != '\0';
    *known = (struct http_known){
        .is_open = true,
        .is_whole = answer->status == 200,
        .n_bytes = n_bytes,
        .kind = has_tag    ? HTTP_BY_ETAG
                : has_date ? HTTP_BY_DATE
                           : HTTP_BY_SIZE,
    };
    snprintf(known->validator, sizeof(known->validator), "%s",
             has_tag ? answer->tag : answer->modified);
}
