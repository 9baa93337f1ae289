/* SPDX-License-Identifier: MIT */
/*
 * The mount half of the program, as the command line sees it. This room knows processes, the kernel
 * and libfuse; what files hold, how a view changes it and how edits are kept is left to the
 * library, and what verbs share with it to the room `program`.
 */
#ifndef WFS_MOUNT_H
#define WFS_MOUNT_H

#include "fuse/mount_options.h"
#include "program/receipt.h"

#include <stdbool.h>

/*
 * Runs `weightfs SOURCE MOUNTPOINT [-f] [-d] [-s] [-o OPTION,...]`; argv[0] is the program. Returns
 * the exit code.
 */
int mount_main(int argc, char **argv);

/* The edits of a crashed mount, and how to publish them. Paths and options are the user's: what
 * the base says about them is compared and never used. */
struct mount_recovery {
    const char *stage;       /* the staging directory, not open */
    const char *base;        /* text of its base */
    const char *source;      /* absolute path */
    const char *output;      /* absolute path */
    const char *options;     /* mount options, with commas between them */
    bool is_onto;            /* the source is not the one that was edited */
    bool is_forced;          /* take what may be torn, replace an output that is not known */
    struct receipt *receipt; /* empty */
};

/* Commits the edits, reports that, and removes the staging directory. Returns the exit code; not 0:
 * a line was printed. */
int mount_recover(const struct mount_recovery *recovery);

/* Returns the version of libfuse at run time; NULL in a build without it. */
const char *mount_library_version(void);

#endif
