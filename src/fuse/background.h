/* SPDX-License-Identifier: MIT */
/*
 * The background: the command that the user typed waits in front of the processes that stay, and
 * ends when the mount answers or could not be made.
 */
#ifndef WFS_BACKGROUND_H
#define WFS_BACKGROUND_H

#include <stdbool.h>

/*
 * Forks. In the child *ret_report is where background_leave reports; descriptors that were
 * inherited are closed, save `kept`. In the parent it is -1 and the result is the exit code of the
 * command.
 */
int background_start(int kept, int *ret_report);

/* Leaves terminal, directory and standard descriptors; messages go to the system log. */
void background_detach(void);

/* Detaches, and tells the command that the mount answers. False when it is gone: nobody waits any
 * more. */
bool background_leave(int report);

#endif
