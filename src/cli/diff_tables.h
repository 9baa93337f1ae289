/* SPDX-License-Identifier: MIT */
/*
 * Tables of how two checkpoints differ.
 */
#ifndef WFS_DIFF_TABLES_H
#define WFS_DIFF_TABLES_H

#include "cli/args.h"
#include "program/pairing.h"

/* Checks the value of --sort, or prints a line: EXIT_USAGE. */
enum exit_code diff_tables_check(const struct args *args);

/* Prints a row for each tensor that differs, or with --stat one with a bar for each module that has
 * one; and puts the rows in their order. json: an array is open for the modules; NULL: a table.
 * -ENOMEM. */
int diff_tables_print(struct diff_row *rows, size_t n_rows, const struct args *args,
                      struct json_out *json);

#endif
