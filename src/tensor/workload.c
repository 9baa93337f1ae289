/* SPDX-License-Identifier: MIT */
/*
 * A map from what is looked at to the first work that does. Only ties have the same result for
 * sure; views that overlap in other ways are work of their own.
 */
#include <weightfs/workload.h>

#include <weightfs/cleanup.h>
#include <weightfs/distinct.h>

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/source.h"
#include "tensor/tied.h"

/* The bytes that are always looked at take one or two seconds. */
enum { N_TIMES = 16, N_FREE = 256 << 20 };

struct wfs_workload {
    uint32_t *groups; /* of each work */
    uint32_t n_groups;
    uint64_t n_most;  /* what the work may cost, as wfs_distinct_cost counts */
    uint64_t n_files; /* bytes of all files */
    uint64_t n_bytes; /* what it costs, up to the first tensor that makes it too much */
    const struct wfs_tensor *last; /* that tensor; NULL: none does */
    uint64_t n_shown;
};

struct query {
    const struct wfs_work *works;
    size_t i;
};

static bool is_match(const void *ctx, uint32_t id)
{
    const struct query *query = ctx;
    const struct wfs_work *a = &query->works[query->i], *b = &query->works[id];
    if ((a->beside == NULL) != (b->beside == NULL) || !tied_are_same(a->tensor, b->tensor))
        return false;
    return a->beside == NULL || tied_are_same(a->beside, b->beside);
}

static uint64_t hash_work(const struct wfs_work *work)
{
    const uint64_t hashes[] = {tied_hash(work->tensor),
                               work->beside == NULL ? 0 : tied_hash(work->beside)};
    return hash_bytes(hashes, sizeof(hashes), hash_seed());
}

static void add(uint64_t *total, uint64_t n)
{
    if (!checked_add(*total, n, total))
        *total = UINT64_MAX;
}

static int add_cost(struct wfs_workload *workload, const struct wfs_work *work)
{
    uint64_t n = work->reads_shown ? wfs_tensor_cost(work->tensor) : 0, n_beside = 0;
    int code = work->reads_shown ? 0 : wfs_distinct_cost(work->tensor, work->beside, &n);
    if (code == 0 && work->beside != NULL)
        code = wfs_distinct_cost(work->beside, work->tensor, &n_beside);
    if (code < 0)
        return code;
    add(&workload->n_bytes, n);
    add(&workload->n_bytes, n_beside);
    if (workload->n_bytes > workload->n_most)
        workload->last = work->tensor;
    return 0;
}

static int add_all(struct wfs_workload *workload, const struct wfs_work *works, size_t n,
                   struct map *map)
{
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        const struct query query = {works, i};
        uint32_t id;
        if (works[i].tensor == NULL)
            continue;
        const uint64_t hash = hash_work(&works[i]);
        if (map_find(map, hash, is_match, &query, &id)) {
            if (workload->groups[id] == 0)
                workload->groups[id] = ++workload->n_groups;
            workload->groups[i] = workload->groups[id];
            continue;
        }
        add(&workload->n_shown, works[i].tensor->n_bytes);
        code = map_add(map, hash, (uint32_t)i);
        if (code == 0 && workload->last == NULL)
            code = add_cost(workload, &works[i]);
    }
    return code;
}

static int sum_files(const struct wfs_work *works, size_t n, uint64_t *ret)
{
    autofree const struct source **sources = calloc(2 * n + 1, sizeof(*sources));
    size_t n_sources = 0;
    if (sources == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensors[] = {works[i].tensor, works[i].beside};
        for (size_t k = 0; k < 2; k++) {
            if (tensors[k] != NULL && tensors[k]->stored.source != NULL)
                sources[n_sources++] = tensors[k]->stored.source;
        }
    }
    *ret = source_sum(sources, n_sources);
    return 0;
}

int wfs_workload_new(const struct wfs_work *works, size_t n, struct wfs_workload **out)
{
    struct map map = {0};
    struct wfs_workload *workload = calloc(1, sizeof(*workload));
    if (workload == NULL)
        return -ENOMEM;
    workload->groups = calloc(n + 1, sizeof(*workload->groups));
    int code = workload->groups == NULL ? -ENOMEM : sum_files(works, n, &workload->n_files);
    if (!checked_mul(workload->n_files, (uint64_t)N_TIMES, &workload->n_most) ||
        !checked_add(workload->n_most, (uint64_t)N_FREE, &workload->n_most))
        workload->n_most = UINT64_MAX;
    if (code == 0)
        code = add_all(workload, works, n, &map);
    map_done(&map);
    if (code < 0)
        wfs_workload_free(workload);
    else
        *out = workload;
    return code;
}

void wfs_workload_free(struct wfs_workload *workload)
{
    if (workload == NULL)
        return;
    free(workload->groups);
    free(workload);
}

size_t wfs_workload_group(const struct wfs_workload *workload, size_t i)
{
    return workload->groups[i];
}

size_t wfs_workload_n_groups(const struct wfs_workload *workload)
{
    return workload->n_groups;
}

uint64_t wfs_workload_n_shown(const struct wfs_workload *workload)
{
    return workload->n_shown;
}

int wfs_workload_check(const struct wfs_workload *workload, struct wfs_error *err)
{
    if (workload->last == NULL)
        return 0;
    return wfs_fail(err, EFBIG,
                    "tensor '%s': the tensors up to this one overlap so often that looking at them "
                    "takes as long as %s, in files of %s",
                    wfs_quote(workload->last->key).text, wfs_count(workload->n_bytes, "byte").text,
                    wfs_count(workload->n_files, "byte").text);
}
