/* SPDX-License-Identifier: MIT */
/*
 * Which tensor goes into which file, and which files hold that already.
 */
#include <weightfs/cleanup.h>

#include "format/set/shard_set.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

enum { MAX_SHARDS = 10000 };

/* A new shard, or NULL when out of memory. */
static struct shard *add_shard(struct wfs_shards *set)
{
    if (set->n_shards == set->n_room) {
        const size_t n_room = set->n_room == 0 ? 16 : set->n_room * 2;
        struct shard *shards = reallocarray(set->shards, n_room, sizeof(*shards));
        if (shards == NULL)
            return NULL;
        set->shards = shards;
        set->n_room = n_room;
    }
    struct shard *shard = &set->shards[set->n_shards];
    *shard = (struct shard){0};
    if (catalog_new(&shard->part) < 0)
        return NULL;
    set->n_shards++;
    shard->part->format = set->catalog->format;
    shard->part->container = set->catalog->container;
    shard->part->meta = set->catalog->meta;
    shard->part->has_meta = set->catalog->has_meta;
    return shard;
}

/* Places and values are numbers in a graph that a part has not. */
static int add_tensor(struct shard *shard, const struct wfs_tensor *tensor)
{
    struct wfs_tensor *added = catalog_add(shard->part);
    if (added == NULL)
        return -ENOMEM;
    *added = *tensor;
    added->value = added->place = 0;
    return 0;
}

static int find_home(const struct wfs_shards *set, const struct source *home, size_t *ret)
{
    for (size_t i = set->n_shards; i-- > 0;) {
        if (set->shards[i].home == home) {
            *ret = i;
            return 1;
        }
    }
    return 0;
}

/* Each goes where it was; one that was nowhere goes where the one before it went. */
static int cut_as_it_was(struct wfs_shards *set, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = set->catalog;
    size_t at = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        const bool is_first = set->n_shards == 0;
        if (is_first || (tensor->home != NULL && !find_home(set, tensor->home, &at))) {
            const bool has_homeless = !is_first && set->shards[0].home == NULL;
            struct shard *shard = has_homeless ? &set->shards[0] : add_shard(set);
            if (shard == NULL)
                return wfs_fail_memory(err);
            shard->home = tensor->home;
            at = (size_t)(shard - set->shards);
        }
        if (add_tensor(&set->shards[at], tensor) < 0)
            return wfs_fail_memory(err);
    }
    return 0;
}

/* ---- by size ---- */

struct cutting {
    struct wfs_shards *set;
    uint64_t max_bytes, n_bytes; /* of the shard that is being filled */
    struct map by_place;         /* tensors, by where they lie */
    uint32_t *shard_of;          /* malloc'ed, for each tensor */
};

struct wanted {
    const struct wfs_catalog *catalog;
    const struct wfs_tensor *tensor;
};

static bool is_tied(const void *ctx, uint32_t id)
{
    const struct wanted *wanted = ctx;
    const struct wfs_stored *a = &wanted->catalog->tensors[id].stored;
    const struct wfs_stored *b = &wanted->tensor->stored;
    return a->source == b->source && a->offset == b->offset;
}

/* The file for the tensor: that of one which lies at the same place, the open one, or a new one. */
static int choose(struct cutting *cutting, uint32_t i, size_t *ret)
{
    struct wfs_shards *set = cutting->set;
    const struct wfs_tensor *tensor = &set->catalog->tensors[i];
    const struct wanted wanted = {set->catalog, tensor};
    const uint64_t place[] = {(uintptr_t)tensor->stored.source, tensor->stored.offset};
    const uint64_t hash = hash_bytes(place, sizeof(place), hash_seed());
    uint32_t twin;
    if (tensor->n_bytes > 0 && tensor->stored.source != NULL) {
        if (map_find(&cutting->by_place, hash, is_tied, &wanted, &twin)) {
            *ret = cutting->shard_of[twin];
            return 0;
        }
        if (map_add(&cutting->by_place, hash, i) < 0)
            return -ENOMEM;
    }
    const bool is_full = cutting->n_bytes > 0 && tensor->n_bytes > 0 &&
                         (cutting->n_bytes >= cutting->max_bytes ||
                          tensor->n_bytes > cutting->max_bytes - cutting->n_bytes);
    if (set->n_shards == 0 || is_full) {
        if (add_shard(set) == NULL)
            return -ENOMEM;
        cutting->n_bytes = 0;
    }
    if (!checked_add(cutting->n_bytes, tensor->n_bytes, &cutting->n_bytes))
        return -EFBIG;
    *ret = set->n_shards - 1;
    return 0;
}

static int cut_by_size(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = set->catalog;
    struct cutting cutting = {.set = set, .max_bytes = max_bytes};
    int code = catalog->n_tensors >= UINT32_MAX ? -E2BIG : 0;
    cutting.shard_of = calloc(catalog->n_tensors + 1, sizeof(*cutting.shard_of));
    if (cutting.shard_of == NULL)
        return wfs_fail_memory(err);
    for (uint32_t i = 0; code == 0 && i < catalog->n_tensors; i++) {
        size_t at = 0;
        code = choose(&cutting, i, &at);
        cutting.shard_of[i] = (uint32_t)at;
        if (code == 0)
            code = add_tensor(&set->shards[at], &catalog->tensors[i]);
        if (set->n_shards > MAX_SHARDS)
            code = -E2BIG;
    }
    map_done(&cutting.by_place);
    free(cutting.shard_of);
    if (code == -E2BIG)
        return wfs_fail(err, E2BIG,
                        "%" PRIu64 " bytes a file make more than %d files: a larger size is needed",
                        max_bytes, MAX_SHARDS);
    return code == -EFBIG ? wfs_fail(err, EFBIG, "the tensors take more than 2^64 bytes")
           : code < 0     ? wfs_fail_memory(err)
                          : 0;
}

/* Files that were whole before may be so again: those whose tensors all lie in one. */
static void find_homes(struct wfs_shards *set)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        shard->home = shard->part->n_tensors > 0 ? shard->part->tensors[0].home : NULL;
        for (size_t j = 0; j < shard->part->n_tensors; j++) {
            if (shard->part->tensors[j].home != shard->home)
                shard->home = NULL;
        }
    }
}

int shard_cut(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    if (set->catalog->n_tensors == 0)
        return wfs_fail(err, EINVAL, "there is no tensor, and so no file, for an index to name");
    const int code = max_bytes == 0 ? cut_as_it_was(set, err) : cut_by_size(set, max_bytes, err);
    if (code == 0)
        find_homes(set);
    return code;
}

/* ---- what is as it was ---- */

static bool is_same_shape(const struct wfs_shape *a, const struct wfs_shape *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0);
}

static bool is_same_text(const struct wfs_text *a, const struct wfs_text *b)
{
    for (; a != NULL && b != NULL; a = a->next, b = b->next) {
        if (strcmp(a->name, b->name) != 0 || a->n_bytes != b->n_bytes ||
            memcmp(a->value, b->value, a->n_bytes) != 0)
            return false;
    }
    return a == b;
}

static bool is_same_place(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    const size_t n_strides = a->shape.rank * sizeof(*x->strides);
    if ((x->strides == NULL) != (y->strides == NULL) ||
        (x->strides != NULL && n_strides > 0 && memcmp(x->strides, y->strides, n_strides) != 0))
        return false;
    return x->offset == y->offset && x->dtype == y->dtype && x->is_big_endian == y->is_big_endian &&
           x->is_conjugate == y->is_conjugate && x->is_negative == y->is_negative;
}

static bool is_of(const struct source *source, const struct source *home)
{
    return source == NULL || source == home || source->origin == home;
}

static bool is_same_tensor(const struct shard *shard, const struct wfs_tensor *wanted,
                           const struct wfs_tensor *found)
{
    return is_of(wanted->stored.source, shard->home) && strcmp(wanted->key, found->key) == 0 &&
           wanted->dtype == found->dtype && wanted->n_bytes == found->n_bytes &&
           is_same_shape(&wanted->shape, &found->shape) && is_same_place(wanted, found) &&
           is_same_text(wanted->attrs, found->attrs);
}

int shard_is_untouched(const struct wfs_shards *set, const struct shard *shard,
                       struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
    struct load_context context = {0};
    struct source *source;
    limits_max(&context.limits);
    if (shard->home == NULL || shard->home->fd < 0)
        return 0;
    const int fd = fcntl(shard->home->fd, F_DUPFD_CLOEXEC, 0);
    int code = fd < 0 ? wfs_fail(err, errno, "cannot look at a shard again: %s", strerror(errno))
                      : source_new_fd(shard->home->path, fd, &source, err);
    if (code == 0)
        code = load_source(source, &context, &found, err);
    if (code < 0)
        return code;
    bool is_same = found->n_tensors == shard->part->n_tensors && found->format == set->format;
    for (size_t i = 0; is_same && i < found->n_tensors; i++)
        is_same = is_same_tensor(shard, &shard->part->tensors[i], &found->tensors[i]);
    for (size_t i = 0; i < found->n_sources; i++)
        source_close(found->sources[i]);
    if (is_same)
        *out = steal(&found);
    return is_same;
}
