/* SPDX-License-Identifier: MIT */
/*
 * The pull parser. Nothing here recurses: open containers are counted, and json_skip keeps one
 * byte for each.
 */
#include "text/json.h"

#include <string.h>
#include <weightfs/percent.h>

#include "base/bytes.h"
#include "base/utf8.h"

struct json json_of(char *text, size_t n_bytes)
{
    return (struct json){.start = text, .at = text, .end = text + n_bytes};
}

size_t json_offset(const struct json *json)
{
    return json->n_before + (size_t)(json->at - json->start);
}

void json_move(struct json *json, char *text, size_t n_bytes)
{
    json->n_before = json_offset(json);
    json->start = json->at = text;
    json->end = text + n_bytes;
}

bool json_fail(struct json *json, const char *error)
{
    if (json->error == NULL)
        json->error = error;
    return false;
}

static bool fail_at(struct json *json, char *at, const char *error)
{
    if (json->error == NULL)
        json->at = at;
    return json_fail(json, at < json->end ? error : "the text ends too early");
}

/* The next byte that is not white space, 0 at the end. */
static inline char peek(struct json *json)
{
    for (; json->at < json->end; json->at++) {
        const char c = *json->at;
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return c;
    }
    return '\0';
}

static const uint8_t kinds[UINT8_MAX + 1] = {
    ['{'] = JSON_KIND_OBJECT, ['['] = JSON_KIND_ARRAY,          ['"'] = JSON_KIND_STRING,
    ['-'] = JSON_KIND_NUMBER, ['0' ... '9'] = JSON_KIND_NUMBER, ['t'] = JSON_KIND_BOOL,
    ['f'] = JSON_KIND_BOOL,   ['n'] = JSON_KIND_NULL,
};

enum json_kind json_kind(struct json *json)
{
    return json->error != NULL ? JSON_KIND_NONE : (enum json_kind)kinds[(uint8_t)peek(json)];
}

static bool open_container(struct json *json, enum json_kind kind, const char *error)
{
    if (json_kind(json) != kind)
        return fail_at(json, json->at, error);
    if (json->depth == JSON_DEPTH_MAX)
        return fail_at(json, json->at, "nested more than 127 deep");
    json->at++;
    json->depth++;
    json->is_first = true;
    return true;
}

bool json_open_object(struct json *json)
{
    return open_container(json, JSON_KIND_OBJECT, "expected an object");
}

bool json_open_array(struct json *json)
{
    return open_container(json, JSON_KIND_ARRAY, "expected an array");
}

/*
 * The first quote, backslash or control character at or after `at`. Eight bytes at a time: the
 * lowest byte that a mask marks is always a true one, those above it may be echoes of the
 * subtraction.
 */
static char *find_special(char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - at >= 8; at += 8) {
        const uint64_t word = load_le64(at);
        const uint64_t quote = word ^ ones * '"';
        const uint64_t backslash = word ^ ones * '\\';
        const uint64_t marks = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                                ((word - ones * 0x20) & ~word)) &
                               tops;
        if (marks != 0)
            return at + __builtin_ctzll(marks) / 8;
    }
    while (at < end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20)
        at++;
    return at;
}

/* Four hex digits. */
static bool take_hex(struct json *json, uint32_t *ret)
{
    *ret = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        const int digit = json->at < json->end ? hex_digit((char)*json->at) : -1;
        if (digit < 0)
            return fail_at(json, json->at, "expected four hex digits after \\u");
        *ret = *ret << 4 | (uint32_t)digit;
    }
    return true;
}

/* Behind "\u". A pair of surrogates is one character; half of one is none. */
static bool take_unicode(struct json *json, uint32_t *ret)
{
    char *escape = json->at - 2;
    uint32_t code, low;
    if (!take_hex(json, &code))
        return false;
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail_at(json, escape, "half of a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
            return fail_at(json, escape, "half of a surrogate pair");
        json->at += 2;
        if (!take_hex(json, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail_at(json, escape, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *ret = code;
    return true;
}

/* Behind a backslash; writes the character at out, which never passes what was read. */
static bool take_escape(struct json *json, char **out)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char c = json->at < json->end ? *json->at : '\0';
    uint32_t code = 0;
    if (c == 'u') {
        json->at++;
        if (!take_unicode(json, &code))
            return false;
        *out += utf8_put(code, *out);
        return true;
    }
    const char *name = c == '\0' ? NULL : strchr(names, c);
    if (name == NULL)
        return fail_at(json, json->at, "no such escape");
    *(*out)++ = meanings[name - names];
    json->at++;
    return true;
}

/* The opening quote is next. */
static bool take_string(struct json *json, struct json_text *ret)
{
    const size_t offset = json_offset(json);
    char *bytes = ++json->at;
    char *out = bytes;
    for (;;) {
        char *special = find_special(json->at, json->end);
        const size_t n_plain = (size_t)(special - json->at);
        if (out != json->at)
            memmove(out, json->at, n_plain);
        out += n_plain;
        json->at = special;
        if (special == json->end || (unsigned char)*special < 0x20)
            return fail_at(json, special, "a control character in a string");
        json->at++;
        if (*special == '"')
            break;
        if (!take_escape(json, &out))
            return false;
    }
    *out = '\0'; /* on the closing quote, or before it */
    *ret = (struct json_text){bytes, (size_t)(out - bytes), offset};
    return true;
}

bool json_take_string(struct json *json, struct json_text *ret)
{
    if (json_kind(json) != JSON_KIND_STRING)
        return fail_at(json, json->at, "expected a string");
    return take_string(json, ret);
}

/* Goes to the next member of the innermost container; false when that is closed here. */
static bool next_member(struct json *json, char closer)
{
    if (json->error != NULL)
        return false;
    const bool is_first = json->is_first;
    const char c = peek(json);
    json->is_first = false;
    if (c == closer && json->at < json->end) {
        json->at++;
        json->depth--;
        return false;
    }
    if (is_first)
        return true;
    if (c != ',')
        return fail_at(json, json->at,
                       closer == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    json->at++;
    if (peek(json) == closer)
        return fail_at(json, json->at, "a comma before the closing bracket");
    return true;
}

bool json_next_item(struct json *json)
{
    return next_member(json, ']');
}

bool json_next_key(struct json *json, struct json_text *ret_key)
{
    if (!next_member(json, '}'))
        return false;
    if (peek(json) != '"')
        return fail_at(json, json->at, "expected a key in double quotes");
    if (!take_string(json, ret_key))
        return false;
    if (peek(json) != ':')
        return fail_at(json, json->at, "expected ':'");
    json->at++;
    return true;
}

static bool is_digit(const struct json *json)
{
    return json->at < json->end && *json->at >= '0' && *json->at <= '9';
}

bool json_take_uint(struct json *json, uint64_t *ret)
{
    static const char error[] = "expected a whole number from 0 to 2^64-1";
    if (json_kind(json) != JSON_KIND_NUMBER)
        return fail_at(json, json->at, error);
    char *start = json->at;
    uint64_t value;
    while (is_digit(json))
        json->at++;
    if (!digits_parse(start, (size_t)(json->at - start), &value))
        return fail_at(json, start, error);
    const bool has_leading_zero = *start == '0' && json->at - start > 1;
    const char c = json->at < json->end ? *json->at : '\0';
    if (has_leading_zero || c == '.' || c == 'e' || c == 'E')
        return fail_at(json, start, error);
    *ret = value;
    return true;
}

/* Size of a number: digits up to the 17th that counts, and the power of ten of the first of them.
 */
struct magnitude {
    uint64_t lead;
    int n_lead;
    int64_t power;
};

/* One digit or more, into the magnitude. step: what each adds to the power. */
static bool take_digits(struct json *json, struct magnitude *magnitude, bool is_fraction)
{
    if (!is_digit(json))
        return fail_at(json, json->at, "expected a digit");
    for (; is_digit(json); json->at++) {
        const bool counts = magnitude->n_lead > 0 || *json->at != '0';
        if (counts && magnitude->n_lead < 17) {
            magnitude->lead = magnitude->lead * 10 + (uint64_t)(*json->at - '0');
            magnitude->n_lead++;
        }
        if (is_fraction && magnitude->lead == 0)
            magnitude->power--;
        else if (!is_fraction && counts)
            magnitude->power++;
    }
    return true;
}

static bool take_exponent(struct json *json, int64_t *ret)
{
    enum { ENOUGH = 1000000000 }; /* more than any text has digits to make up for */
    const bool is_negative = json->at < json->end && *json->at == '-';
    if (is_negative || (json->at < json->end && *json->at == '+'))
        json->at++;
    if (!is_digit(json))
        return fail_at(json, json->at, "expected a digit");
    int64_t value = 0;
    for (; is_digit(json); json->at++) {
        if (value < ENOUGH)
            value = value * 10 + (*json->at - '0');
    }
    *ret = is_negative ? -value : value;
    return true;
}

/* Below 1.7976931348623159e308, as serde_json requires of numbers that it skips. */
static bool is_in_range(struct magnitude magnitude)
{
    if (magnitude.n_lead == 0 || magnitude.power < 309)
        return true;
    for (; magnitude.n_lead < 17; magnitude.n_lead++)
        magnitude.lead *= 10;
    return magnitude.power == 309 && magnitude.lead < 17976931348623159u;
}

static bool skip_number(struct json *json)
{
    char *start = json->at;
    struct magnitude magnitude = {0};
    int64_t exponent = 0;
    if (*json->at == '-')
        json->at++;
    if (json->end - json->at >= 2 && json->at[0] == '0' && json->at[1] >= '0' && json->at[1] <= '9')
        return fail_at(json, json->at, "a number with a leading zero");
    if (!take_digits(json, &magnitude, false))
        return false;
    if (json->at < json->end && *json->at == '.') {
        json->at++;
        if (!take_digits(json, &magnitude, true))
            return false;
    }
    if (json->at < json->end && (*json->at | 0x20) == 'e') {
        json->at++;
        if (!take_exponent(json, &exponent))
            return false;
    }
    magnitude.power += exponent;
    return is_in_range(magnitude) || fail_at(json, start, "a number out of range");
}

static bool take_word(struct json *json, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(json->end - json->at) < n || memcmp(json->at, word, n) != 0)
        return fail_at(json, json->at, "expected a value");
    json->at += n;
    return true;
}

bool json_take_null(struct json *json)
{
    if (json_kind(json) != JSON_KIND_NULL)
        return fail_at(json, json->at, "expected null");
    return take_word(json, "null");
}

/* A value without members, or the opening bracket of one that may have them. */
static bool skip_start(struct json *json)
{
    struct json_text text;
    switch (json_kind(json)) {
    case JSON_KIND_OBJECT:
        return json_open_object(json);
    case JSON_KIND_ARRAY:
        return json_open_array(json);
    case JSON_KIND_STRING:
        return json_take_string(json, &text);
    case JSON_KIND_NUMBER:
        return skip_number(json);
    case JSON_KIND_BOOL:
        return take_word(json, *json->at == 't' ? "true" : "false");
    case JSON_KIND_NULL:
        return json_take_null(json);
    case JSON_KIND_NONE:
        break;
    }
    return fail_at(json, json->at, "expected a value");
}

bool json_skip(struct json *json)
{
    bool is_object[JSON_DEPTH_MAX + 1]; /* of the containers opened here, by depth */
    const unsigned floor = json->depth;
    for (;;) {
        const bool opens_object = json_kind(json) == JSON_KIND_OBJECT;
        const unsigned before = json->depth;
        if (!skip_start(json))
            return false;
        if (json->depth > before)
            is_object[json->depth] = opens_object;
        struct json_text key;
        while (json->depth > floor &&
               !(is_object[json->depth] ? json_next_key(json, &key) : json_next_item(json))) {
            if (json->error != NULL)
                return false;
        }
        if (json->depth == floor)
            return true;
    }
}

bool json_end(struct json *json)
{
    if (json->error != NULL)
        return false;
    peek(json);
    return json->at == json->end || fail_at(json, json->at, "text after the end");
}
