/* SPDX-License-Identifier: MIT */
/*
 * A map from what is looked at to the first work that does. Only ties have the same result for
 * sure; views that overlap in other ways are work of their own.
 *
 * An axis with stride 0 repeats everything inside it. Where elements still overlap many times over,
 * as sliding windows do, the stored range is read in order, with a count for each element of it.
 */
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>
#include <weightfs/interruption.h>
#include "base/bytes.h"
#include "base/hash.h"
#include "base/source.h"
#include "tensor/gather.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The bytes that are always looked at take one or two seconds. */
enum { N_TIMES = 16, N_FREE = 256 << 20 };

struct wfs_workload {
    uint32_t *groups; /* of each work */
    uint32_t n_groups;
    uint64_t n_most;  /* what the work may cost, as distinct_cost counts */
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

/*
 * Computes the time that it takes to look at each of these elements once, as the number of bytes of
 * a plain tensor of F32 that take as long. -ENOMEM.
 */
static int distinct_cost(const struct wfs_tensor *tensor, const struct wfs_tensor *beside,
                         uint64_t *ret_n_bytes);

/* Returns the same for a hash of all bytes that the tensor shows. */
static uint64_t tensor_cost(const struct wfs_tensor *tensor);

static int add_cost(struct wfs_workload *workload, const struct wfs_work *work)
{
    uint64_t n = work->reads_shown ? tensor_cost(work->tensor) : 0, n_beside = 0;
    int code = work->reads_shown ? 0 : distinct_cost(work->tensor, work->beside, &n);
    if (code == 0 && work->beside != NULL)
        code = distinct_cost(work->beside, work->tensor, &n_beside);
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

enum {
    N_LARGE_TIMES = 16,
    N_LARGE = 64 << 20,
    N_UNCHECKED = 1 << 20,
    N_NUMBER = 4,  /* an element that is looked at as a number costs as much as one of F32 */
    N_FASTER = 32, /* bytes that are read in the time that one of F32 is looked at */
};

/* How often the elements of a range are shown, from the axes, one by one: an axis of n steps shows
 * what is at x again at x + stride, ..., x + (n - 1) * stride. */
static int count_times(const struct wfs_io *io, uint64_t *times, uint64_t n_span,
                       const struct wfs_tensor *tensor)
{
    times[0] = 1;
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        const uint64_t n = tensor->shape.dims[i], stride = tensor->stored.strides[i];
        if (n == 1)
            continue;
        for (uint64_t x = stride; x < n_span; x++) {
            if (x % N_UNCHECKED == 0 && wfs_io_check(io) < 0)
                return -EINTR;
            times[x] += times[x - stride];
        }
        for (uint64_t x = n_span; x-- > n * stride;) {
            if (x % N_UNCHECKED == 0 && wfs_io_check(io) < 0)
                return -EINTR;
            times[x] -= times[x - n * stride];
        }
    }
    return 0;
}

/* Elements from the first to the last that is shown, if they overlap so much that these are to be
 * read instead; otherwise 0. */
static uint64_t flat_span_of(const struct wfs_tensor *tensor)
{
    uint64_t n_elems, n = 1; /* the loader has checked that the last one lies in the storage */
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        n += (tensor->shape.dims[i] - 1) * tensor->stored.strides[i];
    return wfs_shape_count(&tensor->shape, &n_elems) == 0 && n_elems / N_LARGE_TIMES > n ? n : 0;
}

/* Replaces the tensor by the range that its elements lie in. */
static int flatten(const struct wfs_io *io, struct wfs_distinct *distinct)
{
    struct wfs_tensor *tensor = &distinct->tensor;
    const uint64_t n_span = flat_span_of(tensor);
    if (n_span == 0)
        return 0;
    distinct->times = calloc(n_span, sizeof(*distinct->times));
    if (distinct->times == NULL)
        return -ENOMEM;
    const int code = count_times(io, distinct->times, n_span, tensor);
    tensor->n_bytes = n_span * (wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8);
    distinct->dims[0] = n_span;
    tensor->shape.rank = 1;
    tensor->stored.strides = NULL;
    return code;
}

static bool has_axes(const struct wfs_tensor *tensor)
{
    return tensor->stored.strides != NULL && tensor->shape.rank > 0 && tensor->n_bytes > 0 &&
           tensor->dtype != WFS_OPAQUE && tensor->trouble == NULL;
}

/* Leaves out repeated axes. *ret_is_one: the other tensor, if any, steps through its elements in
 * the same way. */
static int squeeze(struct wfs_distinct *ret, const struct wfs_tensor *tensor,
                   const struct wfs_tensor *beside, bool *ret_is_one)
{
    const uint32_t rank = tensor->shape.rank;
    const uint64_t *strides = tensor->stored.strides;
    *ret = (struct wfs_distinct){.tensor = *tensor, .n_times = 1};
    *ret_is_one = false;
    if (!has_axes(tensor) || (beside != NULL && !has_axes(beside)))
        return 0;
    ret->dims = calloc(2 * (size_t)rank, sizeof(*ret->dims));
    if (ret->dims == NULL)
        return -ENOMEM;
    *ret_is_one = true;
    for (uint32_t i = 0; i < rank; i++) {
        const uint64_t n = tensor->shape.dims[i];
        const bool is_repeated =
            strides[i] == 0 && (beside == NULL || beside->stored.strides[i] == 0);
        ret->dims[i] = is_repeated ? 1 : n;
        ret->dims[rank + i] = n == 1 ? 0 : strides[i];
        ret->n_times *= is_repeated ? n : 1;
        if (beside != NULL && n != 1 && strides[i] != beside->stored.strides[i])
            *ret_is_one = false;
    }
    ret->tensor.shape.dims = ret->dims;
    ret->tensor.stored.strides = ret->dims + rank;
    ret->tensor.n_bytes /= ret->n_times;
    return 0;
}

int wfs_distinct_init(const struct wfs_io *io, struct wfs_distinct *ret,
                      const struct wfs_tensor *tensor, const struct wfs_tensor *beside)
{
    bool is_one;
    const int code = squeeze(ret, tensor, beside, &is_one);
    return code == 0 && is_one ? flatten(io, ret) : code;
}

/* Adds what it takes to read all that the tensor shows, once. */
static uint64_t with_reading(uint64_t cost, const struct wfs_tensor *tensor)
{
    const uint64_t n_read = wfs_tensor_is_plain(tensor) ? tensor->n_bytes : gather_cost(tensor);
    return checked_add(cost, n_read / N_FASTER, &cost) ? cost : UINT64_MAX;
}

static uint64_t cost_of_numbers(const struct wfs_tensor *tensor)
{
    uint64_t n = tensor->n_bytes;
    if (tensor->dtype == WFS_OPAQUE)
        return n;
    return wfs_shape_count(&tensor->shape, &n) == 0 && checked_mul(n, (uint64_t)N_NUMBER, &n)
               ? n
               : UINT64_MAX;
}

static int distinct_cost(const struct wfs_tensor *tensor, const struct wfs_tensor *beside,
                         uint64_t *ret_n_bytes)
{
    cleanup(wfs_distinct_done) struct wfs_distinct distinct;
    bool is_one;
    const int code = squeeze(&distinct, tensor, beside, &is_one);
    const struct wfs_tensor *squeezed = &distinct.tensor;
    if (code < 0)
        return code;
    const uint64_t n_span = is_one ? flat_span_of(squeezed) : 0;
    if (tensor->trouble != NULL || tensor->stored.source == NULL)
        *ret_n_bytes = 0;
    else if (n_span > 0) /* each axis is another pass */
        *ret_n_bytes = n_span * (N_NUMBER + tensor->shape.rank);
    else
        *ret_n_bytes = with_reading(cost_of_numbers(squeezed), squeezed);
    return 0;
}

static uint64_t tensor_cost(const struct wfs_tensor *tensor)
{
    return tensor->trouble != NULL || tensor->stored.source == NULL
               ? 0
               : with_reading(tensor->n_bytes, tensor);
}

void wfs_distinct_done(struct wfs_distinct *distinct)
{
    free(distinct->times);
    free(distinct->dims);
    *distinct = (struct wfs_distinct){0};
}

uint64_t wfs_distinct_times(const struct wfs_distinct *distinct, uint64_t index)
{
    return distinct->n_times * (distinct->times == NULL ? 1 : distinct->times[index]);
}

bool wfs_tensor_is_large(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    return source != NULL && tensor->n_bytes > N_LARGE &&
           tensor->n_bytes / N_LARGE_TIMES > source->n_bytes;
}
