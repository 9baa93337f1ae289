/* SPDX-License-Identifier: MIT */
/*
 * Where tensors lie. Writers place them one after the other, each at a multiple of the alignment,
 * in the order of their infos. llama.cpp reads nothing else; gaps and other orders are read here.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/gguf/gguf_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static int compare_places(const void *a, const void *b)
{
    const struct wfs_tensor *x = *(struct wfs_tensor *const *)a;
    const struct wfs_tensor *y = *(struct wfs_tensor *const *)b;
    if (x->stored.offset != y->stored.offset)
        return x->stored.offset < y->stored.offset ? -1 : 1;
    return x < y ? -1 : 1; /* empty ones before the one that begins at the same place */
}

/* Reports a tensor whose bytes are not where a reader would look, unless force is given. */
static int fail_place(struct gguf_load *load, enum gguf_finding kind,
                      const struct wfs_tensor *tensor, const char *problem)
{
    const struct wfs_quoted key = wfs_quote(tensor->key);
    const uint64_t offset = tensor->stored.offset;
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG,
                        "tensor '%s': its %s at byte %" PRIu64 " of the file %s", key.text,
                        wfs_count(tensor->n_bytes, "byte").text, offset, problem);
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, kind,
               "tensor '%s': its %s at byte %" PRIu64 " of the file %s", key.text,
               wfs_count(tensor->n_bytes, "byte").text, offset, problem);
    return 0;
}

/* before: the end of the one before it in the file. */
static int check_one(struct gguf_load *load, struct wfs_tensor *tensor, uint64_t before)
{
    const uint64_t n_file = load->source->n_bytes, offset = tensor->stored.offset;
    uint64_t next;
    if (offset > n_file || tensor->n_bytes > n_file - offset)
        return fail_place(load, GGUF_BEYOND, tensor, "run past its end: truncated");
    if ((offset - load->data) % load->alignment != 0)
        return fail_place(load, GGUF_OVERLAP, tensor, "are not at a multiple of the alignment");
    if (offset < before && tensor->n_bytes > 0)
        return fail_place(load, GGUF_OVERLAP, tensor, "overlap those of another tensor");
    if (checked_round_up(before, load->alignment, &next) && offset > next)
        tally_note(&load->tally, &load->catalog->arena, WFS_MEDIUM, GGUF_PLACE,
                   "a gap of %s lies before tensor '%s', which llama.cpp refuses",
                   wfs_count(offset - next, "byte").text, wfs_quote(tensor->key).text);
    return 0;
}

/* What begins the next tensor ends one whose size is not known. */
static void size_unknown(const struct gguf_load *load, struct wfs_tensor *const *order, size_t i)
{
    struct wfs_tensor *tensor = order[i];
    const uint64_t offset = tensor->stored.offset;
    const bool is_last = i + 1 == load->catalog->n_tensors;
    const uint64_t end = is_last ? load->source->n_bytes : order[i + 1]->stored.offset;
    if (tensor->dtype == WFS_OPAQUE)
        tensor->n_bytes = end > offset ? end - offset : 0;
}

static int check_all(struct gguf_load *load, struct wfs_tensor **order)
{
    struct wfs_tensor *tensors = load->catalog->tensors;
    uint64_t before = load->data, padded, end;
    int code = 0;
    for (size_t i = 0; i < load->catalog->n_tensors && code == 0; i++) {
        struct wfs_tensor *tensor = order[i];
        size_unknown(load, order, i);
        code = check_one(load, tensor, before);
        if (checked_add(tensor->stored.offset, tensor->n_bytes, &end) && end > before)
            before = end;
        if (tensor != &tensors[i] && tally_count(&load->tally, GGUF_PLACE))
            tally_describe(&load->tally, &load->catalog->arena, WFS_MEDIUM, GGUF_PLACE,
                           "the data of tensor '%s' is not in the order of the header, which "
                           "llama.cpp refuses",
                           wfs_quote(tensor->key).text);
    }
    if (code == 0 && load->catalog->n_tensors > 0 &&
        checked_round_up(before, load->alignment, &padded) && padded < load->source->n_bytes)
        tally_note(
            &load->tally, &load->catalog->arena, WFS_LOW, GGUF_TRAILING, "%s the data",
            wfs_count_as(load->source->n_bytes - padded, "byte follows", "bytes follow").text);
    return code;
}

int gguf_extent_check(struct gguf_load *load)
{
    const size_t n = load->catalog->n_tensors;
    autofree struct wfs_tensor **order = calloc(n + 1, sizeof(*order));
    if (order == NULL)
        return wfs_fail_memory(load->err);
    for (size_t i = 0; i < n; i++)
        order[i] = &load->catalog->tensors[i];
    qsort(order, n, sizeof(*order), compare_places);
    return check_all(load, order);
}
