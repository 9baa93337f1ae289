/* SPDX-License-Identifier: MIT */
/*
 * Checks whether the tensors fit the file. Two layouts look alike and differ only in their numbers:
 *
 *   aligned   the data begins at a multiple of 256, and so does each tensor in it
 *   packed    the data begins right after the CBOR, each tensor where the last one ends
 *
 * Read the wrong way everything shifts by up to 255 bytes, so doubt is an error.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/burnpack/burnpack_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the ranges of all tensors say. */
struct extent {
    uint64_t end;                  /* the largest one */
    const struct wfs_tensor *last; /* that has it; NULL: there are no bytes */
    uint64_t n_unused;             /* before the end, paddings aside, that no tensor has */
    bool has_unaligned;            /* one begins at no multiple of 256 */
    bool is_contiguous;            /* each begins where the one before ends */
};

static int compare_keys(const void *a, const void *b)
{
    const struct wfs_tensor *x = *(const struct wfs_tensor *const *)a;
    const struct wfs_tensor *y = *(const struct wfs_tensor *const *)b;
    const int order = strcmp(x->key, y->key);
    if (order != 0)
        return order;
    return x < y ? -1 : x > y;
}

static bool is_sorted(const struct wfs_catalog *catalog)
{
    for (size_t i = 1; i < catalog->n_tensors; i++) {
        if (strcmp(catalog->tensors[i - 1].key, catalog->tensors[i].key) >= 0)
            return false;
    }
    return true;
}

/* Leaves the last tensor of each key, as Burn does. A key without one is marked by NULL. */
static int drop_twins(struct burnpack_load *load)
{
    struct wfs_catalog *catalog = load->catalog;
    size_t n = 0;
    if (is_sorted(catalog))
        return 0;
    autofree struct wfs_tensor **order = calloc(catalog->n_tensors, sizeof(struct wfs_tensor *));
    if (order == NULL)
        return wfs_fail_memory(load->err);
    for (size_t i = 0; i < catalog->n_tensors; i++)
        order[i] = &catalog->tensors[i];
    qsort(order, catalog->n_tensors, sizeof(*order), compare_keys);
    for (size_t i = 1; i < catalog->n_tensors; i++) {
        if (strcmp(order[i - 1]->key, order[i]->key) != 0)
            continue;
        tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, BPK_DUPLICATE,
                   "tensor '%s' is a duplicate: the last one counts",
                   wfs_quote(order[i]->key).text);
        order[i - 1]->key = NULL;
    }
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        if (catalog->tensors[i].key != NULL)
            catalog->tensors[n++] = catalog->tensors[i];
    }
    catalog->n_tensors = n;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct wfs_tensor *x = a, *y = b;
    if (x->stored.offset != y->stored.offset)
        return x->stored.offset < y->stored.offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->key, y->key);
}

static void sort_places(struct wfs_catalog *catalog)
{
    for (size_t i = 1; i < catalog->n_tensors; i++) {
        if (compare_places(&catalog->tensors[i - 1], &catalog->tensors[i]) > 0) {
            qsort(catalog->tensors, catalog->n_tensors, sizeof(*catalog->tensors), compare_places);
            return;
        }
    }
}

/* Tensors in the order of their places, a twin's range counted once. */
static struct extent measure(const struct wfs_catalog *catalog)
{
    struct extent extent = {.is_contiguous = true};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        const uint64_t begin = tensor->stored.offset, end = begin + tensor->n_bytes;
        uint64_t expected = extent.end;
        if (tensor->trouble != NULL)
            continue;
        extent.has_unaligned = extent.has_unaligned || begin % BURNPACK_ALIGNMENT != 0;
        extent.is_contiguous = extent.is_contiguous && begin == extent.end;
        if (begin > expected &&
            (!checked_round_up(expected, BURNPACK_ALIGNMENT, &expected) || begin != expected))
            extent.n_unused += begin - extent.end;
        if (end > extent.end) {
            extent.end = end;
            extent.last = tensor;
        }
    }
    return extent;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool burnpack_extent_is_old(const struct wfs_text *meta)
{
    static const char *const versions[] = {"0.19.", "0.20.0-pre.1", "0.20.0-pre.2", "0.20.0-pre.3",
                                           "0.20.0-pre.4"};
    bool is_burn = false, is_old = false;
    for (; meta != NULL; meta = meta->next) {
        if (strcmp(meta->name, "producer") == 0)
            is_burn = strcmp(meta->value, "burn") == 0;
        for (size_t i = 0; i < 5 && strcmp(meta->name, "version") == 0; i++)
            is_old = is_old || has_prefix(meta->value, versions[i]);
    }
    return is_burn && is_old;
}

/* The last tensor, for messages. */
static struct wfs_quoted quote_last(const struct extent *extent)
{
    return wfs_quote(extent->last != NULL ? extent->last->key : "");
}

static int fail_short(const struct burnpack_load *load, const struct extent *extent,
                      uint64_t packed, uint64_t aligned)
{
    char other[64] = "";
    if (packed != aligned && !extent->has_unaligned)
        snprintf(other, sizeof(other), " (at %" PRIu64 " if Burn 0.19 wrote it)",
                 packed + extent->end);
    const uint64_t end = (*other != '\0' ? aligned : packed) + extent->end;
    if (extent->last == NULL)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: its data begins at byte %" PRIu64 "%s, the file has %" PRIu64,
                        end, other, load->source->n_bytes);
    return wfs_fail(load->err, EBADMSG,
                    "truncated: tensor '%s' ends at byte %" PRIu64 "%s, the file has %" PRIu64,
                    quote_last(extent).text, end, other, load->source->n_bytes);
}

/* Where the data begins. */
static int decide(const struct burnpack_load *load, const struct extent *extent, uint64_t *ret)
{
    const uint64_t n_bytes = load->source->n_bytes;
    const uint64_t packed = BURNPACK_HEADER + load->n_cbor;
    uint64_t aligned = packed;
    const bool is_old = burnpack_extent_is_old(load->catalog->meta.first);
    if (!checked_round_up(packed, BURNPACK_ALIGNMENT, &aligned) ||
        extent->end > INT64_MAX - aligned)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': data ends at %" PRIu64 ", past byte 2^63 of the file",
                        quote_last(extent).text, extent->end);
    const uint64_t packed_end = packed + extent->end, aligned_end = aligned + extent->end;
    if (extent->has_unaligned)
        /* No aligned writer does this. By hand it can be done, but then there are gaps. */
        *ret = n_bytes == aligned_end && !extent->is_contiguous ? aligned : packed;
    else if (n_bytes == packed_end && extent->is_contiguous)
        *ret = packed;
    else if (n_bytes < aligned_end && is_old)
        *ret = packed;
    else
        *ret = aligned;
    if (n_bytes < *ret + extent->end && !load->context->force)
        return fail_short(load, extent, packed, aligned);
    return 0;
}

/* What shape and dtype do not explain: with force the bytes are shown, the dtype beside them. */
static int check_size(struct burnpack_load *load, struct wfs_tensor *tensor)
{
    char shape[128];
    uint64_t n_bytes = 0;
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    if (dtype == WFS_OPAQUE || tensor->trouble != NULL)
        return 0;
    const int code = wfs_shape_bytes(&tensor->shape, dtype, &n_bytes);
    if (code == 0 && n_bytes == tensor->n_bytes)
        return 0;
    if (wfs_shape_format(&tensor->shape, shape, sizeof(shape)) >= sizeof(shape))
        memcpy(shape + sizeof(shape) - 5, "...]", 5);
    struct wfs_error why = {0};
    if (code < 0)
        wfs_fail(&why, EBADMSG, "tensor '%s': shape %s of %s passes 2^64 bits",
                 wfs_quote(tensor->key).text, shape, wfs_dtype_name(dtype));
    else
        wfs_fail(&why, EBADMSG, "tensor '%s': shape %s of %s takes %s, data_offsets give %" PRIu64,
                 wfs_quote(tensor->key).text, shape, wfs_dtype_name(dtype),
                 wfs_count(n_bytes, "byte").text, tensor->n_bytes);
    if (!load->context->force)
        return wfs_fail(load->err, why.code, "%s", why.text);
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, BPK_SIZE, "%s", why.text);
    tensor->dtype = tensor->stored.dtype = WFS_OPAQUE;
    return catalog_add_attr(load->catalog, tensor, "dtype", wfs_dtype_name(dtype)) < 0
               ? catalog_fail_memory(load->catalog, load->err)
               : 0;
}

static int check_tensors(struct burnpack_load *load, uint64_t start)
{
    uint64_t n_used = 0;
    for (size_t i = 0; i < load->catalog->n_tensors; i++) {
        struct wfs_tensor *tensor = &load->catalog->tensors[i];
        const struct wfs_tensor *before = i == 0 ? NULL : tensor - 1;
        const int code = check_size(load, tensor);
        if (code < 0)
            return code;
        const uint64_t begin = tensor->stored.offset;
        const bool is_twin = before != NULL && before->stored.offset == start + begin &&
                             before->n_bytes == tensor->n_bytes;
        if (begin < n_used && tensor->n_bytes > 0 && !is_twin)
            tally_note(&load->tally, &load->catalog->arena, WFS_LOW, BPK_OVERLAP,
                       "tensor '%s' shares bytes with another one", wfs_quote(tensor->key).text);
        if (tensor->n_bytes > BURNPACK_TENSOR_MAX)
            tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, BPK_TENSOR_MAX,
                       "tensor '%s' has %s, Burn reads at most %" PRIu64,
                       wfs_quote(tensor->key).text, wfs_count(tensor->n_bytes, "byte").text,
                       BURNPACK_TENSOR_MAX);
        n_used = begin + tensor->n_bytes > n_used ? begin + tensor->n_bytes : n_used;
        tensor->stored.offset += start;
    }
    return 0;
}

static void note_file(struct burnpack_load *load, const struct extent *extent, uint64_t start)
{
    static const struct wfs_container packed = {.name = "burnpack in the packed layout"};
    const uint64_t n_bytes = load->source->n_bytes, end = start + extent->end;
    if (n_bytes < end)
        tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, BPK_SHORT,
                   "truncated: its data ends at byte %" PRIu64 ", the file has %" PRIu64, end,
                   n_bytes);
    if (n_bytes > end)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, BPK_TRAILING, "%s the last tensor",
                   wfs_count_as(n_bytes - end, "byte follows", "bytes follow").text);
    if (n_bytes > BURNPACK_FILE_MAX)
        tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, BPK_FILE_MAX,
                   "the file has %s, Burn reads at most %" PRIu64, wfs_count(n_bytes, "byte").text,
                   BURNPACK_FILE_MAX);
    if (extent->n_unused > 0)
        tally_note(
            &load->tally, &load->catalog->arena, WFS_LOW, BPK_UNUSED, "%s to no tensor",
            wfs_count_as(extent->n_unused, "byte of the data belongs", "bytes of the data belong")
                .text);
    if (start % BURNPACK_ALIGNMENT != 0) {
        load->catalog->container = &packed;
        tally_note(&load->tally, &load->catalog->arena, WFS_INFO, BPK_PACKED,
                   "the data is packed as Burn 0.19 wrote it; newer versions misread the file");
    } else if (extent->has_unaligned) {
        tally_note(&load->tally, &load->catalog->arena, WFS_INFO, BPK_UNALIGNED,
                   "not all tensors begin at a multiple of %d bytes", BURNPACK_ALIGNMENT);
    }
}

int burnpack_extent_check(struct burnpack_load *load)
{
    uint64_t start = 0;
    int code = drop_twins(load);
    if (code < 0)
        return code;
    sort_places(load->catalog);
    const struct extent extent = measure(load->catalog);
    code = decide(load, &extent, &start);
    if (code == 0)
        code = check_tensors(load, start);
    if (code == 0)
        note_file(load, &extent, start);
    return code;
}
