/* SPDX-License-Identifier: MIT */
/*
 * Text that grows while it is written, and the spelling of strings in CSV. What went wrong is
 * remembered and what is added after that is dropped, so only the end is checked. Shared by library
 * and programs, not installed.
 */
#ifndef WFS_STRBUF_H
#define WFS_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/cleanup.h>

/* A zeroed struct is an empty text. */
struct strbuf {
    char *bytes; /* malloc'ed; ends with a NUL once anything was added */
    size_t n_bytes, n_room;
    size_t n_max;    /* bytes; 0: no limit */
    bool is_cut;     /* something was dropped: at the limit, or because memory ran out */
    bool has_failed; /* memory ran out */
};

void strbuf_add(struct strbuf *text, const char *bytes, size_t n_bytes);
void strbuf_puts(struct strbuf *text, const char *string);
void strbuf_printf(struct strbuf *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Records that memory ran out elsewhere, for a part that is missing now. */
void strbuf_fail(struct strbuf *text);

/* Adds a name with the escapes of WFS_ESCAPE_NAME. */
void strbuf_escape(struct strbuf *text, const char *name, size_t n_bytes);

/*
 * Adds a field of a CSV line (RFC 4180) or of a table with another separator, in quotes where it
 * needs them. One that a spreadsheet would run as a formula gets an apostrophe before it, as does
 * one that begins with an apostrophe.
 */
void strbuf_cell(struct strbuf *text, const char *field, char separator);

void strbuf_done(struct strbuf *text);

#define autostrbuf cleanup(strbuf_done)

#endif
