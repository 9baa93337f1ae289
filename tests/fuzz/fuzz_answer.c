/* SPDX-License-Identifier: MIT */
/*
 * Answers of HTTP servers: the input is the header of one. It is judged as the first answer and as
 * a later one, and its redirect is followed.
 */
#include "fetch/http_url.h"
#include "fetch/http_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { START = 0, END = 1000 };

/* What is taken is the range that was asked for. */
static void judge(const struct http_answer *answer, const struct http_known *known)
{
    struct wfs_error err = {0};
    const enum http_verdict verdict = http_judge(answer, known, START, END, &err);
    if (verdict == HTTP_NO_VERDICT || verdict == HTTP_AGAIN)
        abort();
    if ((verdict == HTTP_TAKE || verdict == HTTP_EMPTY) != (err.code == 0))
        abort();
    if (verdict != HTTP_TAKE)
        return;
    if (answer->is_bad || answer->is_encoded)
        abort();
    if (answer->status == 206 &&
        (answer->first != START || answer->last >= END || answer->last >= answer->n_total ||
         (answer->has_length && answer->length != answer->last + 1)))
        abort();
    if (answer->status == 200 && answer->has_length && answer->length > HTTP_WHOLE_MAX)
        abort();
    struct http_known learned = {0};
    http_learn(&learned, answer, 1);
    if ((*learned.validator == '\0') != (learned.kind == HTTP_BY_SIZE) ||
        strpbrk(learned.validator, "\r\n") != NULL)
        abort();
}

static void follow(const struct http_answer *answer)
{
    struct wfs_error err = {0};
    struct http_url url;
    if (answer->location == NULL)
        return;
    const int rc = http_url_follow(&url, "https://host.example/a/b?c", answer->location, &err);
    if (rc == 0 && (strncmp(url.text, "https://", 8) != 0 || url.user != NULL))
        abort();
    if (rc < 0 && err.code == 0)
        abort();
    http_url_done(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct http_answer answer = {0};
    const char *line = (const char *)data, *end = line + n_bytes;
    int rc = 0;
    while (line < end && rc == 0) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline == NULL ? end : newline + 1;
        rc = http_answer_line(&answer, line, (size_t)(next - line));
        line = next;
    }
    if (rc < 0 && rc != -ENOMEM && rc != -E2BIG)
        abort();
    const struct http_known nothing = {0};
    const struct http_known ranges = {
        .is_open = true, .n_bytes = 200000, .kind = HTTP_BY_ETAG, .validator = "\"v1\""};
    const struct http_known whole = {.is_open = true,
                                     .is_whole = true,
                                     .n_bytes = 1000,
                                     .kind = HTTP_BY_DATE,
                                     .validator = "Sat, 05 Sep 2026 10:11:12 GMT"};
    judge(&answer, &nothing);
    judge(&answer, &ranges);
    judge(&answer, &whole);
    follow(&answer);
    http_answer_done(&answer);
    return 0;
}
