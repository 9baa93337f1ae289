/* SPDX-License-Identifier: MIT */
/*
 * The growing text. Room doubles.
 */
#include "text/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* Room for n_bytes more and a NUL. */
static bool make_room(struct strbuf *text, size_t n_bytes)
{
    size_t n_need;
    if (text->has_failed || !checked_add(text->n_bytes, n_bytes, &n_need) ||
        !checked_add(n_need, (size_t)1, &n_need)) {
        text->has_failed = true;
        return false;
    }
    if (n_need <= text->n_room)
        return true;
    const size_t n_twice = text->n_room > SIZE_MAX / 2 ? SIZE_MAX : text->n_room * 2;
    const size_t n_room = n_need > n_twice ? n_need : n_twice;
    char *bytes = realloc(text->bytes, n_room < 128 ? 128 : n_room);
    if (bytes == NULL) {
        text->has_failed = true;
        return false;
    }
    text->bytes = bytes;
    text->n_room = n_room < 128 ? 128 : n_room;
    return true;
}

void strbuf_add(struct strbuf *text, const char *bytes, size_t n_bytes)
{
    if (!make_room(text, n_bytes))
        return;
    memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void strbuf_puts(struct strbuf *text, const char *string)
{
    strbuf_add(text, string, strlen(string));
}

void strbuf_printf(struct strbuf *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        text->has_failed = true;
    } else if (make_room(text, (size_t)n)) {
        vsnprintf(text->bytes + text->n_bytes, (size_t)n + 1, format, again);
        text->n_bytes += (size_t)n;
    }
    va_end(again);
}

void strbuf_csv(struct strbuf *text, const char *field)
{
    if (field[strcspn(field, ",\"\r\n")] == '\0') {
        strbuf_puts(text, field);
        return;
    }
    strbuf_puts(text, "\"");
    for (const char *quote; (quote = strchr(field, '"')) != NULL; field = quote + 1) {
        strbuf_add(text, field, (size_t)(quote - field));
        strbuf_puts(text, "\"\"");
    }
    strbuf_puts(text, field);
    strbuf_puts(text, "\"");
}

/* Bytes of the character at the front that JSON takes as it is, 0: it must be escaped. */
static size_t json_literal(const char *bytes, size_t n_bytes)
{
    const unsigned char c = (unsigned char)bytes[0];
    if (c < 0x80)
        return c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
    const size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    return n <= n_bytes && utf8_valid(bytes, n) == n ? n : 0;
}

void strbuf_json_bytes(struct strbuf *text, const char *bytes, size_t n_bytes)
{
    size_t n_added = 0;
    strbuf_puts(text, "\"");
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = json_literal(bytes + i, n_bytes - i);
        if (n > 0) {
            i += n;
            continue;
        }
        strbuf_add(text, bytes + n_added, i - n_added);
        const unsigned char c = (unsigned char)bytes[i++];
        n_added = i;
        if (c >= 0x80)
            strbuf_puts(text, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            strbuf_printf(text, "\\%c", c);
        else
            strbuf_printf(text, "\\u%04x", c);
    }
    strbuf_add(text, bytes + n_added, n_bytes - n_added);
    strbuf_puts(text, "\"");
}

void strbuf_json(struct strbuf *text, const char *string)
{
    if (string == NULL)
        strbuf_puts(text, "null");
    else
        strbuf_json_bytes(text, string, strlen(string));
}

void strbuf_number(struct strbuf *text, double value)
{
    char number[40];
    snprintf(number, sizeof(number), "%.17g", value);
    char *comma = strchr(number, ','); /* a locale's */
    if (comma != NULL)
        *comma = '.';
    strbuf_puts(text, number);
}

void strbuf_shape(struct strbuf *text, const struct wfs_shape *shape)
{
    const size_t n = wfs_shape_format(shape, NULL, 0);
    if (!make_room(text, n))
        return;
    wfs_shape_format(shape, text->bytes + text->n_bytes, n + 1);
    text->n_bytes += n;
}

void strbuf_done(struct strbuf *text)
{
    const int saved = errno;
    free(text->bytes);
    *text = (struct strbuf){0};
    errno = saved;
}
