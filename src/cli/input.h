/* SPDX-License-Identifier: MIT */
/*
 * What verbs that read a checkpoint have in common: loading it, finding a tensor in it, telling why
 * bytes cannot be read.
 */
#ifndef WFS_INPUT_H
#define WFS_INPUT_H

#include <weightfs/format.h>

#include "cli/args.h"

/*
 * Loads the source and shows it as the options of views in args say; what they did is in *report,
 * which borrows from the catalog and may be there beside a failure too. NULL: nobody wants to know.
 */
enum exit_code input_load_report(const struct args *args, const char *path,
                                 struct wfs_catalog **out, struct wfs_report **report);

/* Loads the source ("-" is standard input, where that is a regular file), or prints why not. */
enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out);

/* The format that --format names, NULL without one; or a line and EXIT_USAGE. */
enum exit_code input_format(const struct args *args, const struct wfs_format **ret);

/* The tensor with that key, or a line with the nearest keys and EXIT_NO_MATCH. */
enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret);

/* The line for a tensor whose bytes could not be read; code is the negative errno. */
enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code);

/* Elements of the tensor; 0 when the dims overflow, which only empty tensors can. */
uint64_t input_n_elems(const struct wfs_tensor *tensor);

/* Path of the file that the bytes lie in, or NULL. */
const char *input_file_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor);

/* a + b, or UINT64_MAX. */
uint64_t input_add(uint64_t a, uint64_t b);

#endif
