/* SPDX-License-Identifier: MIT */
/*
 * Notices to the kernel that names or files have changed without a request of its own. They are
 * sent by a thread: the kernel may wait for the answer to a request before it takes one.
 */
#ifndef WFS_NOTICES_H
#define WFS_NOTICES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuse_session;

struct notice {
    uint64_t number; /* of a node */
    char *name;      /* in it, malloc'ed; NULL: its content and attributes */
};

struct notices {
    pthread_mutex_t lock; /* guards all below */
    struct notice *items; /* malloc'ed */
    size_t n_items, n_room;
    size_t n_sent;
    struct fuse_session *session;
    pthread_t thread;
    bool is_running; /* the thread sends */
    bool is_joinable;
};

void notices_init(struct notices *notices);
void notices_done(struct notices *notices);

/* Adds one; notices is a struct notices. Without memory for it, the kernel learns nothing. */
void notices_add(void *notices, uint64_t number, const char *name);

/* Begins to send all that were added. */
void notices_send(struct notices *notices, struct fuse_session *session);

/* Returns true when nothing is left to send. */
bool notices_are_sent(struct notices *notices);

/* Waits until nothing is left to send: the session may end. */
void notices_wait(struct notices *notices);

#endif
