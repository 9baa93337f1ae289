/* SPDX-License-Identifier: MIT */
/*
 * The file that the newest stable Burn would write: data in the order of the catalog, each tensor
 * at a multiple of 256, tables sorted by name.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/burnpack/burnpack_load.h"
#include "format/core/layout.h"
#include "tensor/tensor.h"
#include "value/value_build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- dtypes ---- */

static const struct {
    const char *name;
    uint8_t dtype;
} names[] = {
    {"F32", WFS_F32},   {"F16", WFS_F16},       {"BF16", WFS_BF16}, {"F64", WFS_F64},
    {"I64", WFS_I64},   {"I32", WFS_I32},       {"I16", WFS_I16},   {"I8", WFS_I8},
    {"U64", WFS_U64},   {"U32", WFS_U32},       {"U16", WFS_U16},   {"U8", WFS_U8},
    {"Bool", WFS_BOOL}, {"Flex32", WFS_FLEX32},
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

bool burnpack_dtype_parse(const struct cbor_span *name, enum wfs_dtype *ret)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (cbor_span_is(name, names[i].name)) {
            *ret = (enum wfs_dtype)names[i].dtype;
            return true;
        }
    }
    return false;
}

/* Returns the name of a dtype that the format has by name alone, else NULL. */
static const char *name_of(enum wfs_dtype dtype)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (names[i].dtype == dtype && dtype != WFS_BOOL)
            return names[i].name;
    }
    return NULL;
}

/* Builds what a reader makes of a quantization scheme, a JSON object; *ret is 0 for anything else.
 * -ENOMEM. */
static int parse_scheme(struct graph *graph, const char *text, uint32_t *ret)
{
    *ret = 0;
    if (strlen(text) > BURNPACK_SCHEME_MAX)
        return 0;
    const int code = value_of_json(graph, text, ret);
    if (*ret != 0 && graph_at(graph, *ret)->kind != VALUE_DICT)
        *ret = 0;
    return code;
}

static void put_value(struct strbuf *out, const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    switch (value->kind) {
    case VALUE_DICT:
        cborout_map(out, value->n / 2);
        break;
    case VALUE_LIST:
        cborout_array(out, value->n);
        break;
    case VALUE_TEXT:
        cborout_text(out, value->text, value->n);
        break;
    case VALUE_INT:
        cborout_int(out, value->integer);
        break;
    case VALUE_BIG:
        cborout_uint(out, load_le64(value->text));
        break;
    case VALUE_FLOAT:
        cborout_real(out, value->real);
        break;
    case VALUE_BOOL:
        cborout_bool(out, value->integer != 0);
        break;
    default:
        strbuf_add(out, "\xf6", 1); /* null */
    }
    for (uint32_t i = 0; value_has_items(value) && i < value->n; i++)
        put_value(out, graph, value_items(value)[i]);
}

static void put_scheme(struct strbuf *out, const char *text)
{
    cleanup(arena_done) struct arena arena = {0};
    struct graph graph = {.arena = &arena};
    uint32_t scheme;
    if (parse_scheme(&graph, text, &scheme) < 0 || scheme == 0) {
        strbuf_fail(out); /* it was a scheme when it was checked */
        return;
    }
    cborout_map(out, 1);
    cborout_string(out, "QFloat");
    put_value(out, &graph, scheme);
}

static int check_scheme(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    cleanup(arena_done) struct arena arena = {0};
    struct graph graph = {.arena = &arena};
    const char *text = wfs_tensor_attr(tensor, "quantization");
    uint32_t scheme;
    if (parse_scheme(&graph, text, &scheme) < 0)
        return wfs_fail_memory(err);
    return scheme != 0
               ? 0
               : wfs_fail(err, EINVAL, "tensor '%s': its quantization '%s' is not a JSON object",
                          wfs_quote(tensor->key).text, wfs_quote(text).text);
}

static void put_dtype(struct strbuf *out, const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    if (dtype == WFS_OPAQUE) {
        const struct wfs_text *scheme = text_find(tensor->attrs, BURNPACK_SCHEME);
        if (scheme != NULL)
            strbuf_add(out, scheme->value, scheme->n_bytes);
        else
            put_scheme(out, wfs_tensor_attr(tensor, "quantization"));
        return;
    }
    if (dtype != WFS_BOOL && dtype != WFS_BOOL32) {
        cborout_string(out, name_of(dtype));
        return;
    }
    const char *store = wfs_tensor_attr(tensor, BURNPACK_STORE);
    cborout_map(out, 1);
    cborout_string(out, "Bool");
    cborout_string(out, dtype == WFS_BOOL32 ? "U32" : store != NULL ? "U8" : "Native");
}

/* ---- metadata ---- */

struct placed {
    const struct wfs_tensor *tensor;
    uint64_t start; /* in the data */
};

/* A file that is being laid out. Arrays are in the arena of the layout. */
struct burnpack_plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    struct placed *by_place;
    const struct placed **by_key;
    uint64_t end;                  /* of the data */
    struct wfs_text *meta;         /* by name */
    struct catalog_value *scalars; /* by name */
    size_t n_meta, n_scalars;
};

static int put_tensor(struct strbuf *out, const struct burnpack_plan *plan,
                      const struct placed *placed)
{
    const struct wfs_tensor *tensor = placed->tensor;
    uint64_t id;
    const int has_id = storable_param_id(tensor, &id, plan->err);
    if (has_id < 0)
        return has_id;
    cborout_string(out, tensor->key);
    cborout_map(out, has_id ? 4 : 3);
    cborout_string(out, "dtype");
    put_dtype(out, tensor);
    cborout_string(out, "shape");
    cborout_array(out, tensor->shape.rank);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        cborout_uint(out, tensor->shape.dims[i]);
    cborout_string(out, "data_offsets");
    cborout_array(out, 2);
    cborout_uint(out, placed->start);
    cborout_uint(out, placed->start + tensor->n_bytes);
    if (has_id) {
        cborout_string(out, "param_id");
        cborout_uint(out, id);
    }
    return 0;
}

static int put_scalar(struct strbuf *out, const struct burnpack_plan *plan,
                      const struct catalog_value *scalar)
{
    const struct value *value = graph_at(&plan->catalog->values.graph, scalar->id);
    const bool is_unsigned = value->form == FORM_UNSIGNED;
    cborout_string(out, scalar->name);
    cborout_map(out, 1);
    if (value->kind == VALUE_INT) {
        cborout_string(out, is_unsigned ? "UInt" : "Int");
        cborout_int(out, value->integer);
    } else if (value->kind == VALUE_BIG && is_unsigned) {
        cborout_string(out, "UInt");
        cborout_uint(out, load_le64(value->text));
    } else if (value->kind == VALUE_FLOAT) {
        cborout_string(out, "Float");
        cborout_real(out, value->real);
    } else if (value->kind == VALUE_BOOL) {
        cborout_string(out, "Bool");
        cborout_bool(out, value->integer != 0);
    } else {
        return wfs_fail(plan->err, EINVAL,
                        "'%s' is not a number, which a scalar of a Burnpack must be",
                        wfs_quote(scalar->name).text);
    }
    return 0;
}

/* Appends the CBOR. -EINVAL, -ENOMEM. */
static int put_cbor(const struct burnpack_plan *plan, struct strbuf *out)
{
    int code = 0;
    cborout_map(out, 1U + (plan->n_meta > 0) + (plan->n_scalars > 0));
    cborout_string(out, "tensors");
    cborout_map(out, plan->catalog->n_tensors);
    for (size_t i = 0; code == 0 && i < plan->catalog->n_tensors; i++)
        code = put_tensor(out, plan, plan->by_key[i]);
    if (plan->n_meta > 0) {
        cborout_string(out, "metadata");
        cborout_map(out, plan->n_meta);
    }
    for (size_t i = 0; i < plan->n_meta; i++) {
        cborout_string(out, plan->meta[i].name);
        cborout_text(out, plan->meta[i].value, plan->meta[i].n_bytes);
    }
    if (plan->n_scalars > 0) {
        cborout_string(out, "scalars");
        cborout_map(out, plan->n_scalars);
    }
    for (size_t i = 0; code == 0 && i < plan->n_scalars; i++)
        code = put_scalar(out, plan, &plan->scalars[i]);
    return code < 0 || !out->has_failed ? code : wfs_fail_memory(plan->err);
}

/* Of the Burn that reads and writes just these bytes, said in new files as it does itself. */
#define BURN_VERSION "0.22.1"

bool burnpack_layout_stores(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    return name_of(dtype) != NULL || dtype == WFS_BOOL || dtype == WFS_BOOL32 ||
           (dtype == WFS_OPAQUE && (wfs_tensor_attr(tensor, BURNPACK_SCHEME) != NULL ||
                                    wfs_tensor_attr(tensor, "quantization") != NULL));
}

int burnpack_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    uint64_t unused;
    if (tensor->dtype == WFS_OPAQUE && wfs_tensor_attr(tensor, BURNPACK_SCHEME) == NULL) {
        const int code = check_scheme(tensor, err);
        if (code < 0)
            return code;
    }
    if (tensor->n_bytes > BURNPACK_TENSOR_MAX)
        return wfs_fail(err, E2BIG,
                        "tensor '%s' has %s, Burn reads at most %" PRIu64 " from a Burnpack",
                        wfs_quote(tensor->key).text, wfs_count(tensor->n_bytes, "byte").text,
                        BURNPACK_TENSOR_MAX);
    const int has_id = storable_param_id(tensor, &unused, err);
    return has_id < 0 ? has_id : 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct placed *const *x = a, *const *y = b;
    return strcmp((*x)->tensor->key, (*y)->tensor->key);
}

/* As a reader finds them: by place, then size, then key. */
static int compare_places(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->tensor->n_bytes != y->tensor->n_bytes)
        return x->tensor->n_bytes < y->tensor->n_bytes ? -1 : 1;
    return strcmp(x->tensor->key, y->tensor->key);
}

static int sort_tensors(struct burnpack_plan *plan)
{
    const size_t n = plan->catalog->n_tensors;
    qsort(plan->by_place, n, sizeof(*plan->by_place), compare_places);
    for (size_t i = 0; i < n; i++) {
        plan->by_key[i] = &plan->by_place[i];
        plan->layout->order[i] = plan->by_place[i].tensor;
    }
    qsort(plan->by_key, n, sizeof(*plan->by_key), compare_keys);
    for (size_t i = 1; i < n; i++) {
        if (compare_keys(&plan->by_key[i - 1], &plan->by_key[i]) == 0)
            return wfs_fail(plan->err, EINVAL, "two tensors have the key '%s'",
                            wfs_quote(plan->by_key[i]->tensor->key).text);
    }
    return 0;
}

static int place_tensors(struct burnpack_plan *plan)
{
    const size_t n = plan->catalog->n_tensors;
    if (n > BURNPACK_TENSORS_MAX)
        return wfs_fail(plan->err, E2BIG, "%s, Burn reads at most %" PRIu64 " from a Burnpack",
                        wfs_count(n, "tensor").text, BURNPACK_TENSORS_MAX);
    plan->by_key = arena_calloc(&plan->layout->arena, n, sizeof(*plan->by_key));
    plan->by_place = arena_calloc(&plan->layout->arena, n, sizeof(*plan->by_place));
    plan->layout->order = arena_calloc(&plan->layout->arena, n, sizeof(*plan->layout->order));
    if (plan->by_key == NULL || plan->by_place == NULL || plan->layout->order == NULL)
        return wfs_fail_memory(plan->err);
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(plan->catalog, i);
        const int code = storable_check_tensor(plan->layout->format, tensor, plan->err);
        if (code < 0)
            return code;
        plan->by_place[i].tensor = tensor;
        /* Neither can overflow: there are few tensors, and each has its cap. */
        checked_round_up(plan->end, BURNPACK_ALIGNMENT, &plan->by_place[i].start);
        plan->end = plan->by_place[i].start + tensor->n_bytes;
    }
    return sort_tensors(plan);
}

static void set_meta(struct burnpack_plan *plan, const char *name, const char *value)
{
    size_t i = 0;
    while (i < plan->n_meta && strcmp(plan->meta[i].name, name) != 0)
        i++;
    plan->n_meta += i == plan->n_meta ? 1 : 0;
    plan->meta[i] = (struct wfs_text){.name = name, .value = value, .n_bytes = strlen(value)};
}

static int compare_texts(const void *a, const void *b)
{
    const struct wfs_text *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/*
 * A Burnpack keeps its metadata, which may be none. One made from another format says what a new
 * one of Burn's says; so does one of an old Burn, whose version stood for another layout.
 */
static int collect_meta(struct burnpack_plan *plan)
{
    enum { N_NEW = 3 };
    size_t n = N_NEW;
    for (const struct wfs_text *text = plan->catalog->meta.first; text != NULL; text = text->next)
        n++;
    plan->meta = arena_calloc(&plan->layout->arena, n, sizeof(*plan->meta));
    if (plan->meta == NULL)
        return wfs_fail_memory(plan->err);
    for (const struct wfs_text *text = plan->catalog->meta.first; text != NULL; text = text->next)
        plan->meta[plan->n_meta++] = *text;
    const bool is_new = plan->catalog->format != plan->layout->format;
    if (is_new) {
        set_meta(plan, "format", "burnpack");
        set_meta(plan, "producer", "burn");
    }
    if (is_new || burnpack_extent_is_old(plan->catalog->meta.first))
        set_meta(plan, "version", BURN_VERSION);
    qsort(plan->meta, plan->n_meta, sizeof(*plan->meta), compare_texts);
    for (size_t i = 0; i < plan->n_meta; i++)
        plan->meta[i].next = i + 1 < plan->n_meta ? &plan->meta[i + 1] : NULL;
    plan->layout->meta = plan->n_meta > 0 ? plan->meta : NULL;
    return storable_check_metadata(plan->catalog, plan->err);
}

static int compare_values(const void *a, const void *b)
{
    const struct catalog_value *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Only numbers are left of the values when they were made to fit. */
static int collect_scalars(struct burnpack_plan *plan)
{
    const struct wfs_catalog *catalog = plan->catalog;
    if (catalog->values.n == 0)
        return 0;
    plan->scalars = arena_calloc(&plan->layout->arena, catalog->values.n, sizeof(*plan->scalars));
    if (plan->scalars == NULL)
        return wfs_fail_memory(plan->err);
    plan->n_scalars = catalog->values.n;
    memcpy(plan->scalars, catalog->values.list, catalog->values.n * sizeof(*plan->scalars));
    qsort(plan->scalars, plan->n_scalars, sizeof(*plan->scalars), compare_values);
    return 0;
}

/* Header, CBOR and padding are one piece of bytes; *ret is where the data begins. */
static int add_head(const struct burnpack_plan *plan, struct strbuf *out, uint64_t *ret)
{
    static const uint8_t start[BURNPACK_HEADER] = {'N', 'R', 'U', 'B', BURNPACK_VERSION};
    strbuf_add(out, (const char *)start, sizeof(start));
    const int code = put_cbor(plan, out);
    if (code < 0)
        return code;
    const uint64_t n_cbor = out->n_bytes - BURNPACK_HEADER;
    if (n_cbor > BURNPACK_CBOR_MAX)
        return wfs_fail(plan->err, E2BIG, "the metadata would have %s, Burn reads at most %" PRIu64,
                        wfs_count(n_cbor, "byte").text, BURNPACK_CBOR_MAX);
    store_le32(out->bytes + 6, (uint32_t)n_cbor);
    checked_round_up(out->n_bytes, BURNPACK_ALIGNMENT, ret);
    uint8_t *head = arena_calloc(&plan->layout->arena, 1, (size_t)*ret);
    if (head == NULL)
        return wfs_fail_memory(plan->err);
    memcpy(head, out->bytes, out->n_bytes);
    return layout_add_bytes(plan->layout, 0, head, *ret) < 0 ? wfs_fail_memory(plan->err) : 0;
}

static int add_data(const struct burnpack_plan *plan, uint64_t data)
{
    static const uint8_t zero = 0;
    struct wfs_layout *layout = plan->layout;
    if (plan->end > BURNPACK_FILE_MAX - data)
        return wfs_fail(plan->err, E2BIG,
                        "the file would have %s, Burn reads at most %" PRIu64 " of a Burnpack",
                        wfs_count(data + plan->end, "byte").text, BURNPACK_FILE_MAX);
    for (size_t i = 0; i < plan->catalog->n_tensors; i++) {
        const struct placed *placed = &plan->by_place[i];
        if (layout_add_tensor(layout, data + placed->start, placed->tensor) < 0)
            return wfs_fail_memory(plan->err);
    }
    /* What has no bytes begins at a multiple of 256 too, and may be the last. */
    if (layout->n_bytes < data + plan->end &&
        layout_add_bytes(layout, data + plan->end - 1, &zero, 1) < 0)
        return wfs_fail_memory(plan->err);
    return 0;
}

int burnpack_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                         struct wfs_error *err)
{
    struct burnpack_plan plan = {.catalog = catalog, .layout = layout, .err = err};
    struct strbuf out = {0};
    uint64_t data = 0;
    int code = place_tensors(&plan);
    if (code == 0)
        code = collect_meta(&plan);
    if (code == 0)
        code = collect_scalars(&plan);
    if (code == 0)
        code = add_head(&plan, &out, &data);
    if (code == 0)
        code = add_data(&plan, data);
    strbuf_done(&out);
    return code;
}
