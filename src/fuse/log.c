/* SPDX-License-Identifier: MIT */
/*
 * Each message is one line, written in one piece. libfuse reports without a context of ours, so the
 * state is kept here.
 */
#include "fuse/log.h"

#include <weightfs/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static struct {
    const char *file, *path;
    int level; /* up to which messages go to stderr */
    bool is_syslog, is_terminal;
} state = {.level = LOG_WARNING};

void log_start(const char *file, int level)
{
    state.file = file;
    state.level = level;
    state.is_terminal = isatty(STDERR_FILENO) != 0;
}

bool log_is_on_terminal(void)
{
    return state.is_terminal && !state.is_syslog;
}

void log_set_path(const char *path)
{
    state.path = path;
}

/* Reads the rules of the local time, which each message needs, while files can be opened. */
void log_open(void)
{
    tzset();
    openlog("weightfs", LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

void log_to_syslog(void)
{
    log_open();
    state.is_syslog = true;
}

static void write_message(int level, const char *format, va_list args)
{
    char raw[2 * WFS_ERROR_TEXT_MAX], text[sizeof(raw) + 256];
    wfs_format(raw, sizeof(raw), format, args);
    wfs_escape_line(raw, text, sizeof(text)); /* libfuse and the journal have texts of their own */
    const char *name = state.is_syslog && state.path != NULL ? state.path : state.file;
    const struct wfs_quoted file = wfs_quote(name != NULL ? name : "");
    const char *separator = name != NULL ? ": " : "";
    if (state.is_syslog)
        syslog(level, "%s%s%s", file.text, separator, text);
    else if (level <= state.level)
        fprintf(stderr, "weightfs: %s%s%s\n", file.text, separator, text);
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_message(LOG_ERR, format, args);
    va_end(args);
}

void log_warning(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_message(LOG_WARNING, format, args);
    va_end(args);
}

void log_event(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_message(LOG_NOTICE, format, args);
    va_end(args);
}

void log_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_message(LOG_INFO, format, args);
    va_end(args);
}

int log_failure(int exit_code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_message(LOG_ERR, format, args);
    va_end(args);
    return exit_code;
}
