/* SPDX-License-Identifier: MIT */
/*
 * The kernel's Landlock: once entered, a process reaches only files beneath those that were allowed
 * before. What an older kernel does not offer is not restricted.
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

enum landlock_network {
    LANDLOCK_ALONE,    /* no connection, where the kernel can refuse them */
    LANDLOCK_CONNECTS, /* to others, but nobody connects to it */
};

struct landlock {
    int fd;      /* of the rules; -1: the kernel has no Landlock */
    int version; /* of the kernel's */
};

/* Makes an empty rule set; without Landlock the other functions do nothing. */
void landlock_init(struct landlock *landlock, enum landlock_network network);
void landlock_done(struct landlock *landlock);

/* Allows access beneath a file or directory; O_PATH will do. Pipes and sockets need no rule. */
void landlock_allow(const struct landlock *landlock, int fd, enum landlock_access access);

/* Confines this process, for good. no_new_privs must be set. 0, or a negative errno. */
int landlock_enter(const struct landlock *landlock);

#endif
