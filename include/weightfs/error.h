/* SPDX-License-Identifier: MIT */
/*
 * How an operation whose failure needs a sentence reports it. The caller owns the record; the first
 * report wins and is never rewritten on the way up. Programs print it after the file's name.
 */
#ifndef WFS_ERROR_H
#define WFS_ERROR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs.h>

#define WFS_QUOTE_MAX 512
#define WFS_ESCAPE_MAX 16

/* How text is made fit for a terminal. */
enum wfs_escape {
    WFS_ESCAPE_NAME,   /* a name; a backslash is escaped where it would read as an escape */
    WFS_ESCAPE_QUOTED, /* a name in single quotes, which are escaped too */
    WFS_ESCAPE_TEXT,   /* one line of prose, in which names are escaped already */
    WFS_ESCAPE_JSON,   /* JSON, which stays the same JSON and keeps its lines */
};

#pragma GCC visibility push(default)

/*
 * Stores the report if err is not NULL and holds none yet; returns -code in every case. Names that
 * come from a file go through wfs_quote first.
 */
int wfs_fail(struct wfs_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reports ENOMEM with the one text for it. */
int wfs_fail_memory(struct wfs_error *err);

/* vsnprintf, but a text that does not fit ends with "..." after a whole character. n_room is at
 * least 4. */
void wfs_format(char *ret, size_t n_room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/*
 * Takes the character at the front, and writes it to ret as it may be shown, NUL behind: bytes that
 * are not UTF-8, control characters, line separators, what changes the direction of text and what
 * shows nothing become \xHH for each byte, \uHHHH in JSON. Returns how many bytes were taken.
 * n_bytes is not 0.
 */
size_t wfs_escape(enum wfs_escape how, const char *bytes, size_t n_bytes, char ret[WFS_ESCAPE_MAX]);

/* Undoes, in place, the escapes of a name (\xHH), quoted or not. Any other text stays as it is. */
void wfs_unescape(char *name);

/* Writes the text as WFS_ESCAPE_TEXT says; what does not fit is replaced by "...". n_room is at
 * least 4. */
void wfs_escape_line(const char *text, char *ret, size_t n_room);

/*
 * A name from a file, escaped for a message by WFS_ESCAPE_QUOTED; a long one is cut with "..." and
 * its length in bytes.
 */
struct wfs_quoted {
    char text[WFS_QUOTE_MAX];
};

struct wfs_quoted wfs_quote(const char *name);
struct wfs_quoted wfs_quote_n(const char *bytes, size_t n_bytes);

/* A count with its noun, which is given in the singular: "1 byte", "2 bytes", "0 entries". */
struct wfs_counted {
    char text[64];
};

struct wfs_counted wfs_count(uint64_t n, const char *noun);

/* The same with what follows the number for one and for any other: "1 byte follows". */
struct wfs_counted wfs_count_as(uint64_t n, const char *one, const char *many);

/* The message of another library, made fit for one of ours by wfs_escape_line. */
struct wfs_prose {
    char text[2 * WFS_QUOTE_MAX];
};

struct wfs_prose wfs_prose(const char *message);

#pragma GCC visibility pop

#endif
