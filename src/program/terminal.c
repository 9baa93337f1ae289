/* SPDX-License-Identifier: MIT */
/*
 * wcwidth depends on the locale of the thread, which is switched for each question: a locale for
 * the whole program would change how globs match. Lines are held until they end, since only then it
 * is known where they can be broken.
 */
#include "program/terminal.h"

#include <weightfs/error.h>
#include <weightfs/io.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

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

/*
 * Measures the character at the front of a text without control characters: its bytes, and its
 * columns in *ret_columns: 0 for combining characters and for the bytes that switch colours, 2 for
 * wide ones. n_bytes is not 0.
 */
static size_t screen_step(const char *text, size_t n_bytes, size_t *ret_columns)
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

size_t screen_cut(struct strbuf *out, const char *text, size_t n_columns, unsigned n_percent)
{
    const size_t n_all = screen_columns(text);
    if (n_all <= n_columns) {
        strbuf_puts(out, text);
        return n_all;
    }
    if (n_columns == 0)
        return 0;
    size_t n_head, n_tail = n_columns * n_percent / 100, skipped;
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

void screen_bar(struct strbuf *out, double share, size_t n_columns)
{
    const double n_full = share * (double)n_columns;
    for (size_t i = 0; i < n_columns && (double)(i + 1) <= n_full; i++)
        strbuf_puts(out, "#");
}

struct wrapped {
    int fd;
    size_t width; /* columns; 0: not a terminal */
    bool keeps_lines, keeps_quoted;
    struct strbuf line;
};

static struct wrapped output = {.fd = STDOUT_FILENO};
static struct wrapped errors = {.fd = STDERR_FILENO, .keeps_quoted = true};
static int output_code; /* 0, or the negative errno of the first write to stdout that failed */

/* ---- the line that is drawn over ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t is_drawn;
static atomic_bool is_drawing, is_erased_for_good;

static void put_error(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

void wrapping_draw(const char *text)
{
    pthread_mutex_lock(&lock);
    atomic_store(&is_drawing, true);
    if (!atomic_load(&is_erased_for_good)) {
        put_error(is_drawn ? "\r\033[K" : "\r");
        is_drawn = true; /* before the text: a signal may come as soon as that is seen */
        put_error(text);
    }
    atomic_store(&is_drawing, false);
    pthread_mutex_unlock(&lock);
}

void wrapping_pause(void)
{
    pthread_mutex_lock(&lock);
    if (is_drawn)
        put_error("\r\033[K");
    is_drawn = false;
}

void wrapping_resume(void)
{
    pthread_mutex_unlock(&lock);
}

/* The thread that draws gets no signals, so it ends what it draws, unless the terminal is held. */
void wrapping_erase_for_good(void)
{
    enum { MOST_WAITS = 500 };
    const struct timespec ms = {.tv_nsec = 1000000};
    atomic_store(&is_erased_for_good, true);
    for (unsigned i = 0; i < MOST_WAITS && atomic_load(&is_drawing); i++)
        nanosleep(&ms, NULL);
    if (is_drawn)
        put_error("\r\033[K");
}

/* ---- lines ---- */

/* Returns whether a quote begins or ends at text[i], by what is before and after it. */
static bool turns_quote(const char *text, size_t n_bytes, size_t i, bool is_quoted)
{
    if (text[i] != '\'')
        return false;
    return is_quoted ? i + 1 == n_bytes || strchr(" ,;:.?)", text[i + 1]) != NULL
                     : i == 0 || text[i - 1] == ' ' || text[i - 1] == '(';
}

/* Returns the bytes of the part of the text that goes into a line of n_columns: up to a space,
 * unless that would leave more than half of the line empty. What is in quotes may have to stay in
 * one piece, so that it can be pasted. */
static size_t part_of(const struct wrapped *wrapped, const char *text, size_t n_bytes,
                      size_t n_columns)
{
    size_t i = 0, n_space = 0, total = 0, columns;
    const size_t n_least = wrapped->keeps_quoted ? 0 : n_columns / 2;
    bool is_quoted = false;
    while (i < n_bytes) {
        const size_t n = screen_step(text + i, n_bytes - i, &columns);
        is_quoted ^= wrapped->keeps_quoted && turns_quote(text, n_bytes, i, is_quoted);
        if (text[i] == ' ' && total > n_least && !is_quoted)
            n_space = i;
        if (total + columns > n_columns && (n_space > 0 || !wrapped->keeps_quoted))
            return n_space > 0 ? n_space : i;
        total += columns;
        i += n;
    }
    return n_bytes;
}

/* Returns where a line that was broken goes on: below the value after a label, "file:     x", or
 * after as many spaces as a label would take. */
static size_t indent_of(const struct wrapped *wrapped, const char *text, size_t n_bytes)
{
    enum { N_USUAL = 4, N_LABEL = 12 };
    size_t n = 0;
    while (n < n_bytes && n < N_LABEL && text[n] != ' ' && text[n] != ':')
        n++;
    n += n > 0 && n < n_bytes && text[n] == ':';
    const bool has_label = n > 0 && n + 2 < n_bytes && memcmp(text + n, "  ", 2) == 0;
    while (n < n_bytes && text[n] == ' ')
        n++;
    const bool is_column = has_label || (n >= 8 && text[0] == ' ');
    return is_column && n <= wrapped->width / 3 ? n : N_USUAL;
}

/* A line that was broken goes on with an indent. */
static void break_line(const struct wrapped *wrapped, const char *text, size_t n_bytes,
                       struct strbuf *out)
{
    const size_t n_indent = indent_of(wrapped, text, n_bytes);
    size_t n_columns = wrapped->width;
    for (;;) {
        const size_t n = part_of(wrapped, text, n_bytes, n_columns);
        size_t n_shown = n;
        while (n_shown > 0 && text[n_shown - 1] == ' ')
            n_shown--;
        strbuf_add(out, text, n_shown);
        text += n;
        n_bytes -= n;
        while (n_bytes > 0 && text[0] == ' ') {
            text++;
            n_bytes--;
        }
        if (n_bytes == 0)
            return;
        strbuf_printf(out, "\n%*s", (int)n_indent, "");
        n_columns = wrapped->width - n_indent;
    }
}

/* Writes what is held, which is a line or the beginning of one, and what ends it. */
static int put_line(struct wrapped *wrapped, const char *end)
{
    autostrbuf struct strbuf broken = {0};
    struct strbuf *line = &wrapped->line;
    const bool is_broken = line->n_bytes > wrapped->width;
    struct strbuf *shown = is_broken ? &broken : line;
    if (is_broken)
        break_line(wrapped, line->bytes, line->n_bytes, &broken);
    strbuf_puts(shown, end);
    const int code = shown->has_failed || line->has_failed
                         ? -ENOMEM
                         : io_write(wrapped->fd, shown->bytes, shown->n_bytes);
    line->n_bytes = 0;
    return code;
}

/* Holds what has come until its line ends, where lines are broken. */
static int hold(struct wrapped *wrapped, const char *bytes, size_t n_bytes)
{
    enum { N_HELD_MAX = 1 << 16 };
    struct strbuf *line = &wrapped->line;
    int code = 0;
    if (wrapped->width == 0 || wrapped->keeps_lines)
        return io_write(wrapped->fd, bytes, n_bytes);
    for (size_t i = 0; code == 0 && i < n_bytes;) {
        const char *end = memchr(bytes + i, '\n', n_bytes - i);
        const size_t n = end != NULL ? (size_t)(end - bytes) - i : n_bytes - i;
        strbuf_add(line, bytes + i, n);
        i += n + (end != NULL);
        if (end != NULL || line->n_bytes > N_HELD_MAX || line->has_failed)
            code = put_line(wrapped, end != NULL ? "\n" : "");
    }
    return code;
}

/* The write function of stdout. Nothing follows a write that failed, so that what was written is
 * the beginning of the output. */
static ssize_t take_output(void *ctx, const char *bytes, size_t n_bytes)
{
    if (output.width > 0)
        wrapping_pause();
    if (output_code == 0)
        output_code = hold(&output, bytes, n_bytes);
    if (output.width > 0)
        wrapping_resume();
    errno = -output_code;
    return output_code < 0 ? 0 : (ssize_t)n_bytes;
}

/* The write function of stderr. Who prints there has called wrapping_pause, where that matters. */
static ssize_t take_error(void *ctx, const char *bytes, size_t n_bytes)
{
    errno = -hold(&errors, bytes, n_bytes);
    return errno != 0 ? 0 : (ssize_t)n_bytes;
}

int wrapping_start(void)
{
    FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = take_output});
    FILE *err = fopencookie(NULL, "w", (cookie_io_functions_t){.write = take_error});
    if (out == NULL || err == NULL)
        return -ENOMEM;
    output.width = screen_width(STDOUT_FILENO);
    errors.width = screen_width(STDERR_FILENO);
    setvbuf(out, NULL, output.width > 0 ? _IOLBF : _IOFBF, BUFSIZ);
    setvbuf(err, NULL, _IOLBF, BUFSIZ);
    stdout = out;
    stderr = err;
    return 0;
}

void wrapping_keep_lines(void)
{
    output.keeps_lines = true;
}

int wrapping_finish(void)
{
    fflush(stdout);
    if (output_code == 0 && output.line.n_bytes > 0)
        output_code = put_line(&output, "");
    /* Network filesystems and quotas may report a full disk only here. */
    if (close(STDOUT_FILENO) < 0 && output_code == 0)
        output_code = -errno;
    strbuf_done(&output.line);
    return output_code;
}
