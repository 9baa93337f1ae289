/* SPDX-License-Identifier: MIT */
/*
 * The mounts of this user.
 */
#ifndef WFS_MOUNTS_H
#define WFS_MOUNTS_H

#include "cli/args.h"

/* Prints a line for each, with --json an object. */
enum exit_code mounts_print(const struct args *args);

#endif
