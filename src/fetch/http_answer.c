/* SPDX-License-Identifier: MIT */
/*
 * Each header that is used has a function in a table.
 */
#include "fetch/http_answer.h"

#include <weightfs/cleanup.h>

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

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

static int parse_encoding(struct http_answer *answer, struct value value)
{
    answer->is_encoded |= value.n_bytes > 0 && !value_is(&value, "identity");
    return 0;
}

/* Copies a value whose characters are all in `allowed`; another value is none. */
static void copy_word(struct value value, const char *allowed, char *ret, size_t n_room)
{
    *ret = '\0';
    for (size_t i = 0; i < value.n_bytes; i++)
        if (value.text[i] == '\0' || strchr(allowed, value.text[i]) == NULL)
            return;
    if (value.n_bytes >= n_room)
        return;
    memcpy(ret, value.text, value.n_bytes);
    ret[value.n_bytes] = '\0';
}

static int parse_tag(struct http_answer *answer, struct value value)
{
    answer->tag[0] = '\0';
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

/* A date as HTTP spells it has letters, digits, blanks, commas, colons, and a minus in an old form.
 */
static int parse_modified(struct http_answer *answer, struct value value)
{
    copy_word(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ,:-",
              answer->modified, sizeof(answer->modified));
    return 0;
}

static int parse_commit(struct http_answer *answer, struct value value)
{
    copy_word(value, "0123456789abcdef", answer->commit, sizeof(answer->commit));
    if (strlen(answer->commit) != sizeof(answer->commit) - 1)
        answer->commit[0] = '\0';
    return 0;
}

static int parse_region(struct http_answer *answer, struct value value)
{
    copy_word(value, "abcdefghijklmnopqrstuvwxyz0123456789-", answer->region,
              sizeof(answer->region));
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

static const struct {
    const char *name;
    int (*parse)(struct http_answer *answer, struct value value);
} headers[] = {
    {"content-encoding", parse_encoding},  {"content-length", parse_length},
    {"content-range", parse_range},        {"etag", parse_tag},
    {"last-modified", parse_modified},     {"location", parse_location},
    {"x-amz-bucket-region", parse_region}, {"x-repo-commit", parse_commit},
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
