/* SPDX-License-Identifier: MIT */
/*
 * What all callbacks of libfuse's low-level interface share: from request to driver, from number to
 * node, from result to reply. The kernel's lookup counts are the node's references.
 */
#ifndef WFS_REQUEST_H
#define WFS_REQUEST_H

#include "fuse/driver.h"

#include <fuse_lowlevel.h>

/* Takes the lock of the driver for reading and returns the driver; driver_end_read must follow. */
struct driver *request_begin_read(fuse_req_t req);

/*
 * The same for a change; driver_end_change must follow. While it waits for a commit, the caller may
 * be killed: NULL, and the answer is -EINTR.
 */
struct driver *request_begin_change(fuse_req_t req);

/*
 * Returns true when what was done with the lock needs what a source on the network has not brought
 * yet: that has been fetched, without the lock, and all is to be done again.
 */
bool request_again(fuse_req_t req);

/* A look into the tree, which is repeated until all that it needs has been fetched. */
struct request_look {
    fuse_req_t req;
    struct driver *driver; /* locked for reading; NULL at the beginning */
};

/* Begins the next attempt, and takes the lock; false: the last one counts, and the lock is free. */
bool request_look(struct request_look *look);

/* Returns true for a request of the user who mounted: only they may use the control directory. */
bool request_is_owner(fuse_req_t req);

/* Returns true when nobody waits for the reply any more, or the mount ends. ctx: the request. */
bool request_is_given_up(void *ctx);

/* Returns who reads for the request: it stops when that is given up. */
struct wfs_io request_io(fuse_req_t req);

/*
 * Returns the node with a number that the kernel knows, which is not NULL. The caller holds the
 * lock.
 */
struct wfs_node *request_node(const struct driver *driver, fuse_ino_t ino);

/*
 * Returns for how many seconds the kernel may cache the attributes of a node: only this mount
 * changes the tree, but the control files change by themselves.
 */
double request_timeout(const struct driver *driver, const struct wfs_node *node);

/*
 * Makes a change of the node durable before it is answered, where the mount was asked to: `sync` is
 * the option from which on a change of its kind is. code is that of the change so far. The caller
 * holds no lock.
 */
int request_settle(fuse_req_t req, fuse_ino_t ino, enum mount_syncs sync, int code);

/* Replies with 0 or the negative errno. */
void request_reply(fuse_req_t req, int rc);

/* Sets how the kernel caches an open file. The caller holds the lock. */
void request_open_flags(const struct driver *driver, const struct wfs_node *node,
                        struct fuse_file_info *info);

/* Each group of callbacks adds its own to the table; is_writable: the mount can be changed. */
void ops_names_add(struct fuse_lowlevel_ops *ops, bool is_writable);
void ops_content_add(struct fuse_lowlevel_ops *ops, bool is_writable);
void ops_commit_add(struct fuse_lowlevel_ops *ops, bool is_writable);

#endif
