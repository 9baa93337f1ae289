/* SPDX-License-Identifier: MIT */
/*
 * The CBOR: one map of three fields, of which `tensors` maps names to descriptors. Takes and
 * refuses what Burn does, and notes what is odd.
 */
#include "format/burnpack/burnpack_fields.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/burnpack/burnpack_dtype.h"
#include "format/burnpack/burnpack_pairs.h"

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
    code = burnpack_escape(load, &draft.key, "key");
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
    {"metadata", burnpack_pairs_take_metadata},
    {"scalars", burnpack_pairs_take_scalars},
};

int burnpack_fields_parse(struct burnpack_load *load)
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
