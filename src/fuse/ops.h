/* SPDX-License-Identifier: MIT */
/*
 * The callbacks of libfuse's low-level interface, over the tree. The number of a node is its
 * address, that of the root is 1; the kernel's lookup counts are the node's references, so a number
 * is not used again while the kernel knows it.
 *
 * What all callbacks share is here: from request to driver, from number to node, from result to
 * reply.
 */
#ifndef WFS_OPS_H
#define WFS_OPS_H

#define FUSE_USE_VERSION 314

#include "fuse/driver.h"

#include <fuse_lowlevel.h>

/* For a mount that can be changed, and for one that cannot. */
extern const struct fuse_lowlevel_ops ops_writable;
extern const struct fuse_lowlevel_ops ops_read_only;

struct driver *ops_begin_read(fuse_req_t req);
struct driver *ops_begin_change(fuse_req_t req);

struct wfs_node *ops_node(const struct driver *driver, fuse_ino_t ino);

/* Only this mount changes the tree, so the kernel may keep what it was told; the control files
 * change by themselves. In seconds. */
double ops_timeout(const struct driver *driver, const struct wfs_node *node);

/* Fills in entry and takes the reference that goes with it. Under the lock. */
void ops_make_entry(struct driver *driver, struct wfs_node *node, struct fuse_entry_param *entry);

/* Replies with the error, or with the entry when rc is 0. */
void ops_reply_entry(fuse_req_t req, int rc, const struct fuse_entry_param *entry);

/* Replies with 0 or the negative errno. */
void ops_reply(fuse_req_t req, int rc);

/* Names: ops_names.c. */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n_lookups);
void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
                struct fuse_file_info *info);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
                    struct fuse_file_info *info);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned flags);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *info);

/* Content and attributes: ops_content.c. */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *info);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_open_never(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
             struct fuse_file_info *info);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n_bytes, off_t offset,
              struct fuse_file_info *info);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t n_bytes,
                  struct fuse_file_info *info);
void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
                        struct fuse_file_info *from_info, fuse_ino_t to, off_t to_offset,
                        struct fuse_file_info *to_info, size_t n_bytes, int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t n_bytes);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t n_bytes);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                 size_t n_bytes, int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void ops_open_flags(const struct driver *driver, const struct wfs_node *node,
                    struct fuse_file_info *info);

/* Durability and control: ops_commit.c. */
void op_fsync(fuse_req_t req, fuse_ino_t ino, int is_data_only, struct fuse_file_info *info);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int is_data_only, struct fuse_file_info *info);
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg,
              struct fuse_file_info *info, unsigned flags, const void *in, size_t n_in,
              size_t n_out);

#endif
