/* SPDX-License-Identifier: MIT */
/*
 * A catalog as directories and files, with the edits made to them. Every operation is a POSIX
 * operation and returns its negative errno; a driver passes them to the kernel unchanged.
 *
 * A node is what POSIX calls an inode: content, attributes, a link count. Names are entries of
 * directories and lead to nodes. Functions that take a const tree may run in parallel with each
 * other (locks of their own guard what they cache); all others need exclusion, which the caller
 * provides.
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

/* Name of the directory in it for files that are made while they are read. */
#define WFS_OUT_NAME "out"

struct wfs_tree;
struct wfs_node;

enum wfs_tree_layout { WFS_LAYOUT_NESTED, WFS_LAYOUT_FLAT };
enum wfs_tree_files { WFS_FILES_RAW, WFS_FILES_NPY };

/* A file of the control directory whose text the caller makes when somebody looks at it, and anew
 * after each commit. */
struct wfs_tree_text {
    const char *name;
    /* *ret is malloc'ed; 0 or -ENOMEM. May be called from any thread. */
    int (*make)(const void *ctx, char **ret, size_t *ret_n_bytes);
    const void *ctx;
};

/*
 * A file of the control directory's WFS_OUT_NAME whose content the caller makes piece by piece. The
 * functions may be called from any thread, beside anything that takes a const tree.
 */
struct wfs_tree_made {
    const char *name;
    /* Its size now; when it cannot be had readers are told by `read`. */
    int (*n_bytes)(const void *ctx, uint64_t *ret);
    /* Of what it is now, clipped to its end, or a negative errno. */
    ssize_t (*read)(const void *ctx, uint64_t offset, void *buf, size_t n_bytes);
    const void *ctx;
};

enum { WFS_TREE_TEXTS_MAX = 8, WFS_TREE_MADE_MAX = 4 };

struct wfs_tree_options {
    enum wfs_tree_layout layout;
    enum wfs_tree_files files;
    struct wfs_stage *stage; /* for edits; the tree takes it over, also when it is not made; NULL:
                                every change is EROFS */
    const char *base_text;   /* what the edits stand on, kept as `base` in the staging directory;
                                NULL: none */
    uid_t uid;               /* owner of everything shown */
    gid_t gid;
    mode_t umask;
    const char *reserved_key;          /* of the output's format: EINVAL; NULL: none */
    const struct wfs_tree_text *texts; /* borrowed for the tree's life */
    size_t n_texts;                    /* at most WFS_TREE_TEXTS_MAX */
    const struct wfs_tree_made *made;  /* borrowed as well */
    size_t n_made;                     /* at most WFS_TREE_MADE_MAX */
    bool allows_large;                 /* an edit may copy much more than the source has */
};

/* What of an earlier process is shown again. */
struct wfs_replayed {
    uint64_t n_edits;    /* as wfs_tree_n_edits */
    uint64_t n_unsynced; /* contents that were not synced */
    uint64_t n_doubtful; /* of these, what a loss of power may have torn */
    uint64_t n_lost;     /* contents that are not there any more */
};

struct wfs_dirent {
    const char *name; /* borrowed until the next change of the tree */
    struct wfs_node *node;
};

#pragma GCC visibility push(default)

/*
 * Arranges the catalog (borrowed for the tree's life). Two keys that want one path, and a component
 * or depth above its limit, are errors that name both. What the staging directory holds of an
 * earlier process is done again: -EBADMSG when it does not fit the catalog, with everything kept as
 * it is.
 */
int wfs_tree_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err);

/* Keeps the staging directory if uncommitted edits are in it, else removes it. */
void wfs_tree_free(struct wfs_tree *tree);

bool wfs_tree_is_writable(const struct wfs_tree *tree);
struct wfs_node *wfs_tree_root(const struct wfs_tree *tree);

/* Counts changes: equal numbers mean that nothing was edited in between. */
uint64_t wfs_tree_generation(const struct wfs_tree *tree);

void wfs_tree_replayed(const struct wfs_tree *tree, struct wfs_replayed *ret);

/*
 * The course of a commit in the journal, each durable on return: it begins, its file is complete.
 * May run beside readers.
 */
int wfs_tree_commit_begin(struct wfs_tree *tree, const char *output, const char *temporary);
int wfs_tree_commit_complete(struct wfs_tree *tree, const struct wfs_identity *identity,
                             uint64_t digest);

/* Keeps a source reachable whose name the output is about to get, and with it all edits. */
int wfs_tree_keep_source(struct wfs_tree *tree, const char *path);

/* Tells the tree, and the journal, that all of `generation` is published. Edits stay. A negative
 * errno says only that the journal does not know. */
int wfs_tree_committed(struct wfs_tree *tree, uint64_t generation);
bool wfs_tree_has_pending(const struct wfs_tree *tree);

/* Edited nodes, and structural changes since the last commit, for messages. */
uint64_t wfs_tree_n_edits(const struct wfs_tree *tree);

/* Rewrites what status.json says, here and in the staging directory. Takes its own lock: may run
 * beside anything. */
void wfs_tree_set_status(const struct wfs_tree *tree, const struct wfs_status *status);

/*
 * The tree as a catalog: its tensors in output order (as loaded, new ones last by key), its
 * metadata. Scratch names (a leading dot) and control files are left out. Every file must have
 * dtype and shape and just the bytes that they say: err names the file and both numbers. The
 * catalog borrows from the tree: free it first, change nothing meanwhile.
 */
int wfs_tree_snapshot(const struct wfs_tree *tree, struct wfs_catalog **out, struct wfs_error *err);

/* fdatasync of every edited file that needs it, before a snapshot is saved. May run beside
 * readers, as wfs_node_sync; after a failure of either wfs_tree_rescue is due. */
int wfs_tree_sync(struct wfs_tree *tree, struct wfs_error *err);

/* Copies content that could not be synced to other files: a second fdatasync of the same one could
 * report success for what is lost. */
void wfs_tree_rescue(struct wfs_tree *tree);

void wfs_tree_statfs(const struct wfs_tree *tree, struct statvfs *ret);

/* ---- names ---- */

/* Finds name in the directory. -ENOENT, -ENOTDIR, -ENAMETOOLONG. Takes no reference. */
int wfs_node_lookup(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                    struct wfs_node **ret);

/* The directory that holds it; the root's is the root. An unlinked node has none: NULL. */
struct wfs_node *wfs_node_parent(const struct wfs_tree *tree, const struct wfs_node *dir);

/*
 * Lists: *cookie is 0 at the start and names the place after the returned entry. 1: an entry, 0:
 * the end. Entries that stay are seen exactly once whatever else is made or removed meanwhile. "."
 * and ".." are the caller's.
 */
int wfs_dir_next(const struct wfs_tree *tree, const struct wfs_node *dir, uint64_t *cookie,
                 struct wfs_dirent *ret);

/*
 * References keep an unlinked node alive; atomic, so they may be taken beside anything. The last
 * unref of an unlinked node frees it and needs exclusion: wfs_node_unref only counts, and says true
 * when wfs_node_reap should be called under exclusion.
 */
void wfs_node_ref(struct wfs_node *node, uint64_t n);
bool wfs_node_unref(struct wfs_node *node, uint64_t n);
void wfs_node_reap(struct wfs_tree *tree, struct wfs_node *node);

/* ---- content ---- */

bool wfs_node_is_dir(const struct wfs_node *node);
/* In the control directory, or the directory itself. */
bool wfs_node_is_control(const struct wfs_tree *tree, const struct wfs_node *node);
/* Which of options.made it is, or NULL. */
const struct wfs_tree_made *wfs_node_made(const struct wfs_tree *tree, const struct wfs_node *node);
/* Exact size and blocks, a fixed mtime until an edit, a stable st_ino. */
void wfs_node_stat(const struct wfs_tree *tree, const struct wfs_node *node, struct stat *ret);

/* open(2) of an existing node: checks the access mode (EISDIR, EROFS, EACCES), O_TRUNC, and that
 * the source is what it was (EIO). */
int wfs_node_open(struct wfs_tree *tree, struct wfs_node *node, int flags);

/*
 * Where [offset, offset + *n_bytes) of the content lies in one open file; *n_bytes is clipped to
 * what is there. False: not in one file, use wfs_node_read. The caller checks the source before and
 * after (wfs_node_check).
 */
bool wfs_node_extent(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                     size_t *n_bytes, int *ret_fd, uint64_t *ret_offset);
int wfs_node_check(const struct wfs_tree *tree, const struct wfs_node *node);
ssize_t wfs_node_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                      void *buf, size_t n_bytes);
/* As wfs_tensor_read_ahead; does nothing where the content is not a tensor's. */
void wfs_node_read_ahead(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset);

ssize_t wfs_node_write(struct wfs_tree *tree, struct wfs_node *node, uint64_t offset,
                       const void *buf, size_t n_bytes, bool is_append);
int wfs_node_truncate(struct wfs_tree *tree, struct wfs_node *node, uint64_t n_bytes);
int wfs_node_fallocate(struct wfs_tree *tree, struct wfs_node *node, int mode, uint64_t offset,
                       uint64_t n_bytes);
/* NULL leaves a time as it is; tv_nsec may be UTIME_NOW. Only mtime is kept. */
int wfs_node_set_times(struct wfs_tree *tree, struct wfs_node *node, const struct timespec *mtime);
/* Permission bits, kept for the life of the tree and never part of a commit. -EPERM of a file that
 * the tree itself writes. */
int wfs_node_set_mode(struct wfs_tree *tree, struct wfs_node *node, mode_t mode);

/* fsync of one file or directory that is not the root: its content, and all changes of names. */
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

/* The length of the value; copies it when n_bytes is large enough, -ERANGE when it is not 0 and too
 * small. -ENODATA, -EOPNOTSUPP outside "user.". */
ssize_t wfs_node_get_xattr(const struct wfs_tree *tree, const struct wfs_node *node,
                           const char *name, void *buf, size_t n_bytes);
/* Names, each ended by NUL; same length rule. */
ssize_t wfs_node_list_xattr(const struct wfs_tree *tree, const struct wfs_node *node, char *buf,
                            size_t n_bytes);
int wfs_node_set_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name,
                       const void *value, size_t n_bytes, int flags);
int wfs_node_remove_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name);

#pragma GCC visibility pop

#endif
