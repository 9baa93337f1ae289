/* SPDX-License-Identifier: MIT */
/*
 * Records are read and written, never mapped: on a full disk a mapping is a signal.
 */
#include <weightfs/cachefile.h>

#include <weightfs/io.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

enum { RECORD = 16, PIECES = CACHEFILE_BLOCK / CACHEFILE_PIECE, AT_ONCE = 256 };

struct record {
    uint64_t sequence, pieces;
};

int cachefile_init(struct cachefile *cache, int fd, uint64_t base, uint64_t n_bytes)
{
    uint64_t records;
    if (n_bytes > INT64_MAX / 4 || base > INT64_MAX / 4 || base % IO_BLOCK != 0 ||
        !checked_round_up(n_bytes, IO_BLOCK, &records))
        return -EFBIG;
    *cache =
        (struct cachefile){.fd = fd, .base = base, .n_bytes = n_bytes, .records = base + records};
    return 0;
}

static uint64_t count_blocks(const struct cachefile *cache)
{
    return cache->n_bytes / CACHEFILE_BLOCK + (cache->n_bytes % CACHEFILE_BLOCK != 0);
}

uint64_t cachefile_end(const struct cachefile *cache)
{
    const uint64_t n = count_blocks(cache) * RECORD;
    return cache->records + (n + IO_BLOCK - 1) / IO_BLOCK * IO_BLOCK;
}

int cachefile_make(const struct cachefile *cache)
{
    return ftruncate(cache->fd, (off_t)cachefile_end(cache)) < 0 ? -errno : 0;
}

void cachefile_clear(const struct cachefile *cache)
{
    if (fallocate(cache->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)cache->base,
                  (off_t)(cachefile_end(cache) - cache->base)) < 0)
        errno = 0; /* of a filesystem that cannot: it is given back with the file */
}

int cachefile_write(const struct cachefile *cache, uint64_t offset, const void *bytes,
                    size_t n_bytes)
{
    size_t n_written;
    return io_write_at(cache->fd, bytes, n_bytes, cache->base + offset, &n_written);
}

static int load(const struct cachefile *cache, uint64_t block, size_t n, struct record *ret)
{
    uint8_t bytes[AT_ONCE * RECORD];
    const ssize_t n_read =
        io_read_at(cache->fd, bytes, n * RECORD, cache->records + block * RECORD);
    if (n_read < 0)
        return (int)n_read;
    if ((size_t)n_read < n * RECORD)
        return -EIO;
    for (size_t i = 0; i < n; i++)
        ret[i] = (struct record){load_le64(bytes + i * RECORD), load_le64(bytes + i * RECORD + 8)};
    return 0;
}

/* Returns the bits of the pieces of a block that touch [from, end), relative to the block. */
static uint64_t bits_of(uint64_t from, uint64_t end)
{
    const uint64_t first = from / CACHEFILE_PIECE;
    const uint64_t behind = (end + CACHEFILE_PIECE - 1) / CACHEFILE_PIECE;
    const uint64_t up_to = behind >= PIECES ? UINT64_MAX : (1ull << behind) - 1;
    return first >= PIECES ? 0 : up_to & ~((1ull << first) - 1);
}

/* The part of [from, end) that lies in the block, relative to it. */
static uint64_t bits_in(uint64_t block, uint64_t from, uint64_t end)
{
    const uint64_t begin = block * CACHEFILE_BLOCK;
    const uint64_t n = end - begin;
    return bits_of(from > begin ? from - begin : 0, n < CACHEFILE_BLOCK ? n : CACHEFILE_BLOCK);
}

/* Reads at most AT_ONCE - 1 blocks. */
static int read_some(const struct cachefile *cache, uint64_t offset, void *buf, size_t n_bytes)
{
    struct record before[AT_ONCE], after[AT_ONCE];
    const uint64_t first = offset / CACHEFILE_BLOCK, end = offset + n_bytes;
    const size_t n = (size_t)((end - 1) / CACHEFILE_BLOCK - first + 1);
    int code = load(cache, first, n, before);
    for (size_t i = 0; code == 0 && i < n; i++) {
        const uint64_t bits = bits_in(first + i, offset, end);
        if (before[i].sequence % 2 != 0 || (before[i].pieces & bits) != bits)
            return 0;
    }
    const ssize_t n_read =
        code < 0 ? code : io_read_at(cache->fd, buf, n_bytes, cache->base + offset);
    if (n_read < 0)
        return (int)n_read;
    code = (size_t)n_read < n_bytes ? -EIO : load(cache, first, n, after);
    for (size_t i = 0; code == 0 && i < n; i++) {
        if (before[i].sequence != after[i].sequence)
            return 0;
    }
    return code < 0 ? code : 1;
}

int cachefile_read(const struct cachefile *cache, uint64_t offset, void *buf, size_t n_bytes)
{
    enum { MOST = (AT_ONCE - 1) * CACHEFILE_BLOCK };
    char *out = buf;
    while (n_bytes > 0) {
        const size_t n = n_bytes < MOST ? n_bytes : MOST;
        const int code = read_some(cache, offset, out, n);
        if (code <= 0)
            return code;
        offset += n;
        out += n;
        n_bytes -= n;
    }
    return 1;
}

int cachefile_missing(const struct cachefile *cache, uint64_t *from, uint64_t *end)
{
    uint64_t at = *from - *from % CACHEFILE_PIECE, found = UINT64_MAX;
    struct record record = {0};
    uint64_t loaded = UINT64_MAX;
    for (; at < *end; at += CACHEFILE_PIECE) {
        const uint64_t block = at / CACHEFILE_BLOCK;
        const int code = block == loaded ? 0 : load(cache, block, 1, &record);
        if (code < 0)
            return code;
        loaded = block;
        const bool is_present =
            (record.pieces & 1ull << at % CACHEFILE_BLOCK / CACHEFILE_PIECE) != 0;
        if (!is_present && found == UINT64_MAX)
            found = at;
        if (is_present && found != UINT64_MAX)
            break;
    }
    if (found == UINT64_MAX)
        return 0;
    *from = found;
    *end = at < cache->n_bytes ? at : cache->n_bytes;
    return 1;
}

uint64_t cachefile_count(const struct cachefile *cache)
{
    struct record records[AT_ONCE];
    const uint64_t n_blocks = count_blocks(cache);
    uint64_t n_pieces = 0;
    for (uint64_t block = 0; block < n_blocks; block += AT_ONCE) {
        const size_t n = n_blocks - block < AT_ONCE ? (size_t)(n_blocks - block) : AT_ONCE;
        if (load(cache, block, n, records) < 0)
            break;
        for (size_t i = 0; i < n; i++)
            n_pieces += (uint64_t)__builtin_popcountll(records[i].pieces);
    }
    const uint64_t n_bytes = n_pieces * CACHEFILE_PIECE;
    return n_bytes < cache->n_bytes ? n_bytes : cache->n_bytes;
}

/* Returns the bits of the pieces that lie whole in [from, end). */
static uint64_t whole_bits(const struct cachefile *cache, uint64_t block, uint64_t from,
                           uint64_t end)
{
    uint64_t first = from;
    if (!checked_round_up(from, CACHEFILE_PIECE, &first))
        return 0;
    const uint64_t behind = end == cache->n_bytes ? end : end - end % CACHEFILE_PIECE;
    return behind <= first || behind <= block * CACHEFILE_BLOCK ||
                   first >= (block + 1) * CACHEFILE_BLOCK
               ? 0
               : bits_in(block, first, behind);
}

int cachefile_mark(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes)
{
    const uint64_t end = offset + n_bytes;
    for (uint64_t block = offset / CACHEFILE_BLOCK; block * CACHEFILE_BLOCK < end; block++) {
        const uint64_t bits = whole_bits(cache, block, offset, end);
        struct record record;
        uint8_t pieces[8];
        size_t n_written;
        int code = bits == 0 ? 0 : load(cache, block, 1, &record);
        if (code == 0 && bits != 0) {
            store_le64(pieces, record.pieces | bits);
            code = io_write_at(cache->fd, pieces, sizeof(pieces),
                               cache->records + block * RECORD + 8, &n_written);
        }
        if (code < 0)
            return code;
    }
    return 0;
}
