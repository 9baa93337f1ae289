/* SPDX-License-Identifier: MIT */
/*
 * A table of results by node. The lock is not held while a result is computed: two threads that
 * need the same one both compute it.
 */
#include "tree/digests.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/node/edit.h"

enum kind { XXH3, STATS, N_KINDS };

struct result {
    uint64_t ino, version; /* of the node and its content */
    char *texts[N_KINDS];  /* malloc'ed; NULL: not computed */
};

struct digests {
    pthread_mutex_t lock; /* guards all below */
    struct map map;
    struct result *results;
    uint32_t n_results;
    size_t n_room;
};

int digests_new(struct digests **out)
{
    struct digests *digests = calloc(1, sizeof(*digests));
    if (digests == NULL)
        return -ENOMEM;
    pthread_mutex_init(&digests->lock, NULL);
    *out = digests;
    return 0;
}

void digests_free(struct digests *digests)
{
    if (digests == NULL)
        return;
    for (uint32_t i = 0; i < digests->n_results; i++) {
        free(digests->results[i].texts[XXH3]);
        free(digests->results[i].texts[STATS]);
    }
    free(digests->results);
    map_done(&digests->map);
    pthread_mutex_destroy(&digests->lock);
    free(digests);
}

struct query {
    const struct digests *digests;
    uint64_t ino;
};

static bool is_match(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    return query->digests->results[id].ino == query->ino;
}

static uint64_t version_of(const struct wfs_node *node)
{
    return node->edit == NULL ? 0 : node->edit->version;
}

/* Returns the result of the node, emptied when the content has changed. NULL: no memory. */
static struct result *result_of(struct digests *digests, const struct wfs_node *node)
{
    const struct query query = {digests, node->ino};
    const uint64_t hash = hash_bytes(&node->ino, sizeof(node->ino), hash_seed());
    uint32_t id;
    if (!map_find(&digests->map, hash, is_match, &query, &id)) {
        if (array_reserve(&digests->results, sizeof(*digests->results), digests->n_results, 1,
                          &digests->n_room) < 0)
            return NULL;
        id = digests->n_results;
        if (map_add(&digests->map, hash, id) < 0)
            return NULL;
        digests->results[digests->n_results++] = (struct result){.ino = node->ino};
    }
    struct result *result = &digests->results[id];
    if (result->version != version_of(node)) {
        free(result->texts[XXH3]);
        free(result->texts[STATS]);
        *result = (struct result){.ino = node->ino, .version = version_of(node)};
    }
    return result;
}

/* ---- computing ---- */

static int put_xxh3(const struct wfs_tensor *tensor, struct strbuf *text)
{
    uint64_t digest;
    const int code = wfs_tensor_digest(tensor, &digest);
    if (code == 0)
        strbuf_printf(text, "%016" PRIx64, digest);
    return code;
}

static int put_stats(const struct wfs_tensor *tensor, struct strbuf *text)
{
    struct wfs_stats stats;
    const int code = wfs_tensor_stats(tensor, &stats);
    if (code < 0)
        return code == -EOPNOTSUPP ? -ENODATA : code;
    strbuf_printf(text,
                  "{\"elements\": %" PRIu64 ", \"finite\": %" PRIu64 ", \"nan\": %" PRIu64
                  ", \"positive_inf\": %" PRIu64 ", \"negative_inf\": %" PRIu64
                  ", \"zero\": %" PRIu64 ", \"min\": ",
                  stats.n_elems, stats.n_finite, stats.n_nan, stats.n_positive_inf,
                  stats.n_negative_inf, stats.n_zero);
    strbuf_number(text, stats.min);
    strbuf_puts(text, ", \"max\": ");
    strbuf_number(text, stats.max);
    strbuf_puts(text, ", \"mean\": ");
    strbuf_number(text, stats.mean);
    strbuf_puts(text, ", \"std\": ");
    strbuf_number(text, stats.std);
    strbuf_puts(text, "}");
    return 0;
}

/* A file that is not a tensor yet has a digest, too: of all its bytes. */
static int describe(const struct wfs_tree *tree, const struct wfs_node *node, struct arena *arena,
                    struct description *ret)
{
    const int code = description_make(tree, node, node->entry, arena, ret, NULL);
    if (code == -ENOMEM || code == -EIO)
        return code;
    if (code < 0)
        *ret = (struct description){.n_bytes = edit_n_bytes(node)};
    if (!ret->has_dtype || !ret->has_shape) {
        ret->dtype = WFS_OPAQUE;
        ret->shape = (struct wfs_shape){0};
    }
    return 0;
}

static int compute(const struct wfs_tree *tree, const struct wfs_node *node, enum kind kind,
                   struct strbuf *text)
{
    struct arena arena = {0};
    struct source *source = NULL;
    struct description description;
    struct wfs_tensor tensor;
    int code = describe(tree, node, &arena, &description);
    if (code == 0 && edit_is_staged(node) && node->edit->number != 0)
        code = editfile_source(tree, node, &source);
    if (code == 0)
        code = description_tensor(tree, node, node->entry, &description, source, &arena, &tensor);
    if (code == 0)
        code = kind == XXH3 ? put_xxh3(&tensor, text) : put_stats(&tensor, text);
    source_free(source);
    arena_done(&arena);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

static int get(const struct wfs_tree *tree, const struct wfs_node *node, enum kind kind,
               struct strbuf *text)
{
    struct digests *digests = tree->digests;
    pthread_mutex_lock(&digests->lock);
    struct result *result = result_of(digests, node);
    const bool is_known = result != NULL && result->texts[kind] != NULL;
    if (is_known)
        strbuf_puts(text, result->texts[kind]);
    pthread_mutex_unlock(&digests->lock);
    if (is_known)
        return text->has_failed ? -ENOMEM : 0;
    const int code = compute(tree, node, kind, text);
    if (code < 0)
        return code;
    pthread_mutex_lock(&digests->lock);
    result = result_of(digests, node);
    if (result != NULL && result->texts[kind] == NULL)
        result->texts[kind] = strdup(text->bytes);
    pthread_mutex_unlock(&digests->lock);
    return 0;
}

int digests_xxh3(const struct wfs_tree *tree, const struct wfs_node *node, struct strbuf *text)
{
    return get(tree, node, XXH3, text);
}

int digests_stats(const struct wfs_tree *tree, const struct wfs_node *node, struct strbuf *text)
{
    return get(tree, node, STATS, text);
}
