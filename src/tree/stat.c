/* SPDX-License-Identifier: MIT */
/*
 * What stat(2) and statvfs(2) show, and what of it can be set. Versions of generated files are
 * entered and left here, because an entry has a number and its attributes at once.
 */
#include "base/source.h"
#include "tree/content.h"
#include "tree/control/control.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <fcntl.h>

/* Returns the time of everything that nobody has changed, but for what the tree generates. */
static struct timespec base_time(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (node->kind == NODE_DIR || node->kind == NODE_VALUE)
        return tree->mtime;
    const struct source *source = node->tensor == NULL ? NULL : node->tensor->stored.source;
    if (source == NULL || source->identity.mtime_ns == 0)
        return tree->mtime;
    const int64_t ns = source->identity.mtime_ns,
                  rest = (ns % 1000000000 + 1000000000) % 1000000000;
    return (struct timespec){.tv_sec = (ns - rest) / 1000000000, .tv_nsec = rest};
}

/* Fills in the times. The ctime begins as the base time, and never falls behind it. */
static void stat_times(const struct wfs_node *node, const struct timespec base, struct stat *ret)
{
    const struct edit *edit = node->edit;
    ret->st_mtim = ret->st_ctim = base;
    if (node->kind == NODE_DIR)
        ret->st_mtim = node->directory->mtime;
    else if (edit != NULL && edit->has_mtime)
        ret->st_mtim = edit->mtime;
    const struct timespec changed = node->kind == NODE_DIR ? node->directory->ctime
                                    : edit != NULL         ? edit->ctime
                                                           : base;
    if (node_is_before(&base, &changed))
        ret->st_ctim = changed;
    ret->st_atim = edit != NULL && edit->has_atime ? edit->atime : ret->st_mtim;
}

/*
 * A read-only tree keeps the owner's write bit, as a filesystem that is mounted read-only does:
 * copies of its files would otherwise refuse the attributes that are set on them next.
 */
static mode_t mode_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    const bool is_writable = !node_is_fixed(node);
    const mode_t type = node->kind == NODE_DIR ? S_IFDIR : S_IFREG;
    const mode_t hidden = wfs_node_is_control(tree, node) ? tree->options.control_umask : 0;
    if (node->edit != NULL && node->edit->has_mode)
        return type | (node->edit->mode & ~hidden);
    const mode_t bits = (node->kind == NODE_DIR ? 0555 : 0444) | (is_writable ? 0200 : 0);
    return type | (bits & ~tree->options.umask & ~hidden);
}

static void fill(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_bytes,
                 const struct timespec base, struct stat *ret)
{
    const bool is_of_other = node->edit != NULL && node->edit->uid != 0;
    *ret = (struct stat){
        .st_ino = node->ino,
        .st_mode = mode_of(tree, node),
        .st_nlink = atomic_load_explicit(&node->n_links, memory_order_relaxed),
        .st_uid = is_of_other ? node->edit->uid : tree->options.uid,
        .st_gid = is_of_other ? node->edit->gid : tree->options.gid,
        .st_size = (off_t)n_bytes,
        .st_blksize = 4096,
        .st_blocks = (blkcnt_t)(n_bytes / 512 + (n_bytes % 512 != 0)),
    };
    stat_times(node, base, ret);
}

void wfs_node_stat(const struct wfs_tree *tree, const struct wfs_node *node, struct stat *ret)
{
    struct control_look look;
    if (!node_is_fixed(node)) {
        fill(tree, node, content_n_bytes(tree, node), base_time(tree, node), ret);
        return;
    }
    (void)control_look(tree, node, 0, &look);
    fill(tree, node, look.n_bytes, look.mtime, ret);
}

/* ---- numbers ---- */

uint64_t wfs_number_enter(const struct wfs_tree *tree, struct wfs_node *node, struct stat *ret)
{
    struct control_look look;
    if (!node_is_fixed(node)) {
        wfs_node_stat(tree, node, ret);
        wfs_node_ref(node, 1);
        return wfs_node_number(node);
    }
    (void)control_look(tree, node, 1, &look);
    fill(tree, node, look.n_bytes, look.mtime, ret);
    return look.number;
}

bool wfs_number_leave(const struct wfs_tree *tree, uint64_t number, uint64_t n)
{
    struct wfs_node *node = wfs_tree_node(tree, number);
    if (node == NULL)
        return false;
    if (!node_is_fixed(node))
        return wfs_node_unref(node, n);
    control_unref(tree, node, number, n);
    return false;
}

void wfs_number_stat(const struct wfs_tree *tree, uint64_t number, struct stat *ret)
{
    struct control_look look;
    const struct wfs_node *node = wfs_tree_node(tree, number);
    if (!node_is_fixed(node)) {
        wfs_node_stat(tree, node, ret);
        return;
    }
    (void)control_look_at(tree, node, number, &look);
    fill(tree, node, look.n_bytes, look.mtime, ret);
}

/* ---- what can be set ---- */

/* Returns true when there is a time to set, and makes it. */
static bool resolve_time(const struct timespec *time, struct timespec *ret)
{
    if (time == NULL || time->tv_nsec == UTIME_OMIT)
        return false;
    *ret = time->tv_nsec == UTIME_NOW ? node_now() : *time;
    return true;
}

int wfs_node_set_times(struct wfs_tree *tree, struct wfs_node *node, const struct timespec *atime,
                       const struct timespec *mtime)
{
    if (!tree_is_open(tree))
        return -EROFS;
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    edit->has_atime |= resolve_time(atime, &edit->atime);
    if (node->kind == NODE_DIR)
        (void)resolve_time(mtime, &node->directory->mtime);
    else
        edit->has_mtime |= resolve_time(mtime, &edit->mtime);
    edit_touch(tree, node);
    return 0;
}

void wfs_node_set_creator(const struct wfs_tree *tree, struct wfs_node *node, uid_t uid, gid_t gid)
{
    if (uid == 0 || uid == tree->options.uid)
        return;
    node->edit->uid = uid;
    node->edit->gid = gid;
}

int wfs_node_set_mode(struct wfs_tree *tree, struct wfs_node *node, mode_t mode)
{
    if (!tree_is_open(tree))
        return -EROFS;
    if (node_is_fixed(node))
        return -EPERM;
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    edit->has_mode = true;
    edit->mode = mode & 07777;
    edit_touch(tree, node);
    return 0;
}

/* Whole blocks that hold the bytes. */
static fsblkcnt_t blocks(uint64_t n_bytes, uint64_t n_block)
{
    return n_bytes / n_block + (n_bytes % n_block != 0);
}

void wfs_tree_statfs(const struct wfs_tree *tree, struct statvfs *ret)
{
    struct statvfs stage;
    *ret = (struct statvfs){
        .f_bsize = 4096,
        .f_frsize = 4096,
        .f_namemax = KEY_NAME_MAX,
        .f_files = tree->n_nodes,
        .f_blocks = blocks(tree->n_bytes, 4096),
    };
    if (tree->stage == NULL) {
        ret->f_flag = ST_RDONLY;
        return;
    }
    if (datafiles_statfs(&tree->stage->data, &stage) < 0)
        return;
    /* What is free is free in the staging directory, for what is not yet there. */
    const uint64_t n_block = stage.f_frsize == 0 ? 4096 : stage.f_frsize;
    ret->f_bfree = (fsblkcnt_t)((double)stage.f_bfree * (double)n_block / 4096);
    ret->f_bavail = (fsblkcnt_t)((double)stage.f_bavail * (double)n_block / 4096);
    ret->f_blocks += ret->f_bfree;
    ret->f_ffree = ret->f_favail = stage.f_favail;
    ret->f_files += ret->f_ffree;
}
