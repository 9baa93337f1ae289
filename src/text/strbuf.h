/* SPDX-License-Identifier: MIT */
/*
 * Text that grows while it is written, and the quoting that CSV and JSON want. Running out of
 * memory is remembered; what is added after that is dropped, so only the end is checked.
 */
#ifndef WFS_TREE_STRBUF_H
#define WFS_TREE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

/* A zeroed struct is an empty text. */
struct strbuf {
    char *bytes; /* malloc'ed; ended by NUL once anything was added */
    size_t n_bytes, n_room;
    bool has_failed;
};

void strbuf_add(struct strbuf *text, const char *bytes, size_t n_bytes);
void strbuf_puts(struct strbuf *text, const char *string);
void strbuf_printf(struct strbuf *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One field of a CSV line (RFC 4180), quoted when it has to be. */
void strbuf_csv(struct strbuf *text, const char *field);

/* A JSON string in its quotes; bytes that are not UTF-8 become U+FFFD. NULL gives null. */
void strbuf_json(struct strbuf *text, const char *string);
void strbuf_json_bytes(struct strbuf *text, const char *bytes, size_t n_bytes);

/* A JSON number; the value is finite. */
void strbuf_number(struct strbuf *text, double value);

/* "[2, 3]" */
void strbuf_shape(struct strbuf *text, const struct wfs_shape *shape);

void strbuf_done(struct strbuf *text);

#define autostrbuf cleanup(strbuf_done)

#endif
