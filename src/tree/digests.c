/* SPDX-License-Identifier: MIT */
/*
 * A table of results by node. The lock is not held while a result is computed: two threads that
 * need the same one both compute it. A job has all that the computation needs, so that the tree may
 * change meanwhile; the version of the content shows whether it did.
 */
#include "tree/content.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/workload.h>
#include "tensor/tensor.h"
#include "tree/file/description.h"
#include "tree/file/editfile.h"
#include "tree/node/edit.h"
#include "tree/node/node.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct wfs_digest_job {
    enum digest_kind kind;
    uint64_t version; /* of the content */
    struct wfs_tensor tensor;
    const char *scale;     /* key of the tensor with its scales; NULL: none */
    struct source *source; /* of staged content; NULL: the tensor lies in the catalog's */
    struct arena arena;
    struct strbuf text; /* the result */
};

struct result {
    uint64_t ino, version;       /* of the node and its content */
    char *texts[DIGEST_N_KINDS]; /* malloc'ed; NULL: not computed */
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
        free(digests->results[i].texts[DIGEST_XXH3]);
        free(digests->results[i].texts[DIGEST_STATS]);
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
        free(result->texts[DIGEST_XXH3]);
        free(result->texts[DIGEST_STATS]);
        *result = (struct result){.ino = node->ino, .version = version_of(node)};
    }
    return result;
}

/* ---- computing ---- */

static int put_xxh3(const struct wfs_io *io, const struct wfs_tensor *tensor, struct strbuf *text)
{
    uint64_t digest;
    const int code = wfs_tensor_digest_and(io, tensor, NULL, NULL, &digest);
    if (code == 0)
        strbuf_printf(text, "%016" PRIx64, digest);
    return code;
}

/* Scales are not applied: the numbers are the stored codes. */
static int put_stats(const struct wfs_io *io, const struct wfs_tensor *tensor, const char *scale,
                     struct strbuf *text)
{
    struct wfs_stats stats;
    const int code = wfs_tensor_stats(io, tensor, &stats);
    if (code < 0)
        return code == -EOPNOTSUPP ? -ENODATA : code;
    struct json_out out = {.text = text, .is_part = true};
    json_out_open(&out, NULL, '{', JSON_ROW);
    json_out_u64(&out, "elements", stats.n_elems);
    json_out_u64(&out, "finite", stats.n_finite);
    json_out_u64(&out, "nan", stats.n_nan);
    json_out_u64(&out, "positive_inf", stats.n_positive_inf);
    json_out_u64(&out, "negative_inf", stats.n_negative_inf);
    json_out_u64(&out, "zero", stats.n_zero);
    json_out_double(&out, "min", stats.min);
    json_out_double(&out, "max", stats.max);
    json_out_double(&out, "mean", stats.mean);
    json_out_double(&out, "std", stats.std);
    if (scale != NULL)
        json_out_text(&out, "scale", scale);
    json_out_close(&out);
    return 0;
}

/* A file that is not a tensor yet has a digest, too: of all its bytes. */
static int describe(const struct wfs_tree *tree, const struct wfs_node *node, struct arena *arena,
                    struct description *ret)
{
    const int code = sibling_describe(tree, node, node->entry, arena, ret, NULL);
    if (code < 0 && !description_is_of_header(code))
        return code;
    if (code < 0)
        *ret = (struct description){.n_bytes = edit_n_bytes(node)};
    if (!ret->has_dtype || !ret->has_shape) {
        ret->dtype = WFS_OPAQUE;
        ret->shape = (struct wfs_shape){0};
    }
    return 0;
}

static int fill_job(const struct wfs_tree *tree, const struct wfs_node *node,
                    struct wfs_digest_job *job)
{
    struct description description;
    int code = describe(tree, node, &job->arena, &description);
    if (code == 0 && edit_is_staged(node) && node->edit->number != 0)
        code = editfile_source(tree, node, &job->source);
    if (code == 0)
        code = description_tensor(tree, node, node->entry, &description, job->source, &job->arena,
                                  &job->tensor);
    if (code == 0)
        code = shape_own(&job->tensor.shape, &job->arena); /* the edit of the node may free it */
    if (code == 0 && job->kind == DIGEST_STATS && node->tensor != NULL)
        code = wfs_catalog_scale_of(tree->catalog, node->tensor, &job->scale);
    /* Statistics need each stored element once only. */
    if (code == 0 && job->kind == DIGEST_XXH3 && !tree->options.allows_large &&
        wfs_tensor_is_large(&job->tensor))
        code = -EFBIG;
    return code;
}

void wfs_digest_job_free(struct wfs_digest_job *job)
{
    if (job == NULL)
        return;
    source_free(job->source);
    arena_done(&job->arena);
    strbuf_done(&job->text);
    free(job);
}

static int new_job(const struct wfs_tree *tree, const struct wfs_node *node, enum digest_kind kind,
                   struct wfs_digest_job **out)
{
    struct wfs_digest_job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return -ENOMEM;
    job->kind = kind;
    job->version = version_of(node);
    const int code = fill_job(tree, node, job);
    if (code < 0)
        wfs_digest_job_free(job);
    else
        *out = job;
    return code;
}

bool wfs_digest_job_is_long(const struct wfs_digest_job *job)
{
    enum { N_SHORT = 4 << 20 };
    return job->tensor.n_bytes > N_SHORT;
}

int wfs_digest_job_run(const struct wfs_io *io, struct wfs_digest_job *job)
{
    const int code = job->kind == DIGEST_XXH3 ? put_xxh3(io, &job->tensor, &job->text)
                                              : put_stats(io, &job->tensor, job->scale, &job->text);
    return code < 0 ? code : job->text.has_failed ? -ENOMEM : 0;
}

int wfs_digest_job_end(const struct wfs_tree *tree, const struct wfs_node *node,
                       const struct wfs_digest_job *job, int code)
{
    struct digests *digests = tree->digests;
    if (job->version != version_of(node))
        return code == -EINTR ? code : -EAGAIN;
    if (code < 0)
        return code;
    pthread_mutex_lock(&digests->lock);
    struct result *result = result_of(digests, node);
    if (result != NULL && result->texts[job->kind] == NULL)
        result->texts[job->kind] = strdup(job->text.bytes);
    pthread_mutex_unlock(&digests->lock);
    return 0;
}

const char *wfs_digest_job_text(const struct wfs_digest_job *job)
{
    return job->text.bytes;
}

/* ---- getting ---- */

static bool find_known(const struct wfs_tree *tree, const struct wfs_node *node,
                       enum digest_kind kind, struct strbuf *text)
{
    struct digests *digests = tree->digests;
    pthread_mutex_lock(&digests->lock);
    const struct result *result = result_of(digests, node);
    const bool is_known = result != NULL && result->texts[kind] != NULL;
    if (is_known)
        strbuf_puts(text, result->texts[kind]);
    pthread_mutex_unlock(&digests->lock);
    return is_known;
}

static void cleanup_job(struct wfs_digest_job **job)
{
    wfs_digest_job_free(*job);
}

int digests_get(const struct wfs_tree *tree, const struct wfs_node *node, enum digest_kind kind,
                struct strbuf *text)
{
    cleanup(cleanup_job) struct wfs_digest_job *job = NULL;
    if (find_known(tree, node, kind, text))
        return text->has_failed ? -ENOMEM : 0;
    int code = new_job(tree, node, kind, &job);
    if (code == 0)
        code = wfs_digest_job_end(tree, node, job, wfs_digest_job_run(NULL, job));
    if (code == 0)
        strbuf_puts(text, job->text.bytes);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

int wfs_digest_job_new(const struct wfs_tree *tree, const struct wfs_node *node, const char *name,
                       struct wfs_digest_job **ret)
{
    const bool is_xxh3 = strcmp(name, "user.weightfs.xxh3") == 0;
    autostrbuf struct strbuf text = {0};
    *ret = NULL;
    if (node->kind != NODE_FILE || (!is_xxh3 && strcmp(name, "user.weightfs.stats") != 0))
        return 0;
    const enum digest_kind kind = is_xxh3 ? DIGEST_XXH3 : DIGEST_STATS;
    return find_known(tree, node, kind, &text) ? 0 : new_job(tree, node, kind, ret);
}
