/* SPDX-License-Identifier: MIT */
/*
 * Callbacks on content and attributes.
 *
 * A read goes through a buffer of the thread, not by splice from the source: only bytes that were
 * copied before the source was looked at again are known to be its own.
 */
#include "fuse/request.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* ---- changes ---- */

/* Makes a change under its exclusion; the last of several calls counts. */
typedef ssize_t change_function(struct wfs_tree *tree, struct wfs_node *node, void *ctx);

/* Lets others read and write meanwhile. */
static void copy_for_change(fuse_req_t req, struct wfs_change *change)
{
    const struct wfs_io io = request_io(req);
    struct driver *driver = fuse_req_userdata(req);
    driver_forget_missing(driver); /* it is noted again */
    parking_begin_wait(&driver->parking);
    wfs_change_copy(&io, change);
    parking_end_wait(&driver->parking);
}

/* Makes a change, until it has all that it needs: its copy, and what a source on the network has
 * not brought yet. Returns what the function does, or -EINTR. */
static ssize_t make_change(fuse_req_t req, fuse_ino_t ino, change_function *function, void *ctx)
{
    struct wfs_change change = {0};
    struct driver *driver;
    ssize_t n = -EINTR;
    while ((driver = request_begin_change(req)) != NULL) {
        wfs_tree_set_change(driver->tree, &change);
        n = function(driver->tree, request_node(driver, ino), ctx);
        wfs_tree_set_change(driver->tree, NULL);
        driver_end_change(driver);
        if (n == -EINPROGRESS)
            copy_for_change(req, &change);
        else if (!request_again(req))
            break;
    }
    wfs_change_done(&change);
    return driver == NULL ? -EINTR : n;
}

/* ---- attributes that stat shows ---- */

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct stat st;
    double timeout = 0;
    struct request_look look = {.req = req};
    while (request_look(&look)) {
        wfs_number_stat(look.driver->tree, ino, &st);
        timeout = request_timeout(look.driver, request_node(look.driver, ino));
    }
    fuse_reply_attr(req, &st, timeout);
}

struct attributes {
    const struct driver *driver;
    fuse_ino_t ino;
    const struct stat *given;
    int to_set;
    struct stat st; /* afterwards */
    double timeout;
};

static int set_owner(struct wfs_tree *tree, struct wfs_node *node, const struct stat *given,
                     int to_set)
{
    struct stat st;
    wfs_node_stat(tree, node, &st);
    const bool is_same = ((to_set & FUSE_SET_ATTR_UID) == 0 || given->st_uid == st.st_uid) &&
                         ((to_set & FUSE_SET_ATTR_GID) == 0 || given->st_gid == st.st_gid);
    if (!is_same)
        return -EPERM;
    /* A change of owner takes these bits away from files. */
    return S_ISREG(st.st_mode) && (st.st_mode & (S_ISUID | S_ISGID)) != 0
               ? wfs_node_set_mode(tree, node, st.st_mode & ~(S_ISUID | S_ISGID))
               : 0;
}

/* Returns the time that is to be set, in the form of utimensat. */
static struct timespec time_to_set(struct timespec time, bool is_set, bool is_now)
{
    if (is_now || !is_set)
        time.tv_nsec = is_now ? UTIME_NOW : UTIME_OMIT;
    return time;
}

static int set_times(struct wfs_tree *tree, struct wfs_node *node, const struct stat *given,
                     int to_set)
{
    const struct timespec atime = time_to_set(given->st_atim, (to_set & FUSE_SET_ATTR_ATIME) != 0,
                                              (to_set & FUSE_SET_ATTR_ATIME_NOW) != 0);
    const struct timespec mtime = time_to_set(given->st_mtim, (to_set & FUSE_SET_ATTR_MTIME) != 0,
                                              (to_set & FUSE_SET_ATTR_MTIME_NOW) != 0);
    return wfs_node_set_times(tree, node, &atime, &mtime);
}

/* The times come last: what is set must not be moved by the rest. A new owner moves the ctime. */
static ssize_t set_attributes(struct wfs_tree *tree, struct wfs_node *node, void *ctx)
{
    struct attributes *attributes = ctx;
    const struct stat *given = attributes->given;
    const int owner = FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
    const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
                      FUSE_SET_ATTR_MTIME_NOW;
    const int to_set = attributes->to_set;
    int rc = 0;
    if ((to_set & owner) != 0)
        rc = set_owner(tree, node, given, to_set);
    if (rc == 0 && (to_set & FUSE_SET_ATTR_MODE) != 0)
        rc = wfs_node_set_mode(tree, node, given->st_mode);
    if (rc == 0 && (to_set & FUSE_SET_ATTR_SIZE) != 0)
        rc = wfs_node_truncate(tree, node, (uint64_t)given->st_size);
    if (rc == 0 && (to_set & (owner | times)) != 0)
        rc = set_times(tree, node, given, to_set);
    wfs_number_stat(tree, attributes->ino, &attributes->st);
    attributes->timeout = request_timeout(attributes->driver, node);
    return rc;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *info)
{
    struct attributes attributes = {
        .driver = fuse_req_userdata(req), .ino = ino, .given = attr, .to_set = to_set};
    int rc = (int)make_change(req, ino, set_attributes, &attributes);
    rc = request_settle(req, ino, MOUNT_SYNCS_ALL, rc);
    if (rc < 0)
        fuse_reply_err(req, -rc);
    else
        fuse_reply_attr(req, &attributes.st, attributes.timeout);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    struct driver *driver = request_begin_read(req);
    wfs_tree_statfs(driver->tree, &st);
    driver_end_read(driver);
    fuse_reply_statfs(req, &st);
}

/* ---- reading, without a lock that others need while the source is waited for ---- */

/* Reads what has been fetched, which needs no turn. -EAGAIN: something is missing. What has not
 * been fetched takes a turn, so that threads remain for all other requests. */
static ssize_t try_reading(struct driver *driver, const struct wfs_reading *reading,
                           uint64_t offset, char *buffer, size_t n_bytes)
{
    if (!wfs_reading_is_plain(reading))
        return -EAGAIN;
    driver_refuse_waiting(driver, true);
    const ssize_t n = wfs_reading_run(NULL, reading, offset, buffer, n_bytes);
    driver_refuse_waiting(driver, false);
    driver_forget_missing(driver);
    return n;
}

/* Reads without the lock; `request` as below. */
static ssize_t run_reading(fuse_req_t req, const struct wfs_reading *reading, bool is_made,
                           uint64_t offset, char *buffer, size_t n_bytes,
                           struct parking_request *request)
{
    const struct wfs_io io = request_io(req);
    struct driver *driver = fuse_req_userdata(req);
    const bool is_remote = driver->target->remote != NULL;
    ssize_t n =
        is_remote && !is_made ? try_reading(driver, reading, offset, buffer, n_bytes) : -EAGAIN;
    if (n != -EAGAIN)
        return n;
    /* Of tensors in files on disks, programs do not expect EINTR. */
    const bool takes_turn = is_made || is_remote;
    if (takes_turn && request == NULL)
        parking_begin_wait(&driver->parking);
    else if (takes_turn && !parking_take_turn(&driver->parking, request,
                                              is_made ? PARKING_LONG : PARKING_FETCHING))
        return 0;
    n = wfs_reading_run(takes_turn ? &io : NULL, reading, offset, buffer, n_bytes);
    if (takes_turn && request == NULL)
        parking_end_wait(&driver->parking);
    return n;
}

/*
 * Reads up to n_bytes; returns the count or a negative errno. What may take long to read is a
 * reading, which the caller frees; *ret stays NULL for other content. The request takes a turn for
 * that, and may be gone afterwards; NULL: the read is part of a change, and waits here.
 */
static ssize_t content_read(fuse_req_t req, fuse_ino_t ino, uint64_t offset, char *buffer,
                            size_t n_bytes, struct wfs_reading **ret,
                            struct parking_request *request)
{
    struct driver *driver = fuse_req_userdata(req);
    struct request_look look = {.req = req};
    bool is_made = false; /* a piece of a generated file may have the checksum of a large tensor */
    ssize_t n = 0;
    while (request_look(&look)) {
        is_made = wfs_node_made(driver->tree, request_node(driver, ino)) != NULL;
        n = wfs_reading_new(driver->tree, ino, ret);
        if (n == 0 && *ret == NULL)
            n = wfs_number_read(driver->tree, ino, offset, buffer, n_bytes);
    }
    if (*ret == NULL)
        return n;
    n = run_reading(req, *ret, is_made, offset, buffer, n_bytes, request);
    if (request != NULL && request->is_gone)
        return n;
    driver_begin_read(driver);
    const int code = wfs_reading_check(driver->tree, *ret);
    driver_end_read(driver);
    return code < 0 ? code : n;
}

/* ---- open, read, write ---- */

/* Not supported: the kernel then opens files by itself and keeps cached pages. */
static void op_open_never(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    fuse_reply_err(req, ENOSYS);
}

static int open_made(const struct driver *driver, const struct wfs_node *node)
{
    const struct wfs_tree_made *made = wfs_node_made(driver->tree, node);
    return made == NULL ? 0 : generated_open(made);
}

static void release_node(struct driver *driver, fuse_ino_t ino)
{
    driver_begin_read(driver);
    const struct wfs_tree_made *made = wfs_node_made(driver->tree, request_node(driver, ino));
    if (made != NULL)
        generated_close(made);
    driver_end_read(driver);
}

/* Truncation is a request of its own, so nothing is changed here. */
static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct driver *driver = fuse_req_userdata(req);
    struct request_look look = {.req = req};
    const struct wfs_tensor *loaded = NULL;
    int rc = 0;
    while (request_look(&look)) {
        struct wfs_node *node = request_node(driver, ino);
        rc = wfs_node_may_open(driver->tree, node, info->flags & ~O_TRUNC);
        loaded = rc == 0 ? wfs_node_loaded(node) : NULL;
        if (rc == 0)
            rc = open_made(driver, node);
        request_open_flags(driver, node, info);
    }
    if (loaded != NULL)
        rc = wfs_tensor_check_source(loaded);
    if (rc == -EIO)
        driver_note_failed_read(driver, loaded);
    if (rc < 0)
        fuse_reply_err(req, -rc);
    else if (fuse_reply_open(req, info) < 0) /* the caller was killed: no release will follow */
        release_node(driver, ino);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    release_node(fuse_req_userdata(req), ino);
    request_reply(req, 0);
}

static bool is_ending(void *ctx)
{
    return fuse_session_exited(((const struct driver *)ctx)->session);
}

/* Reads ahead while the caller uses the reply. */
static void read_ahead(struct driver *driver, const struct wfs_reading *reading, uint64_t offset)
{
    const struct wfs_io io = {.is_stopped = is_ending, .ctx = driver};
    wfs_reading_ahead(&io, reading, offset);
}

static void answer_read(struct parking_request *request)
{
    fuse_req_t req = request->req;
    struct driver *driver = fuse_req_userdata(req);
    struct wfs_reading *reading = NULL;
    char *buffer = driver_buffer(driver);
    ssize_t n = -ENOMEM;
    if (buffer != NULL && request->n_bytes <= DRIVER_TRANSFER_MAX)
        n = content_read(req, request->ino, request->offset, buffer, request->n_bytes, &reading,
                         request);
    if (request->is_gone) {
        wfs_reading_free(reading);
        return;
    }
    if (n == -EIO || n == -ENOSPC) { /* of the file, or of the cache of one on the network */
        driver_begin_read(driver);
        const struct wfs_tensor *loaded = wfs_node_loaded(request_node(driver, request->ino));
        driver_end_read(driver);
        driver_note_failed_read(driver, loaded);
    }
    if (n < 0)
        fuse_reply_err(req, (int)-n);
    else
        fuse_reply_buf(req, buffer, (size_t)n);
    if (reading != NULL)
        read_ahead(driver, reading, request->offset);
    wfs_reading_free(reading);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset,
                    struct fuse_file_info *info)
{
    struct driver *driver = fuse_req_userdata(req);
    parking_run(&driver->parking, &(struct parking_request){.req = req,
                                                            .answer = answer_read,
                                                            .ino = ino,
                                                            .n_bytes = n_bytes,
                                                            .offset = (uint64_t)offset});
}

struct writing {
    const char *bytes;
    size_t n_bytes;
    uint64_t offset;
    bool is_append;
    uint64_t from, from_offset; /* number of the node that they were copied from; 0: none */
};

/* A copy that goes on from its last piece is one of the whole content: see wfs_node_copied. */
static ssize_t write_content(struct wfs_tree *tree, struct wfs_node *node, void *ctx)
{
    const struct writing *writing = ctx;
    const ssize_t n = wfs_node_write(tree, node, writing->offset, writing->bytes, writing->n_bytes,
                                     writing->is_append);
    const int code =
        n > 0 && writing->from != 0
            ? wfs_node_copied(tree, node, writing->offset, wfs_tree_node(tree, writing->from),
                              writing->from_offset, (uint64_t)n)
            : 0;
    return code < 0 ? code : n;
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n_bytes,
                     off_t offset, struct fuse_file_info *info)
{
    struct writing writing = {.bytes = bytes,
                              .n_bytes = n_bytes,
                              .offset = (uint64_t)offset,
                              .is_append = (info->flags & O_APPEND) != 0};
    const ssize_t n = make_change(req, ino, write_content, &writing);
    if (n < 0)
        fuse_reply_err(req, (int)-n);
    else
        fuse_reply_write(req, (size_t)n);
}

struct allocation {
    int mode;
    uint64_t offset, n_bytes;
};

static ssize_t allocate(struct wfs_tree *tree, struct wfs_node *node, void *ctx)
{
    const struct allocation *allocation = ctx;
    return wfs_node_fallocate(tree, node, allocation->mode, allocation->offset,
                              allocation->n_bytes);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t n_bytes,
                         struct fuse_file_info *info)
{
    struct allocation allocation = {mode, (uint64_t)offset, (uint64_t)n_bytes};
    const int rc = (int)make_change(req, ino, allocate, &allocation);
    request_reply(req, request_settle(req, ino, MOUNT_SYNCS_ALL, rc));
}

/* Copies a piece of at most n_bytes, and goes on behind it. Returns the number of bytes copied, 0
 * at the end of the content, or a negative errno. */
static ssize_t copy_piece(fuse_req_t req, fuse_ino_t to, struct writing *copy, size_t n_bytes)
{
    struct wfs_reading *reading = NULL;
    char *buffer = driver_buffer(fuse_req_userdata(req));
    if (buffer == NULL)
        return -ENOMEM;
    const ssize_t n_read =
        content_read(req, copy->from, copy->from_offset, buffer,
                     n_bytes < DRIVER_TRANSFER_MAX ? n_bytes : DRIVER_TRANSFER_MAX, &reading, NULL);
    wfs_reading_free(reading);
    if (n_read <= 0)
        return n_read;
    copy->bytes = buffer;
    copy->n_bytes = (size_t)n_read;
    const ssize_t n = make_change(req, to, write_content, copy);
    if (n > 0) {
        copy->offset += (size_t)n;
        copy->from_offset += (size_t)n;
    }
    return n;
}

/* Stops early when the caller is killed, and after an amount that lets other requests proceed. */
static void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
                               struct fuse_file_info *from_info, fuse_ino_t to, off_t to_offset,
                               struct fuse_file_info *to_info, size_t n_bytes, int flags)
{
    enum { N_AT_ONCE = 64 * DRIVER_TRANSFER_MAX };
    const size_t n_wanted = n_bytes < N_AT_ONCE ? n_bytes : N_AT_ONCE;
    struct writing copy = {
        .offset = (uint64_t)to_offset, .from = from, .from_offset = (uint64_t)from_offset};
    struct driver *driver = request_begin_read(req);
    const bool is_made = wfs_node_made(driver->tree, request_node(driver, from)) != NULL;
    driver_end_read(driver);
    if (is_made) { /* the kernel reads and writes instead */
        fuse_reply_err(req, EOPNOTSUPP);
        return;
    }
    size_t n_done = 0;
    ssize_t n = 1;
    while (n_done < n_wanted && n > 0 && !fuse_req_interrupted(req)) {
        n = copy_piece(req, to, &copy, n_wanted - n_done);
        n_done += n > 0 ? (size_t)n : 0;
    }
    if (n_done > 0 && request_settle(req, to, MOUNT_SYNCS_ALL, 0) < 0) {
        n_done = 0;
        n = -EIO;
    }
    if (n_done > 0 || n == 0)
        fuse_reply_write(req, n_done);
    else
        fuse_reply_err(req, n < 0 ? (int)-n : EINTR);
}

/* ---- extended attributes ---- */

/* A size of 0 asks for the length only. */
static void reply_text(fuse_req_t req, const char *text, ssize_t n, size_t n_asked)
{
    if (n < 0)
        fuse_reply_err(req, (int)-n);
    else if (n_asked == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, text, (size_t)n);
}

/* Runs the job without a lock. Returns -EAGAIN when a change makes its result useless. */
static int run_job(struct parking_request *request, struct wfs_digest_job *job)
{
    const struct wfs_io io = request_io(request->req);
    struct driver *driver = fuse_req_userdata(request->req);
    if (wfs_digest_job_is_long(job) && !parking_take_turn(&driver->parking, request, PARKING_LONG))
        return 0;
    const int ran = wfs_digest_job_run(&io, job);
    driver_begin_read(driver);
    const int code = wfs_digest_job_end(driver->tree, request_node(driver, request->ino), job, ran);
    driver_end_read(driver);
    return code;
}

/* Copies the value if there is room; returns its length, or -EAGAIN as above. The request may be
 * gone afterwards. */
static ssize_t get_xattr(struct parking_request *request, char *buffer, size_t n_room)
{
    struct request_look look = {.req = request->req};
    struct wfs_digest_job *job = NULL;
    ssize_t n = 0;
    while (request_look(&look)) {
        const struct wfs_tree *tree = look.driver->tree;
        const struct wfs_node *node = request_node(look.driver, request->ino);
        if (job == NULL)
            n = wfs_digest_job_new(tree, node, request->name, &job);
        if (n == 0 && job == NULL)
            n = wfs_node_get_xattr(tree, node, request->name, buffer, n_room);
    }
    if (job == NULL)
        return n;
    n = run_job(request, job);
    if (n == 0 && !request->is_gone) {
        const char *text = wfs_digest_job_text(job);
        n = (ssize_t)strlen(text);
        if (n_room > 0 && (size_t)n > n_room)
            n = -ERANGE;
        else if (n_room > 0)
            memcpy(buffer, text, (size_t)n);
    }
    wfs_digest_job_free(job);
    return n;
}

/* A file that is written to all the time has no digest. */
static void answer_xattr(struct parking_request *request)
{
    enum { N_TRIES = 4 };
    char *buffer = driver_buffer(fuse_req_userdata(request->req));
    const size_t n_room =
        request->n_bytes < DRIVER_TRANSFER_MAX ? request->n_bytes : DRIVER_TRANSFER_MAX;
    ssize_t n = buffer == NULL ? -ENOMEM : -EAGAIN;
    for (int i = 0; i < N_TRIES && n == -EAGAIN; i++)
        n = get_xattr(request, buffer, n_room);
    if (!request->is_gone)
        reply_text(request->req, buffer, n == -EAGAIN ? -EBUSY : n, request->n_bytes);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t n_bytes)
{
    struct driver *driver = fuse_req_userdata(req);
    parking_run(
        &driver->parking,
        &(struct parking_request){
            .req = req, .answer = answer_xattr, .ino = ino, .n_bytes = n_bytes, .name = name});
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t n_bytes)
{
    struct driver *driver = fuse_req_userdata(req);
    char *buffer = driver_buffer(driver);
    const size_t n_room = n_bytes < DRIVER_TRANSFER_MAX ? n_bytes : DRIVER_TRANSFER_MAX;
    ssize_t n = -ENOMEM;
    if (buffer != NULL) {
        driver_begin_read(driver);
        n = wfs_node_list_xattr(driver->tree, request_node(driver, ino), buffer, n_room);
        driver_end_read(driver);
    }
    reply_text(req, buffer, n, n_bytes);
}

struct attribute {
    const char *name, *value; /* NULL: it is removed */
    size_t n_bytes;
    int flags;
};

static ssize_t set_xattr(struct wfs_tree *tree, struct wfs_node *node, void *ctx)
{
    const struct attribute *attribute = ctx;
    return attribute->value != NULL
               ? wfs_node_set_xattr(tree, node, attribute->name, attribute->value,
                                    attribute->n_bytes, attribute->flags)
               : wfs_node_remove_xattr(tree, node, attribute->name);
}

/*
 * Dtype and shape appear in the header of a .npy file, so the kernel has to ask for its size again
 * before the caller continues. Its cached bytes are dropped by the next open (see
 * request_open_flags); dropping them here could wait forever for a page that only this thread can
 * read.
 */
static void change_xattr(fuse_req_t req, fuse_ino_t ino, struct attribute attribute)
{
    const struct driver *driver = fuse_req_userdata(req);
    int rc = (int)make_change(req, ino, set_xattr, &attribute);
    rc = request_settle(req, ino, MOUNT_SYNCS_ALL, rc);
    if (rc == 0 && driver->options->files == WFS_FILES_NPY)
        (void)fuse_lowlevel_notify_inval_inode(driver->session, ino, -1, 0);
    request_reply(req, rc);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t n_bytes, int flags)
{
    change_xattr(req, ino, (struct attribute){name, value, n_bytes, flags});
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    change_xattr(req, ino, (struct attribute){.name = name});
}

/* ---- the table ---- */

void ops_content_add(struct fuse_lowlevel_ops *ops, bool is_writable)
{
    ops->getattr = op_getattr;
    ops->read = op_read;
    ops->statfs = op_statfs;
    ops->getxattr = op_getxattr;
    ops->listxattr = op_listxattr;
    ops->open = is_writable ? op_open : op_open_never;
    if (!is_writable)
        return;
    ops->setattr = op_setattr;
    ops->release = op_release;
    ops->write = op_write;
    ops->fallocate = op_fallocate;
    ops->copy_file_range = op_copy_file_range;
    ops->setxattr = op_setxattr;
    ops->removexattr = op_removexattr;
}
