/* SPDX-License-Identifier: MIT */
/*
 * How a program talks to a running mount: three ioctls on the root directory, and the text of
 * WFS_CONTROL_NAME/status.json, which status.h reads.
 */
#ifndef WFS_CONTROL_H
#define WFS_CONTROL_H

#include <linux/ioctl.h>
#include <stdint.h>

/* The reply to WFS_IOC_COMMIT, which does what `sync MNT` does and returns its message. */
struct wfs_control_reply {
    int32_t error;    /* errno of the commit, 0: done */
    int32_t pid;      /* of the process to wait for after an unmount */
    uint64_t n_edits; /* that were pending */
    char text[4096];  /* one line, or a path of PATH_MAX bytes, NUL-terminated: the error, or what
                         was written; empty: nothing */
};

#define WFS_IOC_COMMIT _IOR('W', 1, struct wfs_control_reply)
/*
 * Fills the reply without a commit: shows that the directory is the root of a mount of ours. The
 * text is the staging directory, or empty if the mount is read-only; other users than the one who
 * mounted get WFS_HELLO_HIDDEN instead of its path, and n_edits is 0.
 */
#define WFS_HELLO_HIDDEN "?"
#define WFS_IOC_HELLO _IOR('W', 2, struct wfs_control_reply)
/* Drops all edits that are not committed and fills the reply: n_edits were dropped, and on an error
 * the text says why none was. The mount takes no more edits and commits nothing. */
#define WFS_IOC_DISCARD _IOR('W', 3, struct wfs_control_reply)

#endif
