/* SPDX-License-Identifier: MIT */
/*
 * The files of DIR/data of a staging directory, named by number. At most 64 stay open, and at most
 * a quarter of what the process may open; the least recently used one is closed for the next. Has a
 * lock of its own: functions on different files may run in parallel.
 */
#ifndef WFS_TREE_DATAFILES_H
#define WFS_TREE_DATAFILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

enum { DATAFILES_OPEN_MAX = 64 };

struct datafiles_slot {
    uint64_t number; /* 0: free */
    uint64_t used_at;
    unsigned n_users;
    int fd;
};

struct datafiles {
    int dir_fd;                /* owned; -1: not open */
    bool keeps_all;            /* datafiles_remove does nothing */
    atomic_bool has_new_names; /* files were made that no fsync of the directory has seen */
    uint64_t n_made;           /* the largest number that was used */
    pthread_mutex_t lock;      /* guards what follows */
    uint64_t clock;
    size_t n_slots; /* that are used of the following */
    struct datafiles_slot slots[DATAFILES_OPEN_MAX];
};

void datafiles_init(struct datafiles *data);
void datafiles_done(struct datafiles *data);

/* Makes a new empty file with a number that no file had before. */
int datafiles_make(struct datafiles *data, uint64_t *ret_number);
void datafiles_remove(struct datafiles *data, uint64_t number);

/* Reads up to the end of the file. Returns the count, or a negative errno. */
ssize_t datafiles_read(struct datafiles *data, uint64_t number, uint64_t offset, void *buf,
                       size_t n_bytes);

/* Returns how many bytes were written, at least one unless n_bytes is 0, or a negative errno. */
ssize_t datafiles_write(struct datafiles *data, uint64_t number, uint64_t offset, const void *buf,
                        size_t n_bytes);

/* Writes all bytes or fails. */
int datafiles_write_all(struct datafiles *data, uint64_t number, uint64_t offset, const void *buf,
                        size_t n_bytes);
int datafiles_resize(struct datafiles *data, uint64_t number, uint64_t n_bytes);

/* fallocate(2). */
int datafiles_allocate(struct datafiles *data, uint64_t number, int mode, uint64_t offset,
                       uint64_t n_bytes);

/* Copies a range of a file inside the kernel. -EOPNOTSUPP: not between these two files. */
int datafiles_copy(struct datafiles *data, uint64_t number, uint64_t offset, int fd,
                   uint64_t fd_offset, uint64_t n_bytes);

/* fdatasync of the file. */
int datafiles_sync(struct datafiles *data, uint64_t number);

/* -ENOENT when no regular file has the number. */
int datafiles_stat(const struct datafiles *data, uint64_t number, struct stat *ret);
int datafiles_statfs(const struct datafiles *data, struct statvfs *ret);

/* Removes all files but those with the given numbers, which are in ascending order; numbers of
 * files that are found are not used again. */
int datafiles_sweep(struct datafiles *data, const uint64_t *kept, size_t n_kept);

#endif
