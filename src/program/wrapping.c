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

static struct {
    size_t width; /* columns; 0: lines are not broken */
    struct strbuf line;
} wrapping;

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

/* Returns the bytes of the part of the text that goes into a line of n_columns: up to a space,
 * unless that would leave more than half of the line empty. */
static size_t part_of(const char *text, size_t n_bytes, size_t n_columns)
{
    size_t i = 0, n_space = 0, total = 0, columns;
    while (i < n_bytes) {
        const size_t n = screen_step(text + i, n_bytes - i, &columns);
        if (text[i] == ' ' && total > n_columns / 2)
            n_space = i;
        if (total + columns > n_columns)
            return n_space > 0 ? n_space : i;
        total += columns;
        i += n;
    }
    return n_bytes;
}

/* A line that was broken goes on with an indent. */
static void break_line(const char *text, size_t n_bytes, struct strbuf *out)
{
    static const char indent[] = "\n    ";
    size_t n_columns = wrapping.width;
    for (;;) {
        const size_t n = part_of(text, n_bytes, n_columns);
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
        n_columns = wrapping.width - (sizeof(indent) - 2);
    }
}

/* Writes what is held, which is a line or the beginning of one, and what ends it. */
static int put_line(struct strbuf *line, const char *end)
{
    autostrbuf struct strbuf broken = {0};
    const bool is_broken = line->n_bytes > wrapping.width;
    struct strbuf *shown = is_broken ? &broken : line;
    if (is_broken)
        break_line(line->bytes, line->n_bytes, &broken);
    strbuf_puts(shown, end);
    const int code = shown->has_failed || line->has_failed
                         ? -ENOMEM
                         : io_write(STDOUT_FILENO, shown->bytes, shown->n_bytes);
    line->n_bytes = 0;
    return code;
}

/* Holds what has come until its line ends. */
static int hold(struct strbuf *line, const char *bytes, size_t n_bytes)
{
    enum { N_HELD_MAX = 1 << 16 };
    int code = 0;
    for (size_t i = 0; code == 0 && i < n_bytes;) {
        const char *end = memchr(bytes + i, '\n', n_bytes - i);
        const size_t n = end != NULL ? (size_t)(end - bytes) - i : n_bytes - i;
        strbuf_add(line, bytes + i, n);
        i += n + (end != NULL);
        if (end != NULL || line->n_bytes > N_HELD_MAX || line->has_failed)
            code = put_line(line, end != NULL ? "\n" : "");
    }
    return code;
}

/* The write function of stdout. */
static ssize_t take(void *ctx, const char *bytes, size_t n_bytes)
{
    wrapping_pause();
    const int code = wrapping.width > 0 ? hold(&wrapping.line, bytes, n_bytes)
                                        : io_write(STDOUT_FILENO, bytes, n_bytes);
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
    wrapping.width = is_exact ? 0 : width;
    setvbuf(out, NULL, _IOLBF, BUFSIZ);
    stdout = out;
}

int wrapping_finish(void)
{
    const int code = wrapping.line.n_bytes > 0 ? put_line(&wrapping.line, "") : 0;
    strbuf_done(&wrapping.line);
    return code;
}
