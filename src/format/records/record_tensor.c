/* SPDX-License-Identifier: MIT */
/*
 * From maps to tensors.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/records/record_list.h"
#include "format/records/record_load.h"
#include "format/records/record_map.h"
#include "format/records/record_names.h"
#include "value/value_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The values of a tensor's fields and its parameter's id; 0: there is none. */
struct parts {
    uint32_t id, bytes, value, shape, dtype;
};

struct draft {
    struct record_load *load;
    const char *key;
    struct parts parts;
    struct wfs_tensor tensor;
    uint64_t n_elems;
    bool has_overflow; /* of the product of the dimensions */
};

static enum value_kind kind_of(const struct graph *graph, uint32_t id)
{
    return (enum value_kind)graph_at(graph, id)->kind;
}

static uint32_t field(const struct graph *graph, uint32_t id, const char *name)
{
    return id != 0 && kind_of(graph, id) == VALUE_DICT ? value_get(graph, id, name) : 0;
}

/* Returns whether the value can be a list of numbers: one, or an empty list. */
static bool is_numbers(const struct graph *graph, uint32_t id)
{
    return id != 0 && (kind_of(graph, id) == VALUE_PERSISTENT || kind_of(graph, id) == VALUE_LIST);
}

/* Returns whether the value is a tensor, and not one in a parameter. */
static bool is_plain_tensor(const struct graph *graph, uint32_t id)
{
    const struct record_map map = record_map_of(graph, id);
    return record_map_is_tensor(&map);
}

/* ---- dtypes: by name, by number, or as a map of one: {"Bool": store}, {"QFloat": scheme} ---- */

enum { N_SCHEME_MAX = 4096 };

/* A dtype as it is in a tensor. */
struct record_dtype {
    enum wfs_dtype dtype;
    const struct wfs_text *attrs; /* that it brings along */
};

static int keep_opaque(const struct record_load *load, const char *name, const char *value,
                       size_t n_bytes, struct record_dtype *ret)
{
    ret->dtype = WFS_OPAQUE;
    ret->attrs = catalog_text_new(load->catalog, name, value, n_bytes);
    return ret->attrs == NULL ? record_fail_memory(load) : 0;
}

static int take_unknown(struct record_load *load, const char *key, const char *name, size_t n_bytes,
                        struct record_dtype *ret)
{
    const struct wfs_quoted quoted = wfs_quote_n(name, n_bytes);
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown dtype '%s'",
                        wfs_quote(key).text, quoted.text);
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, REC_DTYPE,
               "tensor '%s': unknown dtype '%s'", wfs_quote(key).text, quoted.text);
    return keep_opaque(load, "dtype", name, n_bytes, ret);
}

/* The scheme, spelled as that of a Burnpack, malloc'ed. -EFBIG when it is too long, -ENOMEM, errors
 * as source_read. */
static int scheme_text(const struct record_load *load, uint32_t id, char **ret, size_t *ret_n)
{
    cleanup(json_writer_done) struct json_writer writer;
    json_writer_init(&writer, load->graph);
    writer.text.n_max = N_SCHEME_MAX;
    writer.out.is_tight = true;
    json_write(&writer, id);
    if (writer.text.has_failed || writer.error < 0)
        return writer.text.has_failed ? -ENOMEM : writer.error;
    if (writer.text.is_cut)
        return -EFBIG;
    *ret_n = writer.text.n_bytes;
    *ret = steal(&writer.text.bytes);
    return 0;
}

static int take_scheme(struct record_load *load, const char *key, uint32_t id,
                       struct record_dtype *ret)
{
    size_t n_bytes = 0;
    if (graph_at(load->graph, id)->kind != VALUE_DICT)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': expected a map as the quantization scheme",
                        wfs_quote(key).text);
    autofree char *text = NULL;
    int code = record_settle(load, id);
    if (code < 0)
        return code;
    code = scheme_text(load, id, &text, &n_bytes);
    if (code == -EFBIG)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': its quantization scheme cannot be expressed in %d bytes of "
                        "JSON",
                        wfs_quote(key).text, N_SCHEME_MAX);
    if (code < 0)
        return record_fail_read(load, code);
    return keep_opaque(load, "quantization", text, n_bytes, ret);
}

static int take_bool(struct record_load *load, const char *key, uint32_t id,
                     struct record_dtype *ret)
{
    const struct graph *graph = load->graph;
    const bool is_narrow = value_is_text(graph, id, "U8");
    ret->dtype = value_is_text(graph, id, "U32") ? WFS_BOOL32 : WFS_BOOL;
    if (is_narrow)
        ret->attrs = catalog_text_new(load->catalog, "bool_store", "U8", 2);
    if (is_narrow && ret->attrs == NULL)
        return record_fail_memory(load);
    if (is_narrow || ret->dtype == WFS_BOOL32 || value_is_text(graph, id, "Native"))
        return 0;
    return wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown store of a bool",
                    wfs_quote(key).text);
}

/* A map of one: its key is the name, its value what belongs to it. */
static int take_variant(struct record_load *load, const char *key, const struct value *value,
                        struct record_dtype *ret)
{
    const uint32_t name_id = value_items(value)[0], rest = value_items(value)[1];
    const struct value *name = graph_at(load->graph, name_id);
    if (value_is_text(load->graph, name_id, "QFloat"))
        return take_scheme(load, key, rest, ret);
    if (value_is_text(load->graph, name_id, "Bool") &&
        graph_at(load->graph, rest)->kind != VALUE_NONE)
        return take_bool(load, key, rest, ret);
    if (graph_at(load->graph, rest)->kind == VALUE_NONE &&
        record_dtype_parse(name->text, name->n, &ret->dtype))
        return 0;
    return take_unknown(load, key, name->text, name->n, ret);
}

/*
 * Reads the dtype of the tensor with the key from the value of its field. -EOPNOTSUPP for one that
 * is not known; with force its bytes are opaque.
 */
static int take_dtype(struct record_load *load, const char *key, uint32_t id,
                      struct record_dtype *ret)
{
    const struct value *value = graph_at(load->graph, id);
    *ret = (struct record_dtype){.dtype = WFS_OPAQUE};
    if (value->kind == VALUE_TEXT)
        return record_dtype_parse(value->text, value->n, &ret->dtype)
                   ? 0
                   : take_unknown(load, key, value->text, value->n, ret);
    if (value->kind == VALUE_DICT && value->n == 2)
        return take_variant(load, key, value, ret);
    if (value->kind == VALUE_INT &&
        record_dtype_of_number(value->integer, load->minor, &ret->dtype))
        return 0;
    return wfs_fail(load->err, EBADMSG, "tensor '%s': expected the name of a dtype",
                    wfs_quote(key).text);
}

/* ---- fields ---- */

static int fail(const struct draft *draft, int code, const char *text)
{
    return wfs_fail(draft->load->err, code, "tensor '%s': %s", wfs_quote(draft->key).text, text);
}

static void note(const struct draft *draft, enum wfs_severity severity, unsigned kind,
                 const char *text)
{
    tally_note(&draft->load->tally, &draft->load->catalog->arena, severity, kind, "tensor '%s': %s",
               wfs_quote(draft->key).text, text);
}

static void note_others(const struct draft *draft, uint32_t map, const char *const *known)
{
    const struct graph *graph = draft->load->graph;
    const struct value *value = graph_at(graph, map);
    for (uint32_t i = 0; i + 1 < value->n; i += 2) {
        const struct value *key = graph_at(graph, value_items(value)[i]);
        const char *const *at = known;
        while (*at != NULL && !value_is_text(graph, value_items(value)[i], *at))
            at++;
        if (*at == NULL)
            tally_note(&draft->load->tally, &draft->load->catalog->arena, WFS_INFO, REC_FIELD,
                       "tensor '%s' has a field '%s', which is ignored", wfs_quote(draft->key).text,
                       wfs_quote_n(key->text, key->n).text);
    }
}

static void find_parts(struct draft *draft, uint32_t id)
{
    static const char *const of_parameter[] = {"id", "param", NULL};
    static const char *const of_tensor[] = {"bytes", "value", "shape", "dtype", NULL};
    const struct graph *graph = draft->load->graph;
    if (!is_plain_tensor(graph, id)) {
        draft->parts.id = field(graph, id, "id");
        note_others(draft, id, of_parameter);
        id = field(graph, id, "param");
    }
    draft->parts.bytes = field(graph, id, "bytes");
    draft->parts.value = field(graph, id, "value");
    draft->parts.shape = field(graph, id, "shape");
    draft->parts.dtype = field(graph, id, "dtype");
    note_others(draft, id, of_tensor);
}

static const struct record_list *list_of(const struct draft *draft, uint32_t id)
{
    const struct value *value = graph_at(draft->load->graph, id);
    return value->kind == VALUE_PERSISTENT ? record_source_list(draft->load->decoded, value->id)
                                           : NULL;
}

static int take_shape(struct draft *draft)
{
    const struct record_load *load = draft->load;
    const uint64_t limit = load->context->limits.rank;
    if (draft->parts.shape == 0)
        return fail(draft, EBADMSG, "it has no field 'shape'");
    if (!is_numbers(load->graph, draft->parts.shape))
        return fail(draft, EBADMSG, "expected a list as its shape");
    const struct record_list *list = list_of(draft, draft->parts.shape);
    if (list == NULL && graph_at(load->graph, draft->parts.shape)->n > 0)
        return fail(draft, EBADMSG, "its shape has something else than integers");
    if (list == NULL)
        return 0;
    if (list->kinds != ELEMENT_UINT)
        return fail(draft, EBADMSG, "its shape has something else than integers from 0 to 2^64-1");
    if (list->n > limit)
        return wfs_fail(load->err, E2BIG, "tensor '%s': it has more than %s (limit rank)",
                        wfs_quote(draft->key).text, wfs_count(limit, "dimension").text);
    uint64_t *dims = arena_calloc(&load->catalog->arena, (size_t)list->n, sizeof(*dims));
    if (dims == NULL)
        return record_fail_memory(load);
    struct list_reader reader;
    int code =
        record_source_read(load->decoded, graph_at(load->graph, draft->parts.shape)->id, &reader);
    for (uint64_t i = 0; i < list->n && code == 0; i++) {
        struct token token;
        code = list_reader_next(&reader, &token);
        dims[i] = token.n;
    }
    list_reader_done(&reader);
    draft->tensor.shape = (struct wfs_shape){(uint32_t)list->n, dims};
    return code < 0 ? record_fail_read(load, code) : 0;
}

static int add_attr(struct draft *draft, const char *name, const char *value)
{
    return catalog_add_attr(draft->load->catalog, &draft->tensor, name, value) < 0
               ? record_fail_memory(draft->load)
               : 0;
}

static int take_id(struct draft *draft)
{
    struct record_load *load = draft->load;
    const struct value *value = graph_at(load->graph, draft->parts.id);
    char text[24];
    uint64_t id;
    switch (record_id_parse(value->text, value->n, &id)) {
    case RECORD_ID_UUID:
        note(draft, WFS_INFO, REC_UUID,
             "its id is a UUID; param_id is a number that weightfs derives from it, another one "
             "than "
             "Burn would");
        break;
    case RECORD_ID_OTHER:
        note(draft, WFS_LOW, REC_ID,
             "its id is none that Burn 0.15 or later reads; param_id is derived from its text");
        break;
    default:
        if (value->n == 0)
            note(draft, WFS_LOW, REC_ID, "its id is empty, which stands for 0");
    }
    snprintf(text, sizeof(text), "%" PRIu64, id);
    const int code = add_attr(draft, "param_id", text);
    if (code < 0 || memchr(value->text, '\0', value->n) != NULL)
        return code;
    return add_attr(draft, "record_id", value->text);
}

/* ---- bytes ---- */

/* Compares what there is with what shape and dtype take. */
static int check_size(struct draft *draft, uint64_t n_there, const char *unit, uint64_t n_wanted)
{
    struct record_load *load = draft->load;
    char shape[128];
    if (!draft->has_overflow && n_there == n_wanted)
        return 0;
    if (wfs_shape_format(&draft->tensor.shape, shape, sizeof(shape)) >= sizeof(shape))
        memcpy(shape + sizeof(shape) - 5, "...]", 5);
    const char *why =
        draft->has_overflow
            ? arena_print(&load->catalog->arena, "shape %s of %s passes 2^64 bytes", shape,
                          wfs_dtype_name((enum wfs_dtype)draft->tensor.dtype))
            : arena_print(&load->catalog->arena,
                          "shape %s of %s takes %" PRIu64 " %s, the file has %" PRIu64, shape,
                          wfs_dtype_name((enum wfs_dtype)draft->tensor.dtype), n_wanted, unit,
                          n_there);
    if (why == NULL)
        return record_fail_memory(load);
    /* With force, those bytes that the shape takes are shown, as Burn 0.18 and later does. */
    if (load->context->force && !draft->has_overflow && n_there > n_wanted)
        note(draft, WFS_HIGH, REC_SIZE, why);
    else
        draft->tensor.trouble = why;
    return 0;
}

static void measure(struct draft *draft)
{
    struct wfs_tensor *tensor = &draft->tensor;
    if (tensor->dtype == WFS_OPAQUE)
        return;
    draft->has_overflow =
        wfs_shape_count(&tensor->shape, &draft->n_elems) < 0 ||
        wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &tensor->n_bytes) < 0;
    if (draft->has_overflow)
        tensor->n_bytes = 0;
}

/* Lets the tensor show the list as elements of its dtype. */
static int place_list(struct draft *draft, uint32_t id, enum wfs_dtype dtype)
{
    struct record_load *load = draft->load;
    struct wfs_stored *stored = &draft->tensor.stored;
    stored->source = load->decoded;
    const int code =
        record_source_add(load->decoded, graph_at(load->graph, id)->id, dtype, &stored->offset);
    if (code == -EOVERFLOW)
        return fail(draft, E2BIG, "the offsets of decoded data run out");
    return code < 0 ? record_fail_memory(load) : 0;
}

/* Bytes as they are in the file, or as a list of integers. */
static int take_bytes(struct draft *draft)
{
    struct record_load *load = draft->load;
    struct wfs_tensor *tensor = &draft->tensor;
    const struct value *value = graph_at(load->graph, draft->parts.bytes);
    const struct record_list *list = list_of(draft, draft->parts.bytes);
    const bool is_empty = value->kind == VALUE_LIST && value->n == 0;
    uint64_t n_there = 0;
    int code = 0;
    if (value->kind == VALUE_BYTES) {
        n_there = value->bytes->n_bytes;
        tensor->stored.source = load->bytes;
        tensor->stored.offset = value->bytes->offset;
    } else if (list != NULL && list->kinds == ELEMENT_UINT && list->largest <= UINT8_MAX) {
        n_there = list->n;
        code = place_list(draft, draft->parts.bytes, WFS_U8);
    } else if (!is_empty) {
        return fail(draft, EBADMSG, "expected bytes, or a list of integers from 0 to 255");
    }
    if (code < 0)
        return code;
    if (tensor->dtype == WFS_OPAQUE) {
        tensor->n_bytes = n_there;
        return 0;
    }
    return check_size(draft, n_there, "bytes", tensor->n_bytes);
}

static int take_new(struct draft *draft)
{
    struct record_load *load = draft->load;
    struct record_dtype dtype;
    if (draft->parts.bytes == 0)
        return fail(draft, EBADMSG, "it has no field 'bytes'");
    if (draft->parts.dtype == 0)
        return fail(draft, EBADMSG, "it has no field 'dtype'");
    const int code = take_dtype(load, draft->key, draft->parts.dtype, &dtype);
    if (code < 0)
        return code;
    draft->tensor.dtype = draft->tensor.stored.dtype = (uint8_t)dtype.dtype;
    draft->tensor.attrs = dtype.attrs;
    measure(draft);
    return take_bytes(draft);
}

/* ---- lists of numbers ---- */

static bool is_half(enum wfs_dtype dtype)
{
    return dtype == WFS_F16 || dtype == WFS_BF16;
}

/* Returns whether integers from least to largest are numbers of the dtype. */
static bool has_room(enum wfs_dtype dtype, const struct record_list *list)
{
    const unsigned bits = wfs_dtype_bits(dtype);
    if (wfs_dtype_kind(dtype) == WFS_KIND_UNSIGNED)
        return list->least == 0 && (bits == 64 || list->largest >> bits == 0);
    return list->largest >> (bits - 1) == 0 &&
           (bits == 64 || list->least >= -((int64_t)1 << (bits - 1)));
}

static int fail_integers(const struct draft *draft, const struct record_list *list,
                         enum wfs_dtype dtype)
{
    return wfs_fail(draft->load->err, EBADMSG,
                    "tensor '%s': its integers go from %" PRId64 " to %" PRIu64
                    ", which is not what %s holds",
                    wfs_quote(draft->key).text, list->least, list->largest, wfs_dtype_name(dtype));
}

/*
 * Half floats are written as the integers of their bits, so with settings of half precision a list
 * of integers can be either: of floats if one is too large for the settings' integers, of integers
 * if one is negative. For others nothing decides, and floats are what models are made of.
 */
static int choose_of_half(struct draft *draft, const struct record_list *list, enum wfs_dtype *ret)
{
    const struct record_load *load = draft->load;
    const enum wfs_dtype integer = (enum wfs_dtype)load->int_dtype;
    const bool is_integer = integer != WFS_OPAQUE && has_room(integer, list);
    const bool is_float = list->least == 0 && list->largest <= UINT16_MAX;
    *ret = is_float ? (enum wfs_dtype)load->float_dtype : integer;
    if (!is_float && !is_integer)
        return fail_integers(draft, list, integer == WFS_OPAQUE ? *ret : integer);
    if (is_float && is_integer) {
        char text[160];
        snprintf(text, sizeof(text),
                 "its integers can be the bits of %s, or numbers of %s: it is shown as %s",
                 wfs_dtype_name(*ret), wfs_dtype_name(integer), wfs_dtype_name(*ret));
        note(draft, WFS_MEDIUM, REC_GUESS, text);
    }
    return 0;
}

static int choose_integer(struct draft *draft, const struct record_list *list, enum wfs_dtype *ret)
{
    const struct record_load *load = draft->load;
    if (is_half((enum wfs_dtype)load->float_dtype))
        return choose_of_half(draft, list, ret);
    *ret = load->int_dtype == WFS_OPAQUE ? WFS_I64 : (enum wfs_dtype)load->int_dtype;
    if (wfs_dtype_kind(*ret) == WFS_KIND_FLOAT)
        return 0; /* up to Burn 0.11 */
    return has_room(*ret, list) ? 0 : fail_integers(draft, list, *ret);
}

/* Decimals of JSON, and numbers of several kinds, become what the settings say. */
static int choose_float(struct draft *draft, const struct record_list *list, enum wfs_dtype *ret)
{
    const struct record_load *load = draft->load;
    const enum wfs_dtype dtype = (enum wfs_dtype)load->float_dtype;
    *ret = dtype == WFS_F64 ? WFS_F64 : WFS_F32;
    if (dtype != WFS_F32 && dtype != WFS_F64)
        return fail(draft, EBADMSG,
                    "it has decimal numbers of a width that the settings do not define");
    if (list->kinds != ELEMENT_DECIMAL)
        note(draft, WFS_MEDIUM, REC_MIXED, "its numbers are of several kinds, all become floats");
    return 0;
}

static int choose_dtype(struct draft *draft, const struct record_list *list, enum wfs_dtype *ret)
{
    const struct record_load *load = draft->load;
    if (list == NULL) {
        *ret = load->float_dtype == WFS_OPAQUE ? WFS_F32 : (enum wfs_dtype)load->float_dtype;
        note(draft, WFS_INFO, REC_EMPTY,
             "it has no elements, from which its dtype could be seen: that of the settings' floats "
             "is "
             "assumed");
        return 0;
    }
    switch (list->kinds) {
    case ELEMENT_F32:
        *ret = WFS_F32;
        return 0;
    case ELEMENT_F64:
        *ret = WFS_F64;
        return 0;
    case ELEMENT_BOOL:
        *ret = WFS_BOOL;
        return 0;
    default:
        if ((list->kinds & ELEMENT_BOOL) != 0)
            return fail(draft, EBADMSG, "its values are numbers and bools");
        return (list->kinds & ~ELEMENT_INTEGERS) == 0 ? choose_integer(draft, list, ret)
                                                      : choose_float(draft, list, ret);
    }
}

static int take_old(struct draft *draft)
{
    const struct graph *graph = draft->load->graph;
    struct wfs_tensor *tensor = &draft->tensor;
    enum wfs_dtype dtype = WFS_OPAQUE;
    if (!is_numbers(graph, draft->parts.value))
        return fail(draft, EBADMSG, "expected a list of numbers as its value");
    const struct record_list *list = list_of(draft, draft->parts.value);
    if (list == NULL && graph_at(graph, draft->parts.value)->n > 0)
        return fail(draft, EBADMSG, "its value has something else than numbers");
    int code = choose_dtype(draft, list, &dtype);
    if (code < 0)
        return code;
    tensor->dtype = tensor->stored.dtype = (uint8_t)dtype;
    measure(draft);
    if (list != NULL)
        code = place_list(draft, draft->parts.value, dtype);
    return code < 0 ? code
                    : check_size(draft, list == NULL ? 0 : list->n, "numbers", draft->n_elems);
}

/* ---- the whole ---- */

static int check_id(struct draft *draft, uint32_t id)
{
    const struct graph *graph = draft->load->graph;
    if (is_plain_tensor(graph, id) ||
        (draft->parts.id != 0 && kind_of(graph, draft->parts.id) == VALUE_TEXT))
        return 0;
    const char *why =
        draft->parts.id == 0 ? "it is a parameter without an id" : "its id is not a text";
    if (!draft->load->context->force)
        return fail(draft, EBADMSG, why);
    note(draft, WFS_LOW, REC_ID, why);
    draft->parts.id = 0;
    return 0;
}

int record_tensor_add(struct record_load *load, uint32_t id, uint32_t place, const char *key)
{
    struct draft draft = {.load = load, .key = key};
    find_parts(&draft, id);
    int code = check_id(&draft, id);
    if (code == 0)
        code = take_shape(&draft);
    if (code == 0)
        code =
            draft.parts.value != 0 && draft.parts.bytes == 0 ? take_old(&draft) : take_new(&draft);
    if (code == 0 && draft.parts.id != 0)
        code = take_id(&draft);
    if (code < 0)
        return code;
    struct wfs_tensor *tensor = catalog_add(load->catalog);
    if (tensor == NULL)
        return wfs_fail_memory(load->err);
    *tensor = draft.tensor;
    tensor->key = key;
    tensor->place = place;
    load->catalog->values.places[place].stamp = catalog_stamp(tensor);
    return 0;
}
