/* SPDX-License-Identifier: MIT */
/*
 * A waiting writer goes before new readers, so that a stream of reads cannot starve it. This does
 * not block readers during a commit, because writers queue for `change` first.
 */
#include "fuse/driver.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include "fuse/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- threads ---- */

/* What a thread has of its own: it answers one request at a time. */
struct driver_thread {
    char *buffer;
    bool is_refused;              /* it must not wait for the network */
    const struct source *missing; /* what it needs; NULL: nothing */
    uint64_t offset, end;
    int code;         /* why that cannot be fetched; 0: it can */
    unsigned n_tries; /* since a try had all that it needed */
};

static void free_thread(void *thread)
{
    if (thread != NULL)
        free(((struct driver_thread *)thread)->buffer);
    free(thread);
}

/* Returns NULL without memory. */
static struct driver_thread *own(const struct driver *driver)
{
    struct driver_thread *thread = pthread_getspecific(driver->threads);
    if (thread != NULL)
        return thread;
    thread = calloc(1, sizeof(*thread));
    if (thread != NULL && pthread_setspecific(driver->threads, thread) != 0) {
        free(thread);
        return NULL;
    }
    return thread;
}

void *driver_buffer(struct driver *driver)
{
    struct driver_thread *thread = own(driver);
    if (thread != NULL && thread->buffer == NULL)
        thread->buffer = aligned_alloc(4096, DRIVER_TRANSFER_MAX);
    return thread == NULL ? NULL : thread->buffer;
}

void driver_refuse_waiting(struct driver *driver, bool is_refused)
{
    struct driver_thread *thread = driver->target->remote == NULL ? NULL : own(driver);
    if (thread != NULL)
        thread->is_refused = is_refused;
}

int driver_note_missing(void *ctx, const struct source *source, uint64_t offset, uint64_t end)
{
    struct driver_thread *thread = own(ctx);
    if (thread == NULL || !thread->is_refused)
        return 0;
    if (thread->code < 0)
        return thread->code;
    if (thread->missing == NULL) {
        thread->missing = source;
        thread->offset = offset;
        thread->end = end;
    }
    return -EAGAIN;
}

void driver_forget_missing(struct driver *driver)
{
    struct driver_thread *thread = own(driver);
    if (thread != NULL)
        thread->missing = NULL;
}

bool driver_fetch(struct driver *driver, const struct wfs_io *io)
{
    enum { TRIES = 4096 };
    struct driver_thread *thread = driver->target->remote == NULL ? NULL : own(driver);
    if (thread == NULL)
        return false;
    if (thread->missing == NULL) {
        thread->code = 0;
        thread->n_tries = 0;
        return false;
    }
    /* A small cache may lose one part of what is needed for another, again and again. */
    thread->code = ++thread->n_tries > TRIES
                       ? -EIO
                       : wfs_remote_fetch(io, thread->missing, thread->offset, thread->end);
    thread->missing = NULL;
    return true;
}

/* ---- beginning and end ---- */

static int init_locks(struct driver *driver)
{
    pthread_rwlockattr_t attributes;
    if (pthread_rwlockattr_init(&attributes) != 0)
        return -ENOMEM;
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    const int rc = pthread_rwlock_init(&driver->lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    if (rc != 0 || pthread_key_create(&driver->threads, free_thread) != 0)
        return -ENOMEM;
    notices_init(&driver->notices);
    parking_init(&driver->parking);
    pthread_mutex_init(&driver->change, NULL);
    pthread_mutex_init(&driver->reap_lock, NULL);
    pthread_mutex_init(&driver->status_lock, NULL);
    driver->has_locks = true;
    return 0;
}

int driver_init(struct driver *driver, const struct mount_options *options, struct target *target)
{
    *driver = (struct driver){.options = options,
                              .target = target,
                              .owner = getuid(),
                              .supervisor = getppid(),
                              .channel = -1};
    return init_locks(driver);
}

/* Removes what the last save of several files could not remove. */
static void clear_output(const struct driver *driver)
{
    const struct target *target = driver->target;
    struct wfs_error err = {0};
    if (driver->tree == NULL || target->output.index == NULL || !target->is_published ||
        wfs_tree_has_pending(driver->tree))
        return;
    if (wfs_save_clear(target->path, &err) < 0)
        log_warning("cannot remove all files that '%s' no longer names: %s",
                    wfs_quote(target->path).text, err.text);
}

void driver_done(struct driver *driver)
{
    clear_output(driver);
    if (driver->has_locks) {
        free_thread(pthread_getspecific(driver->threads));
        pthread_key_delete(driver->threads);
        notices_done(&driver->notices);
        parking_done(&driver->parking);
        pthread_rwlock_destroy(&driver->lock);
        pthread_mutex_destroy(&driver->change);
        pthread_mutex_destroy(&driver->reap_lock);
        pthread_mutex_destroy(&driver->status_lock);
    }
    free(driver->reaps);
    strbuf_done(&driver->reverted);
    wfs_stage_close(driver->stage);
    generated_free(driver->generated);
    wfs_tree_free(driver->tree);
    wfs_report_free(driver->report);
    wfs_catalog_free(driver->catalog);
    wfs_view_free(driver->view);
    *driver = (struct driver){0};
}

/* ---- status ---- */

/* The lock is held. */
static void set_status_text(struct driver *driver, const char *text)
{
    snprintf(driver->status_text, sizeof(driver->status_text), "%s", text);
    driver->status.text = driver->status_text;
}

void driver_set_status(struct driver *driver, const struct wfs_status *status)
{
    pthread_mutex_lock(&driver->status_lock);
    const struct wfs_status before = driver->status;
    driver->status = *status;
    driver->status.output = driver->target->path;
    driver->status.sandbox = sandbox_state_name(driver->sandbox);
    if (status->written != NULL)
        snprintf(driver->written_text, sizeof(driver->written_text), "%s", status->written);
    driver->status.n_tensors = status->written != NULL ? status->n_tensors : before.n_tensors;
    driver->status.n_files = status->written != NULL ? status->n_files : before.n_files;
    driver->status.written = driver->written_text[0] != '\0' ? driver->written_text : NULL;
    if (status->text != NULL)
        set_status_text(driver, status->text);
    wfs_tree_set_status(driver->tree, &driver->status);
    pthread_mutex_unlock(&driver->status_lock);
}

/*
 * Sets the state to "dirty" at the first change after a commit or the start; a failure stays
 * visible.
 */
static void mark_dirty(struct driver *driver)
{
    pthread_mutex_lock(&driver->status_lock);
    const enum wfs_mount_state state = driver->status.state;
    if (state != WFS_MOUNT_DIRTY && state != WFS_MOUNT_FAILED) {
        driver->status.state = WFS_MOUNT_DIRTY;
        wfs_tree_set_status(driver->tree, &driver->status);
    }
    pthread_mutex_unlock(&driver->status_lock);
}

/* Reports why a source on the network could not be read, once for each reason. */
static void note_trouble(struct driver *driver)
{
    for (size_t i = 0; i < wfs_catalog_n_sources(driver->catalog); i++) {
        const char *text = wfs_catalog_source_trouble(driver->catalog, i);
        if (text == NULL)
            continue;
        pthread_mutex_lock(&driver->status_lock);
        const bool is_new = strcmp(driver->status_text, text) != 0;
        if (is_new) {
            set_status_text(driver, text);
            wfs_tree_set_status(driver->tree, &driver->status);
        }
        pthread_mutex_unlock(&driver->status_lock);
        if (is_new)
            log_error("cannot read '%s': %s",
                      wfs_quote(wfs_catalog_source_path(driver->catalog, i)).text, text);
        return;
    }
}

void driver_note_failed_read(struct driver *driver, const struct wfs_tensor *tensor)
{
    struct wfs_error err = {0};
    size_t i = 0;
    if (wfs_catalog_check_sources(driver->catalog, &i) == 0) {
        if (tensor == NULL || !wfs_tensor_is_damaged(tensor)) {
            note_trouble(driver);
        } else if (atomic_exchange(&driver->told, tensor) != tensor) {
            (void)wfs_tensor_fail_read(&err, tensor, -EIO);
            log_error("cannot read %s", err.text);
        }
        return;
    }
    if (atomic_exchange(&driver->has_told_trouble, true))
        return;
    log_error("source '%s' has changed since it was mounted: its tensors can no longer be read",
              wfs_quote(wfs_catalog_source_path(driver->catalog, i)).text);
    pthread_mutex_lock(&driver->status_lock);
    set_status_text(driver, "the source has changed since it was mounted");
    wfs_tree_set_status(driver->tree, &driver->status);
    pthread_mutex_unlock(&driver->status_lock);
}

/* ---- who may touch the tree ---- */

void driver_begin_read(struct driver *driver)
{
    pthread_rwlock_rdlock(&driver->lock);
    driver_refuse_waiting(driver, true);
}

void driver_end_read(struct driver *driver)
{
    driver_refuse_waiting(driver, false);
    pthread_rwlock_unlock(&driver->lock);
}

void driver_begin_change(struct driver *driver)
{
    pthread_rwlock_wrlock(&driver->lock);
    driver_refuse_waiting(driver, true);
}

static void reap(struct driver *driver)
{
    pthread_mutex_lock(&driver->reap_lock);
    while (driver->n_reaps > 0)
        wfs_node_reap(driver->tree, driver->reaps[--driver->n_reaps]);
    pthread_mutex_unlock(&driver->reap_lock);
}

/* Locks `change` now and then asks; false: given up. */
static bool poll_change(struct driver *driver, bool (*is_given_up)(void *ctx), void *ctx)
{
    enum { NS_TO_ASK = 50000000, NS = 1000000000 };
    struct timespec until;
    do {
        if (is_given_up(ctx))
            return false;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += NS_TO_ASK;
        until.tv_sec += until.tv_nsec / NS;
        until.tv_nsec %= NS;
    } while (pthread_mutex_timedlock(&driver->change, &until) != 0);
    return true;
}

bool driver_wait_for_change(struct driver *driver, bool (*is_given_up)(void *ctx), void *ctx)
{
    if (pthread_mutex_trylock(&driver->change) == 0)
        return true;
    parking_begin_wait(&driver->parking);
    const bool has_change = poll_change(driver, is_given_up, ctx);
    parking_end_wait(&driver->parking);
    return has_change;
}

void driver_end_change(struct driver *driver)
{
    const uint64_t generation = wfs_tree_generation(driver->tree);
    const bool is_changed = generation != driver->generation;
    driver->generation = generation;
    reap(driver);
    driver_refuse_waiting(driver, false);
    pthread_rwlock_unlock(&driver->lock);
    if (is_changed)
        mark_dirty(driver);
    pthread_mutex_unlock(&driver->change);
}

void driver_end_sync(struct driver *driver, int code)
{
    driver_end_read(driver);
    if (code < 0)
        driver_rescue(driver);
    pthread_mutex_unlock(&driver->change);
}

void driver_rescue(struct driver *driver)
{
    pthread_rwlock_wrlock(&driver->lock);
    wfs_tree_rescue(driver->tree);
    pthread_rwlock_unlock(&driver->lock);
}

static bool remember_reap(struct driver *driver, struct wfs_node *node)
{
    pthread_mutex_lock(&driver->reap_lock);
    const bool has_room = array_reserve(&driver->reaps, sizeof(struct wfs_node *), driver->n_reaps,
                                        1, &driver->n_reap_room) == 0;
    if (has_room)
        driver->reaps[driver->n_reaps++] = node;
    pthread_mutex_unlock(&driver->reap_lock);
    return has_room;
}

/*
 * A commit may hold `change` for minutes: the node is then freed after it, without keeping the
 * kernel waiting.
 */
void driver_forget(struct driver *driver, uint64_t number, uint64_t n)
{
    driver_begin_read(driver);
    struct wfs_node *node = wfs_tree_node(driver->tree, number);
    const bool is_free = wfs_number_leave(driver->tree, number, n) && remember_reap(driver, node);
    driver_end_read(driver);
    if (!is_free)
        return;
    if (pthread_mutex_trylock(&driver->change) != 0)
        return;
    if (pthread_rwlock_trywrlock(&driver->lock) == 0) { /* readers are not kept waiting */
        reap(driver);
        pthread_rwlock_unlock(&driver->lock);
    }
    pthread_mutex_unlock(&driver->change);
}
