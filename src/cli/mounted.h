/* SPDX-License-Identifier: MIT */
/*
 * A running mount as the verbs see it: its root directory, the ioctl on that, and status.json.
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

/* In the root directory of a mount. */
#define MOUNTED_STATUS WFS_CONTROL_NAME "/status.json"

struct mounted {
    const char *path; /* as typed */
    int fd;           /* the root directory */
    bool is_writable;
    int32_t pid;         /* exits when the mount is unmounted and committed */
    uint64_t n_edits;    /* that are pending */
    bool may_go;         /* nothing could be saved, but nothing was edited either */
    const char *outcome; /* what became of them: "saved", "discarded"; NULL: there can be none */
    char stage[sizeof(((struct wfs_control_reply *)0)->text)]; /* staging directory */
};

/*
 * Opens the root of a mount. Unless EXIT_DONE, a line was printed: it is not a weightfs mount, or
 * its driver is dead.
 */
enum exit_code mounted_open(struct mounted *mounted, const char *path);

void mounted_close(struct mounted *mounted);

/*
 * Commits and waits, with a progress bar on a terminal. Fills in reply. Unless EXIT_DONE, a line
 * was printed.
 */
enum exit_code mounted_commit(struct mounted *mounted, struct wfs_control_reply *reply);

/*
 * Prints what a commit would do, if asked, or a line for each problem that makes it fail. Returns
 * the exit code of that commit.
 */
enum exit_code mounted_try(const struct mounted *mounted, bool prints_summary);

/* Drops the edits that are not committed; fills in reply. Unless EXIT_DONE, a line was printed. */
enum exit_code mounted_discard(struct mounted *mounted, struct wfs_control_reply *reply);

/* Returns the text of a status.json in the open directory; the caller frees it. NULL with errno. */
char *mounted_status_text(int directory, const char *name);

/* Returns what it says; the caller frees it. NULL with errno. */
struct wfs_status *mounted_status(int directory, const char *name);

#define auto_mounted cleanup(mounted_close)

#endif
