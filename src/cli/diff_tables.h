/* SPDX-License-Identifier: MIT */
/*
 * The differences of two checkpoints as a table: a row for each tensor that differs, or for each
 * module that has one, with a bar.
 */
#ifndef WFS_DIFF_TABLES_H
#define WFS_DIFF_TABLES_H

#include "cli/args.h"
#include "cli/comparison.h"

/* A tensor of both, or of one of them: the other is NULL then, and nothing was compared. */
struct diff_row {
    const struct wfs_tensor *a, *b;
    bool is_equal;
    struct comparison comparison;
};

struct diff_rows {
    struct diff_row *rows;
    size_t n_rows, n_room;
};

int diff_rows_add(struct diff_rows *rows, const struct diff_row *row); /* -ENOMEM */
void diff_rows_done(struct diff_rows *rows);

/* Checks the value of --sort, or prints a line: EXIT_USAGE. */
enum exit_code diff_tables_check(const struct args *args);

/* Print the tables of --long and of --stat, and put the rows in their order. -ENOMEM. */
int diff_tables_long(struct diff_rows *rows, const struct args *args);
int diff_tables_stat(struct diff_rows *rows, const struct args *args);

#endif
