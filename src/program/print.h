/* SPDX-License-Identifier: MIT */
/*
 * What programs print: error lines, sizes, and texts from files, mounts and journals, in which
 * everything that a terminal would act on is escaped.
 */
#ifndef WFS_PRINT_H
#define WFS_PRINT_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <weightfs/catalog.h>
#include <weightfs/strbuf.h>

#include "program/exit.h"

/*
 * Prints one line "weightfs: FILE: text" on stderr. file may be NULL and is escaped here; names in
 * the arguments go through wfs_quote first. Returns exit_code, for the verb to return.
 */
enum exit_code print_error(enum exit_code exit_code, const char *file, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints one line "weightfs: FILE: ABOUT: text" on stderr; all are escaped here. */
void print_warning(const char *file, const char *about, const char *text);

/* Prints a name that is not in quotes, escaped where a terminal would act on it, never cut. */
void print_escaped(FILE *out, const char *text);
void print_escaped_n(FILE *out, const char *bytes, size_t n_bytes);

/* Prints one line of prose, in which names are quoted already. */
void print_text(FILE *out, const char *text);

/* The same, and a line feed. */
void print_line(FILE *out, const char *text);

/* Prints JSON; the escapes do not change its meaning. */
void print_json(FILE *out, const char *json, size_t n_bytes);

/* Returns "info", "low", "medium" or "high". */
const char *print_severity(enum wfs_severity severity);

/* Prints a finding of a loader: "SEVERITY: text" and a line feed. */
void print_finding(FILE *out, const struct wfs_finding *finding);

/* Prints "[2, 3]", as wfs_shape_format writes it, or adds it to a text. */
void print_shape(FILE *out, const struct wfs_shape *shape);
void print_add_shape(struct strbuf *out, const struct wfs_shape *shape);

/* A number for a person: about three digits and a unit. */
struct amount {
    char text[32];
};

struct amount amount_of_bytes(uint64_t n_bytes); /* "512 B", "1.5 GiB" */
struct amount amount_of_count(uint64_t n);       /* "512", "7.09 M" */

/* Prints amount_of_bytes. */
void print_size(FILE *out, uint64_t n_bytes);

/*
 * Flushes stdout at the end of a verb. Returns exit_code, or EXIT_OUTPUT if that or an earlier
 * write failed; prints a line then, unless the reader has closed the pipe.
 */
enum exit_code print_finish(enum exit_code exit_code);

#endif
