/* SPDX-License-Identifier: MIT */
/*
 * The Burnpack format: recognising a file, and loading one. The CBOR is one map of three fields, of
 * which `tensors` maps names to descriptors; `metadata` has texts, `scalars` numbers by name. Takes
 * and refuses what Burn does, and notes what is odd.
 */
#include "format/burnpack/burnpack.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include "base/bytes.h"
#include "format/burnpack/burnpack_load.h"
#include "format/core/format.h"
#include "format/core/keys.h"
#include "value/value_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum own_limit { CBOR, CBOR_DEPTH, TENSORS };

static const struct wfs_limit own_limits[] = {
    [CBOR] = {"cbor", 104857600, "bytes of metadata, as Burn; so are the next two"},
    [CBOR_DEPTH] = {"cbor_depth", 128, "nesting of the metadata"},
    [TENSORS] = {"burnpack_tensors", 100000, "tensors of a Burnpack"},
    {0}};

static uint64_t limit_of(const struct burnpack_load *load, enum own_limit which)
{
    return limits_own(&load->context->limits, &own_limits[which]);
}

static struct wfs_quoted quote(const struct cbor_span *span)
{
    return wfs_quote_n(span->bytes, span->n_bytes);
}

/* -E2BIG or -ENOMEM. */
static int fail_memory(const struct burnpack_load *load)
{
    return catalog_fail_memory(load->catalog, load->err);
}

/* Ends the load with a failure other than of the CBOR: the parser takes nothing any more. */
static void stop(struct burnpack_load *load, int code)
{
    if (load->code == 0)
        load->code = code;
    cborin_fail(&load->in, "stopped");
}

/* Returns what has stopped the parser, 0: nothing. */
static int check_cbor(const struct burnpack_load *load)
{
    const struct cbor_in *in = &load->in;
    const uint64_t at = BURNPACK_HEADER + (uint64_t)cborin_offset(in);
    if (load->code < 0 || in->error == NULL)
        return load->code;
    if (in->is_out_of_memory)
        return wfs_fail_memory(load->err);
    if (in->is_too_deep)
        return wfs_fail(load->err, E2BIG,
                        "metadata: nested deeper than %s at byte %" PRIu64 " (limit cbor_depth)",
                        wfs_count(in->depth_max, "level").text, at);
    if (load->key.bytes == NULL)
        return wfs_fail(load->err, EBADMSG, "metadata: %s at byte %" PRIu64, in->error, at);
    return wfs_fail(load->err, EBADMSG, "metadata: tensor '%s': %s at byte %" PRIu64,
                    quote(&load->key).text, in->error, at);
}

/* Escapes the NULs of a name, or refuses it; what says what it is the name of. Returns whether
 * there are any. */
static bool escape(struct burnpack_load *load, struct cbor_span *name, const char *what)
{
    const int code = nul_key_escape(load->context->force || load->context->escapes_nul,
                                    &load->catalog->arena, &name->bytes, &name->n_bytes);
    if (code == -EOPNOTSUPP)
        stop(load, wfs_fail(load->err, EOPNOTSUPP,
                            "the %s '%s' contains a NUL, which no file name can" NUL_KEY_HINT, what,
                            quote(name).text));
    else if (code < 0)
        stop(load, fail_memory(load));
    return code > 0;
}

/* ---- metadata and scalars: of two with one name Burn keeps the last ---- */

static void keep(struct burnpack_load *load, struct burnpack_pairs *pairs,
                 const struct burnpack_pair *pair)
{
    if (array_reserve(&pairs->items, sizeof(*pairs->items), pairs->n_items, 1, &pairs->n_room) < 0)
        stop(load, wfs_fail_memory(load->err));
    else
        pairs->items[pairs->n_items++] = *pair;
}

static void take_metadata(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    load->catalog->meta.exists = true;
    cborin_open_map(&load->in);
    while (cborin_next(&load->in) && cborin_text(&load->in, &pair.name) &&
           cborin_text(&load->in, &pair.text)) {
        escape(load, &pair.name, "metadata");
        keep(load, &load->meta, &pair);
    }
}

/* Takes what stands under the name of a kind. *ret stays 0 when there is no memory for it. */
static bool take_number(struct burnpack_load *load, const struct cbor_span *kind, uint32_t *ret)
{
    static const struct {
        const char *name;
        unsigned kinds; /* bits of enum token_kind */
        const char *error;
    } types[] = {
        {"Int", 1 << TOKEN_UINT | 1 << TOKEN_NEGATIVE, "expected a signed 64-bit integer"},
        {"UInt", 1 << TOKEN_UINT, "expected an unsigned integer"},
        {"Float", 1 << TOKEN_F64, "expected a floating-point number"},
        {"Bool", 1 << TOKEN_BOOL, "expected true or false"},
    };
    struct cbor_in *in = &load->in;
    struct token token;
    size_t i = 0;
    while (i < 4 && !cbor_span_is(kind, types[i].name))
        i++;
    if (i == 4)
        return cborin_fail(in, "expected Int, UInt, Float or Bool as the type of the scalar");
    if ((types[i].kinds >> cborin_kind(in) & 1) == 0)
        return cborin_fail(in, types[i].error);
    if (!cborin_token(in, AT_VALUE, &token))
        return false;
    if (i == 0 && token.kind == TOKEN_UINT && token.n > INT64_MAX)
        return cborin_fail(in, types[i].error);
    *ret = value_of_token(&load->catalog->values.graph, &token);
    if (*ret != 0 && i == 1)
        graph_at(&load->catalog->values.graph, *ret)->form = FORM_UNSIGNED;
    return true;
}

static void take_scalar(struct burnpack_load *load, uint32_t *ret)
{
    struct cbor_span kind;
    bool has_payload;
    *ret = 0;
    if (!cborin_variant(&load->in, &kind, &has_payload))
        return;
    if (!has_payload)
        cborin_fail(&load->in, "expected a map of one pair as the scalar");
    else if (take_number(load, &kind, ret) && *ret == 0)
        stop(load, fail_memory(load));
    cborin_next(&load->in); /* the end of the map */
}

static void take_scalars(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    cborin_open_map(&load->in);
    while (cborin_next(&load->in) && cborin_text(&load->in, &pair.name)) {
        escape(load, &pair.name, "scalar");
        take_scalar(load, &pair.value);
        keep(load, &load->scalars, &pair);
    }
}

static int compare_names(const struct burnpack_pair *a, const struct burnpack_pair *b)
{
    const size_t n_both = a->name.n_bytes < b->name.n_bytes ? a->name.n_bytes : b->name.n_bytes;
    const int order = n_both == 0 ? 0 : memcmp(a->name.bytes, b->name.bytes, n_both);
    if (order != 0)
        return order;
    return a->name.n_bytes < b->name.n_bytes ? -1 : a->name.n_bytes > b->name.n_bytes;
}

/* By name, then by place in the file. */
static int compare_pairs(const void *a, const void *b)
{
    const struct burnpack_pair *x = a, *y = b;
    const int order = compare_names(x, y);
    if (order != 0)
        return order;
    return x->name.bytes < y->name.bytes ? -1 : x->name.bytes > y->name.bytes;
}

/* Leaves the last of each name, in the order of the names, which is that of Burn's writer. */
static void sort_pairs(struct burnpack_load *load, struct burnpack_pairs *pairs,
                       enum burnpack_finding kind, const char *what)
{
    size_t n = 0;
    if (pairs->n_items > 1)
        qsort(pairs->items, pairs->n_items, sizeof(*pairs->items), compare_pairs);
    for (size_t i = 0; i < pairs->n_items; i++) {
        const struct burnpack_pair *pair = &pairs->items[i];
        if (i + 1 < pairs->n_items && compare_names(pair, pair + 1) == 0)
            tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, kind,
                       "the %s '%s' is a duplicate: the last one counts", what,
                       quote(&pair->name).text);
        else
            pairs->items[n++] = *pair;
    }
    pairs->n_items = n;
}

/* Puts the pairs into the catalog, the last of each name. */
static int fill_pairs(struct burnpack_load *load)
{
    struct wfs_catalog *catalog = load->catalog;
    sort_pairs(load, &load->meta, BPK_META_DUPLICATE, "metadata");
    sort_pairs(load, &load->scalars, BPK_SCALAR_DUPLICATE, "scalar");
    for (size_t i = 0; i < load->meta.n_items; i++) {
        const struct burnpack_pair *pair = &load->meta.items[i];
        const char *name = arena_copy(&catalog->arena, pair->name.bytes, pair->name.n_bytes);
        if (name == NULL ||
            catalog_add_meta_bytes(catalog, name, pair->text.bytes, pair->text.n_bytes) < 0)
            return fail_memory(load);
    }
    for (size_t i = 0; i < load->scalars.n_items; i++) {
        const struct burnpack_pair *pair = &load->scalars.items[i];
        const char *name = arena_copy(&catalog->arena, pair->name.bytes, pair->name.n_bytes);
        if (name == NULL || catalog_add_value(catalog, name, pair->value, 0) < 0)
            return fail_memory(load);
    }
    return 0;
}

/* ---- dtypes: a name, a bool with its store, a quantized one with its scheme, which is kept
 * verbatim and shown as JSON; its bytes stay opaque ---- */

static void set(struct burnpack_draft *draft, enum wfs_dtype dtype)
{
    draft->tensor->dtype = draft->tensor->stored.dtype = (uint8_t)dtype;
}

/* Keeps a text that the dtype brings along. */
static void set_attr(struct burnpack_load *load, struct burnpack_draft *draft, const char *name,
                     const void *value, size_t n_bytes)
{
    draft->attrs = catalog_text_new(load->catalog, name, value, n_bytes);
    if (draft->attrs == NULL)
        stop(load, fail_memory(load));
}

static void take_name(struct burnpack_load *load, struct burnpack_draft *draft,
                      const struct cbor_span *name)
{
    enum wfs_dtype dtype = WFS_OPAQUE;
    if (cbor_span_is(name, "QFloat")) {
        cborin_fail(&load->in, "the dtype QFloat requires a scheme");
    } else if (burnpack_dtype_parse(name, &dtype)) {
        if (dtype == WFS_BOOL)
            tally_note(&load->tally, &load->catalog->arena, WFS_INFO, BPK_BOOL,
                       "tensor '%s': its bool is written as Burn up to 0.20 wrote it; newer "
                       "versions cannot read the file",
                       quote(&draft->key).text);
    } else if (!load->context->force) {
        stop(load, wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown dtype '%s'",
                            quote(&draft->key).text, quote(name).text));
    } else {
        tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, BPK_DTYPE,
                   "tensor '%s': unknown dtype '%s'", quote(&draft->key).text, quote(name).text);
        set_attr(load, draft, "dtype", name->bytes, name->n_bytes);
    }
    set(draft, dtype);
}

static void take_bool(struct burnpack_load *load, struct burnpack_draft *draft)
{
    struct cbor_span store;
    bool has_payload;
    if (!cborin_variant(&load->in, &store, &has_payload))
        return;
    const bool is_narrow = cbor_span_is(&store, "U8"), is_wide = cbor_span_is(&store, "U32");
    if (has_payload)
        cborin_fail(&load->in, "expected a name as the store of a bool");
    else if (!is_narrow && !is_wide && !cbor_span_is(&store, "Native"))
        stop(load, wfs_fail(load->err, EOPNOTSUPP, "tensor '%s': unknown store '%s' of a bool",
                            quote(&draft->key).text, quote(&store).text));
    else if (is_narrow)
        set_attr(load, draft, BURNPACK_STORE, "U8", 2);
    set(draft, is_wide ? WFS_BOOL32 : WFS_BOOL);
}

static void note_scheme(struct burnpack_load *load, const struct burnpack_draft *draft,
                        const struct graph *graph, uint32_t scheme)
{
    if (value_get(graph, scheme, "level") != 0 || value_get(graph, scheme, "param") != 0)
        tally_note(
            &load->tally, &load->catalog->arena, WFS_INFO, BPK_SCHEME,
            "tensor '%s': its quantization is written as Burn up to 0.22.0-pre wrote it; newer "
            "ones refuse the file or misread it",
            quote(&draft->key).text);
}

/* Builds the value behind the name of the dtype, which a few bytes cannot nest deeply. Returns
 * false in error. */
static bool build_scheme(struct cbor_in *in, struct build *build)
{
    struct cbor_span name;
    struct token token;
    bool has_payload;
    cborin_variant(in, &name, &has_payload);
    while (build->root == 0 && !build->has_failed && cborin_token(in, build_place(build), &token))
        if (!build_token(build, &token))
            cborin_fail(in, "expected a string");
    return in->error == NULL && !build->has_failed;
}

/* The scheme as JSON, from a copy of its bytes, which parsing may spoil. Returns false in error. */
static bool scheme_text(struct burnpack_load *load, const struct burnpack_draft *draft,
                        const void *bytes, size_t n_bytes, struct strbuf *ret)
{
    uint8_t copy[BURNPACK_SCHEME_MAX];
    cleanup(arena_done) struct arena arena = {0};
    struct graph graph = {.arena = &arena};
    cleanup(build_done) struct build build = {.graph = &graph};
    cleanup(cborin_done) struct cbor_in in;
    memcpy(copy, bytes, n_bytes);
    cborin_init(&in, copy, n_bytes, limit_of(load, CBOR_DEPTH));
    const bool is_built = build_scheme(&in, &build);
    if (!is_built && in.error != NULL && !in.is_out_of_memory)
        return cborin_fail(&load->in, "its quantization scheme cannot be expressed as JSON");
    struct json_out out = {.text = ret, .is_tight = true, .is_part = true};
    if (is_built) {
        value_put_json(&out, &graph, build.root);
        note_scheme(load, draft, &graph, build.root);
    }
    if (!is_built || ret->has_failed)
        stop(load, wfs_fail_memory(load->err));
    return is_built && !ret->has_failed;
}

static bool is_same_scheme(const struct burnpack_load *load, const void *bytes, size_t n_bytes)
{
    const struct wfs_text *raw = load->scheme == NULL ? NULL : load->scheme->next;
    return raw != NULL && raw->n_bytes == n_bytes && memcmp(raw->value, bytes, n_bytes) == 0;
}

/* A model has thousands of tensors with one and the same scheme: its texts are shared. */
static void keep_scheme(struct burnpack_load *load, struct burnpack_draft *draft, const void *bytes,
                        size_t n_bytes)
{
    set(draft, WFS_OPAQUE);
    if (!is_same_scheme(load, bytes, n_bytes)) {
        autostrbuf struct strbuf json = {0};
        if (!scheme_text(load, draft, bytes, n_bytes, &json))
            return;
        struct wfs_text *scheme =
            catalog_text_new(load->catalog, "quantization", json.bytes, json.n_bytes);
        load->scheme = scheme;
        if (scheme != NULL)
            scheme->next = catalog_text_new(load->catalog, BURNPACK_SCHEME, bytes, n_bytes);
        if (scheme != NULL && scheme->next == NULL)
            load->scheme = NULL;
    }
    draft->attrs = load->scheme;
    if (load->scheme == NULL)
        stop(load, fail_memory(load));
}

/* from: the start of the whole dtype. */
static void take_scheme(struct burnpack_load *load, struct burnpack_draft *draft,
                        const uint8_t *from)
{
    if (cborin_kind(&load->in) != TOKEN_MAP)
        cborin_fail(&load->in, "expected a map as the quantization scheme");
    if (!cborin_skip(&load->in))
        return;
    const size_t n_bytes = (size_t)(load->in.at - from);
    if (n_bytes <= BURNPACK_SCHEME_MAX)
        keep_scheme(load, draft, from, n_bytes);
    else
        stop(load, wfs_fail(load->err, E2BIG,
                            "tensor '%s': its quantization scheme has %s, the limit is %d",
                            quote(&draft->key).text, wfs_count(n_bytes, "byte").text,
                            BURNPACK_SCHEME_MAX));
}

static void take_dtype(struct burnpack_load *load, struct burnpack_draft *draft)
{
    const uint8_t *from = load->in.at;
    struct cbor_span name;
    bool has_payload;
    if (!cborin_variant(&load->in, &name, &has_payload))
        return;
    if (has_payload && cbor_span_is(&name, "Bool"))
        take_bool(load, draft);
    else if (has_payload && cbor_span_is(&name, "QFloat"))
        take_scheme(load, draft, from);
    else
        take_name(load, draft, &name);
    if (!has_payload)
        return;
    if (!cbor_span_is(&name, "Bool") && !cbor_span_is(&name, "QFloat")) {
        if (draft->tensor->dtype != WFS_OPAQUE)
            cborin_fail(&load->in, "expected a dtype without a payload");
        cborin_skip(&load->in);
    }
    cborin_next(&load->in); /* the end of the map */
}

/* ---- fields ---- */

/* A field of a map, and what takes its value. draft is that of the tensor at hand, or NULL. */
struct field {
    const char *name;
    void (*take)(struct burnpack_load *load, struct burnpack_draft *draft);
};

struct fields {
    const struct field *items;
    unsigned n_items, n_required; /* the required ones come first */
};

static void skip_field(struct burnpack_load *load, const struct burnpack_draft *draft,
                       const struct cbor_span *name)
{
    const struct wfs_quoted quoted = quote(name);
    if (draft == NULL)
        tally_note(&load->tally, &load->catalog->arena, WFS_INFO, BPK_FIELD,
                   "the metadata has a field '%s', which is ignored", quoted.text);
    else
        tally_note(&load->tally, &load->catalog->arena, WFS_INFO, BPK_FIELD,
                   "tensor '%s' has a field '%s', which is ignored", quote(&draft->key).text,
                   quoted.text);
    cborin_skip(&load->in);
}

static void fail_field(struct burnpack_load *load, const char *what, const char *name)
{
    const char *text = arena_print(&load->catalog->arena, "%s field '%s'", what, name);
    if (text == NULL)
        stop(load, fail_memory(load));
    else
        cborin_fail(&load->in, text);
}

/* A map of known fields, in any order, and others that nobody looks at. */
static void take_struct(struct burnpack_load *load, struct burnpack_draft *draft,
                        const struct fields *fields)
{
    unsigned seen = 0;
    struct cbor_span name;
    cborin_open_map(&load->in);
    while (cborin_next(&load->in) && cborin_field(&load->in, &name)) {
        unsigned i = 0;
        while (i < fields->n_items && !cbor_span_is(&name, fields->items[i].name))
            i++;
        if (i == fields->n_items)
            skip_field(load, draft, &name);
        else if ((seen & 1U << i) != 0)
            fail_field(load, "a second", fields->items[i].name);
        else
            fields->items[i].take(load, draft);
        seen |= 1U << i;
    }
    for (unsigned i = 0; i < fields->n_required && load->in.error == NULL; i++) {
        if ((seen & 1U << i) == 0)
            fail_field(load, "there is no", fields->items[i].name);
    }
}

static int add_dim(struct burnpack_load *load, const struct burnpack_draft *draft, uint32_t rank,
                   uint64_t dim)
{
    const uint64_t limit = load->context->limits.rank;
    if (rank >= limit || rank == UINT32_MAX)
        return wfs_fail(load->err, E2BIG, "tensor '%s': it has more than %s (limit rank)",
                        quote(&draft->key).text, wfs_count((uint64_t)rank, "dimension").text);
    if (array_reserve(&load->dims, sizeof(*load->dims), rank, 1, &load->dims_room) < 0)
        return wfs_fail_memory(load->err);
    load->dims[rank] = dim;
    return 0;
}

static void take_shape(struct burnpack_load *load, struct burnpack_draft *draft)
{
    uint32_t rank = 0;
    uint64_t dim;
    cborin_open_array(&load->in);
    while (cborin_next(&load->in) && cborin_uint(&load->in, &dim)) {
        const int code = add_dim(load, draft, rank++, dim);
        if (code < 0)
            stop(load, code);
    }
    if (load->in.error != NULL || rank == 0)
        return;
    uint64_t *dims = arena_calloc(&load->catalog->arena, rank, sizeof(*dims));
    if (dims == NULL) {
        stop(load, fail_memory(load));
        return;
    }
    memcpy(dims, load->dims, rank * sizeof(*dims));
    draft->tensor->shape = (struct wfs_shape){rank, dims};
}

/* Begin and end in the data. Burn looks at no more than these two, so there may be more. */
static void take_range(struct burnpack_load *load, struct burnpack_draft *draft)
{
    struct wfs_tensor *tensor = draft->tensor;
    uint64_t ends[2] = {0};
    unsigned n = 0;
    cborin_open_array(&load->in);
    for (; cborin_next(&load->in); n += n < 2) {
        if (n == 2)
            cborin_skip(&load->in);
        else
            cborin_uint(&load->in, &ends[n]);
    }
    if (n < 2)
        cborin_fail(&load->in, "expected a begin and an end in data_offsets");
    if (load->in.error != NULL)
        return;
    const bool has_range = ends[0] <= ends[1];
    if (!has_range && !load->context->force)
        stop(load, wfs_fail(load->err, EBADMSG,
                            "tensor '%s': data ends at %" PRIu64 ", before it begins at %" PRIu64,
                            quote(&draft->key).text, ends[1], ends[0]));
    tensor->trouble = has_range ? NULL : "its data ends before it begins";
    tensor->stored.offset = has_range ? ends[0] : 0;
    tensor->n_bytes = has_range ? ends[1] - ends[0] : 0;
}

static void take_param_id(struct burnpack_load *load, struct burnpack_draft *draft)
{
    if (cborin_kind(&load->in) == TOKEN_NULL)
        cborin_null(&load->in);
    else
        draft->has_param_id = cborin_uint(&load->in, &draft->param_id);
}

static const struct field tensor_fields[] = {
    {"dtype", take_dtype},
    {"shape", take_shape},
    {"data_offsets", take_range},
    {"param_id", take_param_id},
};

static void add_attrs(struct burnpack_load *load, const struct burnpack_draft *draft)
{
    char text[24];
    draft->tensor->attrs = draft->attrs;
    snprintf(text, sizeof(text), "%" PRIu64, draft->param_id);
    if (draft->has_param_id && catalog_add_attr(load->catalog, draft->tensor, "param_id", text) < 0)
        stop(load, fail_memory(load));
}

static int check_key(const struct burnpack_load *load, const struct cbor_span *key)
{
    const struct limits *common = &load->context->limits;
    const size_t n_tensors = load->catalog->n_tensors;
    if (n_tensors >= limit_of(load, TENSORS) || n_tensors >= common->tensors)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit %s)",
                        wfs_count(n_tensors, "tensor").text,
                        n_tensors >= common->tensors ? "tensors" : own_limits[TENSORS].name);
    if (key->n_bytes > common->key)
        return wfs_fail(load->err, E2BIG, "the key '%s' is longer than %s (limit key)",
                        wfs_quote_n(key->bytes, key->n_bytes).text,
                        wfs_count(common->key, "byte").text);
    return 0;
}

static void take_tensor(struct burnpack_load *load, const struct cbor_span *key)
{
    static const struct fields fields = {tensor_fields, 4, 3};
    const int code = check_key(load, key);
    struct burnpack_draft draft = {.key = *key,
                                   .tensor = code < 0 ? NULL : catalog_add(load->catalog)};
    if (draft.tensor == NULL) {
        stop(load, code < 0 ? code : wfs_fail_memory(load->err));
        return;
    }
    if (escape(load, &draft.key, "key"))
        draft.tensor->changes = nul_key_mark;
    draft.tensor->key = arena_copy(&load->catalog->arena, draft.key.bytes, draft.key.n_bytes);
    draft.tensor->stored.source = load->source;
    if (draft.tensor->key == NULL)
        stop(load, fail_memory(load));
    load->key = draft.key;
    take_struct(load, &draft, &fields);
    if (load->in.error != NULL)
        return;
    add_attrs(load, &draft);
    load->key = (struct cbor_span){0};
}

static void take_tensors(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct cbor_span key;
    cborin_open_map(&load->in);
    while (cborin_next(&load->in) && cborin_text(&load->in, &key))
        take_tensor(load, &key);
}

static const struct field top_fields[] = {
    {"tensors", take_tensors},
    {"metadata", take_metadata},
    {"scalars", take_scalars},
};

/* Parses it into tensors, pairs and findings. */
static int parse_fields(struct burnpack_load *load)
{
    static const struct fields fields = {top_fields, 3, 1};
    take_struct(load, NULL, &fields);
    const int code = check_cbor(load);
    if (code < 0)
        return code;
    const uint64_t n_read = cborin_offset(&load->in);
    if (n_read < load->n_cbor)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, BPK_CBOR_TRAILING,
                   "%s the metadata's map, at byte %" PRIu64,
                   wfs_count_as(load->n_cbor - n_read, "byte follows", "bytes follow").text,
                   BURNPACK_HEADER + n_read);
    return 0;
}

/* ---- the file ---- */

static const uint8_t magic[4] = {'N', 'R', 'U', 'B'};

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    return n_head >= sizeof(magic) && memcmp(head, magic, sizeof(magic)) == 0;
}

static bool foresee(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes)
{
    *ret_offset = 0;
    *ret_n_bytes = n_head < BURNPACK_HEADER ? 0 : BURNPACK_HEADER + (uint64_t)load_le32(head + 6);
    return true;
}

static int check_magic(const struct burnpack_load *load, const uint8_t *header)
{
    if (memcmp(header, magic, sizeof(magic)) == 0)
        return 0;
    return wfs_fail(load->err, EMEDIUMTYPE,
                    "is not a Burnpack: it begins with %02x %02x %02x %02x, not with 4e 52 55 42%s",
                    header[0], header[1], header[2], header[3],
                    memcmp(header, "BURN", sizeof(magic)) == 0 ? " (the bytes are swapped)" : "");
}

static int check_length(const struct burnpack_load *load)
{
    const uint64_t limit = limit_of(load, CBOR), n_bytes = load->source->n_bytes;
    if (load->n_cbor > limit)
        return wfs_fail(load->err, E2BIG,
                        "its metadata has %s, the limit is %" PRIu64 " (limit cbor)",
                        wfs_count(load->n_cbor, "byte").text, limit);
    if (load->n_cbor > n_bytes - BURNPACK_HEADER)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: its metadata ends at byte %" PRIu64 ", the file has %" PRIu64,
                        BURNPACK_HEADER + load->n_cbor, n_bytes);
    return 0;
}

static int read_header(struct burnpack_load *load)
{
    uint8_t header[BURNPACK_HEADER] = {0};
    const uint64_t n_bytes = load->source->n_bytes;
    const size_t n_header = n_bytes < sizeof(header) ? (size_t)n_bytes : sizeof(header);
    if (source_read(load->source, 0, header, n_header) < 0)
        return wfs_fail(load->err, EIO, "cannot read its header");
    int code = check_magic(load, header);
    if (code < 0)
        return code;
    if (n_header < sizeof(header))
        return wfs_fail(load->err, EBADMSG, "truncated: the file has %s, its header takes %d",
                        wfs_count(n_bytes, "byte").text, BURNPACK_HEADER);
    const unsigned version = load_le16(header + 4);
    if (version > BURNPACK_VERSION)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "is a Burnpack of version %u, versions up to %d are known", version,
                        BURNPACK_VERSION);
    load->n_cbor = load_le32(header + 6);
    return check_length(load);
}

static int read_cbor(struct burnpack_load *load)
{
    load->cbor = malloc(load->n_cbor > 0 ? (size_t)load->n_cbor : 1);
    if (load->cbor == NULL)
        return wfs_fail_memory(load->err);
    if (source_read(load->source, BURNPACK_HEADER, load->cbor, (size_t)load->n_cbor) < 0)
        return wfs_fail(load->err, EIO, "cannot read its metadata of %s",
                        wfs_count(load->n_cbor, "byte").text);
    cborin_init(&load->in, load->cbor, (size_t)load->n_cbor, limit_of(load, CBOR_DEPTH));
    return 0;
}

static int run(struct burnpack_load *load)
{
    int code = read_header(load);
    if (code == 0)
        code = read_cbor(load);
    if (code == 0)
        code = parse_fields(load);
    if (code == 0)
        code = fill_pairs(load);
    if (code == 0)
        code = burnpack_extent_check(load);
    if (code < 0)
        return code;
    return tally_report(&load->tally, load->catalog) < 0 ? fail_memory(load) : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "burnpack"};
    struct burnpack_load load = {
        .source = source, .context = context, .catalog = catalog, .err = err};
    catalog->container = &container;
    catalog->values.graph.arena = &catalog->arena;
    const int code = run(&load);
    cborin_done(&load.in);
    free(load.meta.items);
    free(load.scalars.items);
    free(load.dims);
    free(load.cbor);
    return code;
}

static const char *const extensions[] = {".bpk", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .foresee = foresee,
    .load = load_file,
    .stores = burnpack_layout_stores,
    .check = burnpack_layout_check,
    .plan = burnpack_layout_plan,
};

const struct wfs_format format_burnpack = {
    .name = "burnpack",
    .title = "Burnpack",
    .extensions = extensions,
    .set_name = "model.bpk",
    .convention = WFS_CONVENTION_BURN,
    .values = WFS_VALUES_NUMBERS,
    .state_names = WFS_STATE_NAMES_FLAT,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .keeps_param_ids = true,
    .limits = own_limits,
    .functions = &functions,
};
