/* SPDX-License-Identifier: MIT */
/*
 * A catalog as directories and files, with the edits made to them. Every operation is a POSIX
 * operation and returns a negative errno, which a driver passes to the kernel unchanged. The tree
 * knows catalogs and the staging directory; it leaves file formats, rules and FUSE to others.
 *
 * A node is what POSIX calls an inode: content, attributes, a link count. Names are entries of
 * directories and lead to nodes. Functions that take a const tree may run in parallel with each
 * other (they lock what they cache); all others need exclusion, which the caller provides. For
 * weightfs itself, not installed.
 */
#ifndef WFS_TREE_H
#define WFS_TREE_H

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include <weightfs/catalog.h>
#include <weightfs/stage.h>
#include <weightfs/status.h>

/* Name of the control directory in the root; lookups find it, listings do not show it. */
#define WFS_CONTROL_NAME ".weightfs"

/* Name of the directory in it for files that are generated while they are read. */
#define WFS_OUT_NAME "out"

struct wfs_tree;
struct wfs_node;
struct wfs_patch;

enum wfs_tree_layout { WFS_LAYOUT_NESTED, WFS_LAYOUT_FLAT };
enum wfs_tree_files { WFS_FILES_RAW, WFS_FILES_NPY };

/* A file of the control directory whose text the caller generates: when it is first opened, and
 * again after each commit. */
struct wfs_tree_text {
    const char *name;
    bool shows_edits; /* and after each edit */
    /* Returns 0 with malloc'ed bytes, or -ENOMEM. May be called from any thread. */
    int (*make)(const void *ctx, char **ret, size_t *ret_n_bytes);
    const void *ctx;
};

/*
 * A file in WFS_OUT_NAME of the control directory whose content the caller generates piece by
 * piece. The functions may be called from any thread, in parallel with anything that takes a const
 * tree.
 */
struct wfs_tree_made {
    const char *name;
    bool is_hidden; /* found by its name only; no edit changes it */
    /* Returns the size as it is now. Where this fails, `read` reports the error to readers. */
    int (*n_bytes)(const void *ctx, uint64_t *ret);
    /* Takes the content as it is now, which is kept until it is let go. */
    int (*hold)(const void *ctx, const void **ret_held);
    void (*let_go)(const void *ctx, const void *held);
    /* Reads it up to its end, without the tree; the count, or a negative errno. */
    ssize_t (*read)(const struct wfs_io *io, const void *held, uint64_t offset, void *buf,
                    size_t n_bytes);
    const void *ctx;
};

enum { WFS_TREE_TEXTS_MAX = 8, WFS_TREE_MADE_MAX = 16 };

struct wfs_tree_options {
    enum wfs_tree_layout layout;
    enum wfs_tree_files files;
    struct wfs_stage *stage; /* for edits; the tree owns it, even when wfs_tree_new fails; NULL:
                                every change is EROFS */
    const char *base_text;   /* what the edits are based on, kept as `base` in the staging
                                directory; NULL: none */
    uid_t uid;               /* owner of everything shown */
    gid_t gid;
    mode_t umask;
    mode_t control_umask;              /* of the control directory, on top of that */
    const char *reserved_key;          /* of the output's format: EINVAL; NULL: none */
    const char *reserved_by;           /* the name of that format */
    const struct wfs_tree_text *texts; /* borrowed for the tree's life */
    size_t n_texts;                    /* at most WFS_TREE_TEXTS_MAX */
    const struct wfs_tree_made *made;  /* borrowed, too */
    size_t n_made;                     /* at most WFS_TREE_MADE_MAX */
    bool allows_large;                 /* an edit may copy much more than the source has */
};

/* What was restored of the edits of an earlier process. */
struct wfs_replayed {
    uint64_t n_edits;    /* as wfs_tree_n_edits */
    uint64_t n_unsynced; /* contents that were not synced */
    uint64_t n_doubtful; /* of these, what a loss of power may have torn */
    uint64_t n_lost;     /* contents that no longer exist */
};

/* Learns of changes that no request of the kernel has made. */
struct wfs_tree_listener {
    /* The node has changed, or, with a name, what that leads to in it. The name is not kept. */
    void (*changed)(void *ctx, uint64_t number, const char *name);
    void *ctx;
};

/* A file that a commit contains. Texts are borrowed for the call that shows it. */
struct wfs_tree_file {
    const char *key;  /* NULL: a cut name on its path is not known */
    const char *path; /* from the root, without a leading slash; no part is "." or ".." */
    const struct wfs_node *node;
    bool is_value; /* JSON text; the key is the name of the value */
};

struct wfs_dirent {
    const char *name; /* borrowed until the next change of the tree */
    struct wfs_node *node;
};

#pragma GCC visibility push(default)

/*
 * Arranges the catalog, which is borrowed for the tree's life, as directories and files. Two keys
 * that need the same path are an error that names both. The edits that an earlier process left in
 * the staging directory are made again: -EBADMSG when they do not fit the catalog, and then
 * everything stays as it is.
 */
int wfs_tree_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err);

/* Keeps the staging directory if it has uncommitted edits, else removes it. */
void wfs_tree_free(struct wfs_tree *tree);

bool wfs_tree_is_writable(const struct wfs_tree *tree);
struct wfs_node *wfs_tree_root(const struct wfs_tree *tree); /* for tests */

/* Returns a count of changes: equal numbers mean that nothing was edited in between. */
uint64_t wfs_tree_generation(const struct wfs_tree *tree);

void wfs_tree_replayed(const struct wfs_tree *tree, struct wfs_replayed *ret);

/*
 * Note the progress of a commit in the journal, each durable on return: it begins, its file is
 * complete. May run in parallel with readers.
 */
int wfs_tree_commit_begin(struct wfs_tree *tree, const char *output, const char *temporary);
int wfs_tree_commit_complete(struct wfs_tree *tree, const struct wfs_identity *identity,
                             uint64_t digest);

/* Keeps a source reachable whose name is about to be given to the output: edits need it. */
int wfs_tree_keep_source(struct wfs_tree *tree, const char *path);

/* Notes, in the journal too, that everything up to `generation` is published. Edits stay. A
 * negative errno means only that the journal could not be written. */
int wfs_tree_committed(struct wfs_tree *tree, uint64_t generation);
bool wfs_tree_has_pending(const struct wfs_tree *tree);

/* Removes all edits from the staging directory; when it returns 0, no crash brings them back. What
 * is mounted shows them to its end, and takes no others: it is not writable any more. */
int wfs_tree_discard(struct wfs_tree *tree);

/*
 * Takes back the edits of the paths, which have "//" between them, and of all below; an empty text
 * stands for everything. Each is named by its path now, or by the one in the source. *ret_n becomes
 * the number of edits, and no crash brings them back. -EBUSY: others depend on them, or, without
 * takes_committed, some were committed; -ENOENT. Nothing is changed when this fails. The listener
 * may be NULL.
 */
int wfs_tree_revert(struct wfs_tree *tree, const char *paths, bool takes_committed,
                    const struct wfs_tree_listener *listener, uint64_t *ret_n,
                    struct wfs_error *err);

/* Makes a tree of the same catalog without edits and without a stage, for the life of this one. */
int wfs_tree_unedited(const struct wfs_tree *tree, struct wfs_tree **out, struct wfs_error *err);

/* Lists how the tree differs from its catalog, as lines of text or JSON; malloc'ed. -EIO, -ENOMEM.
 */
int wfs_tree_list_edits(const struct wfs_tree *tree, bool is_json, char **ret, size_t *ret_n_bytes);

/* Returns the number of nodes edited and of names changed since the last commit, for messages. */
uint64_t wfs_tree_n_edits(const struct wfs_tree *tree);

/* Rewrites status.json, here and in the staging directory. Takes a lock of its own: may run in
 * parallel with anything. */
void wfs_tree_set_status(const struct wfs_tree *tree, const struct wfs_status *status);

/*
 * Makes a catalog of the tree: its tensors in output order (as loaded, then new ones by key), its
 * values and its metadata. Names that begin with a dot and control files are left out. Names of one
 * file are the same view of one source. Every file must have a dtype, a shape and exactly the bytes
 * that they take: err names the file and both numbers. Unless problems is NULL, a commit goes on
 * without what cannot be part of it: visit gets a line for each. The catalog borrows from the tree:
 * free it first, and change nothing meanwhile.
 */
struct wfs_tree_problems {
    void (*visit)(void *ctx, const char *text);
    void *ctx;
};
int wfs_tree_snapshot(const struct wfs_tree *tree, const struct wfs_tree_problems *problems,
                      struct wfs_catalog **out, struct wfs_error *err);

/* Makes a patch of all edits since the catalog was loaded, committed or not: what leads from the
 * catalog to the snapshot, with the errors of that. It borrows from the tree, as the snapshot. */
int wfs_tree_patch(const struct wfs_tree *tree, struct wfs_patch **out, struct wfs_error *err);

/* Calls fdatasync for every edited file that needs it, before a snapshot is saved. May run in
 * parallel with readers, as wfs_node_sync; after a failure of either, call wfs_tree_rescue. */
int wfs_tree_sync(struct wfs_tree *tree, struct wfs_error *err);

/* Copies content that could not be synced to new files: a second fdatasync of the same file could
 * report success for data that is lost. */
void wfs_tree_rescue(struct wfs_tree *tree);

/* Calls visit with each file of a commit: tensors, then values. Stops when it does not return 0,
 * and returns that. -EIO, -ENOMEM. */
int wfs_tree_each(const struct wfs_tree *tree,
                  int (*visit)(void *ctx, const struct wfs_tree_file *file), void *ctx);

void wfs_tree_statfs(const struct wfs_tree *tree, struct statvfs *ret);

/* ---- names ---- */

/* Finds a name in the directory, without taking a reference. -ENOENT, -ENOTDIR, -ENAMETOOLONG. */
int wfs_node_lookup(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                    struct wfs_node **ret);

/*
 * Returns the number of the node, that of the root being 1. No other node of the tree has or had
 * it. Nodes of the catalog have the same numbers in every tree that is made of it.
 */
uint64_t wfs_node_number(const struct wfs_node *node);

/*
 * Returns the node with the number, which may be made up; NULL: it does not exist (any more). Of a
 * generated file this is the node of every version that there may have been.
 */
struct wfs_node *wfs_tree_node(const struct wfs_tree *tree, uint64_t number);

/* Returns the directory that holds the node; that of the root is the root, an unlinked node has
 * none: NULL. */
struct wfs_node *wfs_node_parent(const struct wfs_tree *tree, const struct wfs_node *dir);

/*
 * Lists the directory: returns 1 with an entry, 0 at the end. *cookie is 0 at the start and is set
 * to the place after the entry. Entries that stay are listed exactly once, whatever else is made or
 * removed meanwhile. "." and ".." are left to the caller.
 */
int wfs_dir_next(const struct wfs_tree *tree, const struct wfs_node *dir, uint64_t *cookie,
                 struct wfs_dirent *ret);

/*
 * References keep an unlinked node alive. They are atomic and may be taken in parallel with
 * anything. Freeing the node needs exclusion: wfs_node_unref only counts, and returns true when
 * wfs_node_reap should be called under exclusion.
 */
void wfs_node_ref(struct wfs_node *node, uint64_t n);
bool wfs_node_unref(struct wfs_node *node, uint64_t n);
void wfs_node_reap(struct wfs_tree *tree, struct wfs_node *node);

/* ---- content ---- */

bool wfs_node_is_dir(const struct wfs_node *node);
/* Returns true for the control directory and what is in it. */
bool wfs_node_is_control(const struct wfs_tree *tree, const struct wfs_node *node);
/* Returns which of options.made the node is, or NULL. */
const struct wfs_tree_made *wfs_node_made(const struct wfs_tree *tree, const struct wfs_node *node);
/* Returns exact size and blocks, an mtime that is fixed until an edit, and a stable st_ino. */
void wfs_node_stat(const struct wfs_tree *tree, const struct wfs_node *node, struct stat *ret);

/* Does what open(2) does for an existing node: checks the access mode (EISDIR, EROFS, EACCES),
 * truncates for O_TRUNC, and checks that the source has not changed (EIO). */
int wfs_node_open(struct wfs_tree *tree, struct wfs_node *node, int flags); /* for tests */
/* The same without the check of the source, which may take long, and the tensor of the catalog that
 * the node shows, for wfs_tensor_check_source; NULL: it shows none. */
int wfs_node_may_open(struct wfs_tree *tree, struct wfs_node *node, int flags);
const struct wfs_tensor *wfs_node_loaded(const struct wfs_node *node);

/* Returns -EIO when the source of the content has changed, or edited content is lost. */
int wfs_node_check(const struct wfs_tree *tree, const struct wfs_node *node); /* for tests */
/*
 * Returns true when setting an attribute may have changed what is shown: the header that content
 * begins with, or metadata.json.
 */
bool wfs_node_has_unseen_change(const struct wfs_tree *tree, const struct wfs_node *node);
ssize_t wfs_node_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes);

/*
 * What a cache knows by a number never changes without a request to the tree. A file that the tree
 * generates, in the control directory, therefore has a number for each version of its content, and
 * whoever has one open finds the same bytes, however small the pieces are in which it reads. All
 * other nodes have one number. All functions for numbers take one that has references.
 *
 * Takes a reference to what the node shows now, and returns its number; 0: no memory.
 */
uint64_t wfs_number_enter(const struct wfs_tree *tree, struct wfs_node *node, struct stat *ret);
/* Drops references. Returns true when wfs_node_reap should be called under exclusion. */
bool wfs_number_leave(const struct wfs_tree *tree, uint64_t number, uint64_t n);
void wfs_number_stat(const struct wfs_tree *tree, uint64_t number, struct stat *ret);
/* -ESTALE: of a version that was to be generated while it is read, and the tree has changed. */
ssize_t wfs_number_read(const struct wfs_tree *tree, uint64_t number, uint64_t offset, void *buf,
                        size_t n_bytes);

/*
 * A read of what may take long to read, a tensor of the source or a generated checkpoint, without
 * the tree, which may change meanwhile: what is read is what was shown when the reading was made.
 * The tree has to outlive it.
 *
 * NULL: the content is another one, for wfs_number_read. -ESTALE as there.
 */
struct wfs_reading;
int wfs_reading_new(const struct wfs_tree *tree, uint64_t number, struct wfs_reading **ret);
/* Returns true for a tensor whose elements are stored as they are shown, in a file. */
bool wfs_reading_is_plain(const struct wfs_reading *reading);
/* As wfs_number_read; without the tree. */
ssize_t wfs_reading_run(const struct wfs_io *io, const struct wfs_reading *reading, uint64_t offset,
                        void *buf, size_t n_bytes);
/* Returns 0 when the bytes of the last run may be shown. -ESTALE: they are made of edits, which
 * have changed. */
int wfs_reading_check(const struct wfs_tree *tree, const struct wfs_reading *reading);
/* Does what wfs_tensor_read_ahead does, without the tree; nothing for what is not a tensor. */
void wfs_reading_ahead(const struct wfs_io *io, const struct wfs_reading *reading, uint64_t offset);
void wfs_reading_free(struct wfs_reading *reading);

/*
 * The first change of a tensor copies it into the staging directory. The functions below do that
 * where they are called, unless a change is set, a zeroed struct: then they return -EINPROGRESS
 * before anything is changed. wfs_change_copy copies, while the tree may change, and the same call
 * with the same change goes on from there. The tree and the node have to outlive it.
 */
struct wfs_change {
    struct wfs_change_copy *copy;
};

/* Sets the change that is made, for as long as it excludes others; NULL: it is over. */
void wfs_tree_set_change(struct wfs_tree *tree, struct wfs_change *change);
/* Makes the copy; what fails (-ENOSPC, -EINTR as wfs_tensor_read) is the next call's result. */
void wfs_change_copy(const struct wfs_io *io, struct wfs_change *change);
/* Removes a copy that nothing has used. */
void wfs_change_done(struct wfs_change *change);

ssize_t wfs_node_write(struct wfs_tree *tree, struct wfs_node *node, uint64_t offset,
                       const void *buf, size_t n_bytes, bool is_append);
/*
 * Tells that the last write of the node were n_bytes of another one's content. When all of that was
 * copied, in order and with no other change in between, the node gets the dtype, the shape and
 * whatever else a copy with attributes would set.
 */
int wfs_node_copied(struct wfs_tree *tree, struct wfs_node *node, uint64_t offset,
                    const struct wfs_node *from, uint64_t from_offset, uint64_t n_bytes);
int wfs_node_truncate(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_bytes);
int wfs_node_fallocate(struct wfs_tree *tree, struct wfs_node *node, int mode, uint64_t offset,
                       uint64_t n_bytes);
/* Sets atime and mtime; NULL leaves one as it is, tv_nsec may be UTIME_NOW. The ctime moves. */
int wfs_node_set_times(struct wfs_tree *tree, struct wfs_node *node, const struct timespec *atime,
                       const struct timespec *mtime);
/* Gives a file or directory that was just made to another user than the owner of the tree, for the
 * life of the tree. Those of root stay the owner's. */
void wfs_node_set_creator(const struct wfs_tree *tree, struct wfs_node *node, uid_t uid, gid_t gid);
/* Sets permission bits, setuid, setgid and sticky, which are kept for the life of the tree and are
 * never part of a commit. -EPERM: the tree itself writes the file. */
int wfs_node_set_mode(struct wfs_tree *tree, struct wfs_node *node, mode_t mode);

/* Does what fsync does for a file or a directory other than the root: makes its content durable,
 * and all changes of names. */
int wfs_node_sync(struct wfs_tree *tree, struct wfs_node *node);

/* ---- structure ---- */

int wfs_node_create(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                    struct wfs_node **ret);
int wfs_node_mkdir(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                   struct wfs_node **ret);
int wfs_node_unlink(struct wfs_tree *tree, struct wfs_node *dir, const char *name);
int wfs_node_rmdir(struct wfs_tree *tree, struct wfs_node *dir, const char *name);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE. */
int wfs_node_rename(struct wfs_tree *tree, struct wfs_node *from_dir, const char *from_name,
                    struct wfs_node *to_dir, const char *to_name, unsigned flags);
int wfs_node_link(struct wfs_tree *tree, struct wfs_node *node, struct wfs_node *dir,
                  const char *name);

/* ---- extended attributes; full names as getxattr(2) has them ---- */

/* Returns the length of the value, and copies it when n_bytes is large enough; -ERANGE when n_bytes
 * is too small and not 0. -ENODATA, -EOPNOTSUPP outside "user.". */
ssize_t wfs_node_get_xattr(const struct wfs_tree *tree, const struct wfs_node *node,
                           const char *name, void *buf, size_t n_bytes);
/*
 * The attributes that need all bytes of a tensor, its digest and its statistics, as a job that runs
 * without the tree: wfs_node_get_xattr computes them where it is called. The tree, the node and its
 * references have to outlive the job.
 *
 * Makes the job for the attribute; NULL when the attribute is another one, or is known already.
 */
struct wfs_digest_job;
int wfs_digest_job_new(const struct wfs_tree *tree, const struct wfs_node *node, const char *name,
                       struct wfs_digest_job **ret);
void wfs_digest_job_free(struct wfs_digest_job *job);
/* Returns true if others should be answered meanwhile. */
bool wfs_digest_job_is_long(const struct wfs_digest_job *job);
/* Computes, for as long as that takes; the tree may change. -EINTR as wfs_tensor_read. */
int wfs_digest_job_run(const struct wfs_io *io, struct wfs_digest_job *job);
/* Keeps the result, given that of the run: returns that, or -EAGAIN when the content has changed
 * meanwhile. */
int wfs_digest_job_end(const struct wfs_tree *tree, const struct wfs_node *node,
                       const struct wfs_digest_job *job, int code);
/* Returns the value of the attribute, after the end. */
const char *wfs_digest_job_text(const struct wfs_digest_job *job);

/* Lists the names, each ended by NUL, with the same rule for the length. */
ssize_t wfs_node_list_xattr(const struct wfs_tree *tree, const struct wfs_node *node, char *buf,
                            size_t n_bytes);
int wfs_node_set_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name,
                       const void *value, size_t n_bytes, int flags);
int wfs_node_remove_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name);

#pragma GCC visibility pop

#endif
