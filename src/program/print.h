/* SPDX-License-Identifier: MIT */
/*
 * What programs print: error lines, sizes, and texts from files, mounts and journals, in which
 * everything that a terminal would act on is escaped; and the exit codes, the same for every verb
 * and for mounts. This room holds what both share: places, settings, loading, commits, earlier
 * mounts, printing. It knows no verb, and nothing of FUSE.
 */
#ifndef WFS_PRINT_H
#define WFS_PRINT_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <weightfs/catalog.h>
#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FOUND = 1,       /* check: problems that do not prevent reading; diff: a difference; find:
                             nothing; sum --check: not as the manifest */
    EXIT_USAGE = 2,       /* the command line */
    EXIT_SOURCE = 3,      /* source missing or unreadable */
    EXIT_FOREIGN = 4,     /* not a checkpoint */
    EXIT_DAMAGED = 5,     /* damaged, truncated, failing or changed */
    EXIT_UNSUPPORTED = 6, /* valid but not supported, or above a limit */
    EXIT_NO_MATCH = 7,    /* what was asked for is not in the source */
    EXIT_MOUNT = 8,       /* cannot mount */
    EXIT_OUTPUT = 9,      /* a commit, a target or standard output could not be written */
};

/* Returns the exit code for the positive errno of a failed load or read. */
enum exit_code exit_of_errno(int code);

/*
 * Prints one line "weightfs: FILE: text" on stderr. file may be NULL and is escaped here; names in
 * the arguments go through wfs_quote first. Returns exit_code, for the verb to return.
 */
enum exit_code print_error(enum exit_code exit_code, const char *file, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same where memory ran out: EXIT_UNSUPPORTED. */
enum exit_code print_memory(const char *file);

/* Prints one line "weightfs: FILE: ABOUT: text" on stderr; all are escaped here. about may be NULL.
 */
void print_warning(const char *file, const char *about, const char *text);

/* Prints a name that is not in quotes, escaped where a terminal would act on it, never cut. */
void print_escaped(FILE *out, const char *text);

/* Prints one line of prose, in which names are quoted already. */
void print_text(FILE *out, const char *text);

/* The same, and a line feed. */
void print_line(FILE *out, const char *text);

/* Prints JSON; the escapes do not change its meaning. */
void print_json(FILE *out, const char *json, size_t n_bytes);

/* Opens the object that a verb prints, which begins with the number of the schema that
 * docs/json.md describes. */
void print_json_start(struct json_out *out);

/* Writes key, dtype, shape and bytes of a tensor, as members of the open object. */
void print_json_tensor(struct json_out *out, const struct wfs_tensor *tensor);

/* Prints "[2, 3]", as wfs_shape_format writes it, or adds it to a text. */
void print_shape(FILE *out, const struct wfs_shape *shape);
void print_add_shape(struct strbuf *out, const struct wfs_shape *shape);

/* A number for a person: about three digits and a unit. */
struct amount {
    char text[32];
};

struct amount amount_of_bytes(uint64_t n_bytes); /* "512 B", "1.5 GiB" */
struct amount amount_of_count(uint64_t n);       /* "512", "7.09 M", "6.74 B" */

/*
 * Flushes and closes stdout at the end of a verb. Returns exit_code, or EXIT_OUTPUT if that or an
 * earlier write failed; prints a line then, unless the reader has closed the pipe.
 */
enum exit_code print_finish(enum exit_code exit_code);

#endif
