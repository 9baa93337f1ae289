/* SPDX-License-Identifier: MIT */
/*
 * The canonical form, as the reference writes it: tensors by dtype and key, no white space but the
 * padding, data without gaps. Metadata, which the reference leaves in random order, is sorted.
 */
#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/json_out.h>
#include "base/bytes.h"
#include "base/search.h"
#include "format/core/layout.h"
#include "format/safetensors/safetensors_load.h"

#include <errno.h>
#include <string.h>

static int compare_texts(const void *a, const void *b)
{
    const struct wfs_text *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct wfs_tensor *x = *(const struct wfs_tensor *const *)a;
    const struct wfs_tensor *y = *(const struct wfs_tensor *const *)b;
    return x->dtype != y->dtype ? (int)y->dtype - (int)x->dtype : strcmp(x->key, y->key);
}

/* The tensors of a piece of the header, which is made when it is read. */
enum { N_PIECE_TENSORS = 256 };

/* Where a piece begins in the file, and the first of its tensors in the data. */
struct header_piece {
    uint64_t offset, data;
};

/* What the header is made from; in the arena of the layout. */
struct plan {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
    const struct wfs_text **meta;
    size_t n_meta;
    struct header_piece *pieces; /* and where the last one ends */
    size_t n_pieces;             /* at least one, which may have no tensors */
};

/* Returns where the data of the next piece begins. A piece that follows another has a comma where
 * the first has the brace. */
static uint64_t put_piece(struct strbuf *text, const struct plan *plan, size_t piece)
{
    struct json_out out = {.text = text, .is_tight = true, .is_part = true};
    uint64_t offset = plan->pieces[piece].data;
    const size_t first = piece * N_PIECE_TENSORS, n_left = plan->n_tensors - first;
    const size_t end = n_left < N_PIECE_TENSORS ? plan->n_tensors : first + N_PIECE_TENSORS;
    json_out_open_object(&out, NULL);
    if (piece > 0 && !text->has_failed)
        text->bytes[text->n_bytes - 1] = ',';
    if (piece == 0 && plan->n_meta > 0) {
        json_out_open_object(&out, SAFETENSORS_METADATA);
        for (size_t i = 0; i < plan->n_meta; i++)
            json_out_text_n(&out, plan->meta[i]->name, plan->meta[i]->value,
                            plan->meta[i]->n_bytes);
        json_out_close(&out);
    }
    for (size_t i = first; i < end; i++) {
        const struct wfs_tensor *tensor = plan->tensors[i];
        const uint64_t offsets[] = {offset, offset + tensor->n_bytes};
        json_out_open_object(&out, tensor->key);
        json_out_text(&out, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
        json_out_u64s(&out, "shape", tensor->shape.dims, tensor->shape.rank);
        json_out_u64s(&out, "data_offsets", offsets, 2);
        json_out_close(&out);
        offset = offsets[1];
    }
    if (piece + 1 == plan->n_pieces)
        json_out_close(&out);
    return offset;
}

/* The `make` of the layout: the length of the header, its pieces, and spaces behind them. */
static int make_header(const struct wfs_layout *layout, uint64_t offset, char *buf, size_t n_bytes)
{
    const struct plan *plan = layout->plan;
    const uint64_t n_all = layout->segments[0].n_bytes, end = offset + n_bytes;
    autostrbuf struct strbuf text = {0};
    while (offset < end) {
        uint64_t start = 0;
        text.n_bytes = 0;
        if (offset < SAFETENSORS_PREFIX) {
            char prefix[SAFETENSORS_PREFIX];
            store_le64(prefix, n_all - SAFETENSORS_PREFIX);
            strbuf_add(&text, prefix, sizeof(prefix));
        } else if (offset < plan->pieces[plan->n_pieces].offset) {
            const size_t piece = search_starts(plan->pieces, plan->n_pieces, sizeof(*plan->pieces),
                                               offsetof(struct header_piece, offset), offset) -
                                 1;
            start = plan->pieces[piece].offset;
            put_piece(&text, plan, piece);
        } else {
            strbuf_puts(&text, " ");
            start = offset;
        }
        if (text.has_failed)
            return -ENOMEM;
        const uint64_t n_left = start + text.n_bytes - offset;
        const size_t n = n_left < end - offset ? (size_t)n_left : (size_t)(end - offset);
        memcpy(buf, text.bytes + (offset - start), n);
        buf += n;
        offset += n;
    }
    return 0;
}

/* ---- padding ---- */

struct sharing {
    const struct source *source; /* asked last */
    bool can_share;
};

/* Can the bytes of the tensor be shared with another file of that filesystem, block by block? */
static bool can_share(struct sharing *sharing, const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    if (source == NULL || source->fd < 0 || !wfs_tensor_is_plain(tensor))
        return false;
    if (source != sharing->source)
        *sharing = (struct sharing){source, io_shares_blocks(source->fd)};
    return sharing->can_share;
}

/*
 * Bytes of header and padding: a multiple of 8, as the reference does; more where that leaves most
 * of the data at the same place within a block as in the source, so that files can share it.
 */
static uint64_t padded(const struct plan *plan, uint64_t n_header)
{
    enum { N_WORTH = 1 << 20, N_PLACES = IO_BLOCK / 8 };
    uint64_t n_by_place[N_PLACES] = {0}, offset = 0;
    struct sharing sharing = {0};
    size_t best = 0;
    const uint64_t n_least = (n_header + 7) / 8 * 8;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct wfs_tensor *tensor = plan->tensors[i];
        const uint64_t start = (tensor->stored.offset - offset) % IO_BLOCK;
        if (start % 8 == 0 && can_share(&sharing, tensor))
            n_by_place[start / 8] += tensor->n_bytes;
        offset += tensor->n_bytes;
    }
    for (size_t i = 1; i < N_PLACES; i++)
        best = n_by_place[i] > n_by_place[best] ? i : best;
    const uint64_t n_shared = n_least + (best * 8 - (SAFETENSORS_PREFIX + n_least)) % IO_BLOCK;
    const bool is_worth_it = n_by_place[best] >= N_WORTH && n_by_place[best] > offset / 2;
    return is_worth_it && n_shared <= SAFETENSORS_HEADER_MAX ? n_shared : n_least;
}

bool safetensors_layout_stores(const struct wfs_tensor *tensor)
{
    return tensor->dtype <= SAFETENSORS_LAST_DTYPE;
}

static int check_keys_differ(const struct wfs_catalog *catalog, struct wfs_error *err)
{
    cleanup(text_index_done) struct text_index keys = {0};
    if (text_index_reserve(&keys, catalog->n_tensors) < 0)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        uint32_t number;
        if (text_index_add(&keys, key, strlen(key), &number) < 0)
            return wfs_fail_memory(err);
        if (number < i)
            return wfs_fail(err, EINVAL, "two tensors have the key '%s'", wfs_quote(key).text);
    }
    return 0;
}

static int check_catalog(const struct wfs_format *format, const struct wfs_catalog *catalog,
                         struct wfs_error *err)
{
    int code = storable_check_metadata(catalog, err);
    for (size_t i = 0; code == 0 && i < catalog->n_tensors; i++)
        code = storable_check_tensor(format, wfs_catalog_tensor(catalog, i), err);
    if (code == 0)
        code = check_keys_differ(catalog, err);
    return code;
}

/* Everything in its order. */
static int sort(const struct wfs_catalog *catalog, struct wfs_layout *layout, struct plan *plan)
{
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next)
        plan->n_meta++;
    plan->n_tensors = catalog->n_tensors;
    plan->n_pieces = plan->n_tensors == 0 ? 1 : (plan->n_tensors - 1) / N_PIECE_TENSORS + 1;
    plan->tensors = arena_calloc(&layout->arena, plan->n_tensors, sizeof(*plan->tensors));
    plan->meta = arena_calloc(&layout->arena, plan->n_meta, sizeof(*plan->meta));
    plan->pieces = arena_calloc(&layout->arena, plan->n_pieces + 1, sizeof(*plan->pieces));
    if (plan->tensors == NULL || plan->meta == NULL || plan->pieces == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < plan->n_tensors; i++)
        plan->tensors[i] = wfs_catalog_tensor(catalog, i);
    size_t i = 0;
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next)
        plan->meta[i++] = text;
    qsort(plan->tensors, plan->n_tensors, sizeof(*plan->tensors), compare_tensors);
    qsort(plan->meta, plan->n_meta, sizeof(*plan->meta), compare_texts);
    layout->order = plan->tensors;
    return 0;
}

/* Finds out where the pieces begin. -ENOMEM. */
static int measure_pieces(const struct plan *plan)
{
    autostrbuf struct strbuf text = {0};
    plan->pieces[0].offset = SAFETENSORS_PREFIX;
    for (size_t i = 0; i < plan->n_pieces; i++) {
        struct header_piece *piece = &plan->pieces[i];
        text.n_bytes = 0;
        piece[1].data = put_piece(&text, plan, i);
        piece[1].offset = piece->offset + text.n_bytes;
    }
    return text.has_failed ? -ENOMEM : 0;
}

static int add_header(struct wfs_layout *layout, const struct plan *plan, struct wfs_error *err)
{
    if (measure_pieces(plan) < 0)
        return wfs_fail_memory(err);
    const uint64_t n_padded =
        padded(plan, plan->pieces[plan->n_pieces].offset - SAFETENSORS_PREFIX);
    if (n_padded > SAFETENSORS_HEADER_MAX)
        return wfs_fail(err, E2BIG,
                        "the header would have %s, readers accept %d: use fewer or "
                        "shorter keys",
                        wfs_count(n_padded, "byte").text, SAFETENSORS_HEADER_MAX);
    layout->make = make_header;
    layout->plan = plan;
    return layout_add_bytes(layout, 0, NULL, SAFETENSORS_PREFIX + n_padded) < 0
               ? wfs_fail_memory(err)
               : 0;
}

int safetensors_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                            struct wfs_error *err)
{
    int code = check_catalog(layout->format, catalog, err);
    if (code < 0)
        return code;
    struct plan *plan = arena_calloc(&layout->arena, 1, sizeof(*plan));
    if (plan == NULL || sort(catalog, layout, plan) < 0)
        return wfs_fail_memory(err);
    code = add_header(layout, plan, err);
    for (size_t i = 0; code == 0 && i < plan->n_tensors; i++) {
        code = layout_add_tensor(layout, layout->n_bytes, plan->tensors[i]);
        if (code == -EFBIG)
            return wfs_fail(err, EFBIG, "tensor '%s' would end past byte 2^63 of the file",
                            wfs_quote(plan->tensors[i]->key).text);
        if (code < 0)
            return wfs_fail_memory(err);
    }
    return code;
}
