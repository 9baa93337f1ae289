/* SPDX-License-Identifier: MIT */
/*
 * The tables of callbacks, what the connection is asked to do, and what the callbacks share.
 */
#include "fuse/ops.h"

#include <errno.h>

static void want(struct fuse_conn_info *connection, unsigned flags)
{
    connection->want |= flags & connection->capable;
}

/*
 * Without O_TRUNC in open, truncation comes as its own request, which a mount that answers no opens
 * needs. "Auto" readdirplus gives up in large directories.
 */
static void op_init(void *userdata, struct fuse_conn_info *connection)
{
    want(connection, FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_IOCTL_DIR);
    connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ATOMIC_O_TRUNC);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    /* No file here can be setuid; without this the kernel asks before every write. */
    want(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    connection->max_write = DRIVER_TRANSFER_MAX;
}

#define READING_OPS                                                                                \
    .init = op_init, .lookup = op_lookup, .forget = op_forget, .forget_multi = op_forget_multi,    \
    .getattr = op_getattr, .read = op_read, .opendir = op_opendir, .readdir = op_readdir,          \
    .readdirplus = op_readdirplus, .statfs = op_statfs, .getxattr = op_getxattr,                   \
    .listxattr = op_listxattr, .fsyncdir = op_fsyncdir, .ioctl = op_ioctl

const struct fuse_lowlevel_ops ops_read_only = {READING_OPS, .open = op_open_never};

const struct fuse_lowlevel_ops ops_writable = {
    READING_OPS,
    .setattr = op_setattr,
    .open = op_open,
    .release = op_release,
    .create = op_create,
    .write = op_write,
    .fallocate = op_fallocate,
    .copy_file_range = op_copy_file_range,
    .fsync = op_fsync,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .rename = op_rename,
    .link = op_link,
    .setxattr = op_setxattr,
    .removexattr = op_removexattr,
};

struct driver *ops_begin_read(fuse_req_t req)
{
    struct driver *driver = fuse_req_userdata(req);
    driver_begin_read(driver);
    return driver;
}

struct driver *ops_begin_change(fuse_req_t req)
{
    struct driver *driver = fuse_req_userdata(req);
    driver_begin_change(driver);
    return driver;
}

struct wfs_node *ops_node(const struct driver *driver, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? wfs_tree_root(driver->tree) : (struct wfs_node *)(uintptr_t)ino;
}

double ops_timeout(const struct driver *driver, const struct wfs_node *node)
{
    return wfs_node_is_control(driver->tree, node) ? 0 : 86400;
}

void ops_make_entry(struct driver *driver, struct wfs_node *node, struct fuse_entry_param *entry)
{
    *entry = (struct fuse_entry_param){.ino = (uintptr_t)node};
    entry->attr_timeout = entry->entry_timeout = ops_timeout(driver, node);
    wfs_node_stat(driver->tree, node, &entry->attr);
    wfs_node_ref(node, 1);
}

/* A request that was interrupted gets no reply, and the kernel no reference. */
void ops_reply_entry(fuse_req_t req, int rc, const struct fuse_entry_param *entry)
{
    struct driver *driver = fuse_req_userdata(req);
    if (rc < 0)
        fuse_reply_err(req, -rc);
    else if (fuse_reply_entry(req, entry) == -ENOENT)
        driver_forget(driver, ops_node(driver, entry->ino), 1);
}

void ops_reply(fuse_req_t req, int rc)
{
    fuse_reply_err(req, -rc);
}
