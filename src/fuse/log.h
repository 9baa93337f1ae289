/* SPDX-License-Identifier: MIT */
/*
 * Messages of the driver: to stderr until the mount moves to the background, then to syslog.
 * Grammar: "cannot <verb> <object>: <reason>"; the name of the source precedes it.
 */
#ifndef WFS_LOG_H
#define WFS_LOG_H

#include <stdbool.h>

/* Sets the name that precedes every message, borrowed, may be NULL, and up to which level of
 * syslog(3) messages go to stderr. */
void log_start(const char *file, int level);

/* Returns whether a user sees the messages at once; a process that is confined may ask, too. */
bool log_is_on_terminal(void);

/* Sets the name for the system log, where the working directory of the user is not known. */
void log_set_path(const char *path);

/* Connects to the system log now, for a process that is not able to later. */
void log_open(void);

/* Sends all further messages to the system log. */
void log_to_syslog(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports a change of the output: to the system log, or to stderr with -f. */
void log_event(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports what else went well: to the system log, or to stderr with -v. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As log_error; returns exit_code. */
int log_failure(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
