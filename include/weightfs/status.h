/* SPDX-License-Identifier: MIT */
/*
 * The status of a mount: what status.json says, in the control directory of a running mount and in
 * the staging directory of one that has ended.
 */
#ifndef WFS_STATUS_H
#define WFS_STATUS_H

#include <stddef.h>
#include <stdint.h>

enum wfs_mount_state {
    WFS_MOUNT_CLEAN,
    WFS_MOUNT_DIRTY, /* edits are pending */
    WFS_MOUNT_COMMITTING,
    WFS_MOUNT_PUBLISHED,
    WFS_MOUNT_PUBLISHED_UNSYNCED, /* published, but a loss of power may undo it */
    WFS_MOUNT_FAILED,
    WFS_N_MOUNT_STATES,
};

/* Texts are borrowed from who made it. */
struct wfs_status {
    enum wfs_mount_state state;
    const char *step;    /* of the last commit, or NULL */
    int error;           /* errno of the last commit, 0: none */
    const char *text;    /* its message, one line, or NULL */
    const char *written; /* what the last commit that succeeded wrote, one line, or NULL */
    const char *output;  /* path, or NULL */
    const char *sandbox;
    uint64_t n_done, n_total;    /* bytes of the commit that is running, or of the last one */
    uint64_t n_tensors, n_files; /* that the last commit that succeeded wrote */
    int64_t committed_at;        /* seconds since the epoch, 0: never */
    /* What the tree itself counts: wfs_tree_set_status ignores these. */
    uint64_t n_edits, n_unsynced;
    /* Bytes from the network, and those with what readers wait for; 0: there are no such sources */
    uint64_t n_fetched, n_needed;
    int64_t pid;
};

#pragma GCC visibility push(default)

/* Returns the name that status.json has for the state, e.g. "published-unsynced". */
const char *wfs_mount_state_name(enum wfs_mount_state state);

/*
 * Reads the text of a status.json into one block with texts of its own; free it with free(3).
 * -EBADMSG: it is not such a text; -ENOMEM.
 */
int wfs_status_parse(const char *text, size_t n_bytes, struct wfs_status **out);

#pragma GCC visibility pop

#endif
