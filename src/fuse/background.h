/* SPDX-License-Identifier: MIT */
/*
 * The background: the command that the user typed waits until the mount answers or has failed; the
 * processes that it started stay.
 */
#ifndef WFS_BACKGROUND_H
#define WFS_BACKGROUND_H

#include <stdbool.h>

/*
 * Forks. In the child *ret_report is where background_leave reports, and all inherited descriptors
 * but `kept` are closed. In the parent it is -1, and the result is the exit code of the command.
 */
int background_start(int kept, int *ret_report);

/* Leaves terminal, directory and standard descriptors; messages go to the system log. */
void background_detach(void);

/* Detaches, and reports to the command that the mount answers. Returns false when it is gone. */
bool background_leave(int report);

#endif
