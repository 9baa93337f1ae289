/* SPDX-License-Identifier: MIT */
/*
 * weightfs status --watch: waits until a mount has ended and its edits are saved. It looks into the
 * staging directory, not into the mount, which would be in use while it is unmounted.
 */
#ifndef WFS_WATCH_H
#define WFS_WATCH_H

#include "program/exit.h"

/*
 * operand: a mount point, or the output of a mount or its staging directory, where it is unmounted
 * already. Prints what became of the edits. Unless EXIT_DONE, a line was printed on stderr.
 */
enum exit_code watch_run(const char *operand);

#endif
