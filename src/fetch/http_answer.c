/* SPDX-License-Identifier: MIT */
/*
 * Each header that is used has a function in a table, each status a verdict in another one.
 */
#include "fetch/http_answer.h"

#include <weightfs/cleanup.h>

#include <curl/curl.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    HTTP_HEADER_MAX = 65536, /* bytes of all headers of an answer; servers send less than 16 KiB */
    HTTP_LOCATION_MAX = 16384, /* of a redirect; signed URLs have 2,000 */
};

/* ---- headers ---- */

/* The value of a header, without blanks around it; not terminated. */
struct value {
    const char *text;
    size_t n_bytes;
};

static void trim(struct value *value)
{
    while (value->n_bytes > 0 && strchr(" \t\r\n", *value->text) != NULL) {
        value->text++;
        value->n_bytes--;
    }
    while (value->n_bytes > 0 && strchr(" \t\r\n", value->text[value->n_bytes - 1]) != NULL)
        value->n_bytes--;
}

static bool value_is(const struct value *value, const char *text)
{
    return value->n_bytes == strlen(text) && strncasecmp(value->text, text, value->n_bytes) == 0;
}

/* Takes a number of less than 2^63 off the front. */
static bool take_number(struct value *value, uint64_t *ret)
{
    const size_t n_before = value->n_bytes;
    *ret = 0;
    while (value->n_bytes > 0 && isdigit((unsigned char)*value->text)) {
        if (*ret > (INT64_MAX - 9) / 10)
            return false;
        *ret = *ret * 10 + (uint64_t)(*value->text - '0');
        value->text++;
        value->n_bytes--;
    }
    return value->n_bytes < n_before;
}

static bool take_char(struct value *value, char c)
{
    if (value->n_bytes == 0 || *value->text != c)
        return false;
    value->text++;
    value->n_bytes--;
    return true;
}

static int parse_length(struct http_answer *answer, struct value value)
{
    uint64_t length;
    answer->is_bad |= !take_number(&value, &length) || value.n_bytes > 0 ||
                      (answer->has_length && answer->length != length);
    answer->has_length = true;
    answer->length = length;
    return 0;
}

/* "bytes FIRST-LAST/TOTAL" or "bytes * /TOTAL". A total that is not known is "*", which is bad: the
 * size of an object never is. */
static int parse_range(struct http_answer *answer, struct value value)
{
    static const char unit[] = "bytes";
    const size_t n_unit = sizeof(unit) - 1;
    bool is_fine = value.n_bytes > n_unit && strncasecmp(value.text, unit, n_unit) == 0 &&
                   (value.text[n_unit] == ' ' || value.text[n_unit] == '\t') && !answer->has_range;
    if (is_fine) {
        value.text += n_unit;
        value.n_bytes -= n_unit;
        trim(&value);
        answer->is_empty_range = take_char(&value, '*');
        is_fine = (answer->is_empty_range ||
                   (take_number(&value, &answer->first) && take_char(&value, '-') &&
                    take_number(&value, &answer->last) && answer->first <= answer->last)) &&
                  take_char(&value, '/') && take_number(&value, &answer->n_total) &&
                  value.n_bytes == 0 && (answer->is_empty_range || answer->last < answer->n_total);
    }
    answer->has_range = true;
    answer->is_bad |= !is_fine;
    return 0;
}

/* A word: it is taken where all of its characters are in `allowed`. */
struct word {
    const char *name, *allowed;
    size_t at, n_room; /* in the answer */
    bool is_full;      /* anything shorter is none */
};

#define WORD(member) offsetof(struct http_answer, member), sizeof(((struct http_answer *)0)->member)

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
/* Letters, digits, blanks, commas, colons, and a minus in an old form. */
#define DATE LETTERS "0123456789 ,:-"

static const struct word words[] = {
    {"date", DATE, WORD(date), false},
    {"last-modified", DATE, WORD(modified), false},
    {"x-amz-bucket-region", "abcdefghijklmnopqrstuvwxyz0123456789-", WORD(region), false},
    {"x-repo-commit", "0123456789abcdef", WORD(commit), true},
    {"x-error-code", LETTERS, WORD(problem), false},
    {"x-linked-etag", "\"0123456789abcdef", WORD(linked), false},
};

static void copy_word(struct http_answer *answer, const struct word *word, struct value value)
{
    char *ret = (char *)answer + word->at;
    *ret = '\0';
    for (size_t i = 0; i < value.n_bytes; i++)
        if (value.text[i] == '\0' || strchr(word->allowed, value.text[i]) == NULL)
            return;
    if (value.n_bytes >= word->n_room || (word->is_full && value.n_bytes < word->n_room - 1))
        return;
    memcpy(ret, value.text, value.n_bytes);
    ret[value.n_bytes] = '\0';
}

static const struct word encoding_word = {NULL, LETTERS "0123456789-_", WORD(encoding), false};

/* Stores keep the header that an object was uploaded with, also where it says nothing of its bytes.
 */
static bool is_plain_encoding(const struct value *value)
{
    static const char *const names[] = {"",     "identity", "aws-chunked", "binary", "none",
                                        "utf8", "utf-8",    "7bit",        "8bit"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (value_is(value, names[i]))
            return true;
    }
    return false;
}

static int parse_encoding(struct http_answer *answer, struct value value)
{
    while (value.n_bytes > 0) {
        const char *comma = memchr(value.text, ',', value.n_bytes);
        struct value name = {value.text,
                             comma == NULL ? value.n_bytes : (size_t)(comma - value.text)};
        value.text += name.n_bytes + (comma != NULL);
        value.n_bytes -= name.n_bytes + (comma != NULL);
        trim(&name);
        if (is_plain_encoding(&name))
            continue;
        answer->is_encoded = true;
        copy_word(answer, &encoding_word, name);
    }
    return 0;
}

static int parse_tag(struct http_answer *answer, struct value value)
{
    answer->tag[0] = '\0';
    answer->is_weak_tag = value.n_bytes > 2 && memcmp(value.text, "W/", 2) == 0;
    value.text += answer->is_weak_tag ? 2 : 0;
    value.n_bytes -= answer->is_weak_tag ? 2 : 0;
    if (value.n_bytes < 2 || value.n_bytes >= sizeof(answer->tag) || value.text[0] != '"' ||
        value.text[value.n_bytes - 1] != '"')
        return 0;
    for (size_t i = 1; i < value.n_bytes - 1; i++) {
        const unsigned char c = (unsigned char)value.text[i];
        if (c < 0x21 || c == '"' || c == 0x7f)
            return 0;
    }
    memcpy(answer->tag, value.text, value.n_bytes);
    answer->tag[value.n_bytes] = '\0';
    return 0;
}

static int parse_location(struct http_answer *answer, struct value value)
{
    if (answer->location != NULL || value.n_bytes > HTTP_LOCATION_MAX ||
        memchr(value.text, '\0', value.n_bytes) != NULL) {
        answer->is_bad = true;
        return 0;
    }
    answer->location = strndup(value.text, value.n_bytes);
    return answer->location == NULL ? -ENOMEM : 0;
}

static int parse_control(struct http_answer *answer, struct value value)
{
    static const char word[] = "no-store";
    for (size_t i = 0; i + strlen(word) <= value.n_bytes; i++)
        answer->is_fleeting |= strncasecmp(value.text + i, word, strlen(word)) == 0;
    return 0;
}

static const struct {
    const char *name;
    int (*parse)(struct http_answer *answer, struct value value);
} headers[] = {
    {"cache-control", parse_control},
    {"content-encoding", parse_encoding},
    {"content-length", parse_length},
    {"content-range", parse_range},
    {"etag", parse_tag},
    {"location", parse_location},
};

/* "HTTP/1.1 206 Partial Content" */
static void begin(struct http_answer *answer, struct value line)
{
    const uint64_t n_before = answer->n_header_bytes;
    http_answer_done(answer);
    *answer = (struct http_answer){.n_header_bytes = n_before};
    uint64_t status;
    while (line.n_bytes > 0 && *line.text != ' ') {
        line.text++;
        line.n_bytes--;
    }
    trim(&line);
    answer->is_bad = !take_number(&line, &status) || status > 999;
    answer->status = answer->is_bad ? 0 : (unsigned)status;
}

int http_answer_skip(struct http_answer *answer, size_t n_bytes)
{
    answer->n_header_bytes += n_bytes;
    return answer->n_header_bytes > HTTP_HEADER_MAX ? -E2BIG : 0;
}

int http_answer_line(struct http_answer *answer, const char *line, size_t n_bytes)
{
    const int rc = http_answer_skip(answer, n_bytes);
    if (rc < 0)
        return rc;
    struct value value = {line, n_bytes};
    if (n_bytes >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        begin(answer, value);
        return 0;
    }
    const char *colon = memchr(line, ':', n_bytes);
    if (colon == NULL)
        return 0;
    struct value name = {line, (size_t)(colon - line)};
    value.text = colon + 1;
    value.n_bytes = n_bytes - name.n_bytes - 1;
    trim(&name);
    trim(&value);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (value_is(&name, words[i].name))
            copy_word(answer, &words[i], value);
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
        if (value_is(&name, headers[i].name))
            return headers[i].parse(answer, value);
    return 0;
}

void http_answer_done(struct http_answer *answer)
{
    cleanup_free(&answer->location);
    answer->location = NULL;
}

/* ---- rules for ranges and validators ---- */

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

/* Returns how many seconds before the answer the object was modified: INT64_MIN where nothing says
 * so. Another clock than that of the server may differ by a minute. */
static int64_t age_of(const struct http_answer *answer)
{
    enum { DOUBT_S = 60 };
    const time_t modified = *answer->modified == '\0' ? -1 : curl_getdate(answer->modified, NULL);
    const time_t date =
        *answer->date == '\0' ? time(NULL) - DOUBT_S : curl_getdate(answer->date, NULL);
    return modified == -1 || date == -1 ? INT64_MIN : (int64_t)date - modified;
}

bool http_is_young(const struct http_answer *answer)
{
    const int64_t age = age_of(answer);
    return age > -HTTP_YOUNG_S && age < HTTP_YOUNG_S;
}

/* Of an answer with a body of the object, against the first one. */
static enum http_verdict check_validator(const struct http_answer *answer,
                                         const struct http_known *known, uint64_t n_total,
                                         struct wfs_error *err)
{
    const char *got = known->kind == HTTP_BY_DATE                          ? answer->modified
                      : known->kind == HTTP_BY_ETAG && answer->is_weak_tag ? ""
                                                                           : answer->tag;
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
    if (answer->is_encoded) {
        wfs_fail(err, EOPNOTSUPP,
                 "the server sends it encoded%s%s, which is not read; download and unpack it",
                 *answer->encoding != '\0' ? " with " : "", answer->encoding);
        return HTTP_FAIL;
    }
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
    const bool is_old = age_of(answer) >= HTTP_YOUNG_S;
    *known = (struct http_known){
        .is_open = true,
        .is_whole = answer->status == 200,
        .is_fleeting = answer->is_fleeting,
        .n_bytes = n_bytes,
        .kind = has_tag && !answer->is_weak_tag ? HTTP_BY_ETAG
                : is_old                        ? HTTP_BY_DATE
                : has_tag                       ? HTTP_BY_WEAK_TAG
                : has_date                      ? HTTP_BY_DATE
                                                : HTTP_BY_SIZE,
    };
    known->is_weak = known->kind != HTTP_BY_ETAG && !is_old;
    snprintf(known->validator, sizeof(known->validator), "%s",
             *answer->linked != '\0' && n_bytes == 0 ? answer->linked
             : known->kind == HTTP_BY_DATE           ? answer->modified
                                                     : answer->tag);
}
