/* SPDX-License-Identifier: MIT */
/*
 * The kernel's Landlock: from a moment on, files can be reached only beneath what was allowed
 * before. Older kernels offer less of it; what is not offered is not restricted.
 */
#ifndef WFS_LANDLOCK_H
#define WFS_LANDLOCK_H

#include <stdint.h>

/* What may be done with a file, or beneath a directory. */
enum landlock_access {
    LANDLOCK_LIST = 1 << 0,   /* read directories */
    LANDLOCK_READ = 1 << 1,   /* read files */
    LANDLOCK_WRITE = 1 << 2,  /* write and truncate files */
    LANDLOCK_CHANGE = 1 << 3, /* make, rename, link and remove files and directories */
    LANDLOCK_DEVICE = 1 << 4, /* ioctl on devices */
};

struct landlock {
    int fd;      /* of the rules; -1: the kernel has no Landlock */
    int version; /* of the kernel's */
};

/* Also when there is none. Only with rules in it does something have to be undone. */
void landlock_init(struct landlock *landlock);
void landlock_done(struct landlock *landlock);

/* fd is of a file or directory, O_PATH will do. What has no place in a filesystem needs no rule. */
void landlock_allow(const struct landlock *landlock, int fd, enum landlock_access access);

/* For this process, for ever: 0, or a negative errno. no_new_privs must be set. */
int landlock_enter(const struct landlock *landlock);

#endif
