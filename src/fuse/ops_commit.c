/* SPDX-License-Identifier: MIT */
/*
 * Callbacks that make edits durable or publish them.
 */
#include <weightfs/control.h>
#include "fuse/publication.h"
#include "fuse/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sync_node(fuse_req_t req, fuse_ino_t ino)
{
    struct driver *driver = fuse_req_userdata(req);
    if (!driver_wait_for_change(driver, request_is_given_up, req))
        return -EINTR;
    driver_begin_read(driver);
    const int rc = wfs_node_sync(driver->tree, request_node(driver, ino));
    driver_end_sync(driver, rc);
    return rc;
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int is_data_only, struct fuse_file_info *info)
{
    request_reply(req, sync_node(req, ino));
}

/* ---- commit ---- */

/* ctx is the request for a commit, which becomes NULL. If its process is killed it is answered at
 * once, and the commit continues. */
static void poll_asker(void *ctx)
{
    fuse_req_t *req = ctx;
    if (*req == NULL || !fuse_req_interrupted(*req))
        return;
    fuse_reply_err(*req, EINTR);
    *req = NULL;
}

static const char discarded[] = "its edits were discarded; unmount it";
static const char read_only[] = "the mount is read-only; mount with -o output=FILE to save edits";
static const char not_the_owner[] = "only the user who mounted it may commit";
static const char not_the_discarder[] = "only the user who mounted it may discard edits";

static int commit(struct driver *driver, fuse_req_t *req, char summary[COMMIT_TEXT_MAX],
                  struct wfs_error *err)
{
    summary[0] = '\0';
    if (!request_is_owner(*req))
        return wfs_fail(err, EPERM, "%s", not_the_owner);
    return publication_run(driver, true, &(struct publication_waiter){poll_asker, req}, summary,
                           err);
}

/*
 * On the root this is `sync MNT`, which commits. On other directories it does not, because careful
 * programs call it after each file.
 */
static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int is_data_only,
                        struct fuse_file_info *info)
{
    struct driver *driver = fuse_req_userdata(req);
    struct wfs_error err = {0};
    char summary[COMMIT_TEXT_MAX];
    if (!wfs_tree_is_writable(driver->tree))
        request_reply(req, 0);
    else if (ino != FUSE_ROOT_ID)
        request_reply(req, sync_node(req, ino));
    else {
        const int rc = commit(driver, &req, summary, &err);
        if (req != NULL)
            request_reply(req, rc);
    }
}

/* ---- control ---- */

static uint64_t count_edits(struct driver *driver)
{
    driver_begin_read(driver);
    const uint64_t n = wfs_tree_has_pending(driver->tree) ? wfs_tree_n_edits(driver->tree) : 0;
    driver_end_read(driver);
    return n;
}

/* The process to wait for after an unmount is the supervisor, or the worker if that is gone. */
static void fill_hello(struct driver *driver, fuse_req_t *req, struct wfs_control_reply *reply)
{
    const char *stage = driver->target->stage_path;
    const bool is_owner = request_is_owner(*req);
    reply->pid = getppid() == driver->supervisor ? driver->supervisor : getpid();
    reply->error = notices_are_sent(&driver->notices) ? 0 : EAGAIN;
    if (stage == NULL)
        return;
    reply->n_edits = is_owner ? count_edits(driver) : 0;
    snprintf(reply->text, sizeof(reply->text), "%s", is_owner ? stage : WFS_HELLO_HIDDEN);
}

static void fill_commit(struct driver *driver, fuse_req_t *req, struct wfs_control_reply *reply)
{
    struct wfs_error err = {0};
    char summary[COMMIT_TEXT_MAX] = "";
    fill_hello(driver, req, reply);
    const int rc =
        wfs_tree_is_writable(driver->tree)
            ? commit(driver, req, summary, &err)
            : wfs_fail(&err, EROFS, "%s", driver->target->path != NULL ? discarded : read_only);
    reply->error = -rc;
    reply->text[0] = '\0';
    if (rc < 0)
        snprintf(reply->text, sizeof(reply->text), "%s", err.text);
    else if (summary[0] != '\0')
        snprintf(reply->text, sizeof(reply->text), "committed to '%s': %s",
                 wfs_quote(driver->target->path).text, summary);
}

/* Takes no lock: the commit holds them. */
static void stop_commit(struct driver *driver, fuse_req_t *req, struct wfs_control_reply *reply)
{
    const bool is_owner = request_is_owner(*req);
    if (is_owner)
        atomic_store(&driver->is_stopped, true);
    reply->error = is_owner ? 0 : EPERM;
}

/* Nobody may change anything while it discards, and no commit runs. */
static int discard(struct driver *driver, fuse_req_t req, uint64_t *ret_n)
{
    int code;
    do {
        if (request_begin_change(req) == NULL)
            return -EINTR;
        *ret_n = wfs_tree_n_edits(driver->tree);
        code = wfs_tree_discard(driver->tree);
        driver_end_change(driver);
    } while (code < 0 && request_again(req));
    if (code == 0)
        driver_set_status(driver, &(struct wfs_status){.state = WFS_MOUNT_CLEAN,
                                                       .committed_at = driver->status.committed_at,
                                                       .text = discarded});
    return code;
}

static void fill_discard(struct driver *driver, fuse_req_t *req, struct wfs_control_reply *reply)
{
    int code = 0;
    fill_hello(driver, req, reply);
    if (!request_is_owner(*req))
        code = -EPERM;
    else if (wfs_tree_is_writable(driver->tree))
        code = discard(driver, *req, &reply->n_edits);
    reply->error = -code;
    snprintf(reply->text, sizeof(reply->text), "%s",
             code == 0        ? ""
             : code == -EPERM ? not_the_discarder
                              : strerror(-code));
}

/* ---- a trial ---- */

static void add_problem(void *ctx, const char *text)
{
    struct wfs_control_trial *trial = ctx;
    const size_t n = strlen(trial->text), n_room = sizeof(trial->text) - n;
    trial->n_problems++;
    if (strlen(text) + 1 < n_room)
        snprintf(trial->text + n, n_room, "%s%s", n > 0 ? "\n" : "", text);
}

static int try_commit(struct driver *driver, fuse_req_t req, struct wfs_control_trial *trial)
{
    const struct wfs_tree_problems problems = {add_problem, trial};
    char summary[COMMIT_TEXT_MAX] = "";
    if (!request_is_owner(req)) {
        add_problem(trial, not_the_owner);
        return -EPERM;
    }
    if (!wfs_tree_is_writable(driver->tree)) {
        add_problem(trial, driver->target->path != NULL ? discarded : read_only);
        return -EROFS;
    }
    struct wfs_report_commit account = {0};
    const int code = publication_try(driver, &problems, summary, &account);
    trial->n_tensors = account.n_tensors;
    trial->n_files = account.n_files;
    trial->n_bytes = account.n_bytes;
    if (code == 0 && summary[0] != '\0')
        snprintf(trial->text, sizeof(trial->text), "would commit to '%s': %s",
                 wfs_quote(driver->target->path).text, summary);
    return code;
}

static void reply_trial(struct driver *driver, fuse_req_t req)
{
    struct wfs_control_trial *trial = calloc(1, sizeof(*trial));
    if (trial == NULL) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    trial->n_edits = count_edits(driver);
    trial->error = -try_commit(driver, req, trial);
    fuse_reply_ioctl(req, 0, trial, sizeof(*trial));
    free(trial);
}

/* ---- edits that are taken back ---- */

/* Adds the text to the list that it belongs to. Returns 1 when the list is complete, which *ret
 * gets, 0 when it is not. */
static int collect(struct driver *driver, const struct wfs_control_revert *given,
                   struct strbuf *ret, uint64_t *ret_list, struct wfs_error *err)
{
    struct strbuf *paths = &driver->reverted;
    int code = given->has_more == 0;
    pthread_mutex_lock(&driver->status_lock);
    if (given->list == 0) {
        strbuf_done(paths);
        *paths = (struct strbuf){.n_max = WFS_REVERT_PATHS_MAX + 1};
        driver->n_reverted++;
    }
    if (given->list != 0 && given->list != driver->n_reverted)
        code = wfs_fail(err, EAGAIN, "paths of another discard came in between");
    else if (strbuf_puts(paths, given->text), paths->has_failed)
        code = wfs_fail(err, ENOMEM, "out of memory, or the paths are too long");
    *ret_list = driver->n_reverted;
    if (code != 0) {
        *ret = *paths;
        *paths = (struct strbuf){0};
        driver->n_reverted++; /* no call adds to it any more */
    }
    pthread_mutex_unlock(&driver->status_lock);
    return code;
}

static int revert(struct driver *driver, fuse_req_t req, const struct wfs_control_revert *given,
                  struct wfs_control_revert *reply, struct wfs_error *err)
{
    const struct wfs_tree_listener listener = {notices_add, &driver->notices};
    autostrbuf struct strbuf paths = {0};
    if (!request_is_owner(req))
        return wfs_fail(err, EPERM, "%s", not_the_discarder);
    if (!wfs_tree_is_writable(driver->tree) && driver->target->path == NULL)
        return wfs_fail(err, EROFS, "the mount is read-only and has no edits");
    int code = collect(driver, given, &paths, &reply->list, err);
    if (code <= 0)
        return code;
    bool is_clean;
    do {
        *err = (struct wfs_error){0};
        if (request_begin_change(req) == NULL)
            return wfs_fail(err, EINTR, "interrupted");
        code = wfs_tree_revert(driver->tree, paths.bytes == NULL ? "" : paths.bytes,
                               given->takes_committed != 0, &listener, &reply->n_edits, err);
        is_clean = !wfs_tree_has_pending(driver->tree);
        driver_end_change(driver);
    } while (code < 0 && request_again(req));
    if (code == 0 && is_clean && reply->n_edits > 0)
        driver_set_status(driver,
                          &(struct wfs_status){.state = WFS_MOUNT_CLEAN,
                                               .committed_at = driver->status.committed_at});
    notices_send(&driver->notices, driver->session);
    return code;
}

static void reply_revert(struct driver *driver, fuse_req_t req,
                         const struct wfs_control_revert *given)
{
    struct wfs_error err = {0};
    struct wfs_control_revert *reply = calloc(1, sizeof(*reply));
    if (reply == NULL || memchr(given->text, '\0', sizeof(given->text)) == NULL) {
        fuse_reply_err(req, reply == NULL ? ENOMEM : EINVAL);
        free(reply);
        return;
    }
    reply->error = -revert(driver, req, given, reply, &err);
    snprintf(reply->text, sizeof(reply->text), "%s", err.text);
    fuse_reply_ioctl(req, 0, reply, sizeof(*reply));
    free(reply);
}

static const struct {
    unsigned command;
    void (*fill)(struct driver *driver, fuse_req_t *req, struct wfs_control_reply *reply);
} commands[] = {{(unsigned)WFS_IOC_HELLO, fill_hello},
                {(unsigned)WFS_IOC_COMMIT, fill_commit},
                {(unsigned)WFS_IOC_DISCARD, fill_discard},
                {(unsigned)WFS_IOC_STOP, stop_commit}};

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *arg,
                     struct fuse_file_info *info, unsigned flags, const void *in, size_t n_in,
                     size_t n_out)
{
    enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };
    struct driver *driver = fuse_req_userdata(req);
    struct wfs_control_reply reply = {0};
    const bool is_revert = command == (unsigned)WFS_IOC_REVERT &&
                           n_in >= sizeof(struct wfs_control_revert) &&
                           n_out >= sizeof(struct wfs_control_revert);
    const bool is_trial =
        command == (unsigned)WFS_IOC_TRY && n_out >= sizeof(struct wfs_control_trial);
    size_t i = 0;
    while (i < N_COMMANDS && commands[i].command != command)
        i++;
    if (ino == FUSE_ROOT_ID && is_revert) {
        reply_revert(driver, req, in);
    } else if (ino == FUSE_ROOT_ID && is_trial) {
        reply_trial(driver, req);
    } else if (ino != FUSE_ROOT_ID || i == N_COMMANDS || n_out < sizeof(reply)) {
        fuse_reply_err(req, ENOTTY);
    } else {
        commands[i].fill(driver, &req, &reply);
        if (req != NULL)
            fuse_reply_ioctl(req, 0, &reply, sizeof(reply));
    }
}

/* ---- the table ---- */

void ops_commit_add(struct fuse_lowlevel_ops *ops, bool is_writable)
{
    ops->fsyncdir = op_fsyncdir;
    ops->ioctl = op_ioctl;
    if (!is_writable)
        return;
    ops->fsync = op_fsync;
}
