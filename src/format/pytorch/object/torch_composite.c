/* SPDX-License-Identifier: MIT */
/*
 * Composite tensors: sparse, nested, quantized by channel. Their parts are listed as tensors of
 * their own, named after the whole.
 */
#include "format/pytorch/object/torch_composite.h"

#include <weightfs/cleanup.h>

#include <stdio.h>
#include <string.h>

#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_marks.h"
#include "value/value_leaf.h"

static const char *const coo_names[] = {"indices", "values"};
static const char *const row_names[] = {"crow_indices", "col_indices", "values"};
static const char *const column_names[] = {"ccol_indices", "row_indices", "values"};
static const char *const nested_names[] = {"buffer", "sizes", "strides", "offsets"};
static const char *const scale_names[] = {"scales", "zero_points"};
/* Parts of a jagged tensor: names of arguments, and of the attributes in PyTorch. */
static const char *const jagged_args[] = {"values", "offsets", "lengths", "min_seqlen",
                                          "max_seqlen"};
static const char *const jagged_names[] = {"_values", "_offsets", "_lengths", "_min_seqlen_tensor",
                                           "_max_seqlen_tensor"};

/* Returns "sparse_coo" for torch.sparse_coo, which is a text or a global. */
static const char *layout_of(const struct graph *graph, uint32_t id)
{
    static const char prefix[] = "torch.";
    if (id != 0 && torch_what_of(graph, graph_at(graph, id)) == WHAT_LAYOUT)
        id = torch_arg(graph, graph_at(graph, id)->call.args, 0);
    if (id == 0)
        return "";
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_GLOBAL)
        return value->global->name;
    if (value->kind != VALUE_TEXT || strncmp(value->text, prefix, sizeof(prefix) - 1) != 0)
        return "";
    return value->text + sizeof(prefix) - 1;
}

static const char *const *sparse_names(const struct graph *graph, uint32_t layout, uint32_t *ret_n)
{
    const char *name = layout_of(graph, layout);
    *ret_n = 3;
    if (strcmp(name, "sparse_csr") == 0 || strcmp(name, "sparse_bsr") == 0)
        return row_names;
    if (strcmp(name, "sparse_csc") == 0 || strcmp(name, "sparse_bsc") == 0)
        return column_names;
    *ret_n = strcmp(name, "sparse_coo") == 0 ? 2 : 0;
    return coo_names;
}

/* Returns what makes the tensor, and the arguments for it, inside of the call that sets its
 * type, if there is one. */
static enum torch_what unwrap(const struct graph *graph, const struct value *call,
                              uint32_t *ret_args)
{
    enum torch_what what = torch_what_of(graph, call);
    *ret_args = call->kind == VALUE_CALL ? call->call.args : 0;
    if (what != WHAT_REBUILD_TYPE)
        return what;
    const struct torch_global *inner = torch_global_of(graph, torch_arg(graph, *ret_args, 0));
    what = inner == NULL ? WHAT_UNKNOWN : inner->what;
    *ret_args = torch_arg(graph, *ret_args, 2);
    return what;
}

static uint32_t jagged_part(const struct graph *graph, uint32_t args, uint32_t i)
{
    const uint32_t dict = torch_arg(graph, args, 0);
    if (i < 3)
        return value_get(graph, dict, jagged_args[i]);
    return value_get(graph, value_get(graph, dict, "_metadata_cache"), jagged_args[i]);
}

/* Returns the i-th part of a jagged tensor, not counting missing ones. */
static uint32_t nth_jagged_part(const struct graph *graph, uint32_t args, uint32_t i,
                                const char **ret_name)
{
    for (uint32_t k = 0; k < 5; k++) {
        const uint32_t id = jagged_part(graph, args, k);
        if (!torch_has_tensor(graph, id) || i-- > 0)
            continue;
        *ret_name = jagged_names[k];
        return id;
    }
    return 0;
}

uint32_t torch_composite_part(const struct graph *graph, const struct value *call, uint32_t i,
                              const char **ret_name)
{
    uint32_t args, n;
    const char *const *names;
    switch (unwrap(graph, call, &args)) {
    case WHAT_REBUILD_SPARSE:
        names = sparse_names(graph, torch_arg(graph, args, 0), &n);
        args = torch_arg(graph, args, 1);
        break;
    case WHAT_REBUILD_NESTED:
        names = nested_names;
        n = 4;
        break;
    case WHAT_REBUILD_QTENSOR:
        names = scale_names;
        args = torch_arg(graph, args, 4);
        n = torch_has_tensor(graph, torch_arg(graph, args, 1)) ? 2 : 0;
        if (i < n) {
            *ret_name = names[i];
            return torch_arg(graph, args, i + 1);
        }
        return 0;
    case WHAT_REBUILD_NJT:
        return nth_jagged_part(graph, args, i, ret_name);
    default:
        return 0;
    }
    if (i >= n)
        return 0;
    *ret_name = names[i];
    return torch_arg(graph, args, i);
}

bool torch_is_composite(const struct graph *graph, const struct value *call)
{
    uint32_t args;
    const char *name;
    const enum torch_what what = unwrap(graph, call, &args);
    return what != WHAT_REBUILD_QTENSOR && torch_composite_part(graph, call, 0, &name) != 0;
}

/* Adds "[2, 3]" for a tuple of integers, or torch.Size of one. */
static void add_numbers(struct strbuf *text, const struct graph *graph, uint32_t tuple)
{
    if (tuple != 0 && torch_what_of(graph, graph_at(graph, tuple)) == WHAT_SIZE)
        tuple = torch_arg(graph, graph_at(graph, tuple)->call.args, 0);
    strbuf_add(text, "[", 1);
    for (uint32_t i = 0; i < torch_n_args(graph, tuple); i++) {
        int64_t number = 0;
        torch_integer(graph, torch_arg(graph, tuple, i), &number);
        strbuf_printf(text, "%s%lld", i == 0 ? "" : ", ", (long long)number);
    }
    strbuf_add(text, "]", 1);
}

/* Adds {"layout": "sparse_coo", "shape": [2, 3]}. */
static void describe_sparse(struct strbuf *text, const struct graph *graph, uint32_t args)
{
    uint32_t n;
    sparse_names(graph, torch_arg(graph, args, 0), &n);
    const uint32_t payload = torch_arg(graph, args, 1);
    int64_t is_coalesced;
    strbuf_printf(text,
                  "{\"layout\": \"%s\", \"shape\": ", layout_of(graph, torch_arg(graph, args, 0)));
    add_numbers(text, graph, torch_arg(graph, payload, n));
    if (n == 2 && torch_integer(graph, torch_arg(graph, payload, 3), &is_coalesced))
        strbuf_printf(text, ", \"is_coalesced\": %s", is_coalesced != 0 ? "true" : "false");
    strbuf_add(text, "}", 1);
}

/* Adds {"class": "torchao.Int8Tensor", "dtype": "bfloat16", "shape": [32, 64]}. */
static void describe_wrapper(struct strbuf *text, const struct graph *graph, uint32_t args)
{
    const uint32_t class = torch_arg(graph, args, 0), dtype = torch_arg(graph, args, 1);
    const struct value_global *name = graph_at(graph, class)->global;
    strbuf_printf(text, "{\"class\": \"%s.%s\"", wfs_quote(name->module).text,
                  wfs_quote(name->name).text);
    if (dtype != 0 && graph_at(graph, dtype)->kind == VALUE_GLOBAL)
        strbuf_printf(text, ", \"dtype\": \"%s\"",
                      wfs_quote(graph_at(graph, dtype)->global->name).text);
    strbuf_add(text, ", \"shape\": ", 11);
    add_numbers(text, graph, torch_arg(graph, args, 2));
    strbuf_add(text, "}", 1);
}

const char *torch_composite_text(struct torch *torch, const struct value *call,
                                 const char **ret_name)
{
    const struct graph *graph = torch->graph;
    autostrbuf struct strbuf text = {.n_max = 4096};
    uint32_t args;
    const enum torch_what what = unwrap(graph, call, &args);
    const uint32_t first = torch_arg(graph, args, 0);
    *ret_name = what == WHAT_REBUILD_SPARSE ? "sparse" : "part_of";
    if (what == WHAT_REBUILD_SPARSE)
        describe_sparse(&text, graph, args);
    else if (what == WHAT_REBUILD_WRAPPER && first != 0 &&
             graph_at(graph, first)->kind == VALUE_GLOBAL)
        describe_wrapper(&text, graph, args);
    else if (what == WHAT_REBUILD_NESTED || what == WHAT_REBUILD_NJT)
        strbuf_printf(&text, "{\"layout\": \"%s\"}",
                      what == WHAT_REBUILD_NJT ? "jagged" : "nested");
    torch->has_failed = torch->has_failed || text.has_failed;
    if (text.n_bytes == 0 || text.is_cut)
        return NULL;
    const char *copy = arena_copy(&torch->catalog->arena, text.bytes, text.n_bytes);
    torch->has_failed = torch->has_failed || copy == NULL;
    return copy;
}
