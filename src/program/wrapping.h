/* SPDX-License-Identifier: MIT */
/*
 * Standard output and standard error on a terminal: lines that are too wide for it are broken at
 * spaces, and a bar of progress is erased before a line is printed.
 */
#ifndef WFS_WRAPPING_H
#define WFS_WRAPPING_H

#include <stdbool.h>

/*
 * Replaces stdout if it is a terminal; call it once, before anything is printed. is_exact: lines
 * are not broken.
 */
void wrapping_start(bool is_exact);

/*
 * Does the same with stderr, where what is in quotes is never broken: a name or a command that
 * somebody may paste. In any case stderr is buffered by lines from then on.
 */
void wrapping_start_errors(void);

/* Writes the line that has not ended. Returns 0 or the negative errno of the first failure. */
int wrapping_finish(void);

/*
 * A line on stderr that is drawn over again, such as a bar of progress. The text fits the terminal.
 * Any thread may call these.
 */
void wrapping_draw(const char *text);

/* Erases the line, and holds up those who draw it, so that something else can be printed. */
void wrapping_pause(void);
void wrapping_resume(void);

/* For a signal handler, after which the program ends. */
void wrapping_erase_for_good(void);

#endif
