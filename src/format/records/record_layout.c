/* SPDX-License-Identifier: MIT */
/*
 * The file that Burn's NamedMpkFileRecorder would write: everything in its shortest form, the bytes
 * of tensors where their maps are. The version in the metadata decides how a tensor is written.
 */
#include "format/records/record_write.h"

#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/hash.h"
#include "base/source.h"
#include "base/utf8.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "format/records/record_list.h"
#include "format/records/record_map.h"
#include "format/records/record_names.h"
#include "tensor/tensor.h"
#include "value/value_build.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDER "NamedMpkFileRecorder"
#define RECORDER_PATH "burn_core::record::file::" RECORDER
#define SETTINGS_PATH "burn_core::record::settings::"

enum { N_TEXTS = 5, RANK_WITH_ARRAYS = 4 };

enum { N_DEPTH_MAX = 1000, N_UNSIGNED = 9 }; /* of values; bytes of a large integer */

enum { MINOR_MARKER = 12, MINOR_BYTES = 14, MINOR_BOOL = 21 };

struct plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    struct record_outline outline;
    struct strbuf out; /* what is not in the layout yet */
    uint64_t offset;   /* of that in the file */
    size_t n_ordered;
    unsigned minor;                        /* of the Burn that is to read it */
    bool is_record;                        /* the catalog comes from one */
    enum wfs_dtype float_dtype, int_dtype; /* of the settings */
};

/* ---- values: plain data only, what Python makes has no place in a record ---- */

/* Without a message: -EINVAL for a value that a record cannot hold, -EEXIST for one in which the
 * reader would find a tensor; -ENOMEM, errors as source_read. */
static int spell(struct strbuf *out, const struct graph *graph, uint32_t id, unsigned depth);

static int spell_items(struct strbuf *out, const struct graph *graph, const struct value *value,
                       unsigned depth)
{
    const bool is_map = value->kind == VALUE_DICT;
    int code = 0;
    if (is_map)
        mpkout_map(out, value->n / 2);
    else
        mpkout_array(out, value->n);
    for (uint32_t i = 0; i < value->n && code == 0; i++) {
        const uint32_t item = value_items(value)[i];
        if (is_map && i % 2 == 0 && graph_at(graph, item)->kind != VALUE_TEXT)
            return -EINVAL;
        code = spell(out, graph, item, depth + 1);
    }
    return code;
}

/* An integer above the signed ones. */
static int spell_large(struct strbuf *out, const struct value *value)
{
    if (value->n != N_UNSIGNED || value->text[N_UNSIGNED - 1] != 0)
        return -EINVAL;
    mpkout_uint(out, load_le64(value->text));
    return 0;
}

static int spell_bytes(struct strbuf *out, const struct value *value)
{
    autofree uint8_t *bytes = NULL;
    size_t n_bytes;
    const int code = value_copy_range(value->bytes, &bytes, &n_bytes);
    if (code <= 0)
        return code < 0 ? code : -EINVAL; /* large ones are tensors */
    if (value->form == FORM_BYTE_TEXT) {
        mpkout_text(out, (const char *)bytes, n_bytes);
    } else {
        mpkout_bytes(out, (uint32_t)n_bytes);
        strbuf_add(out, (const char *)bytes, n_bytes);
    }
    return 0;
}

static int spell(struct strbuf *out, const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    if (depth == N_DEPTH_MAX)
        return -EINVAL;
    switch (value->kind) {
    case VALUE_NONE:
        mpkout_nil(out);
        return 0;
    case VALUE_BOOL:
        mpkout_bool(out, value->integer != 0);
        return 0;
    case VALUE_INT:
        mpkout_int(out, value->integer);
        return 0;
    case VALUE_BIG:
        return spell_large(out, value);
    case VALUE_FLOAT:
        if (value->tag == VALUE_NARROW)
            mpkout_f32(out, value->real);
        else
            mpkout_f64(out, value->real);
        return 0;
    case VALUE_TEXT:
        if (utf8_valid(value->text, value->n) != value->n)
            return -EINVAL;
        mpkout_text(out, value->text, value->n);
        return 0;
    case VALUE_BYTES:
        return spell_bytes(out, value);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        if (record_is_tensor(graph, id))
            return -EEXIST;
        return spell_items(out, graph, value, depth);
    default:
        return -EINVAL;
    }
}

/* Writes a quantization scheme that is given as JSON. Returns false when it is not an object. */
static bool spell_scheme(struct strbuf *out, const char *json)
{
    cleanup(arena_done) struct arena arena = {0};
    struct graph graph = {.arena = &arena};
    uint32_t root;
    if (value_of_json(&graph, json, &root) < 0)
        out->has_failed = true;
    else if (root == 0 || graph_at(&graph, root)->kind != VALUE_DICT)
        return false;
    return out->has_failed || spell(out, &graph, root, 0) == 0;
}

/* ---- what can be stored ---- */

bool record_layout_stores(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    return record_dtype_name(dtype) != NULL || dtype == WFS_BOOL32 ||
           (dtype == WFS_OPAQUE && wfs_tensor_attr(tensor, "quantization") != NULL);
}

static int check_scheme(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    autostrbuf struct strbuf out = {0};
    const char *text = wfs_tensor_attr(tensor, "quantization");
    const bool is_scheme = spell_scheme(&out, text);
    if (out.has_failed)
        return wfs_fail_memory(err);
    return is_scheme
               ? 0
               : wfs_fail(err, EINVAL, "tensor '%s': its quantization '%s' is not a JSON object",
                          wfs_quote(tensor->key).text, wfs_quote(text).text);
}

int record_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    uint64_t id;
    int code = tensor->dtype == WFS_OPAQUE ? check_scheme(tensor, err) : 0;
    code = code < 0 ? code : storable_param_id(tensor, &id, err);
    if (code < 0)
        return code;
    if (tensor->n_bytes > UINT32_MAX)
        return wfs_fail(
            err, E2BIG,
            "tensor '%s' has %s, and a record holds less than 4 GiB of each: write a .bpk",
            wfs_quote(tensor->key).text, wfs_count(tensor->n_bytes, "byte").text);
    return 0;
}

/* ---- pieces of the file ---- */

/* Moves what was written into the layout. */
static int flush(struct plan *plan)
{
    struct strbuf *out = &plan->out;
    const char *bytes =
        out->has_failed ? NULL : arena_copy(&plan->layout->arena, out->bytes, out->n_bytes);
    if (bytes == NULL || layout_add_bytes(plan->layout, plan->offset, bytes, out->n_bytes) < 0)
        return wfs_fail_memory(plan->err);
    plan->offset += out->n_bytes;
    out->n_bytes = 0;
    return 0;
}

static int add_content(struct plan *plan, const struct wfs_tensor *tensor)
{
    const int code = flush(plan);
    if (code < 0)
        return code;
    if (tensor->n_bytes > INT64_MAX - plan->offset ||
        layout_add_tensor(plan->layout, plan->offset, tensor) < 0)
        return wfs_fail_memory(plan->err);
    plan->offset += tensor->n_bytes;
    return 0;
}

static void put_shape(struct plan *plan, const struct wfs_shape *shape)
{
    mpkout_string(&plan->out, "shape");
    mpkout_array(&plan->out, shape->rank);
    for (uint32_t i = 0; i < shape->rank; i++)
        mpkout_uint(&plan->out, shape->dims[i]);
}

/* ---- tensors ---- */

/* Returns the dtype as it was loaded, in the graph; 0: it is not known, or not that of the tensor.
 */
static uint32_t loaded_dtype(const struct plan *plan, const struct wfs_tensor *tensor)
{
    const struct wfs_catalog *catalog = plan->catalog;
    if (!plan->is_record || catalog_place(catalog, tensor) == 0 ||
        catalog->values.places[tensor->place].stamp != catalog_stamp(tensor))
        return 0;
    const uint32_t id = catalog->values.places[tensor->place].id;
    const uint32_t param = value_get(&catalog->values.graph, id, "param");
    return value_get(&catalog->values.graph, param != 0 ? param : id, "dtype");
}

static int put_scheme(struct plan *plan, const struct wfs_tensor *tensor)
{
    const uint32_t loaded = loaded_dtype(plan, tensor);
    if (loaded != 0)
        return spell(&plan->out, &plan->catalog->values.graph, loaded, 0) < 0
                   ? wfs_fail(plan->err, EINVAL, "tensor '%s': its scheme cannot be written",
                              wfs_quote(tensor->key).text)
                   : 0;
    mpkout_map(&plan->out, 1);
    mpkout_string(&plan->out, "QFloat");
    spell_scheme(&plan->out, wfs_tensor_attr(tensor, "quantization"));
    return 0;
}

static int put_bool(struct plan *plan, const struct wfs_tensor *tensor)
{
    const char *store = wfs_tensor_attr(tensor, "bool_store");
    if (plan->minor >= MINOR_BOOL) {
        mpkout_map(&plan->out, 1);
        mpkout_string(&plan->out, "Bool");
        mpkout_string(&plan->out, tensor->dtype == WFS_BOOL32 ? "U32"
                                  : store != NULL             ? "U8"
                                                              : "Native");
        return 0;
    }
    if (tensor->dtype == WFS_BOOL32)
        return wfs_fail(plan->err, EOPNOTSUPP,
                        "tensor '%s': bools of 32 bits need burn_version 0.21",
                        wfs_quote(tensor->key).text);
    mpkout_string(&plan->out, "Bool");
    return 0;
}

static int put_dtype(struct plan *plan, const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    mpkout_string(&plan->out, "dtype");
    if (dtype == WFS_OPAQUE)
        return put_scheme(plan, tensor);
    if (dtype == WFS_BOOL || dtype == WFS_BOOL32)
        return put_bool(plan, tensor);
    mpkout_string(&plan->out, record_dtype_name(dtype));
    return 0;
}

static int put_new(struct plan *plan, const struct wfs_tensor *tensor)
{
    mpkout_map(&plan->out, 3);
    mpkout_string(&plan->out, "bytes");
    mpkout_bytes(&plan->out, (uint32_t)tensor->n_bytes);
    const int code = add_content(plan, tensor);
    if (code < 0)
        return code;
    put_shape(plan, &tensor->shape);
    return put_dtype(plan, tensor);
}

/* A list as verbatim bytes of a source. */
static struct wfs_tensor *content_of(struct plan *plan, const struct wfs_tensor *tensor,
                                     const struct source *source, uint64_t offset, uint64_t n_bytes)
{
    struct wfs_tensor *content = arena_calloc(&plan->layout->arena, 1, sizeof(*content));
    if (content != NULL)
        *content = (struct wfs_tensor){.key = tensor->key,
                                       .dtype = WFS_OPAQUE,
                                       .n_bytes = n_bytes,
                                       .stored = {.source = (struct source *)(uintptr_t)source,
                                                  .offset = offset,
                                                  .dtype = WFS_OPAQUE}};
    return content;
}

/*
 * Nothing but its numbers says what dtype a tensor is. Integers with settings of half precision are
 * read as halves where their values allow it, so that only halves are safe there.
 */
static bool is_read_as(const struct plan *plan, const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    if (tensor->n_bytes == 0)
        return dtype == plan->float_dtype;
    if (dtype == WFS_F32 || dtype == WFS_F64 || dtype == WFS_BOOL)
        return true;
    if (plan->float_dtype == WFS_F16 || plan->float_dtype == WFS_BF16)
        return dtype == plan->float_dtype;
    return dtype == plan->int_dtype && wfs_dtype_kind(dtype) != WFS_KIND_FLOAT;
}

/* Makes a list of the elements. */
static int encode_list(struct plan *plan, const struct wfs_tensor *tensor, uint64_t *ret_n,
                       const struct wfs_tensor **ret)
{
    const unsigned n_encoded = record_encoded_bytes((enum wfs_dtype)tensor->dtype);
    uint64_t offset = 0;
    if (n_encoded == 0 || !is_read_as(plan, tensor))
        return wfs_fail(
            plan->err, EOPNOTSUPP,
            "tensor '%s' is %s: a record of Burn 0.13 and earlier, which states no dtypes, would "
            "be "
            "read with another one (its settings are %s and %s); cast it, or use burn_version 0.14 "
            "or later",
            wfs_quote(tensor->key).text, wfs_dtype_name((enum wfs_dtype)tensor->dtype),
            wfs_dtype_name(plan->float_dtype), wfs_dtype_name(plan->int_dtype));
    *ret_n = tensor->n_bytes / (wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8);
    if (record_encoded_add(&plan->layout->made, tensor, &offset) < 0)
        return wfs_fail_memory(plan->err);
    *ret = content_of(plan, tensor, plan->layout->made, offset, *ret_n * n_encoded);
    return *ret == NULL ? wfs_fail_memory(plan->err) : 0;
}

/* The list that a tensor was loaded from, as it is in the file; else a new one. */
static int find_list(struct plan *plan, const struct wfs_tensor *tensor, uint64_t *ret_n,
                     const struct wfs_tensor **ret)
{
    const struct source *bytes;
    const struct record_list *list = record_source_whole(tensor, &bytes);
    if (list == NULL)
        return encode_list(plan, tensor, ret_n, ret);
    *ret_n = list->n;
    *ret = content_of(plan, tensor, bytes, list->offset, list->end - list->offset);
    return *ret == NULL ? wfs_fail_memory(plan->err) : 0;
}

static int put_old(struct plan *plan, const struct wfs_tensor *tensor)
{
    const struct wfs_tensor *content = NULL;
    uint64_t n = 0;
    int code = find_list(plan, tensor, &n, &content);
    if (code < 0)
        return code;
    mpkout_map(&plan->out, 2);
    mpkout_string(&plan->out, "value");
    mpkout_array(&plan->out, (uint32_t)n);
    code = add_content(plan, content);
    if (code == 0)
        put_shape(plan, &tensor->shape);
    return code;
}

static int put_any(struct plan *plan, const struct wfs_tensor *tensor)
{
    plan->layout->order[plan->n_ordered++] = tensor;
    return plan->minor < MINOR_BYTES ? put_old(plan, tensor) : put_new(plan, tensor);
}

/* The id as it was in the file, while it still is that of the parameter; else 13 digits. A new
 * parameter has a hash of its key. */
static void put_id(struct plan *plan, const struct wfs_tensor *tensor)
{
    const char *text = wfs_tensor_attr(tensor, "record_id");
    char digits[RECORD_ID_N + 1];
    uint64_t id = hash_bytes(tensor->key, strlen(tensor->key), 0), loaded = 0;
    (void)storable_param_id(tensor, &id, NULL); /* it was checked */
    if (text != NULL)
        record_id_parse(text, strlen(text), &loaded);
    if (text == NULL || loaded != id) {
        record_id_print(id, digits);
        text = digits;
    }
    mpkout_string(&plan->out, "id");
    mpkout_string(&plan->out, text);
}

static int put_tensor(struct plan *plan, const struct wfs_tensor *tensor)
{
    if (!record_outline_is_parameter(&plan->outline, tensor))
        return put_any(plan, tensor);
    mpkout_map(&plan->out, 2);
    put_id(plan, tensor);
    mpkout_string(&plan->out, "param");
    return put_any(plan, tensor);
}

/* ---- the tree ---- */

static bool is_named(const struct outline_node *node, const char *name)
{
    return node->n_name == strlen(name) && memcmp(node->name, name, node->n_name) == 0;
}

static int put_value(struct plan *plan, const struct outline_node *node)
{
    const int code = spell(&plan->out, &plan->catalog->values.graph, node->value, 0);
    if (code == -ENOMEM)
        return wfs_fail_memory(plan->err);
    if (code == -EINVAL)
        return wfs_fail(plan->err, EINVAL, "the value '%s' is not plain data, which a record holds",
                        wfs_quote_n(node->name, node->n_name).text);
    if (code == -EEXIST)
        return wfs_fail(plan->err, EINVAL,
                        "the value '%s' has a map that would be read as a tensor, because of the "
                        "names in it: rename one of them",
                        wfs_quote_n(node->name, node->n_name).text);
    return code < 0 ? wfs_fail(plan->err, -code, "cannot read the bytes of a value") : 0;
}

static int put_node(struct plan *plan, uint32_t id)
{
    const struct outline_node *nodes = plan->outline.nodes, *node = &nodes[id];
    int code = 0;
    if (node->tensor != NULL)
        return put_tensor(plan, node->tensor);
    if (node->value != 0)
        return put_value(plan, node);
    if (node->is_list)
        mpkout_array(&plan->out, node->n_children);
    else
        mpkout_map(&plan->out, node->n_children);
    for (uint32_t child = node->first; child != 0 && code == 0; child = nodes[child].next) {
        if (!node->is_list)
            mpkout_text(&plan->out, nodes[child].name, nodes[child].n_name);
        code = put_node(plan, child);
    }
    return code;
}

/*
 * Up to Burn 0.20, a convolution of two or more dimensions has lists of nulls for its constants,
 * and does not load without them.
 */
static int check_convolution(const struct plan *plan, const struct outline_node *weight)
{
    const struct record_outline *outline = &plan->outline;
    if (plan->minor >= MINOR_BOOL || weight->tensor->shape.rank < RANK_WITH_ARRAYS)
        return 0;
    const uint32_t stride = record_outline_child(outline, weight->parent, "stride", 6);
    const uint32_t value = stride == 0 ? 0 : outline->nodes[stride].value;
    return value != 0 && graph_at(&plan->catalog->values.graph, value)->kind == VALUE_LIST
               ? 0
               : wfs_fail(plan->err, EINVAL,
                          "tensor '%s' is the weight of a convolution, which in Burn 0.%u has "
                          "constants beside it that only a record has: use like with such a "
                          "record, or burn_version 0.21",
                          wfs_quote(weight->tensor->key).text, plan->minor);
}

/* Newer recurrent modules have their activations as enums, and do not load without them. */
static int check_recurrent(const struct plan *plan, const struct outline_node *weight)
{
    static const struct {
        const char *gate, *module, *constant;
        unsigned since;
    } modules[] = {{"cell_gate", "Lstm", "cell_activation", 20},
                   {"reset_gate", "Gru", "gate_activation", 21},
                   {"gate", "Rnn", "hidden_activation", 21}};
    const struct outline_node *nodes = plan->outline.nodes, *transform = &nodes[weight->parent],
                              *gate = &nodes[transform->parent];
    for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++) {
        if (plan->minor < modules[i].since || !is_named(transform, "hidden_transform") ||
            !is_named(gate, modules[i].gate) ||
            record_outline_child(&plan->outline, gate->parent, modules[i].constant,
                                 strlen(modules[i].constant)) != 0)
            continue;
        return wfs_fail(plan->err, EINVAL,
                        "tensor '%s' is part of the module %s, which in Burn 0.%u has activations "
                        "that only a record has: use like with such a record, or burn_version "
                        "0.%u",
                        wfs_quote(weight->tensor->key).text, modules[i].module, plan->minor,
                        modules[i].since - 1);
    }
    return 0;
}

/* Checks that constants without which Burn refuses a module of its own exist. */
static int check_constants(const struct plan *plan)
{
    int code = 0;
    for (uint32_t id = 1; code == 0 && id < plan->outline.n_nodes; id++) {
        const struct outline_node *node = &plan->outline.nodes[id];
        if (node->tensor == NULL || !is_named(node, "weight"))
            continue;
        code = check_convolution(plan, node);
        code = code < 0 ? code : check_recurrent(plan, node);
    }
    return code;
}

/* A Burnpack of an optimizer that has something else too, or lacks ranks, keeps its names. */
static int check_optimizer(const struct plan *plan)
{
    static const char rank[] = ".__rank";
    const struct wfs_catalog *catalog = plan->catalog;
    for (size_t i = 0; i < catalog->values.n && !plan->is_record; i++) {
        const size_t n = strlen(catalog->values.list[i].name), n_rank = sizeof(rank) - 1;
        if (n > n_rank && strcmp(catalog->values.list[i].name + n - n_rank, rank) == 0)
            return wfs_fail(plan->err, EOPNOTSUPP,
                            "the state of an optimizer becomes a record only if all names begin "
                            "with the id of a parameter whose __rank is from 0 to 8");
    }
    return 0;
}

/* ---- metadata ---- */

static const char *text_of(const struct wfs_text *meta, const char *name)
{
    const struct wfs_text *text = text_find(meta, name);
    return text == NULL ? NULL : text->value;
}

/* The settings that the floats of a catalog suggest: which of the three, as Burn's names. */
static const char *const *settings_of(const struct wfs_catalog *catalog)
{
    static const char *const full[] = {"f32", "i32", "FullPrecisionSettings"};
    static const char *const half[] = {"half::binary16::f16", "i16", "HalfPrecisionSettings"};
    static const char *const wide[] = {"f64", "i64", "DoublePrecisionSettings"};
    size_t n_half = 0, n_wide = 0, n = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const enum wfs_dtype dtype = (enum wfs_dtype)wfs_catalog_tensor(catalog, i)->dtype;
        n += wfs_dtype_kind(dtype) == WFS_KIND_FLOAT;
        n_half += dtype == WFS_F16;
        n_wide += dtype == WFS_F64;
    }
    return n > 0 && n_half == n ? half : n > 0 && n_wide == n ? wide : full;
}

/* As the reader takes it. */
static enum wfs_dtype dtype_of_setting(const char *name, enum wfs_dtype other)
{
    const enum wfs_dtype dtype = record_dtype_of_rust(name, strlen(name));
    return dtype == WFS_OPAQUE ? other : dtype;
}

/* The recorder is this one, whatever the record was packed in; its settings stay. */
static const char *format_of(struct plan *plan, const char *loaded, const char *settings)
{
    if (loaded != NULL && strstr(loaded, RECORDER) != NULL)
        return loaded;
    const char *types = loaded == NULL ? NULL : strchr(loaded, '<');
    return types != NULL
               ? arena_print(&plan->layout->arena, RECORDER_PATH "%s", types)
               : arena_print(&plan->layout->arena, RECORDER_PATH "<" SETTINGS_PATH "%s>", settings);
}

/* The version that was asked for, with three parts as Burn's own; NULL: the metadata have none. */
static const char *version_of(struct plan *plan)
{
    const char *version = text_of(plan->catalog->output.options, RECORD_VERSION_OPTION);
    if (version == NULL)
        version = plan->catalog->output.reader_version;
    if (version == NULL || record_version_minor(version) == 0)
        return text_of(plan->catalog->meta.first, "version");
    return strchr(version + 2, '.') != NULL ? version
                                            : arena_print(&plan->layout->arena, "%s.0", version);
}

/* The five texts of a record, then those that somebody added. */
static int collect_meta(struct plan *plan)
{
    const struct wfs_text *meta = plan->catalog->meta.first;
    const char *const *settings = settings_of(plan->catalog);
    const char *const names[N_TEXTS] = {"float", "int", "format", "version", "settings"};
    const char *version = version_of(plan);
    const struct wfs_text *own = plan->is_record ? meta : NULL;
    const char *values[N_TEXTS] = {text_of(own, "float"), text_of(own, "int"),
                                   text_of(own, "format"), version, text_of(own, "settings")};
    size_t n = N_TEXTS;
    plan->minor = version == NULL ? 0 : record_version_minor(version);
    if (plan->minor == 0) {
        values[3] = RECORD_VERSION_DEFAULT;
        plan->minor = record_version_minor(values[3]);
    }
    values[0] = values[0] == NULL ? settings[0] : values[0];
    values[1] = values[1] == NULL ? settings[1] : values[1];
    values[4] = values[4] == NULL ? settings[2] : values[4];
    values[2] = format_of(plan, values[2], values[4]);
    plan->float_dtype = dtype_of_setting(values[0], WFS_F32);
    plan->int_dtype = dtype_of_setting(values[1], WFS_I64);
    for (const struct wfs_text *text = meta; text != NULL; text = text->next)
        n++;
    struct wfs_text *texts = arena_calloc(&plan->layout->arena, n, sizeof(*texts));
    if (texts == NULL || values[2] == NULL)
        return wfs_fail_memory(plan->err);
    for (n = 0; n < N_TEXTS; n++)
        texts[n] =
            (struct wfs_text){.name = names[n], .value = values[n], .n_bytes = strlen(values[n])};
    for (const struct wfs_text *text = meta; text != NULL; text = text->next) {
        size_t i = 0;
        while (i < N_TEXTS && strcmp(names[i], text->name) != 0)
            i++;
        if (i == N_TEXTS)
            texts[n++] = *text;
    }
    for (size_t i = 0; i < n; i++)
        texts[i].next = i + 1 < n ? &texts[i + 1] : NULL;
    plan->layout->meta = texts;
    return storable_check_metadata(plan->catalog, plan->err);
}

static void put_meta(struct plan *plan)
{
    uint32_t n = 0;
    for (const struct wfs_text *text = plan->layout->meta; text != NULL; text = text->next)
        n++;
    mpkout_string(&plan->out, "metadata");
    mpkout_map(&plan->out, n);
    for (const struct wfs_text *text = plan->layout->meta; text != NULL; text = text->next) {
        mpkout_string(&plan->out, text->name);
        mpkout_text(&plan->out, text->value, text->n_bytes);
    }
}

/* ---- the whole ---- */

static int check_tensors(const struct plan *plan)
{
    int code = 0;
    for (size_t i = 0; i < plan->catalog->n_tensors && code == 0; i++)
        code = storable_check_tensor(plan->layout->format, wfs_catalog_tensor(plan->catalog, i),
                                     plan->err);
    return code;
}

static int put_record(struct plan *plan)
{
    const bool has_marker = plan->minor >= MINOR_MARKER;
    mpkout_map(&plan->out, has_marker ? 3 : 2);
    put_meta(plan);
    mpkout_string(&plan->out, "item");
    const int code = put_node(plan, 1);
    if (code < 0)
        return code;
    if (has_marker) {
        mpkout_string(&plan->out, "_b");
        mpkout_array(&plan->out, 0);
    }
    return flush(plan);
}

static int run(struct plan *plan)
{
    struct wfs_layout *layout = plan->layout;
    layout->order =
        arena_calloc(&layout->arena, plan->catalog->n_tensors + 1, sizeof(*layout->order));
    if (layout->order == NULL)
        return wfs_fail_memory(plan->err);
    if (plan->catalog->container != NULL && plan->catalog->container->kind == WFS_CONTAINER_RUN)
        return wfs_fail(plan->err, EOPNOTSUPP,
                        "an epoch of a training run is several records: read one of its files");
    int code = check_tensors(plan);
    if (code == 0)
        code = collect_meta(plan);
    if (code == 0)
        code = check_optimizer(plan);
    if (code == 0)
        code = record_outline_make(&plan->outline, plan->catalog, plan->is_record, plan->err);
    if (code == 0)
        code = check_constants(plan);
    return code < 0 ? code : put_record(plan);
}

int record_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                       struct wfs_error *err)
{
    struct plan plan = {.catalog = catalog,
                        .layout = layout,
                        .err = err,
                        .is_record = catalog->format == layout->format};
    const int code = run(&plan);
    record_outline_done(&plan.outline);
    strbuf_done(&plan.out);
    return code;
}
