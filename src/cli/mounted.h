/* SPDX-License-Identifier: MIT */
/*
 * A running mount as the verbs see it: its root directory, and the ioctl on that.
 */
#ifndef WFS_MOUNTED_H
#define WFS_MOUNTED_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/progress.h"
#include "program/receipt.h"

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

/* In the root directory of a mount. */
#define MOUNTED_STATUS WFS_CONTROL_NAME "/status.json"

/* Returns the text of a file in the open directory, malloc'ed. NULL with errno. */
char *mounted_read(int directory, const char *name);

/* Returns what a status.json in the open directory says, malloc'ed. NULL with errno. */
struct wfs_status *mounted_read_status(int directory, const char *name);

/* Draws the progress of a commit. Before and after one, the numbers are those of the last one. */
void mounted_draw(struct progress *progress, const struct wfs_status *status);

/*
 * Reports what a commit would do, unless the receipt is NULL, or prints a line for each problem
 * that makes it fail. Returns the exit code of that commit.
 */
enum exit_code mounted_try(const struct mounted *mounted, struct receipt *receipt);

#define auto_mounted cleanup(mounted_close)

#endif
