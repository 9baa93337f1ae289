/* SPDX-License-Identifier: MIT */
/*
 * Statistics of many tensors: a line for each, or for equal layers together.
 */
#ifndef WFS_SURVEY_H
#define WFS_SURVEY_H

#include "cli/args.h"

#include <weightfs/catalog.h>

/*
 * Reads the tensors of the catalog that are marked and prints them. Unless EXIT_DONE, a line was
 * printed.
 */
enum exit_code survey_print(const struct args *args, const struct wfs_catalog *catalog,
                            const bool *marks);

/* Takes its options from the command line, or prints a line about those that do not fit. */
enum exit_code survey_check(const struct args *args);

#endif
