/* SPDX-License-Identifier: MIT */
/*
 * The ranges of a derived source, in order of their offsets.
 */
#include "archive/derived.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/search.h"

enum range_kind { RANGE_DEFLATED, RANGE_MEMORY, RANGE_TENSOR };

struct range {
    uint64_t offset, n_bytes;
    enum range_kind kind;
    union {
        struct deflated deflated;
        uint8_t *bytes;
        struct wfs_tensor *tensor;
    };
};

struct derived {
    struct range *ranges;
    size_t n_ranges, n_room;
    struct inflater *inflater; /* created with the first deflated range */
};

/* Returns the last range that begins at or before the offset. */
static const struct range *range_at(const struct derived *derived, uint64_t offset)
{
    const size_t n = search_starts(derived->ranges, derived->n_ranges, sizeof(*derived->ranges),
                                   offsetof(struct range, offset), offset);
    return n == 0 ? NULL : &derived->ranges[n - 1];
}

static int read_tensor(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    const ssize_t n = wfs_tensor_read(tensor, offset, buf, n_bytes);
    return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
}

static int read_derived(const struct source *source, uint64_t offset, void *buf, size_t n_bytes)
{
    const struct derived *derived = source->ctx;
    const struct range *range = range_at(derived, offset);
    if (n_bytes == 0)
        return 0;
    if (range == NULL || offset - range->offset > range->n_bytes ||
        n_bytes > range->n_bytes - (offset - range->offset))
        return -EIO;
    offset -= range->offset;
    switch (range->kind) {
    case RANGE_DEFLATED:
        return inflater_read(derived->inflater, (uint32_t)(range - derived->ranges),
                             &range->deflated, offset, buf, n_bytes);
    case RANGE_MEMORY:
        memcpy(buf, range->bytes + offset, n_bytes);
        return 0;
    default:
        return read_tensor(range->tensor, offset, buf, n_bytes);
    }
}

static void free_derived(struct source *source)
{
    struct derived *derived = source->ctx;
    for (size_t i = 0; i < derived->n_ranges; i++) {
        if (derived->ranges[i].kind == RANGE_MEMORY)
            free(derived->ranges[i].bytes);
        else if (derived->ranges[i].kind == RANGE_TENSOR)
            free(derived->ranges[i].tensor);
    }
    inflater_free(derived->inflater);
    free(derived->ranges);
    free(derived);
}

int derived_new(struct source *origin, struct source **out)
{
    struct source *source;
    struct derived *derived = calloc(1, sizeof(*derived));
    if (derived == NULL || source_new_memory(origin->path, NULL, 0, &source) < 0) {
        free(derived);
        return -ENOMEM;
    }
    source->read = read_derived;
    source->done = free_derived;
    source->ctx = derived;
    source->origin = origin;
    *out = source;
    return 0;
}

/* Adds a range. They begin at multiples of 64 and never touch, so that a read cannot continue
 * into the next one. */
static struct range *range_new(struct source *source, enum range_kind kind, uint64_t n_bytes,
                               int *ret_code)
{
    struct derived *derived = source->ctx;
    uint64_t offset, end;
    *ret_code = -EOVERFLOW;
    if (!checked_add(source->n_bytes, (uint64_t)1, &offset) ||
        !checked_round_up(offset, 64, &offset) || !checked_add(offset, n_bytes, &end) ||
        end > INT64_MAX || derived->n_ranges == UINT32_MAX)
        return NULL;
    *ret_code = -ENOMEM;
    if (array_reserve(&derived->ranges, sizeof(*derived->ranges), derived->n_ranges, 1,
                      &derived->n_room) < 0)
        return NULL;
    struct range *range = &derived->ranges[derived->n_ranges++];
    *range = (struct range){.offset = offset, .n_bytes = n_bytes, .kind = kind};
    source->n_bytes = end;
    *ret_code = 0;
    return range;
}

int derived_add_deflated(struct source *source, const struct deflated *member, uint64_t *ret_offset)
{
    struct derived *derived = source->ctx;
    int code;
    if (derived->inflater == NULL && inflater_new(source->origin, &derived->inflater) < 0)
        return -ENOMEM;
    struct range *range = range_new(source, RANGE_DEFLATED, member->n_bytes, &code);
    if (range == NULL)
        return code;
    range->deflated = *member;
    *ret_offset = range->offset;
    return 0;
}

int derived_add_memory(struct source *source, void *bytes, size_t n_bytes, uint64_t *ret_offset)
{
    int code;
    struct range *range = range_new(source, RANGE_MEMORY, n_bytes, &code);
    if (range == NULL) {
        free(bytes);
        return code;
    }
    range->bytes = bytes;
    *ret_offset = range->offset;
    return 0;
}

int derived_add_tensor(struct source *source, const struct wfs_tensor *tensor, uint64_t *ret_offset)
{
    int code;
    struct wfs_tensor *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    struct range *range = range_new(source, RANGE_TENSOR, tensor->n_bytes, &code);
    if (range == NULL) {
        free(copy);
        return code;
    }
    *copy = *tensor;
    range->tensor = copy;
    *ret_offset = range->offset;
    return 0;
}
