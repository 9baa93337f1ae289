/* SPDX-License-Identifier: MIT */
/*
 * A running mount as the verbs see it: its root directory, and the ioctl on that.
 */
#ifndef WFS_MOUNTED_H
#define WFS_MOUNTED_H

#include <stdbool.h>
#include <stdint.h>

#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/status.h>
#include <weightfs/tree.h>

struct mounted {
    const char *path; /* as typed */
    int fd;           /* the root directory */
    bool is_writable;
    int32_t pid;      /* exits when the mount is unmounted and committed */
    uint64_t n_edits; /* that are pending */
    char stage[sizeof(((struct wfs_control_reply *)0)->text)]; /* staging directory */
};

/*
 * Opens the root of a mount. Unless EXIT_DONE, a line was printed: it is not a weightfs mount, or
 * its driver is dead.
 */
enum exit_code mounted_open(struct mounted *mounted, const char *path);

void mounted_close(struct mounted *mounted);

/*
 * Prints what a commit would do, if asked, or a line for each problem that makes it fail. Returns
 * the exit code of that commit.
 */
enum exit_code mounted_try(const struct mounted *mounted, bool prints_summary);

#define auto_mounted cleanup(mounted_close)

#endif
