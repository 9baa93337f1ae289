/* SPDX-License-Identifier: MIT */
/*
 * The input of a verb: loading a checkpoint, finding a tensor in it, reporting why bytes cannot be
 * read.
 */
#ifndef WFS_INPUT_H
#define WFS_INPUT_H

#include <weightfs/format.h>
#include <weightfs/workload.h>

#include "cli/args.h"
#include "program/pairing.h"

#include <weightfs/json_out.h>

/*
 * Loads the source and applies the view options in args. *report borrows from the catalog and may
 * exist beside a failure; report may be NULL.
 */
enum exit_code input_load_report(const struct args *args, const char *path,
                                 struct wfs_catalog **out, struct wfs_report **report);

/* Loads the source, or prints why not. "-" is the standard input, which must be a regular file. */
enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out);

/* Loads what becomes .npy files: with --npy=f32, floats that are narrower than F32 are that. */
enum exit_code input_load_npy(const struct args *args, const char *path, struct wfs_catalog **out);

/* ---- several sources ---- */

/* Does what a verb does with one source. */
struct input_one {
    struct args args;      /* as if it were the only one */
    struct json_out *json; /* with --json */
    bool is_of_many;
};

typedef enum exit_code input_visit(const struct input_one *one);

/*
 * Calls visit for each of the first n operands as a source, the others follow it each time. A
 * source that fails does not keep the others from being read. The JSON is an object with a list of
 * that name, which visit adds to. Returns the largest exit code.
 */
enum exit_code input_each(const struct args *args, size_t n, const char *list, input_visit *visit);

/* Returns whether an operand names something that exists: a file, a URL or the standard input. */
bool input_is_source(const char *operand);

/* ---- what was typed for a key ---- */

/* A pattern of a shell. */
struct glob {
    const char *text;
    char *unescaped;  /* malloc'ed: the text as a key that was printed; NULL when out of memory */
    bool has_matched; /* a key that glob_matches looked at */
};

struct glob glob_of(const char *text);
void glob_done(struct glob *glob);

/* Returns whether it matches the whole key, or is the key or a module above it, also as these are
 * printed. '*' matches dots too. */
bool glob_matches(struct glob *glob, const char *key);

/*
 * Returns the marks of the tensors that the operands from n_skipped on choose, all if there are
 * none: malloc'ed, or NULL when out of memory. *ret_unmatched is the first glob without a match, or
 * NULL.
 */
bool *input_select(const struct wfs_catalog *catalog, const struct args *args, size_t n_skipped,
                   const char **ret_unmatched);

/* Returns whether a glob or the name of a module chooses any tensor. */
bool input_matches(const struct wfs_catalog *catalog, const char *glob);

/* Prints a line about a glob without a match: EXIT_NO_MATCH. */
enum exit_code input_unmatched(const struct wfs_catalog *catalog, const char *path,
                               const char *glob);

/* Returns the name whose printed form the text is, malloc'ed, or NULL when out of memory. */
char *input_unescape(const char *name);

/* Returns whether a tensor has that key, as it is or as it is printed. */
bool input_has(const struct wfs_catalog *catalog, const char *key);

/* Finds the tensor with that key, as it is or as it is printed, or prints a line with the nearest
 * keys: EXIT_NO_MATCH. */
enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret);

/* Help of the option --large of verbs that look at all elements of tensors. */
#define INPUT_LARGE_HELP "look at views of over 16 times the file bytes"

/* What to do about too much work where the view options choose the tensors. */
#define INPUT_CHOOSE_FEWER "choose fewer with --include=REGEX, or allow it with --large"

/*
 * Prepares to look at all elements of tensors, or prints why not, and the advice: an allocation of
 * the list has failed (works is NULL), or they show too much without allows_large.
 */
enum exit_code input_workload(const char *path, const struct wfs_work *works, size_t n,
                              bool allows_large, const char *advice, struct wfs_workload **out);

/* Prints a line for tensors that show too much to be looked at; err says what. */
enum exit_code input_workload_error(const char *path, const struct wfs_error *err,
                                    const char *advice);

/* Prints a line for a tensor whose bytes could not be read; code is the negative errno. */
enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code);

/* Does so, with the exit code of the verb in *ret, and returns 0 where others are still read: the
 * damage is that of the tensor. -ECANCELED where they are not. */
int input_skip(const char *path, const struct wfs_tensor *tensor, int code, enum exit_code *ret);

/* The same for the tensor of a pair that could not be compared; -ENOMEM. */
int input_skip_row(const char *const paths[2], struct diff_row *row, int code, enum exit_code *ret);

/* Returns the number of elements; 0 when the dims overflow, as only those of empty tensors can. */
uint64_t input_n_elems(const struct wfs_tensor *tensor);

/* Returns the path of the file that holds the bytes, or NULL. */
const char *input_file_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor);

/* Returns the bytes of all files of the catalog. */
uint64_t input_source_bytes(const struct wfs_catalog *catalog);

/* Returns a + b, or UINT64_MAX. */
uint64_t input_add(uint64_t a, uint64_t b);

#endif
