/* SPDX-License-Identifier: MIT */
/*
 * metadata.json is the one place of edited metadata: setting an attribute of the root writes it,
 * too. The parsed list is kept until the file changes. The status has a lock of its own, because
 * commits report while everything else goes on.
 */
#include "tree/control/texts.h"

#include "catalog/catalog.h"
#include "tree/file/editfile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"
#include "tree/stage/stage.h"

#include <jansson.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { METADATA_MAX = 64 << 20 }; /* bytes of the file */

struct metadata {
    pthread_mutex_t lock; /* guards all below */
    struct arena arena;
    const struct wfs_text *list;
    uint64_t ino, version; /* of the file that was parsed last */
};

struct status {
    pthread_mutex_t lock;   /* guards all below, and the file in the staging directory */
    struct wfs_status *now; /* malloc'ed; what the driver set last */
    bool was_set;           /* the driver set anything */
    time_t kept_at;         /* when the file was written last, seconds of the monotonic clock */
};

struct texts {
    struct metadata metadata;
    struct status status;
};

int texts_new(struct texts **out)
{
    const struct wfs_status clean = {.state = WFS_MOUNT_CLEAN};
    struct texts *texts = calloc(1, sizeof(*texts));
    if (texts == NULL || (texts->status.now = statusfile_copy(&clean)) == NULL) {
        free(texts);
        return -ENOMEM;
    }
    pthread_mutex_init(&texts->metadata.lock, NULL);
    pthread_mutex_init(&texts->status.lock, NULL);
    *out = texts;
    return 0;
}

void texts_free(struct texts *texts)
{
    if (texts == NULL)
        return;
    arena_done(&texts->metadata.arena);
    free(texts->status.now);
    pthread_mutex_destroy(&texts->metadata.lock);
    pthread_mutex_destroy(&texts->status.lock);
    free(texts);
}

/* ---- JSON in ---- */

static int read_file(const struct wfs_tree *tree, const struct wfs_node *node, char **ret,
                     size_t *ret_n_bytes, struct wfs_error *err)
{
    const int code = editfile_read_all(tree, node, METADATA_MAX, ret, ret_n_bytes);
    if (code == -EFBIG)
        return wfs_fail(err, EBADMSG, ".weightfs/metadata.json is larger than 64 MiB");
    if (code < 0)
        return wfs_fail(err, -code, "cannot read .weightfs/metadata.json: %s", strerror(-code));
    return 0;
}

static int copy_texts(const json_t *object, struct arena *arena, const struct wfs_text **ret,
                      struct wfs_error *err)
{
    struct wfs_text *first = NULL, **end = &first;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!json_is_string(value))
            return wfs_fail(err, EBADMSG,
                            ".weightfs/metadata.json: the value of '%s' is not a string",
                            wfs_quote(name).text);
        struct wfs_text *text = arena_calloc(arena, 1, sizeof(*text));
        if (text == NULL)
            return wfs_fail_memory(err);
        text->n_bytes = json_string_length(value);
        text->name = arena_copy(arena, name, strlen(name));
        text->value = arena_copy(arena, json_string_value(value), text->n_bytes);
        if (text->name == NULL || text->value == NULL)
            return wfs_fail_memory(err);
        *end = text;
        end = &text->next;
    }
    *ret = first;
    return 0;
}

static int parse(const char *bytes, size_t n_bytes, struct arena *arena,
                 const struct wfs_text **ret, struct wfs_error *err)
{
    json_error_t error;
    errno = 0;
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL && errno == ENOMEM)
        return wfs_fail_memory(err);
    if (root == NULL)
        return wfs_fail(err, EBADMSG, ".weightfs/metadata.json: line %d, column %d: %s", error.line,
                        error.column, error.text);
    const int code =
        json_is_object(root)
            ? copy_texts(root, arena, ret, err)
            : wfs_fail(err, EBADMSG, ".weightfs/metadata.json is not a JSON object of strings");
    json_decref(root);
    return code;
}

/* Makes the list that of the file, unless it is that already. */
static int refresh(const struct wfs_tree *tree, const struct wfs_node *node,
                   struct metadata *metadata, struct wfs_error *err)
{
    if (metadata->ino == node->ino && metadata->version == node->edit->version)
        return 0;
    autofree char *bytes = NULL;
    size_t n_bytes = 0;
    int code = read_file(tree, node, &bytes, &n_bytes, err);
    arena_done(&metadata->arena);
    metadata->ino = 0;
    metadata->list = NULL;
    if (code == 0)
        code = parse(bytes, n_bytes, &metadata->arena, &metadata->list, err);
    if (code < 0)
        return code;
    metadata->ino = node->ino;
    metadata->version = node->edit->version;
    return 0;
}

int metadata_list(const struct wfs_tree *tree, const struct wfs_text **ret, struct wfs_error *err)
{
    const struct wfs_node *node = entry_metadata(tree);
    struct metadata *metadata = &tree->texts->metadata;
    *ret = node == NULL ? NULL : wfs_catalog_meta(tree->catalog);
    if (node == NULL || !edit_is_staged(node))
        return 0;
    pthread_mutex_lock(&metadata->lock);
    const int code = refresh(tree, node, metadata, err);
    *ret = metadata->list;
    pthread_mutex_unlock(&metadata->lock);
    return code;
}

/* ---- JSON out ---- */

int metadata_render(const struct wfs_tree *tree, const char *name, const char *value,
                    size_t n_bytes, struct strbuf *text)
{
    const struct wfs_text *list = wfs_catalog_meta(tree->catalog);
    const int code = name == NULL ? 0 : metadata_list(tree, &list, NULL);
    bool is_due = value != NULL;
    if (code < 0)
        return code;
    struct json_out out = {.text = text};
    json_out_open_object(&out, NULL);
    for (; list != NULL; list = list->next) {
        const bool is_set = name != NULL && strcmp(name, list->name) == 0;
        if (!is_set)
            json_out_text_n(&out, list->name, list->value, list->n_bytes);
        else if (is_due)
            json_out_text_n(&out, name, value, n_bytes);
        is_due = is_due && !is_set;
    }
    if (is_due)
        json_out_text_n(&out, name, value, n_bytes);
    json_out_close(&out);
    return text->has_failed ? -ENOMEM : 0;
}

/* ---- status.json ---- */

/* The driver does not learn of each edit: whether any are pending is known here. */
static enum wfs_mount_state shown_state(const struct wfs_tree *tree, enum wfs_mount_state state)
{
    const bool is_quiet = state == WFS_MOUNT_CLEAN || state == WFS_MOUNT_PUBLISHED ||
                          state == WFS_MOUNT_PUBLISHED_UNSYNCED;
    return is_quiet && wfs_tree_has_pending(tree) ? WFS_MOUNT_DIRTY : state;
}

static void add_sources(const struct wfs_tree *tree, struct json_out *out)
{
    json_out_open_array(out, "sources");
    for (size_t i = 0; i < tree->catalog->sources.n; i++) {
        const struct source *source = tree->catalog->sources.list[i];
        json_out_open_object(out, NULL);
        json_out_text(out, "path", source->path);
        json_out_text(out, "state", atomic_load(source->has_changed) ? "changed" : "ok");
        if (source->kind->count_cached != NULL) {
            json_out_u64(out, "bytes", source->n_bytes);
            json_out_u64(out, "cached", source->kind->count_cached(source));
        }
        json_out_close(out);
    }
    json_out_close(out);
}

/* One process fetches for all of them. */
static void count_fetched(const struct wfs_tree *tree, struct wfs_status *status)
{
    status->n_fetched = status->n_needed = 0;
    for (size_t i = 0; i < tree->catalog->sources.n && status->n_needed == 0; i++) {
        const struct source *source = tree->catalog->sources.list[i];
        if (source->kind->count_fetched != NULL)
            source->kind->count_fetched(source, &status->n_fetched, &status->n_needed);
    }
}

/* Called with the lock held. */
static void render(const struct wfs_tree *tree, struct strbuf *text)
{
    struct wfs_status shown = *tree->texts->status.now;
    shown.state = shown_state(tree, shown.state);
    shown.n_edits = wfs_tree_n_edits(tree);
    shown.n_unsynced = atomic_load(&tree->n_unsynced);
    shown.pid = getpid();
    count_fetched(tree, &shown);
    struct json_out out = {.text = text};
    json_out_open_object(&out, NULL);
    statusfile_add(&shown, &out);
    add_sources(tree, &out);
    json_out_close(&out);
}

void status_render(const struct wfs_tree *tree, struct strbuf *text)
{
    pthread_mutex_lock(&tree->texts->status.lock);
    render(tree, text);
    pthread_mutex_unlock(&tree->texts->status.lock);
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

void wfs_tree_set_status(const struct wfs_tree *tree, const struct wfs_status *status)
{
    struct status *kept = &tree->texts->status;
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
        /* A failure is not reported: the text in the mount is the one that counts. */
        autostrbuf struct strbuf text = {0};
        render(tree, &text);
        if (!text.has_failed)
            stage_put_text(tree->stage, "status.json", text.bytes, text.n_bytes, false);
        kept->kept_at = now_seconds();
    }
    pthread_mutex_unlock(&kept->lock);
}
