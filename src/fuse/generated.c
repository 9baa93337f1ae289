/* SPDX-License-Identifier: MIT */
/*
 * A layout is kept while a file is open, or while it is read, which takes no lock. A read-only
 * mount never receives opens, so it keeps each layout after the first read.
 */
#include "fuse/generated.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/patch.h>
#include "fuse/log.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What was planned once. It stays as it is. */
struct planned {
    struct commit commit;
    struct wfs_tree *unedited; /* the tree of the source that it may be of, or NULL */
    size_t n_users;
};

struct file {
    char name[48];
    const struct wfs_tree *edited; /* for a file of the source: its tree is made of this; or NULL */
    bool is_redacted;
    struct commit draft;
    pthread_mutex_t lock; /* guards all below */
    bool is_known;        /* code and n_bytes belong to the generation */
    bool is_kept;         /* for reads without an open */
    bool has_complained;
    uint64_t generation, n_bytes;
    int code;
    struct wfs_error err;
    struct planned *planned; /* NULL: nothing is kept */
    size_t n_open;
};

struct generated {
    struct file files[WFS_TREE_MADE_MAX];
    struct wfs_tree_made made[WFS_TREE_MADE_MAX];
    size_t n_files;
};

/* The lock is held. */
static void let_go(struct planned *planned)
{
    if (planned == NULL || --planned->n_users > 0)
        return;
    commit_done(&planned->commit);
    wfs_tree_free(planned->unedited);
    free(planned);
}

static void drop(struct file *file)
{
    let_go(file->planned);
    file->planned = NULL;
}

static int plan(struct file *file)
{
    struct planned *planned = calloc(1, sizeof(*planned));
    if (planned == NULL)
        return -ENOMEM;
    planned->n_users = 1;
    file->planned = planned;
    planned->commit = file->draft;
    if (file->edited != NULL) {
        const int code = wfs_tree_unedited(file->edited, &planned->unedited, &file->err);
        if (code < 0)
            return code;
        planned->commit.tree = planned->unedited;
    }
    return commit_plan(&planned->commit, &file->err);
}

/* The lock is held. The source stays as it was loaded. */
static int refresh(struct file *file, bool wants_layout)
{
    const uint64_t generation = file->edited != NULL ? 0 : wfs_tree_generation(file->draft.tree);
    if (file->is_known && file->generation == generation &&
        (file->code < 0 || !wants_layout || file->planned != NULL))
        return file->code;
    drop(file);
    file->err = (struct wfs_error){0};
    file->is_kept = file->has_complained = false;
    /* The size is the same without them. */
    file->draft.has_digests = wants_layout || file->n_open > 0;
    file->code = plan(file);
    file->n_bytes = file->code < 0 ? 0 : file->planned->commit.account.n_bytes;
    file->generation = generation;
    file->is_known = file->code != -ENOMEM && file->code != -EAGAIN;
    if (file->code < 0)
        drop(file);
    return file->code;
}

static void drop_unused(struct file *file)
{
    if (file->n_open == 0 && !file->is_kept)
        drop(file);
}

static void complain(struct file *file)
{
    if (file->has_complained || file->code == -EAGAIN)
        return;
    file->has_complained = true;
    log_error("cannot make '" WFS_CONTROL_NAME "/" WFS_OUT_NAME "/%s': %s", file->name,
              file->is_redacted || file->err.code == 0 ? strerror(-file->code) : file->err.text);
}

static int n_bytes_of(const void *ctx, uint64_t *ret)
{
    struct file *file = (struct file *)(uintptr_t)ctx;
    pthread_mutex_lock(&file->lock);
    const int code = refresh(file, false);
    *ret = file->n_bytes;
    drop_unused(file);
    pthread_mutex_unlock(&file->lock);
    return code;
}

static int hold(const void *ctx, const void **ret_held)
{
    struct file *file = (struct file *)(uintptr_t)ctx;
    pthread_mutex_lock(&file->lock);
    const int code = refresh(file, true);
    file->is_kept |= file->n_open == 0;
    if (code < 0)
        complain(file);
    else
        file->planned->n_users++;
    *ret_held = file->planned;
    pthread_mutex_unlock(&file->lock);
    return code;
}

static void end_hold(const void *ctx, const void *held)
{
    struct file *file = (struct file *)(uintptr_t)ctx;
    pthread_mutex_lock(&file->lock);
    let_go((struct planned *)(uintptr_t)held);
    pthread_mutex_unlock(&file->lock);
}

static ssize_t read_held(const struct wfs_io *io, const void *held, uint64_t offset, void *buf,
                         size_t n_bytes)
{
    const struct planned *planned = held;
    return wfs_layout_read(io, planned->commit.layout, offset, buf, n_bytes);
}

/* Adds a file with the first extension of the format. */
static void add_file(struct generated *all, const struct commit *draft,
                     const struct wfs_format *format, const char *name, bool is_hidden)
{
    struct file *file = &all->files[all->n_files];
    assert(all->n_files < WFS_TREE_MADE_MAX);
    *file = (struct file){.draft = *draft};
    snprintf(file->name, sizeof(file->name), "%s%s", name, format->extensions[0]);
    file->draft.format = format;
    pthread_mutex_init(&file->lock, NULL);
    all->made[all->n_files++] =
        (struct wfs_tree_made){file->name, is_hidden, n_bytes_of, hold, end_hold, read_held, file};
}

/* Returns whether a checkpoint of the format is one file that can be made. */
static bool is_made(const struct wfs_format *format)
{
    return wfs_format_can_write(format) && !format->is_directory;
}

int generated_new(const struct commit *draft, const struct wfs_format *loaded, bool is_redacted,
                  struct generated **out)
{
    struct generated *all = calloc(1, sizeof(*all));
    const struct wfs_format *format;
    if (all == NULL)
        return -ENOMEM;
    const bool is_known = loaded != NULL && is_made(loaded);
    for (size_t i = 0; (format = wfs_format_at(i)) != NULL; i++) {
        if (!is_made(format))
            continue;
        add_file(all, draft, format, "model", false);
        /* What is edited is compared with the source in its own format, or in one that stores all.
         */
        if (is_known ? format == loaded : format->keeps_ties && format->values == WFS_VALUES_ANY)
            add_file(all, draft, format, "source", true);
    }
    add_file(all, draft, wfs_format_by_path(WFS_PATCH_NAME), "edits", false);
    struct commit *patch = &all->files[all->n_files - 1].draft;
    patch->is_patch = true;
    patch->fit_options = (struct wfs_fit_options){0};
    patch->large_option = NULL;
    for (size_t i = 0; i < all->n_files; i++)
        all->files[i].is_redacted = is_redacted;
    *out = all;
    return 0;
}

void generated_free(struct generated *generated)
{
    if (generated == NULL)
        return;
    for (size_t i = 0; i < generated->n_files; i++) {
        drop(&generated->files[i]);
        pthread_mutex_destroy(&generated->files[i].lock);
    }
    free(generated);
}

const struct wfs_tree_made *generated_files(const struct generated *generated, size_t *ret_n)
{
    *ret_n = generated->n_files;
    return generated->made;
}

void generated_attach(struct generated *generated, const struct wfs_tree *tree)
{
    for (size_t i = 0; i < generated->n_files; i++) {
        if (generated->made[i].is_hidden)
            generated->files[i].edited = tree;
        else
            generated->files[i].draft.tree = tree;
    }
}

int generated_open(const struct wfs_tree_made *made)
{
    struct file *file = (struct file *)(uintptr_t)made->ctx;
    pthread_mutex_lock(&file->lock);
    const int code = refresh(file, true);
    file->n_open += code == 0;
    if (code < 0)
        complain(file);
    pthread_mutex_unlock(&file->lock);
    return code;
}

void generated_close(const struct wfs_tree_made *made)
{
    struct file *file = (struct file *)(uintptr_t)made->ctx;
    pthread_mutex_lock(&file->lock);
    file->n_open--;
    drop_unused(file);
    pthread_mutex_unlock(&file->lock);
}
