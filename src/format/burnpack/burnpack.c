/* SPDX-License-Identifier: MIT */
/*
 * The Burnpack format: recognising a file, and loading one. The CBOR is one map of three fields, of
 * which `tensors` maps names to descriptors; `metadata` has texts, `scalars` numbers by name. Takes
 * and refuses what Burn does, and notes what is odd.
 */
#include "format/burnpack/burnpack.h"

#include <weightfs/array.h>
#include "base/bytes.h"
#include "format/burnpack/burnpack_load.h"
#include "format/core/format.h"
#include "format/core/nul_key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int burnpack_load_fail_memory(const struct burnpack_load *load)
{
    return catalog_fail_memory(load->catalog, load->err);
}

int burnpack_load_fail_cbor(const struct burnpack_load *load, const struct burnpack_draft *draft)
{
    const struct cbor_in *in = &load->in;
    const uint64_t at = BURNPACK_HEADER + (uint64_t)cborin_offset(in);
    if (in->is_out_of_memory)
        return wfs_fail_memory(load->err);
    if (in->is_too_deep)
        return wfs_fail(load->err, E2BIG,
                        "metadata: nested deeper than %s at byte %" PRIu64 " (limit cbor_depth)",
                        wfs_count(in->depth_max, "level").text, at);
    if (draft == NULL)
        return wfs_fail(load->err, EBADMSG, "metadata: %s at byte %" PRIu64, in->error, at);
    return wfs_fail(load->err, EBADMSG, "metadata: tensor '%s': %s at byte %" PRIu64,
                    wfs_quote_n(draft->key.bytes, draft->key.n_bytes).text, in->error, at);
}

int burnpack_load_fail(struct burnpack_load *load, const struct burnpack_draft *draft,
                       const char *error)
{
    cborin_fail(&load->in, error);
    return burnpack_load_fail_cbor(load, draft);
}

/* Escapes the NULs of a name, or refuses it; what says what it is the name of. Returns 1 if there
 * are any. */
static int escape(const struct burnpack_load *load, struct cbor_span *name, const char *what)
{
    const int code = nul_key_escape(load->context->force || load->context->escapes_nul,
                                    &load->catalog->arena, &name->bytes, &name->n_bytes);
    if (code == -EOPNOTSUPP)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the %s '%s' contains a NUL, which no file name can" NUL_KEY_HINT, what,
                        burnpack_quote(name).text);
    return code < 0 ? burnpack_load_fail_memory(load) : code;
}

/* ---- metadata and scalars: of two with one name Burn keeps the last ---- */

static int keep(struct burnpack_load *load, struct burnpack_pairs *pairs,
                const struct burnpack_pair *pair)
{
    if (array_reserve(&pairs->items, sizeof(*pairs->items), pairs->n_items, 1, &pairs->n_room) < 0)
        return wfs_fail_memory(load->err);
    pairs->items[pairs->n_items++] = *pair;
    return 0;
}

/* Take the values of the two fields. */
static int take_metadata(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    load->catalog->has_meta = true;
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, none);
    while (cborin_next(&load->in)) {
        if (!cborin_text(&load->in, &pair.name) || !cborin_text(&load->in, &pair.text))
            break;
        int code = escape(load, &pair.name, "metadata");
        if (code == 0)
            code = keep(load, &load->meta, &pair);
        if (code < 0)
            return code;
    }
    return load->in.error != NULL ? burnpack_load_fail_cbor(load, none) : 0;
}

/* Numbers above the signed ones take nine bytes of two's complement. */
static uint32_t value_of_uint(struct graph *graph, uint64_t n)
{
    uint8_t bytes[9] = {0};
    uint32_t id;
    if (n <= INT64_MAX) {
        id = value_new_integer(graph, (int64_t)n);
    } else {
        store_le64(bytes, n);
        id = value_new_text(graph, (const char *)bytes, sizeof(bytes));
        if (id != 0)
            graph_at(graph, id)->kind = VALUE_BIG;
    }
    if (id != 0)
        graph_at(graph, id)->form = FORM_UNSIGNED;
    return id;
}

static uint32_t value_of_real(struct graph *graph, double real)
{
    const uint32_t id = value_new(graph, VALUE_FLOAT);
    if (id != 0)
        graph_at(graph, id)->real = real;
    return id;
}

static uint32_t value_of_bool(struct graph *graph, bool is_true)
{
    const uint32_t id = value_new(graph, VALUE_BOOL);
    if (id != 0)
        graph_at(graph, id)->integer = is_true;
    return id;
}

/* Takes what stands under the name of a kind. *ret stays 0 when there is no memory for it. */
static bool take_number(struct burnpack_load *load, const struct cbor_span *kind, uint32_t *ret)
{
    struct graph *graph = &load->catalog->graph;
    struct cbor_in *in = &load->in;
    int64_t integer = 0;
    uint64_t n = 0;
    double real = 0;
    bool is_true = false, is_ok = true;
    if (cbor_span_is(kind, "Int") && (is_ok = cborin_int(in, &integer)))
        *ret = value_new_integer(graph, integer);
    else if (cbor_span_is(kind, "UInt") && (is_ok = cborin_uint(in, &n)))
        *ret = value_of_uint(graph, n);
    else if (cbor_span_is(kind, "Float") && (is_ok = cborin_real(in, &real)))
        *ret = value_of_real(graph, real);
    else if (cbor_span_is(kind, "Bool") && (is_ok = cborin_bool(in, &is_true)))
        *ret = value_of_bool(graph, is_true);
    else if (is_ok)
        is_ok = cborin_fail(in, "expected Int, UInt, Float or Bool as the type of the scalar");
    return is_ok;
}

static int take_scalar(struct burnpack_load *load, struct burnpack_pair *pair)
{
    struct cbor_span kind;
    bool has_payload;
    pair->value = 0;
    if (!cborin_variant(&load->in, &kind, &has_payload))
        return burnpack_load_fail_cbor(load, NULL);
    if (!has_payload)
        return burnpack_load_fail(load, NULL, "expected a map of one pair as the scalar");
    if (!take_number(load, &kind, &pair->value))
        return burnpack_load_fail_cbor(load, NULL);
    if (pair->value == 0)
        return burnpack_load_fail_memory(load);
    return cborin_next(&load->in) || load->in.error != NULL ? burnpack_load_fail_cbor(load, NULL)
                                                            : 0;
}

static int take_scalars(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, none);
    while (cborin_next(&load->in)) {
        if (!cborin_text(&load->in, &pair.name))
            break;
        int code = escape(load, &pair.name, "scalar");
        if (code == 0)
            code = take_scalar(load, &pair);
        if (code == 0)
            code = keep(load, &load->scalars, &pair);
        if (code < 0)
            return code;
    }
    return load->in.error != NULL ? burnpack_load_fail_cbor(load, none) : 0;
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
                       enum wfs_finding_kind kind, const char *what)
{
    size_t n = 0;
    if (pairs->n_items > 1)
        qsort(pairs->items, pairs->n_items, sizeof(*pairs->items), compare_pairs);
    for (size_t i = 0; i < pairs->n_items; i++) {
        const struct burnpack_pair *pair = &pairs->items[i];
        if (i + 1 < pairs->n_items && compare_names(pair, pair + 1) == 0)
            tally_note(&load->tally, &load->catalog->arena, kind,
                       "the %s '%s' is a duplicate: the last one counts", what,
                       burnpack_quote(&pair->name).text);
        else
            pairs->items[n++] = *pair;
    }
    pairs->n_items = n;
}

/* Puts the pairs into the catalog, the last of each name. */
static int fill_pairs(struct burnpack_load *load)
{
    struct wfs_catalog *catalog = load->catalog;
    sort_pairs(load, &load->meta, WFS_FINDING_BPK_META_DUPLICATE, "metadata");
    sort_pairs(load, &load->scalars, WFS_FINDING_BPK_SCALAR_DUPLICATE, "scalar");
    for (size_t i = 0; i < load->meta.n_items; i++) {
        const struct burnpack_pair *pair = &load->meta.items[i];
        const char *name = arena_copy(&catalog->arena, pair->name.bytes, pair->name.n_bytes);
        if (name == NULL ||
            catalog_add_meta_bytes(catalog, name, pair->text.bytes, pair->text.n_bytes) < 0)
            return burnpack_load_fail_memory(load);
    }
    for (size_t i = 0; i < load->scalars.n_items; i++) {
        const struct burnpack_pair *pair = &load->scalars.items[i];
        const char *name = arena_copy(&catalog->arena, pair->name.bytes, pair->name.n_bytes);
        if (name == NULL || catalog_add_value(catalog, name, pair->value, 0) < 0)
            return burnpack_load_fail_memory(load);
    }
    return 0;
}

/* ---- fields ---- */

/* A field of a map, and what takes its value. draft is that of the tensor at hand, or NULL. */
struct field {
    const char *name;
    int (*take)(struct burnpack_load *load, struct burnpack_draft *draft);
};

struct fields {
    const struct field *items;
    unsigned n_items, n_required; /* the required ones come first */
};

static int skip_field(struct burnpack_load *load, const struct burnpack_draft *draft,
                      const struct cbor_span *name)
{
    const struct wfs_quoted quoted = wfs_quote_n(name->bytes, name->n_bytes);
    if (draft == NULL)
        tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_BPK_FIELD,
                   "the metadata has a field '%s', which is ignored", quoted.text);
    else
        tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_BPK_FIELD,
                   "tensor '%s' has a field '%s', which is ignored",
                   wfs_quote_n(draft->key.bytes, draft->key.n_bytes).text, quoted.text);
    return cborin_skip(&load->in) ? 0 : burnpack_load_fail_cbor(load, draft);
}

static int fail_field(struct burnpack_load *load, const struct burnpack_draft *draft,
                      const char *what, const char *name)
{
    const char *text = arena_print(&load->catalog->arena, "%s field '%s'", what, name);
    return text == NULL ? burnpack_load_fail_memory(load) : burnpack_load_fail(load, draft, text);
}

/* A map of known fields, in any order, and others that nobody looks at. */
static int take_struct(struct burnpack_load *load, struct burnpack_draft *draft,
                       const struct fields *fields)
{
    unsigned seen = 0;
    struct cbor_span name;
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, draft);
    while (cborin_next(&load->in)) {
        unsigned i = 0;
        if (!cborin_field(&load->in, &name))
            return burnpack_load_fail_cbor(load, draft);
        while (i < fields->n_items && !cbor_span_is(&name, fields->items[i].name))
            i++;
        const bool is_known = i < fields->n_items;
        if (is_known && (seen & 1U << i) != 0)
            return fail_field(load, draft, "a second", fields->items[i].name);
        const int code =
            is_known ? fields->items[i].take(load, draft) : skip_field(load, draft, &name);
        if (code < 0)
            return code;
        seen |= is_known ? 1U << i : 0;
    }
    if (load->in.error != NULL)
        return burnpack_load_fail_cbor(load, draft);
    for (unsigned i = 0; i < fields->n_required; i++) {
        if ((seen & 1U << i) == 0)
            return fail_field(load, draft, "there is no", fields->items[i].name);
    }
    return 0;
}

static int add_dim(struct burnpack_load *load, const struct burnpack_draft *draft, uint32_t rank,
                   uint64_t dim)
{
    const uint64_t limit = load->context->limits.rank;
    if (rank >= limit || rank == UINT32_MAX)
        return wfs_fail(load->err, E2BIG, "tensor '%s': it has more than %s (limit rank)",
                        wfs_quote_n(draft->key.bytes, draft->key.n_bytes).text,
                        wfs_count((uint64_t)rank, "dimension").text);
    if (array_reserve(&load->dims, sizeof(*load->dims), rank, 1, &load->dims_room) < 0)
        return wfs_fail_memory(load->err);
    load->dims[rank] = dim;
    return 0;
}

static int take_shape(struct burnpack_load *load, struct burnpack_draft *draft)
{
    uint32_t rank = 0;
    uint64_t dim;
    if (!cborin_open_array(&load->in))
        return burnpack_load_fail_cbor(load, draft);
    while (cborin_next(&load->in)) {
        if (!cborin_uint(&load->in, &dim))
            break;
        const int code = add_dim(load, draft, rank++, dim);
        if (code < 0)
            return code;
    }
    if (load->in.error != NULL)
        return burnpack_load_fail_cbor(load, draft);
    if (rank == 0)
        return 0;
    uint64_t *dims = arena_calloc(&load->catalog->arena, rank, sizeof(*dims));
    if (dims == NULL)
        return burnpack_load_fail_memory(load);
    memcpy(dims, load->dims, rank * sizeof(*dims));
    draft->tensor->shape = (struct wfs_shape){rank, dims};
    return 0;
}

/* Begin and end in the data. Burn looks at no more than these two, so there may be more. */
static int take_range(struct burnpack_load *load, struct burnpack_draft *draft)
{
    uint64_t ends[2];
    unsigned n = 0;
    if (!cborin_open_array(&load->in))
        return burnpack_load_fail_cbor(load, draft);
    while (cborin_next(&load->in)) {
        if (n == 2 ? !cborin_skip(&load->in) : !cborin_uint(&load->in, &ends[n]))
            break;
        n += n < 2 ? 1 : 0;
    }
    if (load->in.error != NULL)
        return burnpack_load_fail_cbor(load, draft);
    if (n < 2)
        return burnpack_load_fail(load, draft, "expected a begin and an end in data_offsets");
    struct wfs_tensor *tensor = draft->tensor;
    const char *trouble = ends[1] < ends[0] ? "its data ends before it begins" : NULL;
    if (trouble != NULL && !load->context->force)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': data ends at %" PRIu64 ", before it begins at %" PRIu64,
                        wfs_quote_n(draft->key.bytes, draft->key.n_bytes).text, ends[1], ends[0]);
    tensor->trouble = trouble;
    tensor->stored.offset = trouble != NULL ? 0 : ends[0];
    tensor->n_bytes = trouble != NULL ? 0 : ends[1] - ends[0];
    return 0;
}

static int take_param_id(struct burnpack_load *load, struct burnpack_draft *draft)
{
    const enum cbor_kind kind = cborin_kind(&load->in);
    if (kind == CBOR_NULL || kind == CBOR_UNDEFINED)
        return cborin_null(&load->in) ? 0 : burnpack_load_fail_cbor(load, draft);
    if (!cborin_uint(&load->in, &draft->param_id))
        return burnpack_load_fail_cbor(load, draft);
    draft->has_param_id = true;
    return 0;
}

static const struct field tensor_fields[] = {
    {"dtype", burnpack_dtype_take},
    {"shape", take_shape},
    {"data_offsets", take_range},
    {"param_id", take_param_id},
};

static int add_attrs(struct burnpack_load *load, const struct burnpack_draft *draft)
{
    char text[24];
    draft->tensor->attrs = draft->attrs;
    if (!draft->has_param_id)
        return 0;
    snprintf(text, sizeof(text), "%" PRIu64, draft->param_id);
    return catalog_add_attr(load->catalog, draft->tensor, "param_id", text) < 0
               ? burnpack_load_fail_memory(load)
               : 0;
}

static int check_key(const struct burnpack_load *load, const struct cbor_span *key)
{
    const struct limits *limits = &load->context->limits;
    const size_t n_tensors = load->catalog->n_tensors;
    if (n_tensors >= limits->burnpack_tensors || n_tensors >= limits->tensors)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit %s)",
                        wfs_count(n_tensors, "tensor").text,
                        n_tensors >= limits->tensors ? "tensors" : "burnpack_tensors");
    if (key->n_bytes > limits->key)
        return wfs_fail(load->err, E2BIG, "the key '%s' is longer than %s (limit key)",
                        wfs_quote_n(key->bytes, key->n_bytes).text,
                        wfs_count(limits->key, "byte").text);
    return 0;
}

static int take_tensor(struct burnpack_load *load, const struct cbor_span *key)
{
    static const struct fields fields = {tensor_fields, 4, 3};
    int code = check_key(load, key);
    if (code < 0)
        return code;
    struct burnpack_draft draft = {.key = *key, .tensor = catalog_add(load->catalog)};
    if (draft.tensor == NULL)
        return wfs_fail_memory(load->err);
    code = escape(load, &draft.key, "key");
    if (code < 0)
        return code;
    draft.tensor->has_nul = code > 0;
    draft.tensor->key = arena_copy(&load->catalog->arena, draft.key.bytes, draft.key.n_bytes);
    draft.tensor->stored.source = load->source;
    if (draft.tensor->key == NULL)
        return burnpack_load_fail_memory(load);
    code = take_struct(load, &draft, &fields);
    return code < 0 ? code : add_attrs(load, &draft);
}

static int take_tensors(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct cbor_span key;
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, NULL);
    while (cborin_next(&load->in)) {
        if (!cborin_text(&load->in, &key))
            break;
        const int code = take_tensor(load, &key);
        if (code < 0)
            return code;
    }
    return load->in.error != NULL ? burnpack_load_fail_cbor(load, none) : 0;
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
    const int code = take_struct(load, NULL, &fields);
    if (code < 0)
        return code;
    const uint64_t n_read = cborin_offset(&load->in);
    if (n_read < load->n_cbor)
        tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_BPK_CBOR_TRAILING,
                   "%s the metadata's map, at byte %" PRIu64,
                   wfs_count_as(load->n_cbor - n_read, "byte follows", "bytes follow").text,
                   BURNPACK_HEADER + n_read);
    return 0;
}

static const uint8_t magic[4] = {'N', 'R', 'U', 'B'};

/* ---- the file ---- */

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
    const uint64_t limit = load->context->limits.cbor, n_bytes = load->source->n_bytes;
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
    cborin_init(&load->in, load->cbor, (size_t)load->n_cbor, load->context->limits.cbor_depth);
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
    return tally_report(&load->tally, load->catalog) < 0 ? burnpack_load_fail_memory(load) : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct burnpack_load load = {
        .source = source, .context = context, .catalog = catalog, .err = err};
    catalog->container = WFS_CONTAINER_BURNPACK;
    catalog->graph.arena = &catalog->arena;
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
    .id = WFS_FORMAT_BURNPACK,
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
    .functions = &functions,
};
