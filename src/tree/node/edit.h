/* SPDX-License-Identifier: MIT */
/*
 * What a node has that the catalog does not: content in the staging directory, a dtype and shape of
 * its own, times, foreign attributes. Made at the first change of the node, freed with it. Changes
 * are noted as records of the journal.
 */
#ifndef WFS_TREE_EDIT_H
#define WFS_TREE_EDIT_H

#include "tensor/tensor.h"
#include "tree/node/node.h"

#include <stddef.h>
#include <stdint.h>

/* ---- attributes in "user." that mean nothing to us, kept for the life of the tree ---- */

enum {
    FOREIGN_VALUE_MAX = 65536,   /* bytes of a value, as in the kernel */
    FOREIGN_NODE_MAX = 1 << 20,  /* of names and values of a node */
    FOREIGN_TREE_MAX = 64 << 20, /* of all */
};

struct foreign_attr {
    struct foreign_attr *next;
    size_t n_bytes;
    char *value; /* after the name */
    char name[];
};

/* Those of one node. A zeroed struct has none. */
struct foreign {
    struct foreign_attr *first;
    uint64_t n_bytes; /* of names and values */
};

/* Returns NULL when no attribute has the name. */
const struct foreign_attr *foreign_find(const struct foreign *foreign, const char *name);

/*
 * Sets an attribute; flags are those of setxattr(2). n_room is how many bytes all may have
 * together. -EEXIST, -ENODATA, -E2BIG, -ENOSPC above a limit, -ENOMEM.
 */
int foreign_set(struct foreign *foreign, const char *name, const void *value, size_t n_bytes,
                int flags, uint64_t n_room);

/* -ENODATA. */
int foreign_remove(struct foreign *foreign, const char *name);

/* ---- edits ---- */

/* How far the content was copied, in order, from the begin of another node's. */
struct edit_copy {
    uint64_t ino; /* of the other; 0: it was not */
    uint64_t end;
    uint64_t version; /* of the edit, after the last piece */
};

/* Of a staged file. */
enum edit_health {
    EDIT_SOUND,
    EDIT_DOUBTFUL, /* its writes may be torn: power was lost after them */
    EDIT_FAILED,   /* the last fdatasync did */
    EDIT_LOST,     /* it failed and could not be copied */
};

struct edit {
    struct wfs_node *node;
    struct edit *next, *previous; /* all of the tree */
    uint64_t number;              /* of the staged file; 0: none, the content is empty */
    uint64_t n_bytes;             /* of the content */
    uint32_t loaded;              /* of a node that was taken back: see node_loaded; or 0 */
    uint64_t changed;             /* generation of the last change that is part of a commit, or 0 */
    uint64_t version;             /* counts changes of content, dtype and shape */
    struct timespec atime, mtime;
    struct timespec ctime; /* 0: nothing has changed; a directory has its own */
    mode_t mode;           /* permission bits, setuid, setgid, sticky */
    uid_t uid;             /* of another user who created it; 0: the owner of the mount */
    gid_t gid;
    bool is_staged;                  /* the content is the staged file, not the catalog's tensor */
    bool is_unsynced;                /* the staged file has writes that fdatasync has not seen */
    bool is_recorded;                /* the journal has a record of such writes */
    _Atomic enum edit_health health; /* set by syncs while others read */
    bool is_namesake;    /* the node's tensor is only the one that was loaded with its key */
    bool has_new_header; /* dtype or shape were set: a generated header is not what it was */
    bool has_new_text;   /* the content was set by an attribute of the root */
    bool has_atime, has_mtime, has_mode, has_dtype, has_shape;
    uint8_t dtype;
    struct wfs_shape shape;      /* dims are malloc'ed */
    char *texts[TENSOR_N_TEXTS]; /* malloc'ed; NULL: as in the catalog */
    struct foreign foreign;
    struct edit_copy copy;
};

/* Returns the number that the node has in a tree of the same catalog without edits; 0: it is new.
 */
static inline uint32_t node_loaded(const struct wfs_node *node)
{
    return node->is_loaded ? node->id : node->edit == NULL ? 0 : node->edit->loaded;
}

static inline bool edit_is_staged(const struct wfs_node *node)
{
    return node->edit != NULL && node->edit->is_staged;
}

static inline bool edit_is_lost(const struct wfs_node *node)
{
    return node->edit != NULL && node->edit->health == EDIT_LOST;
}

/* Returns the edit of the node, which is made when it has none. NULL: no memory. */
struct edit *edit_of(struct wfs_tree *tree, struct wfs_node *node);

/* Moves the ctime of the node forward. Without memory for it, the ctime stays. */
void edit_touch(struct wfs_tree *tree, struct wfs_node *node);

/* Returns the size of the node's own content in bytes, without a generated header. */
uint64_t edit_n_bytes(const struct wfs_node *node);
void edit_set_n_bytes(struct wfs_tree *tree, struct edit *edit, uint64_t n_bytes);

void edit_set_unsynced(struct wfs_tree *tree, struct edit *edit, bool is_unsynced);

/* Counts a change of the node's content or description, if the node is part of a commit. */
void edit_mark(struct wfs_tree *tree, struct edit *edit);

/* Counts a change of names, if it is part of a commit. */
void edit_mark_entry(struct wfs_tree *tree, bool is_shown);

/* Returns true when the node is part of a commit. */
bool edit_is_shown(const struct wfs_tree *tree, const struct wfs_node *node);

/* Returns true when it is known which tensor the file is, other than by its key. */
static inline bool edit_is_told(const struct wfs_node *node)
{
    return node->tensor != NULL && (node->edit == NULL || !node->edit->is_namesake);
}

/* Takes the tensor of the other node, and what was set of its texts, dtype and shape, where this
 * one has none of its own. -ENOMEM. */
int edit_inherit(struct wfs_tree *tree, struct wfs_node *node, const struct wfs_node *from,
                 bool takes_dtype, bool takes_shape);

/* Replaces the shape. -ENOMEM. */
int edit_set_shape(struct edit *edit, const struct wfs_shape *shape);

/* Takes back everything that was changed of the node but its names; its staged file is removed. A
 * tensor file is the catalog's tensor again. */
void edit_reset(struct wfs_tree *tree, struct wfs_node *node);

/* Makes nothing up to `generation` pending any more. */
void edit_settle(struct wfs_tree *tree, uint64_t generation);

/* Frees the node, with its edit and its staged file, when neither links nor references are left. */
void edit_release(struct wfs_tree *tree, struct wfs_node *node);

/* Frees all nodes and the names that entries own, at the end of the tree. Staged files stay. */
void edit_free_all(struct wfs_tree *tree);

/* ---- records of the journal ---- */

/* Each is written before the change is made, so that a change that cannot be recorded does not
 * happen. While a journal is replayed nothing is recorded. */
int notes_name(struct wfs_tree *tree, enum wfs_record_kind kind, const struct wfs_node *dir,
               const char *name);
int notes_move(struct wfs_tree *tree, const struct wfs_node *from_dir, const char *from_name,
               const struct wfs_node *to_dir, const char *to_name, unsigned flags);
int notes_link(struct wfs_tree *tree, const struct wfs_node *node, const struct wfs_node *dir,
               const char *name);

/* Nothing is recorded for a node without a name: it could not be found again. */
int notes_edit(struct wfs_tree *tree, const struct wfs_node *node, uint64_t number);
int notes_synced(struct wfs_tree *tree, const struct wfs_node *node);

/* value NULL: the attribute is removed. */
int notes_attr(struct wfs_tree *tree, const struct wfs_node *node, const char *name,
               const char *value, size_t n_bytes);

/* paths as the record has them. */
int notes_revert(struct wfs_tree *tree, const char *paths);

/* Takes the last record back when code, the result of its change, is an error. Returns code. node
 * is NULL for changes of names. */
int notes_settle(struct wfs_tree *tree, const struct wfs_node *node, int code);

#endif
