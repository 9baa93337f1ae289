/* SPDX-License-Identifier: MIT */
/*
 * Messages of the driver: stderr until the mount is left in the background, syslog from then on.
 * Grammar: "cannot <verb> <object>: <reason>"; the name of the source goes before it.
 */
#ifndef WFS_LOG_H
#define WFS_LOG_H

#include <stdbool.h>

/* file is shown before every message; it may be NULL and is borrowed. */
void log_start(const char *file, bool is_debug);

/* Connects to the system log already, for a process that will not be able to later. */
void log_open(void);

/* From here on messages go to the system log. */
void log_to_syslog(void);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What went well: the system log, or stderr with -d. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* log_error that returns exit_code. */
int log_failure(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
