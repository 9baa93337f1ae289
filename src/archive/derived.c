/* SPDX-License-Identifier: MIT */
/*
 * Deflated members are inflated a block at a time, and a few blocks are kept. Inflating only goes
 * forward, so a few positions are kept to continue from: memory is bounded however many members
 * there are. A position is always at the start of a block of inflated bytes; while one advances,
 * copies of it stay behind at intervals, so that going back never starts at the beginning of a
 * large member.
 */
#include "archive/derived.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/reader_lock.h"
#include "base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    BLOCK_BYTES = 131072,
    N_BLOCKS = 32,
    N_POINTS = 32,
    INPUT_BYTES = 16384,
    MIN_SPACING = 1 << 20,
    COPIES_PER_MEMBER = 16,
};

struct point {
    bool is_open;
    uint32_t number;
    uint64_t in, out; /* bytes read and inflated */
    uint64_t used_at;
    z_stream stream;
};

struct block {
    uint8_t *bytes; /* NULL: not used yet */
    bool is_full;
    uint32_t number;
    uint64_t index;
    uint64_t used_at;
};

struct inflater {
    struct reader_lock lock;
    const struct source *source;
    uint64_t clock;
    struct point points[N_POINTS];
    struct block blocks[N_BLOCKS];
};

static void point_close(struct point *point)
{
    if (point->is_open)
        inflateEnd(&point->stream);
    *point = (struct point){0};
}

static struct inflater *inflater_new(const struct source *source)
{
    struct inflater *inflater = calloc(1, sizeof(*inflater));
    if (inflater == NULL)
        return NULL;
    reader_lock_init(&inflater->lock);
    inflater->source = source;
    return inflater;
}

static void inflater_free(struct inflater *inflater)
{
    if (inflater == NULL)
        return;
    for (size_t i = 0; i < N_POINTS; i++)
        point_close(&inflater->points[i]);
    for (size_t i = 0; i < N_BLOCKS; i++)
        free(inflater->blocks[i].bytes);
    reader_lock_done(&inflater->lock);
    free(inflater);
}

/*
 * Inflates up to n_bytes; *ret_n is less only at the end of the packed stream. -EBADMSG when the
 * packed data is damaged or ends too early, -ENOMEM, errors as source_read.
 */
static int inflate_some(const struct wfs_io *io, const struct source *source,
                        const struct deflated *member, struct point *point, uint8_t *buf,
                        size_t n_bytes, size_t *ret_n)
{
    uint8_t input[INPUT_BYTES];
    z_stream *z = &point->stream;
    int state = Z_OK;
    z->next_out = buf;
    z->avail_out = (uInt)n_bytes;
    while (z->avail_out > 0 && state != Z_STREAM_END) {
        const uint64_t n_left = member->n_packed - point->in;
        const size_t n = n_left < sizeof(input) ? (size_t)n_left : sizeof(input);
        const int code = source_read_for(io, source, member->offset + point->in, input, n);
        if (code < 0)
            return code;
        z->next_in = input;
        z->avail_in = (uInt)n;
        const uInt n_out = z->avail_out;
        state = inflate(z, Z_NO_FLUSH);
        point->in += n - z->avail_in;
        if (state == Z_MEM_ERROR)
            return -ENOMEM;
        if (state != Z_STREAM_END && (state != Z_OK || (z->avail_in == n && z->avail_out == n_out)))
            return -EBADMSG;
    }
    z->next_in = NULL;
    z->avail_in = 0;
    *ret_n = n_bytes - z->avail_out;
    point->out += *ret_n;
    return 0;
}

static int point_open(struct point *point)
{
    point_close(point);
    /* Raw deflate: without a zlib header. */
    if (inflateInit2(&point->stream, -MAX_WBITS) != Z_OK)
        return -ENOMEM;
    point->is_open = true;
    return 0;
}

/* Returns the position that was not used for the longest time, to be replaced. */
static struct point *oldest_point(struct inflater *inflater, const struct point *but)
{
    struct point *oldest = NULL;
    for (size_t i = 0; i < N_POINTS; i++) {
        struct point *point = &inflater->points[i];
        if (point != but && (oldest == NULL || point->used_at < oldest->used_at))
            oldest = point;
    }
    return oldest;
}

/* Returns the nearest position of the member at or before the offset, or NULL. */
static struct point *nearest_point(struct inflater *inflater, uint32_t number, uint64_t offset)
{
    struct point *nearest = NULL;
    for (size_t i = 0; i < N_POINTS; i++) {
        struct point *point = &inflater->points[i];
        if (point->is_open && point->number == number && point->out <= offset &&
            (nearest == NULL || point->out > nearest->out))
            nearest = point;
    }
    return nearest;
}

static void leave_copy(struct inflater *inflater, struct point *point)
{
    struct point *copy = oldest_point(inflater, point);
    point_close(copy);
    if (inflateCopy(&copy->stream, &point->stream) != Z_OK)
        return; /* only slower */
    copy->is_open = true;
    copy->number = point->number;
    copy->in = point->in;
    copy->out = point->out;
    copy->used_at = inflater->clock;
}

/* Inflates up to the end of the block with that index, into the given block. */
static int fill_block(const struct wfs_io *io, struct inflater *inflater, uint32_t number,
                      const struct deflated *member, uint64_t index, struct block *block)
{
    const uint64_t start = index * BLOCK_BYTES;
    uint64_t spacing = member->n_bytes / COPIES_PER_MEMBER / BLOCK_BYTES * BLOCK_BYTES;
    spacing = spacing < MIN_SPACING ? MIN_SPACING : spacing;
    struct point *point = nearest_point(inflater, number, start);
    if (point == NULL) {
        point = oldest_point(inflater, NULL);
        if (point_open(point) < 0)
            return -ENOMEM;
        point->number = number;
    }
    point->used_at = ++inflater->clock;
    while (point->out <= start) {
        const uint64_t n_left = member->n_bytes - point->out;
        const size_t n_wanted = n_left < BLOCK_BYTES ? (size_t)n_left : BLOCK_BYTES;
        size_t n;
        if (point->out % spacing == 0 && point->out != 0)
            leave_copy(inflater, point);
        const int code =
            inflate_some(io, inflater->source, member, point, block->bytes, n_wanted, &n);
        if (code < 0 || n != n_wanted) {
            point_close(point);
            return code < 0 ? code : -EBADMSG;
        }
    }
    *block = (struct block){block->bytes, true, number, index, inflater->clock};
    return 0;
}

/* Finds the block, or inflates it in place of the one that was not used for the longest time. */
static int get_block(const struct wfs_io *io, struct inflater *inflater, uint32_t number,
                     const struct deflated *member, uint64_t index, const uint8_t **ret)
{
    struct block *oldest = &inflater->blocks[0];
    for (size_t i = 0; i < N_BLOCKS; i++) {
        struct block *block = &inflater->blocks[i];
        if (block->is_full && block->number == number && block->index == index) {
            block->used_at = ++inflater->clock;
            *ret = block->bytes;
            return 0;
        }
        oldest = block->used_at < oldest->used_at ? block : oldest;
    }
    if (oldest->bytes == NULL)
        oldest->bytes = malloc(BLOCK_BYTES);
    if (oldest->bytes == NULL)
        return -ENOMEM;
    oldest->is_full = false;
    *ret = oldest->bytes;
    return fill_block(io, inflater, number, member, index, oldest);
}

/* Reads a range inside of a member, which has the same number at every call. One of many threads
 * inflates at a time; -EBUSY and -EINTR as reader_lock_take. */
static int inflater_read(const struct wfs_io *io, struct inflater *inflater, uint32_t number,
                         const struct deflated *member, uint64_t offset, void *buf, size_t n_bytes)
{
    int code = reader_lock_take(&inflater->lock, io, inflater->source->is_remote);
    if (code < 0)
        return code;
    for (uint8_t *at = buf; n_bytes > 0 && code == 0;) {
        const size_t skip = offset % BLOCK_BYTES;
        const size_t n = n_bytes < BLOCK_BYTES - skip ? n_bytes : BLOCK_BYTES - skip;
        const uint8_t *bytes;
        code = get_block(io, inflater, number, member, offset / BLOCK_BYTES, &bytes);
        if (code == 0)
            memcpy(at, bytes + skip, n);
        at += n;
        offset += n;
        n_bytes -= n;
    }
    reader_lock_release(&inflater->lock);
    return code;
}

static int read_deflated(const struct wfs_io *io, struct inflater *inflater, uint32_t number,
                         const struct deflated *member, uint64_t offset, void *buf, size_t n_bytes)
{
    int code = inflater_read(io, inflater, number, member, offset, buf, n_bytes);
    if (code != -EBUSY)
        return code;
    struct inflater *own = inflater_new(inflater->source);
    code = own == NULL ? -ENOMEM : inflater_read(io, own, number, member, offset, buf, n_bytes);
    inflater_free(own);
    return code;
}

int inflate_all(const struct source *source, const struct deflated *member, struct inflated *ret)
{
    struct point point = {0};
    autofree uint8_t *buf = malloc(BLOCK_BYTES);
    int code = buf == NULL ? -ENOMEM : point_open(&point);
    uint64_t n_left = member->n_bytes < UINT64_MAX ? member->n_bytes + 1 : UINT64_MAX;
    uLong crc = 0;
    while (code == 0 && n_left > 0) {
        const size_t n_wanted = n_left < BLOCK_BYTES ? (size_t)n_left : BLOCK_BYTES;
        size_t n;
        code = inflate_some(NULL, source, member, &point, buf, n_wanted, &n);
        if (code < 0)
            break;
        crc = crc32(crc, buf, (uInt)n);
        n_left -= n;
        if (n < n_wanted)
            break;
    }
    *ret = (struct inflated){point.out, point.in, (uint32_t)crc};
    point_close(&point);
    return code;
}

int stored_crc(const struct source *source, uint64_t offset, uint64_t n_bytes, uint32_t *ret_crc)
{
    autofree uint8_t *buf = malloc(BLOCK_BYTES);
    if (buf == NULL)
        return -ENOMEM;
    uLong crc = 0;
    while (n_bytes > 0) {
        const size_t n = n_bytes < BLOCK_BYTES ? (size_t)n_bytes : BLOCK_BYTES;
        const int code = source_read(source, offset, buf, n);
        if (code < 0)
            return code;
        crc = crc32(crc, buf, (uInt)n);
        offset += n;
        n_bytes -= n;
    }
    *ret_crc = (uint32_t)crc;
    return 0;
}

/* ---- ranges, in order of their offsets ---- */

enum range_kind { RANGE_DEFLATED, RANGE_MEMORY, RANGE_TENSOR };

struct range {
    uint64_t offset, n_bytes;
    enum range_kind kind;
    union {
        struct deflated deflated;
        uint8_t *bytes;
        const struct wfs_tensor *tensor;
    };
};

struct derived {
    struct range *ranges;
    size_t n_ranges, n_room;
    struct inflater *inflater; /* created with the first deflated range */
};

static int read_range(const struct wfs_io *io, const struct derived *derived,
                      const struct range *range, uint64_t offset, void *buf, size_t n_bytes)
{
    ssize_t n;
    switch (range->kind) {
    case RANGE_DEFLATED:
        return read_deflated(io, derived->inflater, (uint32_t)(range - derived->ranges),
                             &range->deflated, offset, buf, n_bytes);
    case RANGE_MEMORY:
        memcpy(buf, range->bytes + offset, n_bytes);
        return 0;
    default:
        n = wfs_tensor_read_for(io, range->tensor, offset, buf, n_bytes);
        if (n < 0)
            return (int)n;
        return (size_t)n < n_bytes ? -EIO : 0;
    }
}

static int read_derived(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    const struct derived *derived = source->ctx;
    int code = 0;
    for (uint8_t *at = buf; n_bytes > 0 && code == 0;) {
        const size_t n_before =
            search_starts(derived->ranges, derived->n_ranges, sizeof(*derived->ranges),
                          offsetof(struct range, offset), offset);
        const struct range *range = n_before == 0 ? NULL : &derived->ranges[n_before - 1];
        if (range == NULL || offset - range->offset >= range->n_bytes)
            return -EIO;
        const uint64_t from = offset - range->offset, n_left = range->n_bytes - from;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        code = read_range(io, derived, range, from, at, n);
        at += n;
        offset += n;
        n_bytes -= n;
    }
    return code;
}

static void free_derived(void *ctx)
{
    struct derived *derived = ctx;
    for (size_t i = 0; i < derived->n_ranges; i++)
        if (derived->ranges[i].kind == RANGE_MEMORY)
            free(derived->ranges[i].bytes);
    inflater_free(derived->inflater);
    free(derived->ranges);
    free(derived);
}

int derived_new(struct source *origin, struct source **out)
{
    static const struct source_kind kind = {.read = read_derived, .done = free_derived};
    if (source_new(&kind, origin->path, calloc(1, sizeof(struct derived)), 0, out) < 0)
        return -ENOMEM;
    (*out)->origin = origin;
    return 0;
}

/*
 * Adds a range. They begin at multiples of 64 and never touch, so that a read cannot continue into
 * the next one, unless it is one that goes on where the last one ends.
 */
static struct range *range_new(struct source *source, enum range_kind kind, uint64_t n_bytes,
                               bool goes_on, int *ret_code)
{
    struct derived *derived = source->ctx;
    uint64_t offset = source->n_bytes, end;
    *ret_code = -EOVERFLOW;
    if ((!goes_on &&
         (!checked_add(offset, (uint64_t)1, &offset) || !checked_round_up(offset, 64, &offset))) ||
        !checked_add(offset, n_bytes, &end) || end > INT64_MAX || derived->n_ranges == UINT32_MAX)
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

static int add_deflated(struct source *source, const struct deflated *member, bool goes_on,
                        uint64_t *ret_offset)
{
    struct derived *derived = source->ctx;
    int code;
    if (derived->inflater == NULL) {
        derived->inflater = inflater_new(source->origin);
        if (derived->inflater == NULL)
            return -ENOMEM;
    }
    struct range *range = range_new(source, RANGE_DEFLATED, member->n_bytes, goes_on, &code);
    if (range == NULL)
        return code;
    range->deflated = *member;
    *ret_offset = range->offset;
    return 0;
}

int derived_add_deflated(struct source *source, const struct deflated *member, uint64_t *ret_offset)
{
    return add_deflated(source, member, false, ret_offset);
}

int derived_append_deflated(struct source *source, const struct deflated *member)
{
    uint64_t offset;
    return add_deflated(source, member, true, &offset);
}

int derived_add_memory(struct source *source, void *bytes, size_t n_bytes, uint64_t *ret_offset)
{
    int code;
    struct range *range = range_new(source, RANGE_MEMORY, n_bytes, false, &code);
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
    struct range *range = range_new(source, RANGE_TENSOR, tensor->n_bytes, false, &code);
    if (range == NULL)
        return code;
    range->tensor = tensor;
    *ret_offset = range->offset;
    return 0;
}
