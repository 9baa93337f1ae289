/* SPDX-License-Identifier: MIT */
/*
 * Objects are folded when they get their state: the number of a record has the table in its upper
 * bits. One that is not as it should be stays an object, and whoever expects a row finds none.
 */
#include "format/dcp/dcp_reading.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_call.h"
#include "pickle/pickle.h"

/* ---- classes ---- */

/* Every version of PyTorch has its own modules for the same classes. Nothing is imported or called:
 * an object is its class's name, its arguments and its state. */
static const struct {
    const char *module, *name;
    uint8_t class;
} classes[] = {
    {"torch.distributed.checkpoint.metadata", "Metadata", DCP_METADATA},
    {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata", DCP_TENSOR},
    {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata", DCP_BYTES},
    {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata", DCP_CHUNK},
    {"torch.distributed.checkpoint.metadata", "TensorProperties", DCP_PROPERTIES},
    {"torch.distributed.checkpoint.metadata", "MetadataIndex", DCP_INDEX},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", DCP_STORAGE},
    {"torch.distributed._shard.checkpoint.metadata", "Metadata", DCP_METADATA},
    {"torch.distributed._shard.checkpoint.metadata", "TensorStorageMetadata", DCP_TENSOR},
    {"torch.distributed._shard.checkpoint.metadata", "BytesStorageMetadata", DCP_BYTES},
    {"torch.distributed._shard.checkpoint.metadata", "ChunkStorageMetadata", DCP_CHUNK},
    {"torch.distributed._shard.checkpoint.metadata", "MetadataIndex", DCP_INDEX},
    {"torch.distributed._shard.checkpoint.filesystem", "_StorageInfo", DCP_STORAGE},
    {"torch.distributed._shard.sharded_tensor.metadata", "TensorProperties", DCP_PROPERTIES},
    {"megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata", DCP_METADATA},
    {"torch", "Size", DCP_SIZE},
    {"copyreg", "_reconstructor", DCP_RECONSTRUCTOR},
    {"copy_reg", "_reconstructor", DCP_RECONSTRUCTOR},
};

static uint8_t find_class(const struct value_global *global)
{
    static const char paddle[] = "paddle.distributed.";
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strlen(classes[i].name) == global->n_name &&
            memcmp(classes[i].name, global->name, global->n_name) == 0 &&
            strlen(classes[i].module) == global->n_module &&
            memcmp(classes[i].module, global->module, global->n_module) == 0)
            return classes[i].class;
    }
    return strncmp(global->module, paddle, sizeof(paddle) - 1) == 0 ? DCP_PADDLE : DCP_OTHER;
}

/* The tag of a global is its class, once somebody has asked. */
static enum dcp_class dcp_class_named(struct graph *graph, uint32_t id)
{
    struct value *value = id == 0 ? NULL : graph_at(graph, id);
    if (value == NULL || value->kind != VALUE_GLOBAL)
        return DCP_OTHER;
    if (value->tag == 0)
        value->tag = find_class(value->global);
    return (enum dcp_class)value->tag;
}

enum dcp_class dcp_class_of(struct graph *graph, uint32_t id)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    if (value == NULL || value->kind != VALUE_CALL)
        return DCP_OTHER;
    const enum dcp_class class = dcp_class_named(graph, value->call.callable);
    return class == DCP_RECONSTRUCTOR
               ? dcp_class_named(graph, torch_arg(graph, value->call.args, 0))
               : class;
}

uint32_t dcp_state_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    const uint32_t states = value->kind == VALUE_CALL ? value_part(graph, value, PART_STATES) : 0;
    const uint32_t n = torch_n_args(graph, states);
    return n == 0 ? 0 : torch_arg(graph, states, n - 1);
}

uint32_t dcp_field(const struct graph *graph, uint32_t id, const char *name)
{
    enum { N_MOST = 2 * 64 }; /* no class of PyTorch has as many: nobody shall share a large one */
    const uint32_t state = dcp_state_of(graph, id);
    return state == 0 || graph_at(graph, state)->kind != VALUE_DICT ||
                   graph_at(graph, state)->n > N_MOST
               ? 0
               : value_get(graph, state, name);
}

/* ---- tables ---- */

enum { TABLE_SHIFT = 30, TABLE_CHUNK = 0, TABLE_INDEX = 1, TABLE_STORAGE = 2 };

#define ROW_MASK ((1u << TABLE_SHIFT) - 1)

const struct wfs_limit dcp_limits[] = {
    [DCP_LIMIT_METADATA] = {"metadata", 1073741824,
                            "bytes of a .metadata; those of 1.5 M chunks take 270 MB"},
    [DCP_LIMIT_CHUNKS] =
        {"chunks", 16777216,
         "chunks of a distributed checkpoint; 2,000 tensors, AdamW, 256 ranks: 1.5 M"},
    [DCP_LIMIT_ITEMS] = {"items", 32768,
                         "chunks that are looked at when a checkpoint is loaded; of more, none is"},
    {0}};

void dcp_metadata_init(struct dcp_metadata *metadata, const struct limits *limits)
{
    enum { PART_FOR_NUMBERS = 32 }; /* of the memory: a number has 8 bytes, and arrays double */
    *metadata = (struct dcp_metadata){
        .arena = {.limit = limits->index_memory},
        .n_bytes_left = limits_own(limits, &dcp_limits[DCP_LIMIT_METADATA]),
        .n_most_rank = limits->rank,
        .n_most_texts = limits->tensors,
        .n_most_rows = limits_own(limits, &dcp_limits[DCP_LIMIT_CHUNKS]) + limits->tensors,
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
    text_index_done(&metadata->names);
    text_index_done(&metadata->paths);
    *metadata = (struct dcp_metadata){0};
    errno = saved;
}

/* Adds a tuple or torch.Size to the numbers. 1, 0: it is neither, -E2BIG, -ENOMEM. */
static int add_numbers(struct dcp_metadata *m, const struct record_field *field, uint32_t *ret,
                       uint32_t *ret_rank)
{
    if (field->kind != RECORD_NUMBERS ||
        (field->callable != 0 && dcp_class_named(&m->graph, field->callable) != DCP_SIZE))
        return 0;
    if (field->n > m->n_most_numbers || m->n_numbers > m->n_most_numbers - field->n)
        return -E2BIG;
    if (array_reserve(&m->numbers, sizeof(*m->numbers), m->n_numbers, field->n, &m->n_number_room) <
        0)
        return -ENOMEM;
    if (field->n > 0)
        memcpy(&m->numbers[m->n_numbers], field->numbers, field->n * sizeof(*m->numbers));
    *ret = (uint32_t)m->n_numbers;
    *ret_rank = field->n;
    m->n_numbers += field->n;
    return 1;
}

int dcp_metadata_numbers(struct dcp_metadata *m, uint32_t id, uint32_t *ret, uint32_t *ret_rank)
{
    cleanup(record_done) struct pickle_record record = {.graph = &m->graph,
                                                        .n_most = m->n_most_rank};
    struct record_field field;
    const int code = id == 0 ? 0 : record_look(&record, id, &field);
    return code < 0 || id == 0 ? code : add_numbers(m, &field, ret, ret_rank);
}

/* Finds an attribute that is a tuple. 1, 0, -E2BIG, -ENOMEM. */
static int find_numbers(struct dcp_metadata *m, struct pickle_record *record, const char *name,
                        uint32_t *ret, uint32_t *ret_rank)
{
    struct record_field field;
    const int code = record_find(record, name, &field);
    return code == 1 ? add_numbers(m, &field, ret, ret_rank) : code;
}

/* Finds an attribute that is a text, and numbers the text. 1, 0, -E2BIG, -ENOMEM. */
static int find_text(struct dcp_metadata *m, struct pickle_record *record, const char *name,
                     struct text_index *texts, uint32_t *ret)
{
    struct record_field field;
    const int code = record_find(record, name, &field);
    if (code != 1 || field.kind != RECORD_TEXT)
        return code < 0 ? code : 0;
    *ret = text_index_find(texts, field.text, field.n);
    if (*ret != TEXT_INDEX_NONE)
        return 1;
    if (texts->n_texts >= m->n_most_texts)
        return -E2BIG;
    const char *copy = arena_copy(&m->arena, field.text, field.n);
    return copy == NULL || text_index_add(texts, copy, field.n, ret) < 0 ? -ENOMEM : 1;
}

/* Finds an attribute that is an integer as Python counts it: True is none. 1, 0, -ENOMEM. */
static int find_integer(struct pickle_record *record, const char *name, int64_t *ret)
{
    struct record_field field;
    const int code = record_find(record, name, &field);
    if (code != 1 || field.kind != RECORD_INTEGER)
        return code < 0 ? code : 0;
    *ret = field.integer;
    return 1;
}

static int number_row(const struct dcp_metadata *m, size_t row, uint32_t table, uint32_t *ret)
{
    if (row > ROW_MASK || row >= m->n_most_rows)
        return -E2BIG;
    *ret = table << TABLE_SHIFT | (uint32_t)row;
    return 1;
}

static int fold_chunk(struct dcp_metadata *m, struct pickle_record *record, uint32_t *ret)
{
    struct dcp_chunk chunk;
    uint32_t sizes, rank;
    int code = find_numbers(m, record, "offsets", &chunk.box, &chunk.rank);
    if (code == 1)
        code = find_numbers(m, record, "sizes", &sizes, &rank);
    if (code != 1 || rank != chunk.rank)
        return code < 0 ? code : 0;
    if (array_reserve(&m->chunks, sizeof(*m->chunks), m->n_chunks, 1, &m->n_chunk_room) < 0)
        return -ENOMEM;
    m->chunks[m->n_chunks] = chunk;
    return number_row(m, m->n_chunks++, TABLE_CHUNK, ret);
}

static int fold_index(struct dcp_metadata *m, struct pickle_record *record, uint32_t *ret)
{
    struct dcp_index index = {.rank = DCP_NO_OFFSET};
    struct record_field offset;
    int code = find_text(m, record, "fqn", &m->names, &index.key);
    if (code != 1)
        return code;
    code = record_find(record, "offset", &offset);
    if (code == 1 && offset.kind != RECORD_NONE &&
        (code = add_numbers(m, &offset, &index.offset, &index.rank)) != 1)
        return code;
    if (code < 0 ||
        array_reserve(&m->indexes, sizeof(*m->indexes), m->n_indexes, 1, &m->n_index_room) < 0)
        return -ENOMEM;
    m->indexes[m->n_indexes] = index;
    return number_row(m, m->n_indexes++, TABLE_INDEX, ret);
}

static int fold_storage(struct dcp_metadata *m, struct pickle_record *record, uint32_t *ret)
{
    struct dcp_storage storage = {0};
    struct record_field transforms;
    int code;
    if ((code = find_integer(record, "offset", &storage.offset)) != 1 ||
        (code = find_integer(record, "length", &storage.length)) != 1 ||
        (code = find_text(m, record, "relative_path", &m->paths, &storage.path)) != 1 ||
        (code = record_find(record, "transform_descriptors", &transforms)) < 0)
        return code;
    storage.is_transformed = code == 1 && transforms.kind != RECORD_NONE;
    if (array_reserve(&m->storages, sizeof(*m->storages), m->n_storages, 1, &m->n_storage_room) < 0)
        return -ENOMEM;
    m->storages[m->n_storages] = storage;
    return number_row(m, m->n_storages++, TABLE_STORAGE, ret);
}

static int fold(void *ctx, struct graph *graph, struct pickle_record *record, uint32_t *ret)
{
    struct dcp_metadata *m = ctx;
    const size_t n_before = m->n_numbers;
    int code = 0;
    switch (record->object != 0 ? dcp_class_of(graph, record->object)
                                : dcp_class_named(graph, record->callable)) {
    case DCP_CHUNK:
        code = fold_chunk(m, record, ret);
        break;
    case DCP_INDEX:
        code = fold_index(m, record, ret);
        break;
    case DCP_STORAGE:
        code = fold_storage(m, record, ret);
        break;
    default:
        break;
    }
    if (code != 1)
        m->n_numbers = n_before;
    return code;
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
    for (uint32_t id = 1; id <= graph->n_values; id++)
        if (dcp_class_of(graph, id) == DCP_PADDLE)
            return true;
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
        return wfs_fail(err, E2BIG, "%s, above the limit of %llu (limit metadata)",
                        wfs_count(source->n_bytes, "byte").text,
                        (unsigned long long)limits_own(limits, &dcp_limits[DCP_LIMIT_METADATA]));
    m->n_bytes_left -= source->n_bytes;
    if (array_reserve(&m->roots, sizeof(*m->roots), m->n_roots, 1, &m->n_root_room) < 0)
        return wfs_fail_memory(err);
    const int code = pickle_load(&job, &root, err);
    if (code < 0)
        return code;
    m->roots[m->n_roots++] = root;
    return check_root(m, root, err);
}

static int add_names(const struct text_index *paths, struct strbuf *names)
{
    for (size_t i = 0; i < paths->n_texts; i++) {
        const struct text_slice *path = &paths->texts[i];
        if (path->n_bytes == 0 || memchr(path->bytes, '\0', path->n_bytes) != NULL)
            continue;
        strbuf_add(names, path->bytes, path->n_bytes);
        strbuf_add(names, "", 1);
    }
    strbuf_add(names, "", 1);
    return names->has_failed ? -ENOMEM : 0;
}

int dcp_metadata_list(const struct source *source, char **ret, struct wfs_error *err)
{
    cleanup(dcp_metadata_done) struct dcp_metadata metadata;
    autostrbuf struct strbuf names = {0};
    struct limits limits;
    limits_init(&limits);
    dcp_metadata_init(&metadata, &limits);
    const int code = dcp_metadata_read(&metadata, source, &limits, err);
    if (code < 0)
        return code;
    if (add_names(&metadata.paths, &names) < 0)
        return wfs_fail_memory(err);
    *ret = steal(&names.bytes);
    return 0;
}
