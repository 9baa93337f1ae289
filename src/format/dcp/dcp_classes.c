/* SPDX-License-Identifier: MIT */
/*
 * Every version of PyTorch has its own modules for the same classes. Nothing is imported or called:
 * an object is its class's name, its arguments and its state.
 */
#include "format/dcp/dcp_classes.h"

#include <string.h>

#include "format/pytorch/object/torch_args.h"

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
enum dcp_class dcp_class_named(struct graph *graph, uint32_t id)
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
