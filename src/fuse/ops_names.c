/* SPDX-License-Identifier: MIT */
/*
 * Callbacks on names and directories.
 */
#include "fuse/request.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>

/* Fills in entry and takes the reference that goes with it. -ENOMEM: its number is 0. The caller
 * holds the lock. */
static int make_entry(struct driver *driver, struct wfs_node *node, struct fuse_entry_param *entry)
{
    *entry = (struct fuse_entry_param){0};
    entry->ino = wfs_number_enter(driver->tree, node, &entry->attr);
    entry->attr_timeout = entry->entry_timeout = request_timeout(driver, node);
    /* A handle that a program or an NFS client keeps is the number and this. It follows from the
     * inode number, so the handle of a file of the checkpoint is good in the next mount of it, and
     * in a mount of something else it opens nothing. */
    const uint64_t inode = entry->attr.st_ino;
    entry->generation = entry->ino == FUSE_ROOT_ID ? 0 : (uint32_t)(inode ^ inode >> 32);
    return entry->ino == 0 ? -ENOMEM : 0;
}

/* Replies with the error, or with the entry when rc is 0. When that does not arrive, because the
 * caller was killed, the kernel has no reference. */
static void reply_entry(fuse_req_t req, int rc, const struct fuse_entry_param *entry)
{
    struct driver *driver = fuse_req_userdata(req);
    if (rc < 0)
        fuse_reply_err(req, -rc);
    else if (fuse_reply_entry(req, entry) < 0)
        driver_forget(driver, entry->ino, 1);
}

/*
 * Finds the node of a file handle, "." in a node that the kernel has forgotten, or the directory
 * that holds it, "..". The number comes from whoever opens the handle, and may be old or made up.
 */
static int find_by_number(const struct driver *driver, fuse_req_t req, fuse_ino_t ino,
                          const char *name, struct wfs_node **ret)
{
    struct wfs_node *node = wfs_tree_node(driver->tree, ino);
    struct wfs_node *parent = node == NULL ? NULL : wfs_node_parent(driver->tree, node);
    if (parent == NULL)
        return -ESTALE;
    *ret = strcmp(name, "..") == 0 ? parent : node;
    return wfs_node_is_control(driver->tree, *ret) && !request_is_owner(req) ? -EACCES : 0;
}

static int look_up(fuse_req_t req, fuse_ino_t parent, const char *name,
                   struct fuse_entry_param *entry)
{
    struct wfs_node *node;
    struct driver *driver = request_begin_read(req);
    int rc;
    *entry = (struct fuse_entry_param){0};
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        rc = find_by_number(driver, req, parent, name, &node);
    else if (parent == FUSE_ROOT_ID && strcmp(name, WFS_CONTROL_NAME) == 0 &&
             !request_is_owner(req))
        rc = -EACCES; /* others can reach the control directory with allow_other */
    else
        rc = wfs_node_lookup(driver->tree, request_node(driver, parent), name, &node);
    if (rc == 0)
        rc = make_entry(driver, node, entry);
    else if (rc == -ENOENT)
        entry->entry_timeout = request_timeout(driver, request_node(driver, parent));
    driver_end_read(driver);
    return rc;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry;
    struct driver *driver = fuse_req_userdata(req);
    int rc = look_up(req, parent, name, &entry);
    while (request_again(req)) {
        if (rc == 0)
            driver_forget(driver, entry.ino, 1);
        rc = look_up(req, parent, name, &entry);
    }
    /* An older version of a generated file. */
    if (rc == 0 && strcmp(name, ".") == 0 && entry.ino != parent) {
        driver_forget(driver, entry.ino, 1);
        rc = -ESTALE;
    }
    if (rc == -ENOENT)
        fuse_reply_entry(req,
                         &entry); /* number 0: the kernel may cache that the name does not exist */
    else
        reply_entry(req, rc, &entry);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n_lookups)
{
    struct driver *driver = fuse_req_userdata(req);
    driver_forget(driver, ino, n_lookups);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t n, struct fuse_forget_data *forgets)
{
    struct driver *driver = fuse_req_userdata(req);
    for (size_t i = 0; i < n; i++)
        driver_forget(driver, forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

/* ---- listing ---- */

/* Not supported: the kernel then opens directories by itself and caches their listings. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    fuse_reply_err(req, ENOSYS);
}

struct listing {
    fuse_req_t req;
    struct driver *driver;
    struct wfs_node *dir;
    char *bytes;
    size_t n_bytes, n_room;
    bool is_plus;
};

/* Returns false when the buffer is full. next is the offset after this entry. */
static bool add_entry(struct listing *listing, const char *name, struct wfs_node *node,
                      uint64_t next, bool is_dot)
{
    struct fuse_entry_param entry = {0};
    char *at = listing->bytes + listing->n_bytes;
    const size_t n_left = listing->n_room - listing->n_bytes;
    const bool is_known = listing->is_plus && !is_dot; /* to the kernel, from now on */
    if (is_known)
        (void)make_entry(listing->driver, node, &entry);
    else
        wfs_node_stat(listing->driver->tree, node, &entry.attr);
    const size_t n =
        listing->is_plus
            ? fuse_add_direntry_plus(listing->req, at, n_left, name, &entry, (off_t)next)
            : fuse_add_direntry(listing->req, at, n_left, name, &entry.attr, (off_t)next);
    if (n <= n_left)
        listing->n_bytes += n;
    else if (is_known)
        (void)wfs_number_leave(listing->driver->tree, entry.ino,
                               1); /* it has a name: nothing is freed */
    return n <= n_left;
}

/* Offsets 0 and 1 are "." and "..", those of the tree begin at 2. */
static void add_entries(struct listing *listing, uint64_t place)
{
    const struct wfs_tree *tree = listing->driver->tree;
    if (place == 0 && !add_entry(listing, ".", listing->dir, ++place, true))
        return;
    if (place == 1) {
        struct wfs_node *parent = wfs_node_parent(tree, listing->dir);
        if (!add_entry(listing, "..", parent != NULL ? parent : listing->dir, ++place, true))
            return;
    }
    struct wfs_dirent found;
    uint64_t cookie = place - 2;
    while (wfs_dir_next(tree, listing->dir, &cookie, &found) > 0) {
        if (!add_entry(listing, found.name, found.node, cookie + 2, false))
            return;
    }
}

/* Returns false for what is not a directory. */
static bool fill(struct listing *listing, fuse_ino_t ino, uint64_t place)
{
    struct driver *driver = listing->driver;
    listing->n_bytes = 0;
    driver_begin_read(driver);
    listing->dir = request_node(driver, ino);
    const bool is_dir = wfs_node_is_dir(listing->dir);
    if (is_dir)
        add_entries(listing, place);
    driver_end_read(driver);
    return is_dir;
}

/* The reply did not arrive, because the caller was killed: the kernel has no reference. */
static void forget_listed(const struct listing *listing)
{
    struct fuse_direntplus entry;
    for (size_t at = 0; at < listing->n_bytes; at += FUSE_DIRENTPLUS_SIZE(&entry)) {
        memcpy(&entry, listing->bytes + at, sizeof(entry));
        const fuse_ino_t ino = entry.entry_out.nodeid;
        if (ino != 0)
            driver_forget(listing->driver, ino, 1);
    }
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset, bool is_plus)
{
    struct driver *driver = fuse_req_userdata(req);
    struct listing listing = {
        .req = req, .driver = driver, .bytes = driver_buffer(driver), .is_plus = is_plus};
    listing.n_room = n_bytes < DRIVER_TRANSFER_MAX ? n_bytes : DRIVER_TRANSFER_MAX;
    if (listing.bytes == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    bool is_dir = fill(&listing, ino, (uint64_t)offset);
    while (request_again(req)) {
        if (is_plus)
            forget_listed(&listing);
        is_dir = fill(&listing, ino, (uint64_t)offset);
    }
    if (!is_dir)
        fuse_reply_err(req, ENOTDIR);
    else if (fuse_reply_buf(req, listing.bytes, listing.n_bytes) < 0 && is_plus)
        forget_listed(&listing);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
                       struct fuse_file_info *info)
{
    list(req, ino, n_bytes, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
                           struct fuse_file_info *info)
{
    list(req, ino, n_bytes, offset, true);
}

/* ---- changing ---- */

typedef int (*make_function)(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                             mode_t mode, struct wfs_node **ret);

/* An entry whose name cannot be made durable is not passed to the kernel. */
static int settle_entry(fuse_req_t req, const struct fuse_entry_param *entry, int code)
{
    const int settled = request_settle(req, FUSE_ROOT_ID, MOUNT_SYNCS_NAMES, code);
    if (code == 0 && settled < 0)
        driver_forget(fuse_req_userdata(req), entry->ino, 1);
    return settled;
}

static int make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                make_function function, struct fuse_entry_param *entry)
{
    struct wfs_node *node;
    struct driver *driver = request_begin_change(req);
    if (driver == NULL)
        return -EINTR;
    const struct fuse_ctx *user = fuse_req_ctx(req);
    const int rc = function(driver->tree, request_node(driver, parent), name, mode, &node);
    if (rc == 0) {
        wfs_node_set_creator(driver->tree, node, user->uid, user->gid);
        make_entry(driver, node, entry);
    }
    driver_end_change(driver);
    return settle_entry(req, entry, rc);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    struct fuse_entry_param entry;
    const int rc = S_ISREG(mode) ? make(req, parent, name, mode, wfs_node_create, &entry) : -EPERM;
    reply_entry(req, rc, &entry);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct fuse_entry_param entry;
    const int rc = make(req, parent, name, mode, wfs_node_mkdir, &entry);
    reply_entry(req, rc, &entry);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *info)
{
    struct fuse_entry_param entry;
    struct driver *driver = fuse_req_userdata(req);
    const int rc = make(req, parent, name, mode, wfs_node_create, &entry);
    if (rc < 0) {
        fuse_reply_err(req, -rc);
        return;
    }
    driver_begin_read(driver);
    request_open_flags(driver, request_node(driver, entry.ino), info);
    driver_end_read(driver);
    if (fuse_reply_create(req, &entry, info) < 0)
        driver_forget(driver, entry.ino, 1);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, EPERM);
}

/* Begins a change of names; NULL: that was answered. */
static struct driver *begin_change(fuse_req_t req)
{
    struct driver *driver = request_begin_change(req);
    if (driver == NULL)
        request_reply(req, -EINTR);
    return driver;
}

static void end_change(fuse_req_t req, struct driver *driver, int code)
{
    driver_end_change(driver);
    request_reply(req, request_settle(req, FUSE_ROOT_ID, MOUNT_SYNCS_NAMES, code));
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct driver *driver = begin_change(req);
    if (driver != NULL)
        end_change(req, driver, wfs_node_unlink(driver->tree, request_node(driver, parent), name));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct driver *driver = begin_change(req);
    if (driver != NULL)
        end_change(req, driver, wfs_node_rmdir(driver->tree, request_node(driver, parent), name));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    struct driver *driver = begin_change(req);
    if (driver != NULL)
        end_change(req, driver,
                   wfs_node_rename(driver->tree, request_node(driver, parent), name,
                                   request_node(driver, new_parent), new_name, flags));
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    struct fuse_entry_param entry;
    struct driver *driver = begin_change(req);
    if (driver == NULL)
        return;
    struct wfs_node *node = request_node(driver, ino);
    const int rc = wfs_node_link(driver->tree, node, request_node(driver, new_parent), new_name);
    if (rc == 0)
        make_entry(driver, node, &entry);
    driver_end_change(driver);
    reply_entry(req, settle_entry(req, &entry, rc), &entry);
}

/* ---- the table ---- */

void ops_names_add(struct fuse_lowlevel_ops *ops, bool is_writable)
{
    ops->lookup = op_lookup;
    ops->forget = op_forget;
    ops->forget_multi = op_forget_multi;
    ops->opendir = op_opendir;
    ops->readdir = op_readdir;
    ops->readdirplus = op_readdirplus;
    if (!is_writable)
        return;
    ops->create = op_create;
    ops->mknod = op_mknod;
    ops->mkdir = op_mkdir;
    ops->symlink = op_symlink;
    ops->unlink = op_unlink;
    ops->rmdir = op_rmdir;
    ops->rename = op_rename;
    ops->link = op_link;
}
