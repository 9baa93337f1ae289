/* SPDX-License-Identifier: MIT */
/*
 * How a program talks to a running mount: ioctls on the root directory, and the text of
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
 * mounted get WFS_HELLO_HIDDEN instead of its path, and n_edits is 0. The error is EAGAIN as long
 * as the kernel may still show what WFS_IOC_REVERT has taken back.
 */
#define WFS_HELLO_HIDDEN "?"
#define WFS_IOC_HELLO _IOR('W', 2, struct wfs_control_reply)
/* Drops all edits that are not committed and fills the reply: n_edits were dropped, and on an error
 * the text says why none was. The mount takes no more edits and commits nothing. */
#define WFS_IOC_DISCARD _IOR('W', 3, struct wfs_control_reply)

enum { WFS_REVERT_PATHS_MAX = 2 << 20 }; /* bytes of all paths: as many as a command line has */

/* What WFS_IOC_REVERT gets and returns. */
struct wfs_control_revert {
    int32_t error;           /* errno, 0: done; EAGAIN: another list was begun, begin again */
    uint8_t takes_committed; /* edits that were committed, too */
    uint8_t has_more;        /* the text goes on in the next call, and nothing is taken back yet */
    uint64_t list;           /* given: what the call before returned, 0 at the beginning */
    uint64_t n_edits;        /* that were taken back */
    char text[12288];        /* given: paths below the root with "//" between them, empty for all;
                                returned: why nothing was taken back */
};

/* Takes edits back; the mount goes on. */
#define WFS_IOC_REVERT _IOWR('W', 4, struct wfs_control_revert)

/* Stops the commit that WFS_IOC_COMMIT waits for, if its file is not complete yet: that fails with
 * EINTR, and nothing is changed. Fills in no text. */
#define WFS_IOC_STOP _IOR('W', 6, struct wfs_control_reply)

/* What WFS_IOC_TRY returns: what WFS_IOC_COMMIT would come to now. Nothing is written. */
struct wfs_control_trial {
    int32_t error;                        /* errno of the commit, 0: it would succeed */
    uint32_t n_problems;                  /* each of which makes it fail */
    uint64_t n_edits;                     /* that are pending */
    uint64_t n_tensors, n_files, n_bytes; /* of what would be written */
    char text[15360]; /* a line for each problem, as far as there is room, or what would be
                         written; empty: nothing */
};

#define WFS_IOC_TRY _IOR('W', 5, struct wfs_control_trial)

#endif
