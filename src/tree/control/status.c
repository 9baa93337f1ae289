/* SPDX-License-Identifier: MIT */
/*
 * The record has a lock of its own, because commits report while everything else goes on.
 */
#include "tree/control/status.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/catalog.h"
#include "tree/stage/stage.h"

struct status {
    pthread_mutex_t lock; /* guards all below, and the file in the staging directory */
    struct wfs_status now;
    char *texts; /* malloc'ed: those of `now`, one after the other */
};

int status_new(struct status **out)
{
    struct status *status = calloc(1, sizeof(*status));
    if (status == NULL)
        return -ENOMEM;
    pthread_mutex_init(&status->lock, NULL);
    status->now.state = "clean";
    *out = status;
    return 0;
}

void status_free(struct status *status)
{
    if (status == NULL)
        return;
    free(status->texts);
    pthread_mutex_destroy(&status->lock);
    free(status);
}

/* The driver does not hear of each edit; that there are any is the tree's to say. */
static const char *shown_state(const struct wfs_tree *tree, const struct wfs_status *now)
{
    const char *state = now->state == NULL ? "clean" : now->state;
    const bool is_quiet = strcmp(state, "clean") == 0 || strncmp(state, "published", 9) == 0;
    return is_quiet && wfs_tree_has_pending(tree) ? "dirty" : state;
}

static void put_sources(const struct wfs_tree *tree, struct strbuf *text)
{
    strbuf_puts(text, "[");
    for (size_t i = 0; i < tree->catalog->n_sources; i++) {
        const struct source *source = tree->catalog->sources[i];
        strbuf_puts(text, i == 0 ? "\n    {\"path\": " : ",\n    {\"path\": ");
        strbuf_json(text, source->path);
        strbuf_puts(text, ", \"state\": ");
        strbuf_json(text, atomic_load(&source->has_changed) ? "changed" : "ok");
        strbuf_puts(text, "}");
    }
    strbuf_puts(text, tree->catalog->n_sources == 0 ? "]" : "\n  ]");
}

static void put_field(struct strbuf *text, const char *name, const char *value)
{
    strbuf_printf(text, "  \"%s\": ", name);
    strbuf_json(text, value);
    strbuf_puts(text, ",\n");
}

static void render(const struct wfs_tree *tree, const struct wfs_status *now, struct strbuf *text)
{
    strbuf_puts(text, "{\n");
    put_field(text, "state", shown_state(tree, now));
    put_field(text, "step", now->step);
    strbuf_printf(text, "  \"errno\": %d,\n", now->error);
    put_field(text, "text", now->text);
    strbuf_printf(text, "  \"edits\": %" PRIu64 ",\n", wfs_tree_n_edits(tree));
    strbuf_printf(text, "  \"unsynced\": %" PRIu64 ",\n", atomic_load(&tree->n_unsynced));
    strbuf_printf(text, "  \"done\": %" PRIu64 ",\n  \"total\": %" PRIu64 ",\n", now->n_done,
                  now->n_total);
    strbuf_printf(text, "  \"committed_at\": %" PRId64 ",\n", now->committed_at);
    put_field(text, "written", now->written);
    put_field(text, "output", now->output);
    put_field(text, "sandbox", now->sandbox);
    strbuf_printf(text, "  \"pid\": %ld,\n  \"sources\": ", (long)getpid());
    put_sources(tree, text);
    strbuf_puts(text, "\n}\n");
}

void status_render(const struct wfs_tree *tree, struct strbuf *text)
{
    pthread_mutex_lock(&tree->status->lock);
    render(tree, &tree->status->now, text);
    pthread_mutex_unlock(&tree->status->lock);
}

static void add_text(char **at, const char **text)
{
    if (*text == NULL)
        return;
    const size_t n = strlen(*text) + 1;
    *text = memcpy(*at, *text, n);
    *at += n;
}

/* A copy of the record with texts of its own. False: no memory. */
static bool copy_status(const struct wfs_status *from, struct wfs_status *ret, char **ret_texts)
{
    const char *const texts[] = {from->state,   from->step,   from->text,
                                 from->written, from->output, from->sandbox};
    size_t n = 1;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        n += texts[i] == NULL ? 0 : strlen(texts[i]) + 1;
    char *at = malloc(n);
    if (at == NULL)
        return false;
    *ret_texts = at;
    *ret = *from;
    add_text(&at, &ret->state);
    add_text(&at, &ret->step);
    add_text(&at, &ret->text);
    add_text(&at, &ret->written);
    add_text(&at, &ret->output);
    add_text(&at, &ret->sandbox);
    return true;
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Progress alone is not worth a file. */
static bool is_progress(const struct wfs_status *a, const struct wfs_status *b)
{
    return is_same(a->state, b->state) && is_same(a->step, b->step) && is_same(a->text, b->text) &&
           a->error == b->error && a->committed_at == b->committed_at;
}

void wfs_tree_set_status(const struct wfs_tree *tree, const struct wfs_status *status)
{
    struct status *kept = tree->status;
    struct wfs_status copy;
    char *texts;
    if (!copy_status(status, &copy, &texts))
        return; /* the older one stays */
    pthread_mutex_lock(&kept->lock);
    const bool is_news = kept->texts == NULL || !is_progress(&kept->now, &copy);
    free(kept->texts);
    kept->now = copy;
    kept->texts = texts;
    if (is_news && tree->stage != NULL) {
        autostrbuf struct strbuf text = {0};
        render(tree, &kept->now, &text);
        /* Nobody can be told that this failed; the text in the mount is the one that counts. */
        if (!text.has_failed)
            stage_put_text(tree->stage, "status.json", text.bytes, text.n_bytes, false);
    }
    pthread_mutex_unlock(&kept->lock);
}
