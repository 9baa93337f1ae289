/* SPDX-License-Identifier: MIT */
/*
 * The error record and names made fit for messages.
 */
#include <weightfs/error.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <weightfs/percent.h>

#include "base/utf8.h"

static const char mark[] = "..."; /* of a text that was cut */

void wfs_format(char *ret, size_t n_room, const char *format, va_list args)
{
    const int n_whole = vsnprintf(ret, n_room, format, args);
    if (n_whole < 0 || (size_t)n_whole < n_room)
        return;
    size_t n = n_room - sizeof(mark);
    while (n > 0 && ((unsigned char)ret[n] & 0xc0) == 0x80)
        n--;
    memcpy(ret + n, mark, sizeof(mark));
}

int wfs_fail(struct wfs_error *err, int code, const char *format, ...)
{
    if (err != NULL && err->code == 0) {
        va_list args;
        va_start(args, format);
        wfs_format(err->text, sizeof(err->text), format, args);
        va_end(args);
        err->code = code;
    }
    return -code;
}

int wfs_fail_memory(struct wfs_error *err)
{
    return wfs_fail(err, ENOMEM, "out of memory");
}

/* C1 controls, line and paragraph separators, and all that shows nothing by itself (as of the
 * property Default_Ignorable_Code_Point): marks of direction, joiners, fillers, tags. */
static bool is_control(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x80, 0x9f},       {0xad, 0xad},      {0x34f, 0x34f},   {0x61c, 0x61c},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},  {0x180b, 0x180f}, {0x200b, 0x200f},
        {0x2028, 0x202e},   {0x2060, 0x206f},  {0x3164, 0x3164}, {0xfe00, 0xfe0f},
        {0xfeff, 0xfeff},   {0xffa0, 0xffa0},  {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    }
    return false;
}

enum { N_ESCAPE = 4 }; /* characters of "\xHH" */

/* Reads the escape at the front. Returns false if it is something else, or the code of a NUL. */
static bool read_escape(const char *text, size_t n_bytes, uint32_t *ret)
{
    return n_bytes >= N_ESCAPE && text[0] == '\\' && text[1] == 'x' &&
           hex_decode(text + 2, N_ESCAPE - 2, ret) && *ret != 0;
}

static bool is_fit(enum wfs_escape how, uint32_t c)
{
    if (c >= 0x80)
        return !is_control(c);
    if (how == WFS_ESCAPE_JSON && (c == '\n' || c == '\t'))
        return true;
    if (how == WFS_ESCAPE_QUOTED && c == '\'')
        return false;
    return c >= 0x20 && c != 0x7f;
}

size_t wfs_escape(enum wfs_escape how, const char *bytes, size_t n_bytes, char ret[WFS_ESCAPE_MAX])
{
    uint32_t c = 0xfffd, byte;
    const size_t n = utf8_decode(bytes, n_bytes, &c);
    const bool is_ambiguous =
        how <= WFS_ESCAPE_QUOTED && c == '\\' && read_escape(bytes, n_bytes, &byte);
    if (n > 0 && is_fit(how, c) && !is_ambiguous) {
        memcpy(ret, bytes, n);
        ret[n] = '\0';
        return n;
    }
    if (how == WFS_ESCAPE_JSON) {
        if (c < 0x10000)
            snprintf(ret, WFS_ESCAPE_MAX, "\\u%04x", (unsigned)c);
        else
            snprintf(ret, WFS_ESCAPE_MAX, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                     (unsigned)(0xdc00 | (c & 0x3ff)));
        return n > 0 ? n : 1;
    }
    snprintf(ret, WFS_ESCAPE_MAX, "\\x%02x", (unsigned char)bytes[0]);
    return 1;
}

void wfs_unescape(char *name)
{
    size_t n_left = strlen(name);
    char *to = name;
    for (const char *at = name; n_left > 0; to++) {
        uint32_t byte;
        const bool is_escape = read_escape(at, n_left, &byte);
        const size_t n = is_escape ? N_ESCAPE : 1;
        *to = is_escape ? (char)byte : *at;
        at += n;
        n_left -= n;
    }
    *to = '\0';
}

struct wfs_quoted wfs_quote_n(const char *bytes, size_t n_bytes)
{
    enum { N_TAIL = 40 }; /* room for the note about a cut */
    struct wfs_quoted quoted;
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_QUOTED, bytes + i, n_bytes - i, escaped);
        const size_t n = strlen(escaped);
        if (n_out + n > sizeof(quoted.text) - N_TAIL) {
            snprintf(quoted.text + n_out, sizeof(quoted.text) - n_out, "... (%zu bytes)", n_bytes);
            return quoted;
        }
        memcpy(quoted.text + n_out, escaped, n);
        n_out += n;
    }
    quoted.text[n_out] = '\0';
    return quoted;
}

struct wfs_quoted wfs_quote(const char *name)
{
    return wfs_quote_n(name, strlen(name));
}

struct wfs_counted wfs_count_as(uint64_t n, const char *one, const char *many)
{
    struct wfs_counted counted;
    snprintf(counted.text, sizeof(counted.text), "%" PRIu64 " %s", n, n == 1 ? one : many);
    return counted;
}

struct wfs_counted wfs_count(uint64_t n, const char *noun)
{
    char many[sizeof(((struct wfs_counted *)NULL)->text)];
    const size_t n_noun = strlen(noun);
    const bool ends_in_y =
        n_noun > 1 && noun[n_noun - 1] == 'y' && strchr("aeiou", noun[n_noun - 2]) == NULL;
    snprintf(many, sizeof(many), "%.*s%s", (int)n_noun - ends_in_y, noun, ends_in_y ? "ies" : "s");
    return wfs_count_as(n, noun, many);
}

void wfs_escape_line(const char *text, char *ret, size_t n_room)
{
    const size_t n_bytes = strlen(text);
    size_t n_out = 0, n_cut = 0; /* where the mark would go */
    ret[0] = '\0';
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_TEXT, text + i, n_bytes - i, escaped);
        const size_t n = strlen(escaped);
        if (n_out + n >= n_room) {
            memcpy(ret + n_cut, mark, sizeof(mark));
            return;
        }
        memcpy(ret + n_out, escaped, n + 1);
        n_out += n;
        n_cut = n_out + sizeof(mark) <= n_room ? n_out : n_cut;
    }
}

struct wfs_prose wfs_prose(const char *message)
{
    struct wfs_prose prose;
    wfs_escape_line(message, prose.text, sizeof(prose.text));
    return prose;
}
