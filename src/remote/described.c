/* SPDX-License-Identifier: MIT */
/*
 * Names come about in the order of the description, so a search begins where the last one ended.
 */
#include <weightfs/cleanup.h>
#include <weightfs/described.h>
#include "base/bytes.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define SEARCHED_MAX (UINT64_C(64) << 30)

/* Returns whether the n bytes, with one before and one behind them, are a string of JSON. */
static bool is_quoted(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '"' && bytes[i - 1] != '\\')
            return false;
    }
    return bytes[-1] == '"' && bytes[n] == '"' && bytes[n - 1] != '\\';
}

/* Returns whether the n bytes at `at` are a whole string. */
static bool is_string(const struct described *d, size_t at, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)d->text + at;
    if (at >= 1 && at + n < d->n_bytes && is_quoted(bytes, n))
        return true;
    return (at >= 1 && n < 256 && bytes[-1] == n) || (at >= 4 && load_le32(bytes - 4) == n);
}

/* Looks for a string that begins in [from, end). */
static bool find(struct described *d, const char *text, size_t n, size_t from, size_t end)
{
    const size_t behind = d->n_bytes - end > n ? end + n - 1 : d->n_bytes;
    while (from < end) {
        const char *found = memmem(d->text + from, behind - from, text, n);
        const size_t at = found == NULL ? end : (size_t)(found - d->text);
        d->n_searched += at - from + 1;
        if (at >= end || is_string(d, at, n)) {
            d->at = at < end ? at : d->at;
            return at < end;
        }
        from = at + 1;
    }
    return false;
}

static bool has(struct described *d, const char *text)
{
    const size_t n = strlen(text), start = d->at;
    return n > 0 && n <= d->n_bytes && d->n_searched < SEARCHED_MAX &&
           (find(d, text, n, start, d->n_bytes) || find(d, text, n, 0, start));
}

/* Returns the name as a string of JSON that is all ASCII, malloc'ed, or NULL. */
static char *escape(const char *name, const char *format)
{
    enum { N_ESCAPE = 6 }; /* "\u1234", of each byte at most */
    size_t n_left = strlen(name);
    char *text = malloc(n_left * N_ESCAPE + 1), *out = text;
    while (text != NULL && n_left > 0) {
        uint32_t c;
        const size_t n = utf8_decode(name, n_left, &c);
        if (n == 0) {
            free(text);
            return NULL;
        }
        if (c >= 0x10000) { /* two halves */
            out += sprintf(out, format, 0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + (c & 0x3ff);
        }
        if (c < ' ' || c > '~')
            out += sprintf(out, format, c);
        else
            out += sprintf(out, c == '"' || c == '\\' ? "\\%c" : "%c", (int)c);
        name += n;
        n_left -= n;
    }
    if (text != NULL)
        *out = '\0';
    return text;
}

bool described_has(struct described *d, const char *name)
{
    static const char *const formats[] = {"\\u%04x", "\\u%04X"};
    bool is_found = has(d, name);
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats) && !is_found; i++) {
        autofree char *escaped = escape(name, formats[i]);
        is_found = escaped != NULL && strcmp(escaped, name) != 0 && has(d, escaped);
    }
    return is_found;
}

static const char digits[] = "0123456789";

/* Returns the number of a file in its set, or NULL: that before the last "-of-", else that behind a
 * word. */
static const char *find_number(const char *name)
{
    static const char *const marks[] = {"consolidated.", "model_part-"};
    const char *number = NULL;
    for (const char *at = strstr(name, "-of-"); at != NULL; at = strstr(at + 1, "-of-"))
        number = at;
    if (number != NULL) {
        while (number > name && strchr(digits, number[-1]) != NULL)
            number--;
        return number;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks) && number == NULL; i++) {
        const char *mark = strstr(name, marks[i]);
        number = mark == NULL ? NULL : mark + strlen(marks[i]);
    }
    return number;
}

bool described_is_rank(const char *url, const char *other)
{
    const char *host = strstr(url, "://"), *number = NULL;
    const char *at = host == NULL ? NULL : strchr(host + 3, '/');
    for (; at != NULL && (at = strstr(at, "/mp_rank_")) != NULL; at++)
        number = at + strlen("/mp_rank_");
    const size_t start = number == NULL ? 0 : (size_t)(number - url);
    const size_t n = number == NULL ? 0 : strspn(number, digits);
    return n > 0 && strncmp(url, other, start) == 0 && strspn(other + start, digits) == n &&
           strcmp(number + n, other + start + n) == 0;
}

bool described_is_sibling(const char *name, const char *other)
{
    const char *number = find_number(name);
    if (strcmp(name, ".metadata") == 0 && strcmp(other, "meta.pt") == 0)
        return true;
    if (number == NULL || strlen(name) != strlen(other))
        return false;
    const size_t start = (size_t)(number - name), n = strspn(number, digits);
    return n > 0 && memcmp(name, other, start) == 0 && strspn(other + start, digits) >= n &&
           strcmp(number + n, other + start + n) == 0;
}
