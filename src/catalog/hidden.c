/* SPDX-License-Identifier: MIT */
/*
 * A storage is usually shown whole by one tensor; only for others are ranges collected. A tensor
 * with so many strides or runs that they are not worth it counts as showing nothing: what is
 * reported as hidden can be too much, never too little.
 */
#include "catalog/hidden.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { MAX_STEPS = 32, MAX_RANGES = 1 << 20, N_PIECE = 1 << 16 };

static int compare_storages(const void *a, const void *b)
{
    const struct hidden_storage *x = a, *y = b;
    if (x->source != y->source)
        return x->source->id < y->source->id ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void hidden_begin(struct hidden_search *search, struct hidden_storage *storages, size_t n)
{
    size_t n_kept = 0;
    if (n > 0)
        qsort(storages, n, sizeof(*storages), compare_storages);
    for (size_t i = 0; i < n; i++) {
        struct hidden_storage *last = n_kept == 0 ? NULL : &storages[n_kept - 1];
        const uint64_t end = storages[i].offset + storages[i].n_bytes;
        if (last != NULL && last->source == storages[i].source &&
            storages[i].offset < last->offset + last->n_bytes) {
            if (end > last->offset + last->n_bytes)
                last->n_bytes = end - last->offset;
        } else if (storages[i].n_bytes > 0) {
            storages[n_kept++] = storages[i];
        }
    }
    *search = (struct hidden_search){.storages = storages, .n_storages = n_kept};
}

static struct hidden_storage *find_storage(const struct hidden_search *search,
                                           const struct wfs_stored *stored)
{
    const struct hidden_storage wanted = {.source = stored->source, .offset = stored->offset};
    size_t low = 0, high = search->n_storages;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_storages(&search->storages[middle], &wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    struct hidden_storage *found = low == 0 ? NULL : &search->storages[low - 1];
    return found != NULL && found->source == stored->source &&
                   stored->offset - found->offset < found->n_bytes
               ? found
               : NULL;
}

static int add_range(struct hidden_search *search, struct hidden_storage *storage, uint64_t start,
                     uint64_t n_bytes)
{
    if (start == storage->offset && n_bytes >= storage->n_bytes) {
        storage->is_shown = true;
        return 0;
    }
    if (array_reserve(&search->ranges, sizeof(*search->ranges), search->n_ranges, 1,
                      &search->n_room) < 0)
        return -ENOMEM;
    search->ranges[search->n_ranges++] =
        (struct hidden_range){start, start + n_bytes, (size_t)(storage - search->storages)};
    return 0;
}

/* A dimension, in bytes. */
struct step {
    uint64_t size, stride;
};

/* Lists the dimensions that move, the smallest stride first. Returns their number, or MAX_STEPS + 1
 * for too many. */
static unsigned sort_steps(const struct wfs_tensor *tensor, uint64_t n_item,
                           struct step steps[MAX_STEPS])
{
    unsigned n = 0;
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        const struct step step = {tensor->shape.dims[i], tensor->stored.strides[i] * n_item};
        if (step.size == 1 || step.stride == 0)
            continue;
        if (n == MAX_STEPS)
            return MAX_STEPS + 1;
        unsigned at = n++;
        for (; at > 0 && steps[at - 1].stride > step.stride; at--)
            steps[at] = steps[at - 1];
        steps[at] = step;
    }
    return n;
}

/* Adds a run of n_bytes for each position of the steps. */
static int add_runs(struct hidden_search *search, struct hidden_storage *storage, uint64_t start,
                    uint64_t n_bytes, const struct step *steps, unsigned n)
{
    uint64_t at[MAX_STEPS] = {0};
    for (;;) {
        const int code = add_range(search, storage, start, n_bytes);
        if (code < 0)
            return code;
        unsigned i = 0;
        for (; i < n && ++at[i] == steps[i].size; i++) {
            start -= (steps[i].size - 1) * steps[i].stride;
            at[i] = 0;
        }
        if (i == n)
            return 0;
        start += steps[i].stride;
    }
}

static int show_strided(struct hidden_search *search, struct hidden_storage *storage,
                        const struct wfs_tensor *tensor)
{
    const uint64_t n_item = wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) / 8;
    struct step steps[MAX_STEPS];
    const unsigned n = sort_steps(tensor, n_item, steps);
    uint64_t n_run = n_item, n_runs = 1;
    unsigned i = 0;
    if (n > MAX_STEPS || n_item == 0)
        return 0;
    for (; i < n && steps[i].stride <= n_run; i++)
        n_run += (steps[i].size - 1) * steps[i].stride;
    for (unsigned k = i; k < n; k++) {
        if (!checked_mul(n_runs, steps[k].size, &n_runs) || n_runs > MAX_RANGES - search->n_ranges)
            return 0;
    }
    return add_runs(search, storage, tensor->stored.offset, n_run, steps + i, n - i);
}

int hidden_show(struct hidden_search *search, const struct wfs_tensor *tensor)
{
    if (tensor->trouble != NULL || tensor->n_bytes == 0 || tensor->stored.source == NULL)
        return 0;
    struct hidden_storage *storage = find_storage(search, &tensor->stored);
    if (storage == NULL || storage->is_shown)
        return 0;
    if (storage->key == NULL)
        storage->key = tensor->key;
    if (search->n_ranges >= MAX_RANGES)
        return 0;
    return tensor->stored.strides == NULL
               ? add_range(search, storage, tensor->stored.offset, tensor->n_bytes)
               : show_strided(search, storage, tensor);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct hidden_range *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Lists the gaps between the n ranges of a storage. Returns how many; ret NULL: only counts. */
static size_t list_gaps(const struct hidden_storage *storage, const struct hidden_range *ranges,
                        size_t n, struct catalog_range *ret, uint64_t *ret_n_bytes)
{
    const uint64_t storage_end = storage->offset + storage->n_bytes;
    uint64_t end = storage->offset;
    size_t n_gaps = 0;
    *ret_n_bytes = 0;
    for (size_t i = 0; i <= n; i++) {
        const uint64_t start = i == n ? storage_end : ranges[i].start;
        if (start > end) {
            if (ret != NULL)
                ret[n_gaps] = (struct catalog_range){end, start - end};
            n_gaps++;
            *ret_n_bytes += start - end;
        }
        if (i < n && ranges[i].end > end)
            end = ranges[i].end;
    }
    return n_gaps;
}

static int add_hidden(struct wfs_catalog *catalog, const struct hidden_storage *storage,
                      const struct hidden_range *ranges, size_t n)
{
    struct catalog_hidden *hidden = &catalog->own->hidden[catalog->own->n_hidden];
    uint64_t n_bytes;
    const size_t n_gaps = list_gaps(storage, ranges, n, NULL, &n_bytes);
    if (n_gaps == 0)
        return 0;
    hidden->ranges = arena_calloc(&catalog->arena, n_gaps, sizeof(*hidden->ranges));
    hidden->public.storage =
        arena_copy(&catalog->arena, storage->n_name > 0 ? storage->name : "", storage->n_name);
    if (hidden->ranges == NULL || hidden->public.storage == NULL)
        return -ENOMEM;
    hidden->n_ranges = list_gaps(storage, ranges, n, hidden->ranges, &hidden->public.n_bytes);
    hidden->source = storage->source;
    hidden->start = storage->offset;
    hidden->public.key = storage->key;
    hidden->public.is_named = storage->is_named;
    catalog->own->n_hidden++;
    return 0;
}

int hidden_end(struct hidden_search *search, struct wfs_catalog *catalog)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < search->n_storages; i++)
        n += !search->storages[i].is_shown;
    if (n == 0)
        return 0;
    struct catalog_hidden *hidden =
        arena_calloc(&catalog->arena, catalog->own->n_hidden + n, sizeof(*hidden));
    if (hidden == NULL)
        return -ENOMEM;
    if (catalog->own->n_hidden > 0)
        memcpy(hidden, catalog->own->hidden, catalog->own->n_hidden * sizeof(*hidden));
    catalog->own->hidden = hidden;
    if (search->n_ranges > 0)
        qsort(search->ranges, search->n_ranges, sizeof(*search->ranges), compare_ranges);
    for (size_t i = 0; i < search->n_storages; i++) {
        size_t end = at;
        while (end < search->n_ranges && search->ranges[end].storage == i)
            end++;
        if (!search->storages[i].is_shown &&
            add_hidden(catalog, &search->storages[i], end > at ? search->ranges + at : NULL,
                       end - at) < 0)
            return -ENOMEM;
        at = end;
    }
    return 0;
}

void hidden_done(struct hidden_search *search)
{
    const int saved = errno;
    free(search->ranges);
    search->ranges = NULL;
    errno = saved;
}

/* ---- what was found ---- */

size_t wfs_catalog_n_hidden(const struct wfs_catalog *catalog)
{
    size_t n = catalog->own->n_hidden;
    for (size_t i = 0; i < catalog->parts.n; i++)
        n += wfs_catalog_n_hidden(catalog->parts.list[i]);
    return n;
}

static const struct catalog_hidden *hidden_at(const struct wfs_catalog *catalog, size_t i)
{
    if (i < catalog->own->n_hidden)
        return &catalog->own->hidden[i];
    i -= catalog->own->n_hidden;
    for (size_t k = 0; k < catalog->parts.n; k++) {
        const size_t n = wfs_catalog_n_hidden(catalog->parts.list[k]);
        if (i < n)
            return hidden_at(catalog->parts.list[k], i);
        i -= n;
    }
    return NULL;
}

const struct wfs_hidden *wfs_catalog_hidden(const struct wfs_catalog *catalog, size_t i)
{
    return &hidden_at(catalog, i)->public;
}

static int add_piece(struct hasher *hasher, const struct catalog_hidden *hidden, uint64_t offset,
                     uint64_t n_bytes, char *piece)
{
    for (uint64_t at = 0; at < n_bytes;) {
        const size_t n = n_bytes - at < N_PIECE ? (size_t)(n_bytes - at) : N_PIECE;
        const int code = source_read(hidden->source, offset + at, piece, n);
        if (code < 0)
            return code;
        hasher_update(hasher, piece, n);
        at += n;
    }
    return 0;
}

int wfs_catalog_hidden_digest(const struct wfs_catalog *catalog, size_t i, uint64_t *ret)
{
    const struct catalog_hidden *hidden = hidden_at(catalog, i);
    auto_hasher struct hasher *hasher = hasher_new();
    autofree char *piece = malloc(N_PIECE);
    const uint64_t seed = hash_seed(); /* so that nobody can prepare bytes that collide */
    int code = hasher == NULL || piece == NULL ? -ENOMEM : 0;
    if (code == 0)
        hasher_update(hasher, &seed, sizeof(seed));
    for (size_t k = 0; k < hidden->n_ranges && code == 0; k++) {
        const struct catalog_range *range = &hidden->ranges[k];
        const uint64_t facts[] = {range->offset - hidden->start, range->n_bytes};
        hasher_update(hasher, facts, sizeof(facts));
        code = add_piece(hasher, hidden, range->offset, range->n_bytes, piece);
    }
    if (code == 0)
        *ret = hasher_digest(hasher);
    return code;
}
