/* SPDX-License-Identifier: MIT */
/*
 * The terminal: how wide it is, how many columns a text takes on it, colours, and the breaking of
 * lines. Everything is UTF-8, whatever the locale. Colours are for terminals, unless NO_COLOR or
 * TERM=dumb forbid them or --color decides.
 */
#ifndef WFS_TERMINAL_H
#define WFS_TERMINAL_H

#include <weightfs/strbuf.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum screen_when { SCREEN_AUTO, SCREEN_ALWAYS, SCREEN_NEVER };

enum screen_colour {
    COLOUR_NONE,
    COLOUR_HEADING,
    COLOUR_FAINT,
    COLOUR_DTYPE,
    COLOUR_ADDED,
    COLOUR_REMOVED,
    COLOUR_CHANGED,
    COLOUR_WARNING,
    COLOUR_ERROR,
};

/* Which part of a text that is too long gives way to "…". */
enum screen_cut { CUT_END = 0, CUT_MIDDLE = 50 }; /* percent of it that are the end of a text */

/* Sets what --color asked for. */
void screen_set_colour(enum screen_when when);

/* Returns the width of the terminal at the descriptor in columns, 0 if it is not a terminal. */
size_t screen_width(int fd);

/* Returns true for the standard output or the standard error, if it takes colours. */
bool screen_has_colour(int fd);

/* Returns the bytes that switch a colour on, or back to none; empty where there are no colours. fd
 * is the standard output or the standard error. */
const char *screen_on(int fd, enum screen_colour colour);
const char *screen_off(int fd, enum screen_colour colour);

/* Prints text that needs no escapes to stdout or stderr, in the colour. */
void screen_paint(FILE *out, enum screen_colour colour, const char *text);

/* Returns how many columns the text takes. */
size_t screen_columns(const char *text);

/* Adds the text, cut to at most n_columns: of these, n_percent are its end. Returns how many
 * columns it takes then. */
size_t screen_cut(struct strbuf *out, const char *text, size_t n_columns, unsigned n_percent);

/* Adds the filled part of a bar that is n_columns wide; share is from 0 to 1. */
void screen_bar(struct strbuf *out, double share, size_t n_columns);

/*
 * ---- standard output and standard error ----
 * Both keep trying where a descriptor that does not block is full. On a terminal, lines that are
 * too wide for it are broken at spaces, on stderr never within quotes: a name or a command there
 * may be pasted; and a bar of progress is erased before a line is printed.
 */

/* Replaces stdout and stderr, which is buffered by lines; call it before anything is printed.
 * Returns 0 or -ENOMEM. */
int wrapping_start(void);

/* Lines of stdout are not broken from now on; call it before anything is printed. */
void wrapping_keep_lines(void);

/* Writes what stdout still holds, and closes it. Returns 0 or the negative errno of the first write
 * that has failed since the start. */
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
