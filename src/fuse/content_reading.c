/* SPDX-License-Identifier: MIT */
/*
 * What has been fetched is read at once; what has not takes a turn, so that threads remain for all
 * other requests.
 */
#include "fuse/content_reading.h"

#include <weightfs/interruption.h>
#include <weightfs/unfetched.h>

#include <errno.h>

/*
 * Takes what is to be read: all of a short content, else a reading, which the caller frees.
 * *ret_is_made: of a generated file, a piece of which may have the checksum of a large tensor.
 */
static ssize_t begin_reading(struct driver *driver, fuse_ino_t ino, uint64_t offset, char *buffer,
                             size_t n_bytes, struct wfs_reading **ret, bool *ret_is_made)
{
    driver_begin_read(driver);
    *ret_is_made = wfs_node_made(driver->tree, request_node(driver, ino)) != NULL;
    ssize_t n = wfs_reading_new(driver->tree, ino, ret);
    if (n == 0 && *ret == NULL)
        n = wfs_number_read(driver->tree, ino, offset, buffer, n_bytes);
    driver_end_read(driver);
    return n;
}

/* Reads what has been fetched, which needs no turn. -EAGAIN: something is missing. */
static ssize_t try_reading(const struct wfs_reading *reading, uint64_t offset, char *buffer,
                           size_t n_bytes)
{
    if (!wfs_reading_is_plain(reading))
        return -EAGAIN;
    wfs_unfetched_begin();
    const ssize_t n = wfs_reading_run(reading, offset, buffer, n_bytes);
    wfs_unfetched_end();
    wfs_unfetched_forget();
    return n;
}

/* Reads without the lock. *ret_is_later as below. */
static ssize_t run_reading(fuse_req_t req, const struct wfs_reading *reading, bool is_made,
                           uint64_t offset, char *buffer, size_t n_bytes, bool *ret_is_later)
{
    const struct wfs_interruption interruption = {request_is_given_up, req};
    struct driver *driver = fuse_req_userdata(req);
    const bool is_remote = driver->target->remote != NULL;
    const enum parking_work work = is_made ? PARKING_LONG : PARKING_FETCHING;
    ssize_t n = is_remote && !is_made ? try_reading(reading, offset, buffer, n_bytes) : -EAGAIN;
    if (n != -EAGAIN)
        return n;
    /* Of tensors in files on disks, programs do not expect EINTR. */
    const bool takes_turn = is_made || is_remote;
    if (takes_turn && ret_is_later == NULL) {
        parking_begin_wait(&driver->parking);
    } else if (takes_turn && !request_begin_work(req, work)) {
        *ret_is_later = true;
        return 0;
    }
    wfs_interruption_set(takes_turn ? &interruption : NULL);
    n = wfs_reading_run(reading, offset, buffer, n_bytes);
    wfs_interruption_set(NULL);
    if (takes_turn && ret_is_later == NULL)
        parking_end_wait(&driver->parking);
    else if (takes_turn)
        request_end_work(req, work);
    return n;
}

ssize_t content_read(fuse_req_t req, fuse_ino_t ino, uint64_t offset, char *buffer, size_t n_bytes,
                     struct wfs_reading **ret, bool *ret_is_later)
{
    struct driver *driver = fuse_req_userdata(req);
    bool is_made;
    ssize_t n;
    do
        n = begin_reading(driver, ino, offset, buffer, n_bytes, ret, &is_made);
    while (request_again(req));
    if (*ret == NULL)
        return n;
    n = run_reading(req, *ret, is_made, offset, buffer, n_bytes, ret_is_later);
    if (ret_is_later != NULL && *ret_is_later)
        return n;
    driver_begin_read(driver);
    const int code = wfs_reading_check(driver->tree, *ret);
    driver_end_read(driver);
    return code < 0 ? code : n;
}
