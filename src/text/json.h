/* SPDX-License-Identifier: MIT */
/*
 * A strict pull parser over JSON text in memory: the caller asks for what it expects to find, and
 * what it gets is a slice of the text. Takes and refuses exactly what serde_json does: RFC 8259, no
 * duplicate check, 127 open containers, numbers below 1.8e308. Builds nothing and allocates
 * nothing.
 */
#ifndef WFS_JSON_H
#define WFS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 127 };

/* The kind of a value, by its first character. */
enum json_kind {
    JSON_KIND_NONE, /* no value begins here */
    JSON_KIND_OBJECT,
    JSON_KIND_ARRAY,
    JSON_KIND_STRING,
    JSON_KIND_NUMBER,
    JSON_KIND_BOOL,
    JSON_KIND_NULL,
};

/* A string without its quotes and escapes. It may contain NULs; one more follows it. */
struct json_text {
    const char *bytes;
    size_t n_bytes;
    size_t offset; /* of its opening quote in the text */
};

struct json {
    char *start, *at, *end;
    size_t n_before;   /* bytes of the text before `start` */
    unsigned depth;    /* open containers */
    bool is_first;     /* the innermost container was opened just now */
    const char *error; /* NULL while all is well; `at` stands where it is not */
};

/* Parses n_bytes at text, which must be valid UTF-8. Strings are unescaped in place, which
 * overwrites the text. */
struct json json_of(char *text, size_t n_bytes);

/* Goes on with the text that was not parsed, which is at the start of n_bytes at `text` now. */
void json_move(struct json *json, char *text, size_t n_bytes);

/* Returns the offset of the parser in the text. */
size_t json_offset(const struct json *json);

/* Returns the kind of the value that follows; takes nothing but white space. */
enum json_kind json_kind(struct json *json);

/*
 * Each takes one thing from the front. Returns false when the text continues with something else:
 * the parser is in error then, and every later call returns false too.
 */
bool json_open_object(struct json *json);
bool json_open_array(struct json *json);
bool json_take_string(struct json *json, struct json_text *ret);
bool json_take_uint(struct json *json, uint64_t *ret); /* 0 to 2^64-1, digits only */
bool json_take_null(struct json *json);
bool json_skip(struct json *json); /* any value, checked in full */
bool json_end(struct json *json);  /* white space up to the end */

/*
 * Moves to the next member of the innermost container: takes its key, or nothing in an array; its
 * value follows. Returns false at the closing bracket, which is taken, and in error: look at
 * `error` after the loop.
 */
bool json_next_key(struct json *json, struct json_text *ret_key);
bool json_next_item(struct json *json);

/* Puts the parser in error, if it is not yet. error is static text. Returns false. */
bool json_fail(struct json *json, const char *error);

#endif
