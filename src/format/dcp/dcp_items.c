/* SPDX-License-Identifier: MIT */
/*
 * An item is found by a hash of the number of its key and its offset. No two may share bytes: an
 * item that is used for two chunks, and one that reaches into the next, are seen when all are in
 * the order of their places.
 */
#include "format/dcp/dcp_items.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/dcp/dcp_files.h"
#include "format/dcp/dcp_window.h"

void dcp_items_done(struct dcp_items *items)
{
    const int saved = errno;
    map_done(&items->map);
    free(items->rows);
    free(items->keys);
    errno = saved;
}

struct wanted {
    const struct dcp_items *items;
    const int64_t *offset;
    uint32_t key, rank;
};

static bool is_wanted(const void *ctx, uint32_t item)
{
    const struct wanted *w = ctx;
    const struct dcp_metadata *m = w->items->metadata;
    const struct dcp_index *index = &m->indexes[w->items->rows[item]];
    return w->items->keys[item] == w->key && index->rank == w->rank &&
           (w->rank == DCP_NO_OFFSET || w->rank == 0 ||
            memcmp(&m->numbers[index->offset], w->offset, w->rank * sizeof(*w->offset)) == 0);
}

static uint64_t hash_of(const struct wanted *w)
{
    const uint32_t head[] = {w->key, w->rank};
    const uint64_t hash = hash_bytes(head, sizeof(head), hash_seed());
    return w->rank == DCP_NO_OFFSET || w->rank == 0
               ? hash
               : hash_bytes(w->offset, w->rank * sizeof(*w->offset), hash);
}

bool dcp_items_find(const struct dcp_items *items, uint32_t key, const int64_t *offset,
                    uint32_t rank, uint32_t *ret)
{
    const struct wanted wanted = {items, offset, key, rank};
    return map_find(&items->map, hash_of(&wanted), is_wanted, &wanted, ret);
}

/* Sets where the item is; one that is not described as it should be gets a trouble. */
static int set_place(struct dcp_reading *r, uint32_t storage, struct dcp_item *item)
{
    const struct dcp_storage *row = dcp_storage_of(r->metadata, storage);
    int code = 0;
    *item = (struct dcp_item){0};
    if (row == NULL) {
        item->trouble = "its entry in storage_data is not a path, an offset and a length";
        return 0;
    }
    code = dcp_files_number(r, row->path, &item->file);
    item->offset = (uint64_t)row->offset;
    item->n_bytes = (uint64_t)row->length;
    if (code == 0 && (row->offset < 0 || row->length < 0)) {
        item->trouble =
            arena_print(&r->tables.arena,
                        "its offset %" PRId64 " and its length %" PRId64 " in '%s' are not a range",
                        row->offset, row->length, wfs_quote(r->tables.files[item->file].name).text);
        code = item->trouble == NULL ? wfs_fail_memory(r->err) : 0;
        item->n_bytes = 0;
    } else if (code == 0 && row->transforms != 0) {
        item->trouble = arena_print(&r->tables.arena,
                                    "it is compressed or otherwise transformed in '%s', which "
                                    "weightfs does not read",
                                    wfs_quote(r->tables.files[item->file].name).text);
        code = item->trouble == NULL ? wfs_fail_memory(r->err) : 0;
    }
    return code;
}

/* Adds an item. The last one counts of those that are for the same thing. */
static int add(struct dcp_items *items, struct dcp_reading *r, uint32_t index, uint32_t storage)
{
    const struct dcp_metadata *m = r->metadata;
    const struct dcp_index *row = dcp_index_of(m, index);
    if (row == NULL)
        return wfs_fail(r->err, EBADMSG, "a key of its storage_data is not a MetadataIndex");
    const struct value *text = graph_at(&m->graph, row->key);
    const uint32_t number = r->tables.n_items,
                   key = text_index_find(&r->names, text->text, text->n);
    const struct wanted wanted = {items, &m->numbers[row->offset], key, row->rank};
    uint32_t before;
    items->rows[number] = (uint32_t)(row - m->indexes);
    items->keys[number] = key;
    const int code = set_place(r, storage, &r->tables.items[number]);
    if (code < 0)
        return code;
    r->tables.n_items++;
    if (key == TEXT_INDEX_NONE)
        return 0; /* nobody asks for it */
    const uint64_t hash = hash_of(&wanted);
    if (map_find(&items->map, hash, is_wanted, &wanted, &before))
        map_remove(&items->map, hash, before);
    return map_add(&items->map, hash, number) < 0 ? wfs_fail_memory(r->err) : 0;
}

/* ---- shared bytes ---- */

static int compare_places(const void *a, const void *b, void *ctx)
{
    const struct dcp_item *items = ctx;
    const struct dcp_item *x = &items[*(const uint32_t *)a], *y = &items[*(const uint32_t *)b];
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Numbers of all used items that have bytes, in the order of their places. */
static uint32_t *sort_places(struct dcp_tables *tables, uint32_t *ret_n)
{
    uint32_t *order = malloc(((size_t)tables->n_items + 1) * sizeof(*order));
    bool is_sorted = true;
    uint32_t n = 0;
    for (uint32_t i = 0; order != NULL && i < tables->n_items; i++) {
        if (!tables->items[i].is_used || tables->items[i].n_bytes == 0)
            continue;
        order[n++] = i;
        is_sorted = is_sorted &&
                    (n == 1 || compare_places(&order[n - 2], &order[n - 1], tables->items) <= 0);
    }
    if (order != NULL && !is_sorted)
        qsort_r(order, n, sizeof(*order), compare_places, tables->items);
    *ret_n = n;
    return order;
}

static int spoil(struct dcp_reading *r, struct dcp_item *item)
{
    if (item->trouble != NULL)
        return 0;
    item->trouble = arena_print(&r->tables.arena,
                                "the range of its %s at byte %" PRIu64
                                " of '%s' is used for something else too",
                                wfs_count(item->n_bytes, "byte").text, item->offset,
                                wfs_quote(r->tables.files[item->file].name).text);
    return item->trouble == NULL ? wfs_fail_memory(r->err) : 0;
}

/* Items with the same offset are right where a safetensors file begins there. 1, 0, or an error. */
static int is_window(struct dcp_reading *r, const struct dcp_item *a, const struct dcp_item *b)
{
    const struct dcp_file *file = &r->tables.files[a->file];
    if (a->offset != b->offset)
        return 0;
    const int code = dcp_files_open(r, a->file);
    return code < 0 || file->source == NULL ? code : dcp_window_probe(file->source, a->offset) > 0;
}

int dcp_items_check(struct dcp_reading *r)
{
    struct dcp_item *items = r->tables.items;
    uint32_t n;
    autofree uint32_t *order = sort_places(&r->tables, &n);
    struct dcp_item *farthest = NULL; /* of those before: the one that ends last */
    if (order == NULL)
        return wfs_fail_memory(r->err);
    for (uint32_t i = 0; i < n; i++) {
        struct dcp_item *item = &items[order[i]];
        if (farthest != NULL && farthest->file == item->file &&
            item->offset - farthest->offset < farthest->n_bytes) {
            int code = is_window(r, farthest, item);
            if (code == 0 && (code = spoil(r, farthest)) == 0)
                code = spoil(r, item);
            if (code < 0)
                return code;
        }
        if (farthest == NULL || farthest->file != item->file ||
            farthest->offset + farthest->n_bytes < item->offset + item->n_bytes)
            farthest = item;
    }
    return 0;
}

int dcp_items_add(struct dcp_items *items, struct dcp_reading *r)
{
    const struct graph *graph = &r->metadata->graph;
    uint64_t n_all = 0;
    items->metadata = r->metadata;
    for (size_t i = 0; i < r->metadata->n_roots; i++)
        n_all += graph_at(graph, dcp_field(graph, r->metadata->roots[i], "storage_data"))->n / 2;
    if (n_all > UINT32_MAX - 1 || n_all > r->context->limits.chunks + r->context->limits.tensors)
        return wfs_fail(r->err, E2BIG, "%s in storage_data (limit chunks)",
                        wfs_count(n_all, "entry").text);
    items->rows = malloc((n_all + 1) * sizeof(*items->rows));
    items->keys = malloc((n_all + 1) * sizeof(*items->keys));
    r->tables.items = malloc((n_all + 1) * sizeof(*r->tables.items));
    if (items->rows == NULL || items->keys == NULL || r->tables.items == NULL ||
        map_reserve(&items->map, (uint32_t)n_all) < 0)
        return wfs_fail_memory(r->err);
    for (size_t i = 0; i < r->metadata->n_roots; i++) {
        const struct value *dict =
            graph_at(graph, dcp_field(graph, r->metadata->roots[i], "storage_data"));
        for (uint32_t k = 0; k + 1 < dict->n; k += 2) {
            const int code = add(items, r, value_items(dict)[k], value_items(dict)[k + 1]);
            if (code < 0)
                return code;
        }
    }
    return 0;
}
