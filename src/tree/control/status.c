/* SPDX-License-Identifier: MIT */
/*
 * The status has a lock of its own, because commits report while everything else goes on.
 */
#include "tree/control/status.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tensor/catalog.h"
#include "tree/node/edit.h"
#include "tree/stage/stage.h"
#include "tree/stage/statusfile.h"

struct status {
    pthread_mutex_t lock;   /* guards all below, and the file in the staging directory */
    struct wfs_status *now; /* malloc'ed; what the driver set last */
    bool was_set;           /* the driver set anything */
    time_t kept_at;         /* when the file was written last, seconds of the monotonic clock */
};

int status_new(struct status **out)
{
    const struct wfs_status clean = {.state = WFS_MOUNT_CLEAN};
    struct status *status = calloc(1, sizeof(*status));
    if (status == NULL || (status->now = statusfile_copy(&clean)) == NULL) {
        free(status);
        return -ENOMEM;
    }
    pthread_mutex_init(&status->lock, NULL);
    *out = status;
    return 0;
}

void status_free(struct status *status)
{
    if (status == NULL)
        return;
    free(status->now);
    pthread_mutex_destroy(&status->lock);
    free(status);
}

/* The driver does not learn of each edit: whether any are pending is known here. */
static enum wfs_mount_state shown_state(const struct wfs_tree *tree, enum wfs_mount_state state)
{
    const bool is_quiet = state == WFS_MOUNT_CLEAN || state == WFS_MOUNT_PUBLISHED ||
                          state == WFS_MOUNT_PUBLISHED_UNSYNCED;
    return is_quiet && wfs_tree_has_pending(tree) ? WFS_MOUNT_DIRTY : state;
}

static void add_sources(const struct wfs_tree *tree, struct strbuf *text)
{
    strbuf_puts(text, "  \"sources\": [");
    for (size_t i = 0; i < tree->catalog->n_sources; i++) {
        const struct source *source = tree->catalog->sources[i];
        strbuf_puts(text, i == 0 ? "\n    {\"path\": " : ",\n    {\"path\": ");
        strbuf_json(text, source->path);
        strbuf_puts(text, ", \"state\": ");
        strbuf_json(text, atomic_load(&source->has_changed) ? "changed" : "ok");
        if (source->count_cached != NULL)
            strbuf_printf(text, ", \"bytes\": %" PRIu64 ", \"cached\": %" PRIu64, source->n_bytes,
                          source->count_cached(source));
        strbuf_puts(text, "}");
    }
    strbuf_puts(text, tree->catalog->n_sources == 0 ? "]\n" : "\n  ]\n");
}

/* One process fetches for all of them. */
static void count_fetched(const struct wfs_tree *tree, struct wfs_status *status)
{
    status->n_fetched = status->n_needed = 0;
    for (size_t i = 0; i < tree->catalog->n_sources && status->n_needed == 0; i++) {
        const struct source *source = tree->catalog->sources[i];
        if (source->count_fetched != NULL)
            source->count_fetched(source, &status->n_fetched, &status->n_needed);
    }
}

/* Called with the lock held. */
static void render(const struct wfs_tree *tree, struct strbuf *text)
{
    struct wfs_status shown = *tree->status->now;
    shown.state = shown_state(tree, shown.state);
    shown.n_edits = wfs_tree_n_edits(tree);
    shown.n_unsynced = atomic_load(&tree->n_unsynced);
    shown.pid = getpid();
    count_fetched(tree, &shown);
    strbuf_puts(text, "{\n");
    statusfile_add(&shown, text);
    add_sources(tree, text);
    strbuf_puts(text, "}\n");
}

void status_render(const struct wfs_tree *tree, struct strbuf *text)
{
    pthread_mutex_lock(&tree->status->lock);
    render(tree, text);
    pthread_mutex_unlock(&tree->status->lock);
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static time_t now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static bool is_progress(const struct wfs_status *a, const struct wfs_status *b)
{
    return a->state == b->state && is_same(a->step, b->step) && is_same(a->text, b->text) &&
           a->error == b->error && a->committed_at == b->committed_at;
}

/* A failure is not reported: the text in the mount is the one that counts. */
static void keep(const struct wfs_tree *tree)
{
    autostrbuf struct strbuf text = {0};
    render(tree, &text);
    if (!text.has_failed)
        stage_put_text(tree->stage, "status.json", text.bytes, text.n_bytes, false);
}

void wfs_tree_set_status(const struct wfs_tree *tree, const struct wfs_status *status)
{
    struct status *kept = tree->status;
    struct wfs_status *copy = statusfile_copy(status);
    if (copy == NULL)
        return; /* the older one stays */
    pthread_mutex_lock(&kept->lock);
    const bool is_news = !kept->was_set || !is_progress(kept->now, copy);
    const bool is_old = now_seconds() - kept->kept_at > 1;
    free(kept->now);
    kept->now = copy;
    kept->was_set = true;
    /* Progress alone is not worth a file more than now and then. */
    if ((is_news || is_old) && tree->stage != NULL) {
        keep(tree);
        kept->kept_at = now_seconds();
    }
    pthread_mutex_unlock(&kept->lock);
}
