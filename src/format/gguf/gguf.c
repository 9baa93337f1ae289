/* SPDX-License-Identifier: MIT */
/*
 * Recognising a GGUF, and loading one: its head, its pairs, the infos of its tensors. What both
 * reference readers refuse is refused; what one of them reads is read, with a finding where the
 * other one does not.
 */
#include "format/gguf/gguf.h"

#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/core/keys.h"
#include "format/gguf/gguf_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_MAGIC = 4 };

static const uint8_t magic[N_MAGIC] = {'G', 'G', 'U', 'F'};

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    return n_head >= N_MAGIC && memcmp(head, magic, N_MAGIC) == 0;
}

/* ---- the head ---- */

static int take_magic(struct gguf_load *load)
{
    uint8_t found[N_MAGIC] = {0};
    const int code =
        stream_left(&load->stream) < N_MAGIC ? 0 : stream_read(&load->stream, found, N_MAGIC);
    if (code < 0)
        return wfs_fail(load->err, -code, "cannot read its first %d bytes", N_MAGIC);
    return memcmp(found, magic, N_MAGIC) == 0
               ? 0
               : wfs_fail(load->err, EMEDIUMTYPE,
                          "is not a GGUF: it begins with %02x %02x %02x %02x, not with 47 47 55 46",
                          found[0], found[1], found[2], found[3]);
}

static int take_version(struct gguf_load *load)
{
    uint64_t version;
    const int code = gguf_take_number(load, 4, &version);
    if (code < 0)
        return code;
    load->is_big = version != 0 && (version & 0xffff) == 0;
    load->version = load->is_big ? __builtin_bswap32((uint32_t)version) : (uint32_t)version;
    if (load->version == 0 || load->version > GGUF_VERSION)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "is a GGUF of version %u, versions from 1 to %d are known", load->version,
                        GGUF_VERSION);
    if (load->version == 1)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, GGUF_FIRST_VERSION,
                   "is a GGUF of version 1, which llama.cpp does not read any more");
    return 0;
}

static int check_count(const struct gguf_load *load, uint64_t n, uint64_t n_least, const char *what)
{
    const uint64_t n_left = stream_left(&load->stream);
    return n <= n_left / n_least
               ? 0
               : wfs_fail(load->err, EBADMSG, "truncated: it states %s, and %s follow",
                          wfs_count(n, what).text, wfs_count(n_left, "byte").text);
}

static int take_head(struct gguf_load *load)
{
    int code = take_magic(load);
    if (code == 0)
        code = take_version(load);
    if (code == 0)
        code = gguf_take_count(load, &load->n_tensors);
    if (code == 0)
        code = gguf_take_count(load, &load->n_pairs);
    /* The shortest pair is a key of no bytes and a number of one, the shortest info a scalar. */
    const uint64_t n_length = load->version == 1 ? 4 : 8;
    if (code == 0)
        code = check_count(load, load->n_pairs, n_length + 5, "metadata pair");
    if (code == 0)
        code = check_count(load, load->n_tensors, n_length + 16, "tensor");
    if (code == 0 && load->n_tensors > load->context->limits.tensors)
        return wfs_fail(load->err, E2BIG, "it has %s, the limit is %" PRIu64 " (limit tensors)",
                        wfs_count(load->n_tensors, "tensor").text, load->context->limits.tensors);
    return code;
}

/* ---- infos ---- */

static int take_shape(struct gguf_load *load, const struct wfs_quoted *key, struct wfs_shape *ret)
{
    const uint64_t n_dim = load->version == 1 ? 4 : 8;
    uint64_t rank, n_elems;
    int code = gguf_take_number(load, 4, &rank);
    if (code < 0)
        return code;
    if (rank > load->context->limits.rank)
        return wfs_fail(load->err, E2BIG, "tensor '%s' has %s (limit rank)", key->text,
                        wfs_count(rank, "dimension").text);
    code = check_count(load, rank, n_dim, "dimension");
    if (code < 0)
        return code;
    if (rank > GGUF_RANK_MAX)
        tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, GGUF_RANK,
                   "tensor '%s' has %s, which llama.cpp refuses", key->text,
                   wfs_count(rank, "dimension").text);
    uint64_t *dims = arena_calloc(&load->catalog->arena, (size_t)rank, sizeof(*dims));
    if (rank > 0 && dims == NULL)
        return catalog_fail_memory(load->catalog, load->err);
    for (uint64_t i = rank; i-- > 0 && code == 0;)
        code = gguf_take_count(load, &dims[i]);
    if (code < 0)
        return code;
    *ret = (struct wfs_shape){(uint32_t)rank, dims};
    return wfs_shape_count(ret, &n_elems) == 0 && n_elems <= INT64_MAX
               ? 0
               : wfs_fail(load->err, EBADMSG, "tensor '%s' has more than 2^63-1 elements",
                          key->text);
}

/* A type that only a fork of llama.cpp knows: bytes whose number follows from the next tensor. */
static int take_unknown(struct gguf_load *load, const struct wfs_quoted *key,
                        struct wfs_tensor *tensor, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    tensor->dtype = WFS_OPAQUE;
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, GGUF_UNKNOWN_TYPE,
               "tensor '%s' has the unknown type %s: its bytes are those up to the next tensor",
               key->text, text);
    return catalog_add_attr(load->catalog, tensor, "dtype", text) < 0
               ? catalog_fail_memory(load->catalog, load->err)
               : 0;
}

static int take_dtype(struct gguf_load *load, const struct wfs_quoted *key,
                      struct wfs_tensor *tensor)
{
    const char *removed;
    enum wfs_dtype dtype;
    uint64_t number;
    int code = gguf_take_number(load, 4, &number);
    if (code < 0)
        return code;
    if (!gguf_dtype_of(number, &dtype, &removed))
        return removed == NULL
                   ? take_unknown(load, key, tensor, number)
                   : wfs_fail(load->err, EOPNOTSUPP,
                              "tensor '%s' has type %" PRIu64 ", %s, which was removed from GGUF",
                              key->text, number, removed);
    tensor->dtype = (uint8_t)dtype;
    /* Blocks of MXFP4 and NVFP4 are bytes, which have no order. */
    tensor->stored.is_big_endian = load->is_big && dtype != WFS_MXFP4 && dtype != WFS_NVFP4;
    code = wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes);
    if (code == -EDOM)
        return wfs_fail(
            load->err, EBADMSG,
            "tensor '%s': its rows of %s are not whole blocks of %s, which have %u", key->text,
            wfs_count(tensor->shape.rank == 0 ? 1 : tensor->shape.dims[tensor->shape.rank - 1],
                      "element")
                .text,
            wfs_dtype_name(dtype), wfs_dtype_block(dtype).n_elems);
    if (code < 0)
        return wfs_fail(load->err, EBADMSG, "tensor '%s' has more than 2^63-1 bytes", key->text);
    if (tensor->stored.is_big_endian && (wfs_dtype_has_blocks(dtype) || dtype == WFS_BF16))
        tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, GGUF_BYTE_ORDER,
                   "the file is big-endian, and does not state whether the %s of tensor '%s' is, "
                   "too",
                   wfs_dtype_name(dtype), key->text);
    return 0;
}

/* A name that no other tensor has. */
static int take_name(struct gguf_load *load, struct wfs_tensor *tensor, struct gguf_text *name)
{
    const uint64_t at = stream_offset(&load->stream);
    const size_t n = load->names.n_texts;
    uint32_t number;
    const int has_nul = gguf_take_key(load, "tensor name", name);
    if (has_nul < 0)
        return has_nul;
    if (text_index_add(&load->names, name->bytes, name->n_bytes, &number) < 0)
        return wfs_fail_memory(load->err);
    if (number < n)
        return wfs_fail(load->err, EBADMSG, "the tensor name '%s' is a duplicate, at byte %" PRIu64,
                        wfs_quote_n(name->bytes, name->n_bytes).text, at);
    tensor->key = name->bytes;
    if (has_nul > 0)
        tensor->changes = nul_key_mark;
    if (name->n_bytes > GGUF_NAME_MAX)
        tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, GGUF_LONG_NAME,
                   "the name of tensor '%s' has %s, more than the %d that llama.cpp reads",
                   wfs_quote(tensor->key).text, wfs_count(name->n_bytes, "byte").text,
                   GGUF_NAME_MAX);
    return 0;
}

static int take_info(struct gguf_load *load)
{
    struct gguf_text name;
    struct wfs_tensor *tensor = catalog_reserve(load->catalog, load->catalog->n_tensors + 1) < 0
                                    ? NULL
                                    : catalog_add(load->catalog);
    if (tensor == NULL)
        return wfs_fail_memory(load->err);
    int code = take_name(load, tensor, &name);
    if (code < 0)
        return code;
    const struct wfs_quoted key = wfs_quote_n(name.bytes, name.n_bytes);
    code = take_shape(load, &key, &tensor->shape);
    if (code == 0)
        code = take_dtype(load, &key, tensor);
    if (code == 0)
        code = gguf_take_number(load, 8, &tensor->stored.offset);
    tensor->stored.source = load->source;
    tensor->stored.dtype = tensor->dtype;
    return code;
}

/* Makes offsets in the data offsets in the file. */
static int place_all(struct gguf_load *load)
{
    if (!checked_round_up(stream_offset(&load->stream), load->alignment, &load->data))
        return wfs_fail(load->err, EBADMSG, "its data begins past byte 2^64");
    for (size_t i = 0; i < load->catalog->n_tensors; i++) {
        struct wfs_tensor *tensor = &load->catalog->tensors[i];
        if (!checked_add(tensor->stored.offset, load->data, &tensor->stored.offset))
            return wfs_fail(load->err, EBADMSG, "tensor '%s': its data begins past byte 2^64",
                            wfs_quote(tensor->key).text);
    }
    return 0;
}

/* ---- loading ---- */

static int run(struct gguf_load *load)
{
    int code = take_head(load);
    if (code == 0)
        code = gguf_values_take(load);
    text_index_done(&load->names);
    load->names = (struct text_index){0};
    for (uint64_t i = 0; i < load->n_tensors && code == 0; i++)
        code = take_info(load);
    if (code == 0)
        code = place_all(load);
    if (code == 0)
        code = gguf_extent_check(load);
    if (code < 0)
        return code;
    return tally_report(&load->tally, load->catalog) < 0
               ? catalog_fail_memory(load->catalog, load->err)
               : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "GGUF file"};
    struct gguf_load load = {.source = source,
                             .context = context,
                             .catalog = catalog,
                             .err = err,
                             .alignment = GGUF_ALIGNMENT_DEFAULT};
    catalog->container = &container;
    catalog->values.graph.arena = &catalog->arena;
    int code = stream_init(&load.stream, source, 0, source->n_bytes);
    code = code < 0 ? wfs_fail_memory(err) : run(&load);
    stream_done(&load.stream);
    text_index_done(&load.names);
    return code;
}

static const char *const extensions[] = {".gguf", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .load = load_file,
    .stores = gguf_layout_stores,
    .check = gguf_layout_check,
    .settle = gguf_settle,
    .describes_part = gguf_describes_part,
    .plan = gguf_layout_plan,
};

const struct wfs_format format_gguf = {
    .name = "gguf",
    .title = "GGUF",
    .extensions = extensions,
    .set_name = "model.gguf",
    .needed_value = "general.architecture",
    .kept_elsewhere = "names of tensors, and the order of rows in attn_q and attn_k, are those of "
                      "llama.cpp: see docs/formats/gguf.md",
    .values = WFS_VALUES_ANY,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .sets_have_values = true,
    .functions = &functions,
};
