/* SPDX-License-Identifier: MIT */
/*
 * What a caller says of an output file and learns about it: which file it may replace, who may read
 * it, and what was published.
 */
#ifndef WFS_OUTPUT_H
#define WFS_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <weightfs/error.h>

struct stat;
struct wfs_team; /* weightfs/interruption.h */

/* The identity of a file: another file at the same path, or a changed one, differs in one of these.
 */
struct wfs_identity {
    uint64_t device, inode, n_bytes;
    int64_t mtime_ns; /* since the epoch */
};

/*
 * What the files that something is made of let others do. The mode of an output and the modes that
 * a mount shows follow from it, so that no byte becomes readable to somebody who could not read the
 * file that it came from. Zeroed: no file was added, and everything is granted.
 */
struct wfs_access {
    uint32_t mode;  /* permission bits */
    uint32_t group; /* the group that the bits for a group are about */
    bool is_known;  /* a file was added */
    bool is_mixed;  /* there is no such group: groups differ, or an access control list decides */
};

enum { WFS_OUTPUT_NAME_MAX = 256 };

enum wfs_replace {
    WFS_REPLACE_NONE,  /* nothing may be at the path: -EEXIST */
    WFS_REPLACE_KNOWN, /* the file must be `known`: -EBUSY otherwise */
    WFS_REPLACE_ANY,
};

/* Which name the file gets that a save replaces, as of --backup of cp(1). */
enum wfs_backup_control {
    WFS_BACKUP_NONE,     /* none: it is gone */
    WFS_BACKUP_SIMPLE,   /* its name and a suffix, which replaces the backup before it */
    WFS_BACKUP_NUMBERED, /* "NAME.~N~" */
    WFS_BACKUP_EXISTING, /* numbered where a numbered backup exists, otherwise simple */
};

struct wfs_backup {
    enum wfs_backup_control control;
    const char *suffix; /* of a simple one, without a slash */
};

struct wfs_save_options {
    enum wfs_replace replace;
    struct wfs_identity known;
    struct wfs_backup backup; /* of the file that is replaced; of several files, the index */
    uint32_t mode;            /* permission bits of a new file; a replaced file keeps its own */
    struct wfs_access access; /* of what the output is made of: a new file gets no more than that */
    bool narrows_replaced;    /* nor does a replaced file: it is itself one of these */
    /* Called now and then while bytes are written; not 0 gives up with that negative errno. NULL:
     * none. */
    int (*progress)(void *ctx, uint64_t n_done, uint64_t n_total);
    /* Called when a file is complete and durable under its temporary name, before it is renamed;
     * not 0 gives up. digest is wfs_catalog_digest of what was read back. NULL: none. */
    int (*complete)(void *ctx, const struct wfs_identity *identity, uint64_t digest,
                    struct wfs_error *err);
    /* Called before that for each name in the output that can run code when Python loads it, or is
     * not known to be harmless, with one line that is safe for a terminal. NULL: none. */
    void (*danger)(void *ctx, const char *text);
    /* Do what fchmod and fchown do to the temporary file of the output `name`, for a process that
     * may not: set its mode, and give it the owner of what has the name now. 0 or a negative errno.
     * NULL: the process may. */
    int (*set_mode)(void *ctx, const char *name, uint32_t mode);
    int (*set_owner)(void *ctx, const char *name);
    /* Takes over the descriptor of a large output that was given up and has no name any more, and
     * closes it without making the caller wait until its space is free. NULL: it is closed. */
    void (*abandon)(void *ctx, int fd);
    void *ctx;
    struct wfs_team *team; /* helps where bytes are computed; NULL: nobody does */
};

struct wfs_save_report {
    struct wfs_identity published; /* zeros while nothing is */
    const char *step;              /* the step that failed or "done"; static text */
    bool is_durable;               /* the directory was synced too */
};

#pragma GCC visibility push(default)

/* Identity of an open file or a path, from its stat. */
struct wfs_identity wfs_identity_of(const struct stat *st);
bool wfs_identity_is_equal(const struct wfs_identity *a, const struct wfs_identity *b);

/*
 * Adds an open file or directory. A directory grants reading to those who may both list and enter
 * it. A file that cannot be examined grants nothing.
 */
void wfs_access_add(struct wfs_access *access, int fd);

/* Adds all the files that `more` stands for. */
void wfs_access_merge(struct wfs_access *access, const struct wfs_access *more);

/*
 * Returns the permission bits for a file of that group. Bits for the group hold where the group of
 * all files is this one. Otherwise a member of it may be in the group of a file or not, and so may
 * anybody else: both get what a file grants to its group and to others alike.
 */
uint32_t wfs_access_mode(const struct wfs_access *access, uint32_t group);

/*
 * Checks what a save to path would check before it writes n_bytes: a file at the path may be
 * replaced, a backup of it can be kept, and the disk has room, where that can be known.
 */
int wfs_output_check(const char *path, const struct wfs_save_options *options, uint64_t n_bytes,
                     struct wfs_error *err);

/* Writes a file as saves do: complete and durable, or not at all. */
int wfs_output_write(const char *path, const void *bytes, uint64_t n_bytes,
                     const struct wfs_save_options *options, struct wfs_error *err);

/* Name, beside the output at path, of the file that is written before it is renamed. */
void wfs_output_temporary(const char *path, char name[WFS_OUTPUT_NAME_MAX]);

/* Removes such a file, which a save has left, from the open directory. -EBUSY: one is writing it.
 */
int wfs_output_remove_temporary(int directory, const char *temporary, struct wfs_error *err);

/* Name, beside the output at path, of a further link to the old file, before it replaces the last
 * backup. */
void wfs_output_temporary_link(const char *path, char name[WFS_OUTPUT_NAME_MAX]);

#pragma GCC visibility pop

#endif
