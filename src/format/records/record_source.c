/* SPDX-License-Identifier: MIT */
/*
 * Ranges of decoded elements, in order of their offsets.
 */
#include "format/records/record_source.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/search.h"

/* Ranges begin at multiples of this and never touch: no read continues into the next one. */
enum { RANGE_STEP = 64, ELEMENT_MAX = 8 };

struct range {
    uint64_t offset;
    uint32_t list;
    uint8_t dtype;
};

struct decoded {
    struct source *bytes; /* that the lists are in */
    bool owns_bytes;
    struct record_lists lists;
    struct range *ranges; /* malloc'ed */
    size_t n_ranges, n_room;
};

static size_t element_bytes(const struct range *range)
{
    return wfs_dtype_bits((enum wfs_dtype)range->dtype) / 8;
}

/* Returns the last range that begins at or before the offset, NULL: none. */
static const struct range *range_at(const struct decoded *decoded, uint64_t offset)
{
    const size_t n = search_starts(decoded->ranges, decoded->n_ranges, sizeof(*decoded->ranges),
                                   offsetof(struct range, offset), offset);
    return n == 0 ? NULL : &decoded->ranges[n - 1];
}

/* Decodes bytes of a range from an offset in it. */
static int decode(struct list_reader *reader, const struct range *range, size_t skip, uint8_t *out,
                  size_t n_bytes)
{
    const size_t n_element = element_bytes(range);
    uint8_t stored[ELEMENT_MAX];
    struct element element;
    while (n_bytes > 0) {
        const int code = list_reader_next(reader, &element);
        if (code < 0)
            return code;
        const size_t n = n_bytes < n_element - skip ? n_bytes : n_element - skip;
        element_store(&element, (enum wfs_dtype)range->dtype, stored);
        memcpy(out, stored + skip, n);
        out += n;
        n_bytes -= n;
        skip = 0;
    }
    return 0;
}

static int read_decoded(const struct source *source, uint64_t offset, void *buf, size_t n_bytes)
{
    const struct decoded *decoded = source->ctx;
    const struct range *range = range_at(decoded, offset);
    struct list_reader reader;
    if (n_bytes == 0)
        return 0;
    if (range == NULL)
        return -EIO;
    const struct record_list *list = &decoded->lists.items[range->list];
    const size_t n_element = element_bytes(range);
    const uint64_t from = offset - range->offset;
    if (from > list->n * n_element || n_bytes > list->n * n_element - from)
        return -EIO;
    int code = list_reader_init(&reader, &decoded->lists, list, decoded->bytes, from / n_element);
    if (code == 0)
        code = decode(&reader, range, (size_t)(from % n_element), buf, n_bytes);
    list_reader_done(&reader);
    return code;
}

static void free_decoded(struct source *source)
{
    struct decoded *decoded = source->ctx;
    if (decoded->owns_bytes)
        source_free(decoded->bytes);
    record_lists_done(&decoded->lists);
    free(decoded->ranges);
    free(decoded);
}

int record_source_new(struct source *file, struct source *bytes, bool is_owned,
                      struct record_lists *lists, struct source **out)
{
    struct source *source;
    struct decoded *decoded = calloc(1, sizeof(*decoded));
    if (decoded == NULL || source_new_memory(file->path, NULL, 0, &source) < 0) {
        free(decoded);
        return -ENOMEM;
    }
    decoded->bytes = bytes;
    decoded->owns_bytes = is_owned;
    decoded->lists = *lists;
    *lists = (struct record_lists){0};
    source->read = read_decoded;
    source->done = free_decoded;
    source->ctx = decoded;
    source->origin = file;
    *out = source;
    return 0;
}

int record_source_add(struct source *source, uint32_t list, enum wfs_dtype dtype,
                      uint64_t *ret_offset)
{
    struct decoded *decoded = source->ctx;
    struct range range = {.list = list, .dtype = (uint8_t)dtype};
    uint64_t n_bytes, end;
    if (!checked_add(source->n_bytes, (uint64_t)1, &range.offset) ||
        !checked_round_up(range.offset, RANGE_STEP, &range.offset) ||
        !checked_mul(decoded->lists.items[list].n, (uint64_t)element_bytes(&range), &n_bytes) ||
        !checked_add(range.offset, n_bytes, &end) || end > INT64_MAX)
        return -EOVERFLOW;
    if (array_reserve(&decoded->ranges, sizeof(*decoded->ranges), decoded->n_ranges, 1,
                      &decoded->n_room) < 0)
        return -ENOMEM;
    decoded->ranges[decoded->n_ranges++] = range;
    source->n_bytes = end;
    *ret_offset = range.offset;
    return 0;
}

const struct record_list *record_source_list(const struct source *source, uint32_t list)
{
    const struct decoded *decoded = source->ctx;
    return &decoded->lists.items[list];
}

int record_source_read(const struct source *source, uint32_t list, struct list_reader *reader)
{
    const struct decoded *decoded = source->ctx;
    return list_reader_init(reader, &decoded->lists, &decoded->lists.items[list], decoded->bytes,
                            0);
}

const struct record_list *record_source_whole(const struct wfs_tensor *tensor,
                                              const struct source **ret_bytes)
{
    const struct wfs_stored *stored = &tensor->stored;
    if (stored->source == NULL || stored->source->read != read_decoded || stored->strides != NULL ||
        stored->is_big_endian || stored->dtype != tensor->dtype)
        return NULL;
    const struct decoded *decoded = stored->source->ctx;
    const struct range *range = range_at(decoded, stored->offset);
    if (decoded->lists.encoding != RECORD_MPK || range == NULL || range->offset != stored->offset ||
        range->dtype != tensor->dtype)
        return NULL;
    const struct record_list *list = &decoded->lists.items[range->list];
    *ret_bytes = decoded->bytes;
    return list->n * element_bytes(range) == tensor->n_bytes ? list : NULL;
}
