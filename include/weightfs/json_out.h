/* SPDX-License-Identifier: MIT */
/*
 * JSON written piece by piece, into a file or a strbuf: commas, brackets, line breaks and escapes.
 * Members keep the order of the calls, numbers are exact, nothing is kept of what was written.
 * Errors are those of the file or of the strbuf, which remember them. Shared by library and
 * programs, not installed.
 */
#ifndef WFS_JSON_OUT_H
#define WFS_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <weightfs/strbuf.h>

/* How characters are spelled. Quotes, backslashes and what is below 0x20 are always escaped. */
enum json_spelling {
    JSON_UTF8,  /* as they are; half of a surrogate pair, which Python allows, is escaped, and reads
                   back as it was; any other byte that is not UTF-8 becomes U+FFFD */
    JSON_ASCII, /* the same, with everything that is not ASCII escaped */
    JSON_BYTES, /* as they are; a byte that is not UTF-8 becomes the text \xHH */
};

/* How the items of a container are set. */
enum json_layout {
    JSON_AUTO,    /* lines in the two outermost containers, rows in others */
    JSON_LINES,   /* each on its own line, as is the closing bracket */
    JSON_HANGING, /* each on its own line; the closing bracket follows the last one */
    JSON_ROW,     /* [1, 2] */
    JSON_TIGHT,   /* [1,2] */
};

enum { JSON_OUT_DEPTH_MAX = 1024 };

/* A zeroed struct with a file or a text is ready to use. */
struct json_out {
    FILE *file;
    struct strbuf *text;
    enum json_spelling spelling;
    unsigned n_indent_max; /* spaces; 0: no limit */
    bool is_tight;         /* all layouts are JSON_TIGHT */
    bool is_part;          /* of a larger text: no line feed follows the outermost bracket */
    /* Private. */
    bool has_items;                     /* in the innermost container */
    bool has_name;                      /* that of the next value has been written */
    unsigned depth, n_lines;            /* open containers; of them, those whose items have lines */
    uint8_t levels[JSON_OUT_DEPTH_MAX]; /* layout and kind of each open container */
};

/*
 * Each writes one value. name is its name in an object, and NULL in an array, for the outermost
 * value, and behind json_out_name.
 */
void json_out_open_object(struct json_out *out, const char *name);
void json_out_open_array(struct json_out *out, const char *name);
void json_out_open(struct json_out *out, const char *name, char bracket, enum json_layout layout);
void json_out_close(struct json_out *out); /* the innermost container */
void json_out_text(struct json_out *out, const char *name, const char *text); /* NULL: null */
void json_out_text_n(struct json_out *out, const char *name, const char *bytes, size_t n_bytes);
void json_out_u64(struct json_out *out, const char *name, uint64_t number);
void json_out_i64(struct json_out *out, const char *name, int64_t number);
void json_out_u64s(struct json_out *out, const char *name, const uint64_t *numbers, size_t n);
void json_out_double(struct json_out *out, const char *name, double number); /* or null */
void json_out_bool(struct json_out *out, const char *name, bool is_true);
void json_out_raw(struct json_out *out, const char *name, const char *json); /* JSON already */

/* Writes the name of the value that comes next. */
void json_out_name(struct json_out *out, const char *bytes, size_t n_bytes);

#endif
