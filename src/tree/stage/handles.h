/* SPDX-License-Identifier: MIT */
/*
 * Open files of one directory, named by number: at most 64 stay open, and a quarter of what the
 * process may have; the longest unused one is closed for the next. One lock of its own; files that
 * are in use are never closed.
 */
#ifndef WFS_TREE_HANDLES_H
#define WFS_TREE_HANDLES_H

#include <pthread.h>
#include <stdint.h>

enum { HANDLES_MAX = 64 };

struct handles_slot {
    uint64_t number; /* 0: free */
    uint64_t used_at;
    unsigned n_users;
    int fd;
};

struct handles {
    int dir_fd; /* borrowed */
    pthread_mutex_t lock;
    uint64_t clock;
    size_t n_slots; /* that are used of the following */
    struct handles_slot slots[HANDLES_MAX];
};

struct handle {
    struct handles_slot *slot; /* NULL: the descriptor is the handle's own */
    int fd;
};

struct handles_name {
    char text[24];
};

struct handles_name handles_name(uint64_t number);

void handles_init(struct handles *handles);

/* Opens the file for reading and writing. A negative errno of open. */
int handles_acquire(struct handles *handles, uint64_t number, struct handle *ret);
void handles_release(struct handles *handles, const struct handle *handle);

/* Takes over the descriptor of a file that was just made. */
void handles_adopt(struct handles *handles, uint64_t number, int fd);

/* Closes the file, which nobody uses. */
void handles_drop(struct handles *handles, uint64_t number);
void handles_done(struct handles *handles);

#endif
