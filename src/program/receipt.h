/* SPDX-License-Identifier: MIT */
/*
 * A receipt: what a verb that writes has done. For a person the verb prints lines. With --json it
 * prints one object at the end, whose members docs/json.md describes; what no member has is a line
 * of its `notices`.
 */
#ifndef WFS_RECEIPT_H
#define WFS_RECEIPT_H

#include "program/print.h"

#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct receipt {
    bool is_json;
    /* Private. */
    struct json_out json; /* into the text; nothing is open before the first member or notice */
    struct strbuf text, notices; /* lines with a NUL after each */
};

/* Prints a line, in which names are quoted, or makes it a notice. */
void receipt_notice(struct receipt *receipt, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the open object, for members of other kinds than these; NULL without --json. */
struct json_out *receipt_json(struct receipt *receipt);

/* Each writes a member; without --json nothing. */
void receipt_text(struct receipt *receipt, const char *name, const char *text); /* NULL: null */
void receipt_count(struct receipt *receipt, const char *name, uint64_t n);

/* The same of a text that is JSON, without the line feed at its end. */
void receipt_raw(struct receipt *receipt, const char *name, const char *json);

/* Writes which sources were read. */
void receipt_sources(struct receipt *receipt, const char *const *paths, size_t n);

/* Writes what came into being: `output`, `n_tensors`, `n_files` and `n_bytes`. */
void receipt_output(struct receipt *receipt, const char *path, uint64_t n_tensors, uint64_t n_files,
                    uint64_t n_bytes);

/* Closes what is open, prints the object, if there is one, and frees all. Returns exit_code, or
 * that of no memory. */
enum exit_code receipt_end(struct receipt *receipt, enum exit_code exit_code);

#endif
