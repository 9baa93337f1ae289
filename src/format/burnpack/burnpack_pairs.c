/* SPDX-License-Identifier: MIT */
/*
 * The two smaller maps of a Burnpack: metadata, texts, and scalars, numbers by name. Burn keeps the
 * last of two values with one name; so do we, and say it.
 */
#include "format/burnpack/burnpack_pairs.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

static int keep(struct burnpack_load *load, struct burnpack_pairs *pairs,
                const struct burnpack_pair *pair)
{
    if (array_reserve(&pairs->items, sizeof(*pairs->items), pairs->n_items, 1, &pairs->n_room) < 0)
        return wfs_fail_memory(load->err);
    pairs->items[pairs->n_items++] = *pair;
    return 0;
}

int burnpack_pairs_take_metadata(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    load->catalog->has_meta = true;
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, none);
    while (cborin_next(&load->in)) {
        if (!cborin_text(&load->in, &pair.name) || !cborin_text(&load->in, &pair.text))
            break;
        int code = burnpack_escape(load, &pair.name, "metadata");
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

int burnpack_pairs_take_scalars(struct burnpack_load *load, struct burnpack_draft *none)
{
    struct burnpack_pair pair = {0};
    if (!cborin_open_map(&load->in))
        return burnpack_load_fail_cbor(load, none);
    while (cborin_next(&load->in)) {
        if (!cborin_text(&load->in, &pair.name))
            break;
        int code = burnpack_escape(load, &pair.name, "scalar");
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

int burnpack_pairs_fill(struct burnpack_load *load)
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
