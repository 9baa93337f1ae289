/* SPDX-License-Identifier: MIT */
/*
 * The file that the writers of llama.cpp and of the gguf package make of the same pairs and
 * tensors: version 3, little-endian, everything in its order, zeros up to each multiple of the
 * alignment, behind the last tensor, too.
 */
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/core/layout.h"
#include "format/gguf/gguf_load.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- what can be stored ---- */

/* Returns the number of the type of a tensor, of a fork, too; -1: it has none. */
static int64_t number_of(const struct wfs_tensor *tensor)
{
    const char *text = wfs_tensor_attr(tensor, "dtype"), *removed;
    enum wfs_dtype dtype;
    uint64_t number;
    if (tensor->dtype != WFS_OPAQUE)
        return gguf_dtype_number((enum wfs_dtype)tensor->dtype);
    return text != NULL && digits_parse(text, strlen(text), &number) && number <= UINT32_MAX &&
                   !gguf_dtype_of(number, &dtype, &removed) && removed == NULL
               ? (int64_t)number
               : -1;
}

bool gguf_layout_stores(const struct wfs_tensor *tensor)
{
    return number_of(tensor) >= 0;
}

int gguf_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const size_t n_key = strlen(tensor->key);
    const struct wfs_quoted key = wfs_quote(tensor->key);
    if (n_key > GGUF_NAME_MAX)
        return wfs_fail(err, EOPNOTSUPP,
                        "tensor '%s': its name has %s, and llama.cpp reads up to %d: rename it",
                        key.text, wfs_count(n_key, "byte").text, GGUF_NAME_MAX);
    if (tensor->shape.rank > GGUF_RANK_MAX)
        return wfs_fail(err, EOPNOTSUPP, "tensor '%s' has %s, and llama.cpp reads up to %d",
                        key.text, wfs_count(tensor->shape.rank, "dimension").text, GGUF_RANK_MAX);
    if (tensor->stored.is_big_endian && wfs_dtype_has_blocks((enum wfs_dtype)tensor->stored.dtype))
        return wfs_fail(err, EOPNOTSUPP,
                        "tensor '%s': its blocks are of a big-endian file, which does not state "
                        "whether their numbers are, too",
                        key.text);
    return 0;
}

/* ---- pieces of the header ---- */

static void put_number(struct strbuf *out, uint64_t n, size_t n_bytes)
{
    uint8_t bytes[8];
    store_le64(bytes, n);
    strbuf_add(out, (const char *)bytes, n_bytes);
}

static void put_text(struct strbuf *out, const char *bytes, size_t n_bytes)
{
    put_number(out, n_bytes, 8);
    strbuf_add(out, bytes, n_bytes);
}

static uint64_t bits_of(const struct value *value, enum gguf_type type)
{
    const float narrow = value->kind == VALUE_FLOAT ? (float)value->real : 0;
    uint32_t low;
    uint64_t n;
    if (value->kind == VALUE_BIG)
        return load_le64(value->text);
    if (type == GGUF_BOOL)
        return value->integer != 0;
    if (type == GGUF_F32) {
        memcpy(&low, &narrow, sizeof(low));
        return low;
    }
    memcpy(&n, type == GGUF_F64 ? (const void *)&value->real : (const void *)&value->integer,
           sizeof(n));
    return n;
}

/* Writes a value of the type, or an item of a list of that type. */
static void put_value(struct strbuf *out, const struct graph *graph, uint32_t id,
                      enum gguf_type type)
{
    const struct value *value = graph_at(graph, id);
    if (type == GGUF_TEXT) {
        put_text(out, value->text, value->n);
        return;
    }
    if (type != GGUF_ARRAY) {
        put_number(out, bits_of(value, type), gguf_type_bytes(type));
        return;
    }
    const enum gguf_type item = gguf_type_of(value);
    put_number(out, item, 4);
    put_number(out, value->n, 8);
    for (uint32_t i = 0; i < value->n; i++)
        put_value(out, graph, value_items(value)[i], item);
}

struct plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    struct strbuf head;
    uint64_t alignment;
};

static int put_pair(struct plan *plan, const struct catalog_value *pair)
{
    const struct graph *graph = &plan->catalog->values.graph;
    const struct value *value = graph_at(graph, pair->id);
    const enum gguf_type own = gguf_type_of(value);
    const bool is_list = value->kind == VALUE_LIST || value->kind == VALUE_TUPLE;
    const enum gguf_type type = is_list ? GGUF_ARRAY : own;
    const size_t n_name = strlen(pair->name);
    if (n_name == 0 || utf8_valid(pair->name, n_name) != n_name)
        return wfs_fail(plan->err, EINVAL, "value '%s': a key of a GGUF is a text in UTF-8",
                        wfs_quote(pair->name).text);
    if (own == GGUF_NONE)
        return wfs_fail(plan->err, EINVAL, "value '%s' has no type of a GGUF",
                        wfs_quote(pair->name).text);
    if (strcmp(pair->name, GGUF_ALIGNMENT) == 0) {
        const int64_t n = type == GGUF_U32 ? value->integer : 0;
        if (n <= 0 || (n & (n - 1)) != 0)
            return wfs_fail(plan->err, EINVAL,
                            "value '" GGUF_ALIGNMENT "' must be a U32 and a power of 2");
        plan->alignment = (uint64_t)n;
    }
    put_text(&plan->head, pair->name, n_name);
    put_number(&plan->head, type, 4);
    put_value(&plan->head, graph, pair->id, type);
    return 0;
}

/* Adds what describes a file of several. Returns the number of pairs. */
static uint64_t put_part(struct strbuf *out, const struct catalog_part *part)
{
    const struct {
        const char *key;
        enum gguf_type type;
        uint64_t n;
    } pairs[] = {{GGUF_PART_NUMBER, GGUF_U16, part->number},
                 {GGUF_PART_COUNT, GGUF_U16, part->n},
                 {GGUF_PART_TENSORS, GGUF_I32, part->n_tensors}};
    const size_t n = part->n > 0 ? sizeof(pairs) / sizeof(*pairs) : 0;
    for (size_t i = 0; i < n; i++) {
        put_text(out, pairs[i].key, strlen(pairs[i].key));
        put_number(out, pairs[i].type, 4);
        put_number(out, pairs[i].n, gguf_type_bytes(pairs[i].type));
    }
    return n;
}

/* What the loaded file stated of itself as one of several is replaced in another one of several. */
static int put_pairs(struct plan *plan, uint64_t *ret_n)
{
    const struct catalog_part *part = &plan->catalog->output.part;
    const struct catalog_values *values = &plan->catalog->values;
    int code = 0;
    *ret_n = 0;
    for (size_t i = 0; i < values->n && code == 0; i++) {
        if (part->n > 0 && gguf_describes_part(values->list[i].name))
            continue;
        code = put_pair(plan, &values->list[i]);
        ++*ret_n;
    }
    *ret_n += put_part(&plan->head, part);
    return code;
}

static int put_infos(struct plan *plan)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < plan->catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(plan->catalog, i);
        const int code = storable_check_tensor(plan->layout->format, tensor, plan->err);
        if (code < 0)
            return code;
        if (tensor->dtype == WFS_OPAQUE && tensor->n_bytes % plan->alignment != 0)
            return wfs_fail(plan->err, EINVAL,
                            "tensor '%s' has %s of an unknown type, which is not a multiple of the "
                            "alignment: readers would find more",
                            wfs_quote(tensor->key).text, wfs_count(tensor->n_bytes, "byte").text);
        put_text(&plan->head, tensor->key, strlen(tensor->key));
        put_number(&plan->head, tensor->shape.rank, 4);
        for (uint32_t k = tensor->shape.rank; k-- > 0;)
            put_number(&plan->head, tensor->shape.dims[k], 8);
        put_number(&plan->head, (uint64_t)number_of(tensor), 4);
        put_number(&plan->head, offset, 8);
        if (!checked_add(offset, tensor->n_bytes, &offset) ||
            !checked_round_up(offset, plan->alignment, &offset) || offset > INT64_MAX)
            return wfs_fail(plan->err, EFBIG, "tensor '%s' would end past byte 2^63 of the file",
                            wfs_quote(tensor->key).text);
    }
    return 0;
}

/* ---- the whole ---- */

/* Adds zeros up to a multiple of the alignment: the last one, as what lies before it is a gap. */
static int pad(struct plan *plan)
{
    struct wfs_layout *layout = plan->layout;
    uint64_t end;
    if (!checked_round_up(layout->n_bytes, plan->alignment, &end))
        return -ENOMEM;
    return end == layout->n_bytes ? 0 : layout_add_bytes(layout, end - 1, "", 1);
}

static int lay_out(struct plan *plan)
{
    struct wfs_layout *layout = plan->layout;
    const char *head = plan->head.has_failed
                           ? NULL
                           : arena_copy(&layout->arena, plan->head.bytes, plan->head.n_bytes);
    if (head == NULL || layout_add_bytes(layout, 0, head, plan->head.n_bytes) < 0 || pad(plan) < 0)
        return wfs_fail_memory(plan->err);
    for (size_t i = 0; i < plan->catalog->n_tensors; i++) {
        if (layout_add_tensor(layout, layout->n_bytes, wfs_catalog_tensor(plan->catalog, i)) < 0 ||
            pad(plan) < 0)
            return wfs_fail_memory(plan->err);
    }
    return 0;
}

int gguf_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                     struct wfs_error *err)
{
    struct plan plan = {
        .catalog = catalog, .layout = layout, .err = err, .alignment = GGUF_ALIGNMENT_DEFAULT};
    uint64_t n_pairs;
    strbuf_add(&plan.head, "GGUF", 4);
    put_number(&plan.head, GGUF_VERSION, 4);
    put_number(&plan.head, catalog->n_tensors, 8);
    const size_t n_before = plan.head.n_bytes;
    put_number(&plan.head, 0, 8); /* of pairs, once they are counted */
    int code = put_pairs(&plan, &n_pairs);
    if (!plan.head.has_failed)
        store_le64((uint8_t *)plan.head.bytes + n_before, n_pairs);
    if (code == 0)
        code = put_infos(&plan);
    if (code == 0)
        code = lay_out(&plan);
    strbuf_done(&plan.head);
    return code;
}
