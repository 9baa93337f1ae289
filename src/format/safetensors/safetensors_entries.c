/* SPDX-License-Identifier: MIT */
/*
 * Whether the entries of a header fit each other and the file: in the order of the data each begins
 * where the one before ends, is as large as its shape says, and the last one ends with the file.
 * Then they become tensors. With `force` what does not fit is noted, and read as far as it can be.
 */
#include "base/bytes.h"
#include "format/core/keys.h"
#include "format/safetensors/safetensors_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_SHAPE_TEXT = 128 };

struct shape_text {
    char text[N_SHAPE_TEXT];
};

static struct wfs_quoted quote(const struct safetensors_entry *entry)
{
    return wfs_quote_n(entry->key, entry->n_key);
}

static struct wfs_shape shape_of(const struct safetensors_entry *entry)
{
    return (struct wfs_shape){entry->rank, entry->dims};
}

static struct shape_text shape_text(const struct safetensors_entry *entry)
{
    const struct wfs_shape shape = shape_of(entry);
    struct shape_text text;
    if (wfs_shape_format(&shape, text.text, sizeof(text.text)) >= sizeof(text.text))
        memcpy(text.text + sizeof(text.text) - 5, "...]", 5);
    return text;
}

static uint64_t data_start(const struct safetensors_load *load)
{
    return SAFETENSORS_PREFIX + load->n_header;
}

/* By place in the data; what is at one place stays as it is in the header. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void sort_entries(struct safetensors_load *load)
{
    struct safetensors_entry *entries = load->entries;
    for (size_t i = 1; i < load->n_entries; i++) {
        if (compare_places(&entries[i - 1], &entries[i]) > 0) {
            qsort(entries, load->n_entries, sizeof(*entries), compare_places);
            return;
        }
    }
}

/* A duplicate entry explains better what is wrong than the numbers do. */
static const char *duplicate_note(const struct safetensors_load *load)
{
    return load->duplicate != NULL ? load->duplicate : "";
}

static const char *duplicate_colon(const struct safetensors_load *load)
{
    return load->duplicate != NULL ? ": " : "";
}

static int check_offset(const struct safetensors_load *load, const struct safetensors_entry *entry,
                        uint64_t expected)
{
    if (entry->begin != expected)
        return wfs_fail(
            load->err, EBADMSG,
            "%s%stensor '%s': data begins at %" PRIu64 ", expected %" PRIu64 " (%s of %s)",
            duplicate_note(load), duplicate_colon(load), quote(entry).text, entry->begin, expected,
            entry->begin > expected ? "a gap" : "an overlap",
            wfs_count(entry->begin > expected ? entry->begin - expected : expected - entry->begin,
                      "byte")
                .text);
    if (entry->end < entry->begin)
        return wfs_fail(load->err, EBADMSG,
                        "%s%stensor '%s': data ends at %" PRIu64 ", before it begins at %" PRIu64,
                        duplicate_note(load), duplicate_colon(load), quote(entry).text, entry->end,
                        entry->begin);
    return 0;
}

static int check_size(const struct safetensors_load *load, const struct safetensors_entry *entry)
{
    const struct wfs_shape shape = shape_of(entry);
    const enum wfs_dtype dtype = (enum wfs_dtype)entry->dtype;
    uint64_t n_bytes = 0;
    const int code = wfs_shape_bytes(&shape, dtype, &n_bytes);
    if (code == -EOVERFLOW)
        return wfs_fail(load->err, EBADMSG, "tensor '%s': shape %s of %s passes 2^64 bits",
                        quote(entry).text, shape_text(entry).text, wfs_dtype_name(dtype));
    if (code < 0)
        return wfs_fail(load->err, EBADMSG, "tensor '%s': shape %s of %s does not fill whole bytes",
                        quote(entry).text, shape_text(entry).text, wfs_dtype_name(dtype));
    if (n_bytes != entry->end - entry->begin)
        return wfs_fail(load->err, EBADMSG,
                        "%s%stensor '%s': shape %s of %s takes %s, data_offsets "
                        "give %" PRIu64,
                        duplicate_note(load), duplicate_colon(load), quote(entry).text,
                        shape_text(entry).text, wfs_dtype_name(dtype),
                        wfs_count(n_bytes, "byte").text, entry->end - entry->begin);
    return 0;
}

static int check_strictly(struct safetensors_load *load)
{
    uint64_t n_data = load->n_given;
    for (size_t i = 0; i < load->n_entries; i++) {
        int code = check_offset(load, &load->entries[i], n_data);
        if (code == 0)
            code = check_size(load, &load->entries[i]);
        if (code < 0)
            return code;
        n_data = load->entries[i].end;
    }
    const uint64_t n_bytes = load->source->n_bytes;
    if (n_data == n_bytes - data_start(load))
        return 0;
    uint64_t expected;
    if (!checked_add(data_start(load), n_data, &expected))
        expected = UINT64_MAX;
    return wfs_fail(
        load->err, EBADMSG, "%s%sthe file has %s, its header describes %" PRIu64 " (%s)",
        duplicate_note(load), duplicate_colon(load), wfs_count(n_bytes, "byte").text, expected,
        n_bytes < expected ? "truncated" : "the data is followed by something else");
}

/* Its offsets are a range that a file can have. */
static bool has_range(const struct safetensors_load *load, const struct safetensors_entry *entry)
{
    return entry->end >= entry->begin && entry->end <= INT64_MAX - data_start(load);
}

/* For bytes that shape and dtype do not explain: they are shown, with the dtype as an attribute. */
static void make_opaque(struct safetensors_load *load, struct safetensors_entry *entry)
{
    struct wfs_error why = {0};
    const struct safetensors_load quiet = {.err = &why};
    const bool is_right = has_range(load, entry) && check_size(&quiet, entry) == 0;
    if (entry->dtype == WFS_OPAQUE || is_right)
        return;
    if (why.code != 0 && tally_count(&load->tally, ST_SIZE))
        tally_describe(&load->tally, &load->catalog->arena, WFS_HIGH, ST_SIZE, "%s", why.text);
    entry->dtype_text = wfs_dtype_name((enum wfs_dtype)entry->dtype);
    entry->dtype = WFS_OPAQUE;
}

static void note_misfit(struct safetensors_load *load, const struct safetensors_entry *entry,
                        uint64_t expected)
{
    struct wfs_error why = {0};
    const struct safetensors_load quiet = {.err = &why};
    if (check_offset(&quiet, entry, expected) < 0 && tally_count(&load->tally, ST_OFFSET))
        tally_describe(&load->tally, &load->catalog->arena, WFS_HIGH, ST_OFFSET, "%s", why.text);
}

static void check_loosely(struct safetensors_load *load)
{
    const uint64_t n_data = load->source->n_bytes - data_start(load);
    uint64_t n_used = 0;
    for (size_t i = 0; i < load->n_entries; i++) {
        struct safetensors_entry *entry = &load->entries[i];
        note_misfit(load, entry, n_used);
        make_opaque(load, entry);
        if (entry->end > n_used)
            n_used = entry->end;
        if (entry->end > n_data && tally_count(&load->tally, ST_SHORT))
            tally_describe(&load->tally, &load->catalog->arena, WFS_HIGH, ST_SHORT,
                           "tensor '%s' ends at byte %" PRIu64 " of the data, the file has %" PRIu64
                           " of it",
                           quote(entry).text, entry->end, n_data);
    }
    if (n_used < n_data && tally_count(&load->tally, ST_TRAILING))
        tally_describe(&load->tally, &load->catalog->arena, WFS_HIGH, ST_TRAILING,
                       "%s the last tensor",
                       wfs_count_as(n_data - n_used, "byte follows", "bytes follow").text);
}

int safetensors_entries_check(struct safetensors_load *load)
{
    sort_entries(load);
    if (!load->context->force)
        return check_strictly(load);
    check_loosely(load);
    return 0;
}

/* The order of the reference: by dtype, the last of the table first, then by the bytes of the key.
 */
static int compare_canonical(const struct safetensors_entry *a, const struct safetensors_entry *b)
{
    if (a->dtype != b->dtype)
        return a->dtype > b->dtype ? -1 : 1;
    const int order = memcmp(a->key, b->key, a->n_key < b->n_key ? a->n_key : b->n_key);
    if (order != 0)
        return order;
    return a->n_key < b->n_key ? -1 : a->n_key > b->n_key;
}

static void note_tensor(struct safetensors_load *load, size_t i)
{
    const struct safetensors_entry *entry = &load->entries[i];
    struct arena *arena = &load->catalog->arena;
    const unsigned n_elem = (wfs_dtype_bits((enum wfs_dtype)entry->dtype) + 7) / 8;
    if (entry->begin == entry->end && tally_count(&load->tally, ST_EMPTY))
        tally_describe(&load->tally, arena, WFS_INFO, ST_EMPTY, "tensor '%s' has no elements",
                       quote(entry).text);
    if ((data_start(load) + entry->begin) % n_elem != 0 && tally_count(&load->tally, ST_UNALIGNED))
        tally_describe(&load->tally, arena, WFS_LOW, ST_UNALIGNED,
                       "tensor '%s' begins at byte %" PRIu64
                       " of the file, which is not a multiple "
                       "of its element size %u",
                       quote(entry).text, data_start(load) + entry->begin, n_elem);
    if (i == 0)
        return;
    const struct safetensors_entry *before = entry - 1;
    if (compare_canonical(before, entry) > 0 && tally_count(&load->tally, ST_ORDER))
        tally_describe(&load->tally, arena, WFS_INFO, ST_ORDER,
                       "tensor '%s' comes before '%s', unlike in the canonical order",
                       quote(before).text, quote(entry).text);
}

/* Where the bytes are, or what is wrong with that; only `force` lets entries in that need it. */
static void place(const struct safetensors_load *load, const struct safetensors_entry *entry,
                  struct wfs_tensor *tensor)
{
    tensor->stored.source = load->source;
    if (!has_range(load, entry)) {
        tensor->trouble = "its data_offsets are not a range of a file";
        return;
    }
    tensor->n_bytes = entry->end - entry->begin;
    tensor->stored.offset = data_start(load) + entry->begin;
}

/* Copies what the entries have in the header, whose room the tensors need. */
static int let_go_of_header(struct safetensors_load *load)
{
    struct arena *arena = &load->catalog->arena;
    for (size_t i = 0; i < load->n_entries; i++) {
        struct safetensors_entry *entry = &load->entries[i];
        const char *dtype = entry->dtype_text;
        entry->key = arena_copy(arena, entry->key, entry->n_key);
        entry->dtype_text = dtype == NULL ? NULL : arena_copy(arena, dtype, strlen(dtype));
        if (entry->key == NULL || (dtype != NULL && entry->dtype_text == NULL))
            return catalog_fail_memory(load->catalog, load->err);
    }
    free(load->header);
    load->header = NULL;
    return 0;
}

static void fill(const struct safetensors_load *load, const struct safetensors_entry *entry,
                 struct wfs_tensor *tensor)
{
    place(load, entry, tensor);
    tensor->key = entry->key;
    tensor->changes = entry->has_nul ? nul_key_mark : NULL;
    tensor->shape = shape_of(entry);
    tensor->dtype = tensor->stored.dtype = entry->dtype;
}

int safetensors_entry_give(struct safetensors_load *load, const struct safetensors_entry *entry)
{
    const struct load_taker *taker = load->context->taker;
    struct wfs_tensor tensor = {0};
    int code = check_offset(load, entry, load->n_given);
    if (code == 0)
        code = check_size(load, entry);
    if (code < 0)
        return code;
    fill(load, entry, &tensor);
    load->n_given = entry->end;
    return taker->take(taker->ctx, &tensor);
}

int safetensors_entries_fill(struct safetensors_load *load)
{
    struct wfs_catalog *catalog = load->catalog;
    const int code = let_go_of_header(load);
    if (code < 0)
        return code;
    if (catalog_reserve(catalog, load->n_entries) < 0)
        return wfs_fail_memory(load->err);
    for (size_t i = 0; i < load->n_entries; i++) {
        const struct safetensors_entry *entry = &load->entries[i];
        struct wfs_tensor *tensor = catalog_add(catalog);
        note_tensor(load, i);
        fill(load, entry, tensor);
        if (entry->dtype_text != NULL &&
            catalog_add_attr(catalog, tensor, "dtype", entry->dtype_text) < 0)
            return catalog_fail_memory(load->catalog, load->err);
    }
    return 0;
}
