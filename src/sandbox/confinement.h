/* SPDX-License-Identifier: MIT */
/*
 * The kernel's means of confinement: capabilities, Landlock, and a filter of system calls. What an
 * older kernel does not offer is not restricted.
 */
#ifndef WFS_CONFINEMENT_H
#define WFS_CONFINEMENT_H

#include <stddef.h>
#include <stdint.h>

/* Returns the capabilities that this process may have, as bits. */
uint64_t capability_permitted(void);

/* 0, or a negative errno. */
int capability_set(uint64_t permitted, uint64_t effective);

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

/* Once entered, a process reaches only files beneath those that were allowed before. */
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

/* A system call that is refused with an error. */
struct filter_refusal {
    const char *name;
    int code;
};

/* One that is allowed, or refused with an error, where an argument, as far as the mask goes, has a
 * value. */
struct filter_condition {
    const char *name;
    unsigned argument;
    uint64_t mask, value;
    int code; /* 0: allowed */
};

#define FILTER_WHOLE UINT64_MAX

/* Lists up to one without a name. Names, because a libseccomp or an architecture may not know one.
 */
struct filter {
    const char *const *allowed;
    const struct filter_refusal *refused;
    const struct filter_condition *conditions;
};

/*
 * Puts the filter on this process and all its threads, for good: any call that is not in it ends
 * the process with SIGSYS. Sets no_new_privs. -ENOMEM, -EOPNOTSUPP when this build or the kernel
 * cannot.
 */
int filter_enter(const struct filter *filter);

#endif
