/* SPDX-License-Identifier: MIT */
/*
 * Objects are folded when they get their state: the number of a record has the table in its upper
 * bits. One that is not as it should be stays an object, and whoever expects a row finds none.
 */
#include "format/dcp/dcp_metadata.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_args.h"
#include "pickle/pickle.h"

enum { TABLE_SHIFT = 30, TABLE_CHUNK = 0, TABLE_INDEX = 1, TABLE_STORAGE = 2 };

#define ROW_MASK ((1u << TABLE_SHIFT) - 1)

void dcp_metadata_init(struct dcp_metadata *metadata, const struct limits *limits)
{
    enum { PART_FOR_NUMBERS = 32 }; /* of the memory: a number has 8 bytes, and arrays double */
    *metadata = (struct dcp_metadata){
        .arena = {.limit = limits->index_memory},
        .n_bytes_left = limits->metadata,
        .n_most_rows = limits->chunks + limits->tensors,
        .n_most_numbers = limits->index_memory / PART_FOR_NUMBERS,
    };
}

void dcp_metadata_done(struct dcp_metadata *metadata)
{
    const int saved = errno;
    arena_done(&metadata->arena);
    free(metadata->roots);
    free(metadata->numbers);
    free(metadata->chunks);
    free(metadata->indexes);
    free(metadata->storages);
    *metadata = (struct dcp_metadata){0};
    errno = saved;
}

/* An integer as Python counts it: True is none. */
static bool integer_of(const struct graph *graph, uint32_t id, int64_t *ret)
{
    if (id == 0 || graph_at(graph, id)->kind != VALUE_INT)
        return false;
    *ret = graph_at(graph, id)->integer;
    return true;
}

int dcp_metadata_numbers(struct dcp_metadata *m, uint32_t id, uint32_t *ret, uint32_t *ret_rank)
{
    const uint32_t tuple = dcp_tuple_of(&m->graph, id);
    const uint32_t rank = torch_n_args(&m->graph, tuple);
    if (tuple == 0)
        return 0;
    if (rank > m->n_most_numbers || m->n_numbers > m->n_most_numbers - rank)
        return -E2BIG;
    if (array_reserve(&m->numbers, sizeof(*m->numbers), m->n_numbers, rank, &m->n_number_room) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < rank; i++) {
        if (!integer_of(&m->graph, torch_arg(&m->graph, tuple, i), &m->numbers[m->n_numbers + i]))
            return 0;
    }
    *ret = (uint32_t)m->n_numbers;
    *ret_rank = rank;
    m->n_numbers += rank;
    return 1;
}

static int number_row(const struct dcp_metadata *m, size_t row, uint32_t table, uint32_t *ret)
{
    if (row > ROW_MASK || row >= m->n_most_rows)
        return -E2BIG;
    *ret = table << TABLE_SHIFT | (uint32_t)row;
    return 1;
}

static int fold_chunk(struct dcp_metadata *m, uint32_t id, uint32_t *ret)
{
    struct dcp_chunk chunk;
    uint32_t sizes, rank;
    const size_t n_before = m->n_numbers;
    int code =
        dcp_metadata_numbers(m, dcp_field(&m->graph, id, "offsets"), &chunk.box, &chunk.rank);
    if (code == 1)
        code = dcp_metadata_numbers(m, dcp_field(&m->graph, id, "sizes"), &sizes, &rank);
    if (code != 1 || rank != chunk.rank) {
        m->n_numbers = n_before;
        return code < 0 ? code : 0;
    }
    if (array_reserve(&m->chunks, sizeof(*m->chunks), m->n_chunks, 1, &m->n_chunk_room) < 0)
        return -ENOMEM;
    m->chunks[m->n_chunks] = chunk;
    return number_row(m, m->n_chunks++, TABLE_CHUNK, ret);
}

static int fold_index(struct dcp_metadata *m, uint32_t id, uint32_t *ret, uint32_t *ret_kept)
{
    struct dcp_index index = {.key = dcp_field(&m->graph, id, "fqn"), .rank = DCP_NO_OFFSET};
    const uint32_t offset = dcp_field(&m->graph, id, "offset");
    if (index.key == 0 || graph_at(&m->graph, index.key)->kind != VALUE_TEXT)
        return 0;
    if (offset != 0 && graph_at(&m->graph, offset)->kind != VALUE_NONE) {
        const int code = dcp_metadata_numbers(m, offset, &index.offset, &index.rank);
        if (code != 1)
            return code;
    }
    if (array_reserve(&m->indexes, sizeof(*m->indexes), m->n_indexes, 1, &m->n_index_room) < 0)
        return -ENOMEM;
    m->indexes[m->n_indexes] = index;
    *ret_kept = index.key;
    return number_row(m, m->n_indexes++, TABLE_INDEX, ret);
}

static int fold_storage(struct dcp_metadata *m, uint32_t id, uint32_t *ret, uint32_t *ret_kept)
{
    const struct graph *graph = &m->graph;
    struct dcp_storage storage = {.path = dcp_field(graph, id, "relative_path"),
                                  .transforms = dcp_field(graph, id, "transform_descriptors")};
    if (storage.path == 0 || graph_at(graph, storage.path)->kind != VALUE_TEXT ||
        !integer_of(graph, dcp_field(graph, id, "offset"), &storage.offset) ||
        !integer_of(graph, dcp_field(graph, id, "length"), &storage.length))
        return 0;
    if (storage.transforms != 0 && graph_at(graph, storage.transforms)->kind == VALUE_NONE)
        storage.transforms = 0;
    if (array_reserve(&m->storages, sizeof(*m->storages), m->n_storages, 1, &m->n_storage_room) < 0)
        return -ENOMEM;
    m->storages[m->n_storages] = storage;
    *ret_kept = storage.path > storage.transforms ? storage.path : storage.transforms;
    return number_row(m, m->n_storages++, TABLE_STORAGE, ret);
}

static int fold(void *ctx, struct graph *graph, uint32_t id, uint32_t *ret, uint32_t *ret_kept)
{
    struct dcp_metadata *m = ctx;
    switch (dcp_class_of(graph, id)) {
    case DCP_CHUNK:
        return fold_chunk(m, id, ret);
    case DCP_INDEX:
        return fold_index(m, id, ret, ret_kept);
    case DCP_STORAGE:
        return fold_storage(m, id, ret, ret_kept);
    default:
        return 0;
    }
}

static bool row_of(const struct dcp_metadata *m, uint32_t id, uint32_t table, uint32_t *ret)
{
    const struct value *value = id == 0 ? NULL : graph_at(&m->graph, id);
    if (value == NULL || value->kind != VALUE_RECORD || value->id >> TABLE_SHIFT != table)
        return false;
    *ret = value->id & ROW_MASK;
    return true;
}

const struct dcp_chunk *dcp_chunk_of(const struct dcp_metadata *m, uint32_t id)
{
    uint32_t row;
    return row_of(m, id, TABLE_CHUNK, &row) ? &m->chunks[row] : NULL;
}

const struct dcp_index *dcp_index_of(const struct dcp_metadata *m, uint32_t id)
{
    uint32_t row;
    return row_of(m, id, TABLE_INDEX, &row) ? &m->indexes[row] : NULL;
}

const struct dcp_storage *dcp_storage_of(const struct dcp_metadata *m, uint32_t id)
{
    uint32_t row;
    return row_of(m, id, TABLE_STORAGE, &row) ? &m->storages[row] : NULL;
}

/* Returns whether anything in the graph is of PaddlePaddle. */
static bool is_paddle(struct graph *graph)
{
    for (uint32_t id = 1; id <= graph->n_values; id++) {
        if (dcp_class_of(graph, id) == DCP_PADDLE)
            return true;
    }
    return false;
}

static bool is_dict(const struct graph *graph, uint32_t id)
{
    return id != 0 && graph_at(graph, id)->kind == VALUE_DICT;
}

static int check_root(struct dcp_metadata *m, uint32_t root, struct wfs_error *err)
{
    struct graph *graph = &m->graph;
    if (dcp_class_of(graph, root) != DCP_METADATA)
        return is_paddle(graph)
                   ? wfs_fail(err, EOPNOTSUPP,
                              "describes a distributed checkpoint of PaddlePaddle, a format that "
                              "weightfs does not read")
                   : wfs_fail(err, EBADMSG,
                              "is not the Metadata object of a PyTorch distributed checkpoint");
    if (!is_dict(graph, dcp_field(graph, root, "state_dict_metadata")))
        return wfs_fail(err, EBADMSG, "its state_dict_metadata is not a dict");
    if (!is_dict(graph, dcp_field(graph, root, "storage_data")))
        return wfs_fail(err, EBADMSG, "its storage_data is not a dict");
    return 0;
}

int dcp_metadata_read(struct dcp_metadata *m, const struct source *source,
                      const struct limits *limits, struct wfs_error *err)
{
    /* Every opcode has a byte, so that a limit of bytes is one of opcodes. */
    struct pickle_budget budget = {m->n_bytes_left, m->n_bytes_left};
    struct pickle_job job = {.graph = &m->graph,
                             .limits = limits,
                             .budget = &budget,
                             .source = source,
                             .end = source->n_bytes,
                             .fold = fold,
                             .fold_ctx = m};
    uint32_t root;
    m->graph.arena = &m->arena;
    if (source->n_bytes > m->n_bytes_left)
        return wfs_fail(err, E2BIG, "%s, above the limit of %llu (metadata)",
                        wfs_count(source->n_bytes, "byte").text,
                        (unsigned long long)limits->metadata);
    m->n_bytes_left -= source->n_bytes;
    if (array_reserve(&m->roots, sizeof(*m->roots), m->n_roots, 1, &m->n_root_room) < 0)
        return wfs_fail_memory(err);
    const int code = pickle_load(&job, &root, err);
    if (code < 0)
        return code;
    m->roots[m->n_roots++] = root;
    return check_root(m, root, err);
}
