/* SPDX-License-Identifier: MIT */
/*
 * Errors of the tree go to the kernel unchanged.
 */
#include "fuse/request.h"

#include <errno.h>

struct driver *request_begin_read(fuse_req_t req)
{
    struct driver *driver = fuse_req_userdata(req);
    driver_begin_read(driver);
    return driver;
}

struct driver *request_begin_change(fuse_req_t req)
{
    struct driver *driver = fuse_req_userdata(req);
    if (!driver_wait_for_change(driver, request_is_given_up, req))
        return NULL;
    driver_begin_change(driver);
    return driver;
}

bool request_again(fuse_req_t req)
{
    const struct wfs_io io = request_io(req);
    return driver_fetch(fuse_req_userdata(req), &io);
}

bool request_look(struct request_look *look)
{
    if (look->driver != NULL) {
        driver_end_read(look->driver);
        if (!request_again(look->req))
            return false;
    }
    look->driver = request_begin_read(look->req);
    return true;
}

bool request_is_owner(fuse_req_t req)
{
    return fuse_req_ctx(req)->uid == ((const struct driver *)fuse_req_userdata(req))->owner;
}

bool request_is_given_up(void *ctx)
{
    fuse_req_t req = ctx;
    const struct driver *driver = fuse_req_userdata(req);
    return fuse_req_interrupted(req) || fuse_session_exited(driver->session);
}

struct wfs_io request_io(fuse_req_t req)
{
    return (struct wfs_io){.is_stopped = request_is_given_up, .ctx = req};
}

struct wfs_node *request_node(const struct driver *driver, fuse_ino_t ino)
{
    return wfs_tree_node(driver->tree, ino);
}

double request_timeout(const struct driver *driver, const struct wfs_node *node)
{
    return wfs_node_is_control(driver->tree, node) ? 0 : 86400;
}

int request_settle(fuse_req_t req, fuse_ino_t ino, enum mount_syncs sync, int code)
{
    struct driver *driver = fuse_req_userdata(req);
    if (code < 0 || driver->options->syncs < sync)
        return code;
    if (!driver_wait_for_change(driver, request_is_given_up, req))
        return -EINTR;
    driver_begin_read(driver);
    const int synced = wfs_node_sync(driver->tree, request_node(driver, ino));
    driver_end_sync(driver, synced);
    return synced < 0 ? synced : code;
}

void request_reply(fuse_req_t req, int rc)
{
    fuse_reply_err(req, -rc);
}

/*
 * Cached content outlives a close, unless it has changed without the kernel's knowledge: metadata
 * and headers that were set by an attribute. All other content stays in the cache: dropping it
 * during a write of somebody else can lose that write to readers.
 */
void request_open_flags(const struct driver *driver, const struct wfs_node *node,
                        struct fuse_file_info *info)
{
    info->keep_cache = !wfs_node_has_unseen_change(driver->tree, node);
}
