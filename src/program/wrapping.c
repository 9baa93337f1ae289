/* SPDX-License-Identifier: MIT */
/*
 * Lines are held until they end, since only then it is known where they can be broken.
 */
#include "program/wrapping.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weightfs/io.h>
#include <weightfs/strbuf.h>

#include "program/screen.h"

struct wrapped {
    int fd;
    size_t width; /* columns; 0: lines are not broken */
    bool keeps_quoted;
    struct strbuf line;
};

static struct wrapped output = {.fd = STDOUT_FILENO};
static struct wrapped errors = {.fd = STDERR_FILENO, .keeps_quoted = true};

/* ---- the line that is drawn over ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t is_drawn;

static void put(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

void wrapping_draw(const char *text)
{
    pthread_mutex_lock(&lock);
    put(is_drawn ? "\r\033[K" : "\r");
    put(text);
    is_drawn = true;
    pthread_mutex_unlock(&lock);
}

void wrapping_pause(void)
{
    pthread_mutex_lock(&lock);
    if (is_drawn)
        put("\r\033[K");
    is_drawn = false;
}

void wrapping_resume(void)
{
    pthread_mutex_unlock(&lock);
}

void wrapping_erase_for_good(void)
{
    if (is_drawn)
        put("\r\033[K");
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

/* A line that was broken goes on with an indent. */
static void break_line(const struct wrapped *wrapped, const char *text, size_t n_bytes,
                       struct strbuf *out)
{
    static const char indent[] = "\n    ";
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
        strbuf_puts(out, indent);
        n_columns = wrapped->width - (sizeof(indent) - 2);
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

/* Holds what has come until its line ends. */
static int hold(struct wrapped *wrapped, const char *bytes, size_t n_bytes)
{
    enum { N_HELD_MAX = 1 << 16 };
    struct strbuf *line = &wrapped->line;
    int code = 0;
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

/* The write function of stdout. */
static ssize_t take(void *ctx, const char *bytes, size_t n_bytes)
{
    wrapping_pause();
    const int code =
        output.width > 0 ? hold(&output, bytes, n_bytes) : io_write(STDOUT_FILENO, bytes, n_bytes);
    wrapping_resume();
    errno = -code;
    return code < 0 ? 0 : (ssize_t)n_bytes;
}

void wrapping_start(bool is_exact)
{
    const cookie_io_functions_t functions = {.write = take};
    const size_t width = screen_width(STDOUT_FILENO);
    FILE *out = width > 0 ? fopencookie(NULL, "w", functions) : NULL;
    if (out == NULL)
        return;
    output.width = is_exact ? 0 : width;
    setvbuf(out, NULL, _IOLBF, BUFSIZ);
    stdout = out;
}

/* The write function of stderr. Who prints there has called wrapping_pause, where that matters. */
static ssize_t take_error(void *ctx, const char *bytes, size_t n_bytes)
{
    errno = -hold(&errors, bytes, n_bytes);
    return errno != 0 ? 0 : (ssize_t)n_bytes;
}

void wrapping_start_errors(void)
{
    const cookie_io_functions_t functions = {.write = take_error};
    errors.width = screen_width(STDERR_FILENO);
    FILE *out = errors.width > 0 ? fopencookie(NULL, "w", functions) : NULL;
    if (out != NULL)
        stderr = out;
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
}

int wrapping_finish(void)
{
    const int code = output.line.n_bytes > 0 ? put_line(&output, "") : 0;
    strbuf_done(&output.line);
    return code;
}
