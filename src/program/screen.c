/* SPDX-License-Identifier: MIT */
/*
 * wcwidth depends on the locale of the thread, which is switched for each question: a locale for
 * the whole program would change how globs match.
 */
#include "program/screen.h"

#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <weightfs/error.h>

static enum screen_when colour_when; /* --color */

void screen_set_colour(enum screen_when when)
{
    colour_when = when;
}

size_t screen_width(int fd)
{
    enum { N_USUAL = 80, N_LEAST = 10 };
    struct winsize size = {0};
    if (isatty(fd) != 1)
        return 0;
    const char *columns = getenv("COLUMNS");
    size_t width = ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    if (width == 0 && columns != NULL)
        width = strtoul(columns, NULL, 10);
    if (width == 0 || width > UINT16_MAX)
        width = N_USUAL;
    return width < N_LEAST ? N_LEAST : width;
}

static bool takes_colour(int fd)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (none == NULL || none[0] == '\0') && terminal != NULL && terminal[0] != '\0' &&
           strcmp(terminal, "dumb") != 0 && isatty(fd) == 1;
}

/* Asked for each cell of a table. */
bool screen_has_colour(int fd)
{
    static enum { UNKNOWN, NO, YES } known[STDERR_FILENO + 1];
    if (colour_when != SCREEN_AUTO)
        return colour_when == SCREEN_ALWAYS;
    if (known[fd] == UNKNOWN)
        known[fd] = takes_colour(fd) ? YES : NO;
    return known[fd] == YES;
}

const char *screen_on(int fd, enum screen_colour colour)
{
    static const char *const codes[] = {
        [COLOUR_NONE] = "",
        [COLOUR_HEADING] = "\033[1m",
        [COLOUR_FAINT] = "\033[2m",
        [COLOUR_DTYPE] = "\033[36m",
        [COLOUR_ADDED] = "\033[32m",
        [COLOUR_REMOVED] = "\033[31m",
        [COLOUR_CHANGED] = "\033[33m",
        [COLOUR_WARNING] = "\033[33m",
        [COLOUR_ERROR] = "\033[1;31m",
    };
    return screen_has_colour(fd) ? codes[colour] : "";
}

const char *screen_off(int fd, enum screen_colour colour)
{
    return colour != COLOUR_NONE && screen_has_colour(fd) ? "\033[0m" : "";
}

void screen_paint(FILE *out, enum screen_colour colour, const char *text)
{
    const int fd = out == stderr ? STDERR_FILENO : STDOUT_FILENO;
    fprintf(out, "%s%s%s", screen_on(fd, colour), text, screen_off(fd, colour));
}

/* ---- columns ---- */

/* Decodes valid UTF-8; any other byte is a character of its own. */
static size_t decode(const char *text, size_t n_bytes, wchar_t *ret)
{
    const unsigned char first = (unsigned char)text[0];
    const size_t n = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (n == 1 || n > n_bytes) {
        *ret = first;
        return 1;
    }
    uint32_t c = first & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3fu);
    *ret = (wchar_t)c;
    return n;
}

/* What the tables of the C library do not know yet is a new emoji, most likely. */
static size_t columns_of(wchar_t c)
{
    enum { EMOJI = 0x1f000 };
    static locale_t utf8;
    if (c >= 0x20 && c < 0x7f)
        return 1;
    if (utf8 == (locale_t)0)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (utf8 == (locale_t)0)
        return c >= 0x300 && c < 0x370 ? 0 : 2;
    const locale_t before = uselocale(utf8);
    const int n = wcwidth(c);
    uselocale(before);
    return n >= 0 ? (size_t)n : c >= EMOJI ? 2 : 1;
}

size_t screen_step(const char *text, size_t n_bytes, size_t *ret_columns)
{
    if (text[0] == '\033') {
        size_t n = 1;
        while (n < n_bytes && text[n] != 'm')
            n++;
        *ret_columns = 0;
        return n < n_bytes ? n + 1 : n;
    }
    wchar_t c;
    const size_t n = decode(text, n_bytes, &c);
    *ret_columns = columns_of(c);
    return n;
}

size_t screen_columns(const char *text)
{
    const size_t n_bytes = strlen(text);
    size_t n_columns = 0, columns;
    for (size_t i = 0; i < n_bytes; n_columns += columns)
        i += screen_step(text + i, n_bytes - i, &columns);
    return n_columns;
}

/* Returns the bytes at the front that take at most n_columns; *ret_columns: how many. */
static size_t take(const char *text, size_t n_columns, size_t *ret_columns)
{
    const size_t n_bytes = strlen(text);
    size_t i = 0, columns, total = 0;
    while (i < n_bytes) {
        const size_t n = screen_step(text + i, n_bytes - i, &columns);
        if (columns > n_columns - total)
            break;
        total += columns;
        i += n;
    }
    *ret_columns = total;
    return i;
}

size_t screen_cut(struct strbuf *out, const char *text, size_t n_columns, enum screen_cut cut)
{
    const size_t n_all = screen_columns(text);
    if (n_all <= n_columns) {
        strbuf_puts(out, text);
        return n_all;
    }
    if (n_columns == 0)
        return 0;
    size_t n_head, n_tail = cut == CUT_MIDDLE ? n_columns / 2 : 0, skipped;
    const size_t n_bytes = take(text, n_columns - 1 - n_tail, &n_head);
    strbuf_add(out, text, n_bytes);
    strbuf_puts(out, "…");
    if (n_tail == 0)
        return n_head + 1;
    /* The tail begins at the first character from which on all the rest fits. */
    const char *tail = text + n_bytes, *end = tail + strlen(tail);
    size_t left = n_all - n_head;
    while (tail < end) {
        const size_t n = screen_step(tail, (size_t)(end - tail), &skipped);
        if (left <= n_tail && skipped > 0)
            break;
        left -= skipped;
        tail += n;
    }
    strbuf_puts(out, tail);
    return n_head + 1 + left;
}

void screen_escape(struct strbuf *out, const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_NAME, name + i, n_bytes - i, escaped);
        strbuf_puts(out, escaped);
    }
}

void screen_bar(struct strbuf *out, double share, size_t n_columns)
{
    const double n_full = share * (double)n_columns;
    for (size_t i = 0; i < n_columns && (double)(i + 1) <= n_full; i++)
        strbuf_puts(out, "#");
}
