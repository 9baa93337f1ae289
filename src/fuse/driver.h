/* SPDX-License-Identifier: MIT */
/*
 * The state of a mount, in the worker: what was loaded, the tree over it, who may touch it when,
 * and what its status says.
 *
 * Readers share `lock`. A change holds `change` and then `lock` alone. A commit holds `change`
 * throughout and `lock` mostly as a reader, so reading goes on while changes wait. All others hold
 * them only while they look into the tree: whatever reads a tensor does so without them, and what
 * is missing of a source on the network is fetched without them: reads fail meanwhile, and are
 * repeated.
 */
#ifndef WFS_DRIVER_H
#define WFS_DRIVER_H

#include <weightfs/interruption.h>
#include <weightfs/remote.h>
#include "fuse/generated.h"
#include "fuse/notices.h"
#include "fuse/turns.h"
#include "fuse/sandbox/sandbox.h"
#include "fuse/target.h"
#include "program/commit.h"

#include <pthread.h>
#include <stdatomic.h>

struct fuse_session;

enum { DRIVER_N_TEXTS = 5 };

/* Maximum number of bytes of one read or write request. */
#define DRIVER_TRANSFER_MAX (1 << 20)

struct driver {
    const struct mount_options *options;
    struct target *target;
    struct wfs_view *view;
    struct wfs_catalog *catalog;
    struct wfs_report *report; /* of the view; borrows from the catalog */
    struct wfs_stage *stage;   /* until a tree takes it over */
    struct wfs_tree *tree;
    struct wfs_tree_text texts[DRIVER_N_TEXTS];
    struct commit draft; /* the given fields of every commit of this mount */
    struct generated *generated;
    uid_t owner; /* the user who mounted: only they may commit and see the control directory */
    pid_t supervisor;
    enum sandbox_state sandbox;
    int channel;
    int keeper; /* channel to it */
    bool is_background;
    struct fuse_session *session;
    struct notices notices; /* to its kernel */

    atomic_bool is_stopped; /* the commit that somebody waits for is to end */

    pthread_rwlock_t lock;
    pthread_mutex_t change;
    struct parking parking;
    uint64_t generation; /* of the tree at the last check; guarded by change */

    pthread_mutex_t reap_lock;
    struct wfs_node **reaps; /* forgotten nodes that may be freed at the next change */
    size_t n_reaps, n_reap_room;

    pthread_mutex_t status_lock;
    struct wfs_status status;
    char status_text[WFS_ERROR_TEXT_MAX], written_text[COMMIT_TEXT_MAX];
    atomic_bool has_told_trouble;
    _Atomic(const struct wfs_tensor *) told; /* the last one whose damage was logged */
    struct strbuf reverted; /* paths of which edits are to be taken back, as far as they came */
    uint64_t n_reverted;    /* such lists so far; both guarded by status_lock */

    pthread_key_t threads; /* what each of them has of its own: struct driver_thread */
    bool has_locks;
};

/*
 * Makes the view, enters the sandbox, loads the source and makes the tree; options and target are
 * borrowed. driver_done is due in any case. Not 0: a line was printed, and this is the exit code.
 */
int loading_run(struct driver *driver, const struct mount_options *options, struct target *target);

/* Logs that edits of an earlier mount are shown again. */
void loading_tell(const struct wfs_tree *tree);

/* Makes one that has loaded nothing yet. -ENOMEM. */
int driver_init(struct driver *driver, const struct mount_options *options, struct target *target);
void driver_done(struct driver *driver);

void driver_begin_read(struct driver *driver);
void driver_end_read(struct driver *driver);

/* `change` is held. */
void driver_begin_change(struct driver *driver);
void driver_end_change(struct driver *driver);

/*
 * Locks `change`, which a commit holds for as long as it takes. Asks in between whether the caller
 * still needs it; false: it has given up.
 */
bool driver_wait_for_change(struct driver *driver, bool (*is_given_up)(void *ctx), void *ctx);

/* Ends a sync, which holds `change` and the lock for reading: readers may run in parallel, changes
 * may not. code is its result. */
void driver_end_sync(struct driver *driver, int code);

/* Rescues edits after a failed sync; `change` is held. */
void driver_rescue(struct driver *driver);

/*
 * Between a beginning and an end as above, or where waiting is refused, a read of what has not been
 * fetched fails with -EAGAIN.
 *
 * driver_fetch returns false when nothing was missing for the thread since its last call, and its
 * result counts. Else it fetches that, for as long as it takes or until the reader is to stop, and
 * returns true. Where that fails, the reads of the next attempt fail with the reason.
 */
bool driver_fetch(struct driver *driver, const struct wfs_io *io);
void driver_refuse_waiting(struct driver *driver, bool is_refused);
/* The gate of the sources on the network: notes what a thread misses first. ctx: the driver. */
wfs_remote_gate driver_note_missing;
/* Forgets what was missing: the caller has another way to wait for it. */
void driver_forget_missing(struct driver *driver);

/* Returns a buffer of DRIVER_TRANSFER_MAX bytes that belongs to the calling thread, or NULL. */
void *driver_buffer(struct driver *driver);

/*
 * Drops n references of the node with the number, and frees it now or at the next change. The
 * caller holds no lock.
 */
void driver_forget(struct driver *driver, uint64_t number, uint64_t n);

/*
 * Publishes the status of a commit. Fills in output and sandbox and copies texts; without a new
 * text, `written` stays.
 */
void driver_set_status(struct driver *driver, const struct wfs_status *status);

/*
 * Called after a failed read: if a source has changed, reports that once in the log and in the
 * status; what is known of the tensor in the log. NULL: none of a source was read.
 */
void driver_note_failed_read(struct driver *driver, const struct wfs_tensor *tensor);

#endif
