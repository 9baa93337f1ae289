/* SPDX-License-Identifier: MIT */
/*
 * Which tensor goes into which file of a set.
 */
#include "format/set/partition.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { MAX_SHARDS = 10000 };

/* A new shard, or NULL when out of memory. */
static struct shard *add_shard(struct wfs_shards *set)
{
    if (array_reserve(&set->shards, sizeof(*set->shards), set->n_shards, 1, &set->n_room) < 0)
        return NULL;
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
        return wfs_fail(err, E2BIG, "%s more than %d files: use a larger size",
                        wfs_count_as(max_bytes, "byte a file makes", "bytes a file make").text,
                        MAX_SHARDS);
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

int partition_make(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    if (set->catalog->n_tensors == 0)
        return wfs_fail(err, EINVAL, "there are no tensors to write as a set");
    const int code = max_bytes == 0 ? cut_as_it_was(set, err) : cut_by_size(set, max_bytes, err);
    if (code == 0)
        find_homes(set);
    return code;
}
