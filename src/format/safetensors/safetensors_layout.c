/* SPDX-License-Identifier: MIT */
/*
 * The canonical form, as the reference writes it: tensors by dtype and key, no white space but the
 * padding, data without gaps. Metadata, which the reference leaves in random order, is sorted.
 */
#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/json_out.h>
#include "base/bytes.h"
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

/* What the header is made from. */
struct plan {
    const struct wfs_tensor **tensors;
    size_t n_tensors;
    const struct wfs_text **meta;
    size_t n_meta;
};

static void put_header(struct strbuf *text, const struct plan *plan)
{
    struct json_out out = {.text = text, .is_tight = true, .is_part = true};
    uint64_t offset = 0;
    json_out_open_object(&out, NULL);
    if (plan->n_meta > 0)
        json_out_open_object(&out, SAFETENSORS_METADATA);
    for (size_t i = 0; i < plan->n_meta; i++)
        json_out_text_n(&out, plan->meta[i]->name, plan->meta[i]->value, plan->meta[i]->n_bytes);
    if (plan->n_meta > 0)
        json_out_close(&out);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct wfs_tensor *tensor = plan->tensors[i];
        const uint64_t offsets[] = {offset, offset + tensor->n_bytes};
        json_out_open_object(&out, tensor->key);
        json_out_text(&out, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
        json_out_u64s(&out, "shape", tensor->shape.dims, tensor->shape.rank);
        json_out_u64s(&out, "data_offsets", offsets, 2);
        json_out_close(&out);
        offset = offsets[1];
    }
    json_out_close(&out);
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
        const char *key = catalog->tensors[i].key;
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
        code = storable_check_tensor(format, &catalog->tensors[i], err);
    if (code == 0)
        code = check_keys_differ(catalog, err);
    return code;
}

/* Everything in its order, in the arena of the layout. */
static int sort(const struct wfs_catalog *catalog, struct wfs_layout *layout, struct plan *plan)
{
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next)
        plan->n_meta++;
    plan->n_tensors = catalog->n_tensors;
    plan->tensors = arena_calloc(&layout->arena, plan->n_tensors, sizeof(*plan->tensors));
    plan->meta = arena_calloc(&layout->arena, plan->n_meta, sizeof(*plan->meta));
    if (plan->tensors == NULL || plan->meta == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < plan->n_tensors; i++)
        plan->tensors[i] = &catalog->tensors[i];
    size_t i = 0;
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next)
        plan->meta[i++] = text;
    qsort(plan->tensors, plan->n_tensors, sizeof(*plan->tensors), compare_tensors);
    qsort(plan->meta, plan->n_meta, sizeof(*plan->meta), compare_texts);
    layout->order = plan->tensors;
    return 0;
}

static int add_header(struct wfs_layout *layout, const struct plan *plan, struct wfs_error *err)
{
    static const char prefix[SAFETENSORS_PREFIX];
    autostrbuf struct strbuf text = {0};
    strbuf_add(&text, prefix, sizeof(prefix));
    put_header(&text, plan);
    if (text.has_failed)
        return wfs_fail_memory(err);
    const uint64_t n_padded = padded(plan, text.n_bytes - SAFETENSORS_PREFIX);
    if (n_padded > SAFETENSORS_HEADER_MAX)
        return wfs_fail(err, E2BIG,
                        "the header would have %s, readers accept %d: use fewer or "
                        "shorter keys",
                        wfs_count(n_padded, "byte").text, SAFETENSORS_HEADER_MAX);
    while (text.n_bytes < SAFETENSORS_PREFIX + n_padded && !text.has_failed)
        strbuf_puts(&text, " ");
    if (text.has_failed)
        return wfs_fail_memory(err);
    store_le64(text.bytes, n_padded);
    layout->header = steal(&text.bytes);
    return layout_add_bytes(layout, 0, layout->header, text.n_bytes) < 0 ? wfs_fail_memory(err) : 0;
}

int safetensors_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                            struct wfs_error *err)
{
    struct plan plan = {0};
    int code = check_catalog(layout->format, catalog, err);
    if (code < 0)
        return code;
    if (sort(catalog, layout, &plan) < 0)
        return wfs_fail_memory(err);
    code = add_header(layout, &plan, err);
    for (size_t i = 0; code == 0 && i < plan.n_tensors; i++) {
        code = layout_add_tensor(layout, layout->n_bytes, plan.tensors[i]);
        if (code == -EFBIG)
            return wfs_fail(err, EFBIG, "tensor '%s' would end past byte 2^63 of the file",
                            wfs_quote(plan.tensors[i]->key).text);
        if (code < 0)
            return wfs_fail_memory(err);
    }
    return code;
}
