/* SPDX-License-Identifier: MIT */
/*
 * Exit codes, the same for every verb and for mounts. This room holds what both share: places,
 * settings, loading, commits, earlier mounts, printing. It knows no verb, and nothing of FUSE.
 */
#ifndef WFS_EXIT_H
#define WFS_EXIT_H

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FOUND = 1,       /* check: problems that do not prevent reading; diff: a difference; find:
                             nothing; sum --check: not as the manifest */
    EXIT_USAGE = 2,       /* the command line */
    EXIT_SOURCE = 3,      /* source missing or unreadable */
    EXIT_FOREIGN = 4,     /* not a checkpoint */
    EXIT_DAMAGED = 5,     /* damaged, truncated, failing or changed */
    EXIT_UNSUPPORTED = 6, /* valid but not supported, or above a limit */
    EXIT_NO_MATCH = 7,    /* what was asked for is not in the source */
    EXIT_MOUNT = 8,       /* cannot mount */
    EXIT_OUTPUT = 9,      /* a commit, a target or standard output could not be written */
};

/* Returns the exit code for the positive errno of a failed load or read. */
enum exit_code exit_of_errno(int code);

#endif
