/* SPDX-License-Identifier: MIT */
/*
 * Sums are read and written, never mapped: on a full disk a mapping is a signal. Two processes may
 * write the same piece, because both write the same bytes.
 */
#include <weightfs/cachefile.h>
#include <weightfs/io.h>
#include "base/bytes.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = CACHEFILE_PIECE, PIECES = CACHEFILE_BLOCK / PIECE, AT_ONCE = 512, NUMBER = 8 };

uint64_t cachefile_hash(const char *text, uint64_t seed)
{
    return hash_bytes(text, strlen(text), seed);
}

static uint64_t round_up(uint64_t n)
{
    return (n + IO_BLOCK - 1) / IO_BLOCK * IO_BLOCK;
}

static uint64_t count_pieces(const struct cachefile *cache)
{
    return cache->n_bytes / PIECE + (cache->n_bytes % PIECE != 0);
}

static uint64_t count_blocks(const struct cachefile *cache)
{
    return cache->n_bytes / CACHEFILE_BLOCK + (cache->n_bytes % CACHEFILE_BLOCK != 0);
}

int cachefile_init(struct cachefile *cache, int fd, uint64_t base, uint64_t n_bytes, uint64_t seed)
{
    if (n_bytes > INT64_MAX / 4 || base > INT64_MAX / 4 || base % IO_BLOCK != 0)
        return -EFBIG;
    *cache = (struct cachefile){.fd = fd, .base = base, .n_bytes = n_bytes, .seed = seed};
    cache->sums = base + round_up(n_bytes);
    cache->times = cache->sums + round_up(count_pieces(cache) * NUMBER);
    return 0;
}

uint64_t cachefile_end(const struct cachefile *cache)
{
    return cache->times + round_up(count_blocks(cache) * NUMBER);
}

int cachefile_make(const struct cachefile *cache)
{
    return ftruncate(cache->fd, (off_t)cachefile_end(cache)) < 0 ? -errno : 0;
}

static int punch(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes)
{
    return fallocate(cache->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)n_bytes) < 0
               ? -errno
               : 0;
}

void cachefile_clear(const struct cachefile *cache)
{
    /* A filesystem that cannot gives it back with the file. */
    (void)punch(cache, cache->base, cachefile_end(cache) - cache->base);
}

/* ---- numbers ---- */

/* What is behind the end of the file, which was cut, is 0. */
static int load(const struct cachefile *cache, uint64_t offset, size_t n, uint64_t *ret)
{
    uint8_t bytes[AT_ONCE * NUMBER];
    const ssize_t n_read = io_read_at(cache->fd, bytes, n * NUMBER, offset);
    if (n_read < 0)
        return (int)n_read;
    memset(bytes + n_read, 0, n * NUMBER - (size_t)n_read);
    for (size_t i = 0; i < n; i++)
        ret[i] = load_le64(bytes + i * NUMBER);
    return 0;
}

/* Of at most AT_ONCE. */
static int store_some(const struct cachefile *cache, uint64_t offset, const uint64_t *values,
                      size_t n)
{
    uint8_t bytes[AT_ONCE * NUMBER];
    size_t n_written;
    for (size_t i = 0; i < n; i++)
        store_le64(bytes + i * NUMBER, values[i]);
    return io_write_at(cache->fd, bytes, n * NUMBER, offset, &n_written);
}

static int store(const struct cachefile *cache, uint64_t offset, uint64_t value)
{
    return store_some(cache, offset, &value, 1);
}

static int load_sums(const struct cachefile *cache, uint64_t piece, size_t n, uint64_t *ret)
{
    return load(cache, cache->sums + piece * NUMBER, n, ret);
}

/* Returns the first of n numbers from i on that may be on the disk: what is in a hole is 0, and an
 * object can be larger than any disk. */
static uint64_t skip_hole(const struct cachefile *cache, uint64_t numbers, uint64_t i, uint64_t n)
{
    const off_t found =
        i < n ? lseek(cache->fd, (off_t)(numbers + i * NUMBER), SEEK_DATA) : (off_t)-1;
    if (found < 0)
        return i < n && errno != ENXIO ? i : n;
    const uint64_t at = ((uint64_t)found - numbers) / NUMBER;
    return at < n ? at : n;
}

/* ---- pieces ---- */

static size_t length_of(const struct cachefile *cache, uint64_t piece)
{
    const uint64_t n_left = cache->n_bytes - piece * PIECE;
    return n_left < PIECE ? (size_t)n_left : PIECE;
}

static uint64_t sum_of(const struct cachefile *cache, uint64_t piece, const void *bytes)
{
    const uint64_t sum = hash_bytes(bytes, length_of(cache, piece), cache->seed + piece);
    return sum == 0 ? 1 : sum;
}

static int read_exactly(const struct cachefile *cache, void *buf, size_t n_bytes, uint64_t offset)
{
    const ssize_t n_read = io_read_at(cache->fd, buf, n_bytes, cache->base + offset);
    return n_read < 0 ? (int)n_read : (size_t)n_read < n_bytes ? -EIO : 0;
}

int cachefile_write(const struct cachefile *cache, uint64_t offset, const void *bytes,
                    size_t n_bytes)
{
    size_t n_written;
    return io_write_at(cache->fd, bytes, n_bytes, cache->base + offset, &n_written);
}

/* Reads a part of a piece. */
static int read_part(const struct cachefile *cache, uint64_t piece, uint64_t sum, size_t from,
                     size_t n_bytes, void *out)
{
    uint8_t bytes[PIECE];
    const int code = read_exactly(cache, bytes, length_of(cache, piece), piece * PIECE);
    if (code < 0)
        return code;
    if (sum_of(cache, piece, bytes) != sum)
        return 0;
    memcpy(out, bytes + from, n_bytes);
    return 1;
}

/* Reads whole pieces, in one go. */
static int read_whole(const struct cachefile *cache, uint64_t piece, const uint64_t *sums, size_t n,
                      uint8_t *out)
{
    const size_t n_bytes = (n - 1) * PIECE + length_of(cache, piece + n - 1);
    const int code = read_exactly(cache, out, n_bytes, piece * PIECE);
    for (size_t i = 0; code == 0 && i < n; i++) {
        if (sum_of(cache, piece + i, out + i * PIECE) != sums[i])
            return 0;
    }
    return code < 0 ? code : 1;
}

/* Reads what lies in n pieces, of which the first and the last may be needed in part. */
static int read_some(const struct cachefile *cache, uint64_t offset, uint8_t *out, size_t n_bytes)
{
    uint64_t sums[AT_ONCE];
    const uint64_t first = offset / PIECE, end = offset + n_bytes;
    const size_t n = (size_t)((end - 1) / PIECE - first + 1);
    int code = load_sums(cache, first, n, sums);
    for (size_t i = 0; code == 0 && i < n; i++) {
        if (sums[i] == 0)
            return 0;
    }
    code = code < 0 ? code : 1;
    for (size_t i = 0; code == 1 && i < n;) {
        const uint64_t begin = (first + i) * PIECE;
        const size_t from = offset > begin ? (size_t)(offset - begin) : 0;
        const size_t length = length_of(cache, first + i);
        const size_t to = end - begin < length ? (size_t)(end - begin) : length;
        size_t n_whole = from == 0 && to == length ? 1 : 0;
        while (n_whole > 0 && i + n_whole < n &&
               end >= begin + n_whole * PIECE + length_of(cache, first + i + n_whole))
            n_whole++;
        uint8_t *at = out + (begin + from - offset);
        code = n_whole > 0 ? read_whole(cache, first + i, sums + i, n_whole, at)
                           : read_part(cache, first + i, sums[i], from, to - from, at);
        i += n_whole > 0 ? n_whole : 1;
    }
    return code;
}

int cachefile_read(const struct cachefile *cache, uint64_t offset, void *buf, size_t n_bytes)
{
    enum { MOST = (AT_ONCE - 1) * PIECE };
    uint8_t *out = buf;
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

/* ---- what is present ---- */

int cachefile_missing(const struct cachefile *cache, uint64_t *from, uint64_t *end)
{
    uint64_t sums[AT_ONCE], found = UINT64_MAX, piece = *from / PIECE;
    const uint64_t behind = *end / PIECE + (*end % PIECE != 0);
    for (bool is_over = false; piece < behind && !is_over;) {
        const size_t n = behind - piece < AT_ONCE ? (size_t)(behind - piece) : AT_ONCE;
        const int code = load_sums(cache, piece, n, sums);
        if (code < 0)
            return code;
        for (size_t i = 0; i < n && !is_over; i++) {
            if (sums[i] == 0 && found == UINT64_MAX)
                found = piece;
            is_over = sums[i] != 0 && found != UINT64_MAX;
            piece += !is_over;
        }
    }
    if (found == UINT64_MAX)
        return 0;
    *from = found * PIECE;
    *end = piece * PIECE < cache->n_bytes ? piece * PIECE : cache->n_bytes;
    return 1;
}

uint64_t cachefile_present(const struct cachefile *cache, uint64_t from, uint64_t end)
{
    uint64_t sums[AT_ONCE], n_bytes = 0;
    const uint64_t behind = end / PIECE + (end % PIECE != 0);
    uint64_t piece = skip_hole(cache, cache->sums, from / PIECE, behind);
    while (piece < behind) {
        const size_t n = behind - piece < AT_ONCE ? (size_t)(behind - piece) : AT_ONCE;
        if (load_sums(cache, piece, n, sums) < 0)
            break;
        for (size_t i = 0; i < n; i++)
            n_bytes += sums[i] != 0 ? length_of(cache, piece + i) : 0;
        piece = skip_hole(cache, cache->sums, piece + n, behind);
    }
    return n_bytes;
}

uint64_t cachefile_count(const struct cachefile *cache)
{
    return cachefile_present(cache, 0, cache->n_bytes);
}

int cachefile_mark(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes,
                   const uint8_t *tail, size_t n_tail)
{
    const uint64_t end = offset + n_bytes, first = offset / PIECE + (offset % PIECE != 0);
    const uint64_t behind = end == cache->n_bytes ? count_pieces(cache) : end / PIECE;
    uint64_t sums[AT_ONCE];
    for (uint64_t piece = first; piece < behind; piece++) {
        const uint64_t begin = piece * PIECE;
        const size_t i = (size_t)((piece - first) % AT_ONCE);
        uint8_t own[PIECE];
        const uint8_t *bytes = n_tail >= end - begin ? tail + (n_tail - (end - begin)) : own;
        int code = bytes == own ? read_exactly(cache, own, length_of(cache, piece), begin) : 0;
        if (code < 0)
            return code;
        sums[i] = sum_of(cache, piece, bytes);
        if (i + 1 == AT_ONCE || piece + 1 == behind)
            code = store_some(cache, cache->sums + (piece - i) * NUMBER, sums, i + 1);
        if (code < 0)
            return code;
    }
    return 0;
}

/* Returns 1 when the piece was damaged, and is removed. */
static int verify_piece(const struct cachefile *cache, uint64_t piece, uint64_t sum)
{
    uint8_t bytes[PIECE];
    const int code = read_part(cache, piece, sum, 0, length_of(cache, piece), bytes);
    if (code != 0 && code != -EIO)
        return code < 0 ? code : 0;
    const int stored = store(cache, cache->sums + piece * NUMBER, 0);
    return stored < 0 ? stored : 1;
}

int64_t cachefile_verify(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes)
{
    uint64_t sums[AT_ONCE];
    const uint64_t behind = offset / PIECE + (offset % PIECE + n_bytes + PIECE - 1) / PIECE;
    uint64_t piece = skip_hole(cache, cache->sums, offset / PIECE, behind);
    int64_t n_damaged = 0;
    while (piece < behind) {
        const size_t n = behind - piece < AT_ONCE ? (size_t)(behind - piece) : AT_ONCE;
        int code = load_sums(cache, piece, n, sums);
        for (size_t i = 0; code >= 0 && i < n; i++) {
            code = sums[i] == 0 ? 0 : verify_piece(cache, piece + i, sums[i]);
            n_damaged += code > 0;
        }
        if (code < 0)
            return code;
        piece = skip_hole(cache, cache->sums, piece + n, behind);
    }
    return n_damaged;
}

/* ---- use ---- */

void cachefile_use(const struct cachefile *cache, uint64_t offset, uint64_t n_bytes, uint64_t now)
{
    for (uint64_t block = offset / CACHEFILE_BLOCK; block * CACHEFILE_BLOCK < offset + n_bytes;
         block++)
        (void)store(cache, cache->times + block * NUMBER, now); /* of interest only, not of use */
}

ssize_t cachefile_times(const struct cachefile *cache, uint64_t *block, size_t n_room,
                        uint64_t *ret)
{
    const uint64_t n_blocks = count_blocks(cache);
    *block = skip_hole(cache, cache->times, *block, n_blocks);
    size_t n = n_room < AT_ONCE ? n_room : AT_ONCE;
    n = n_blocks - *block < n ? (size_t)(n_blocks - *block) : n;
    const int code = n == 0 ? 0 : load(cache, cache->times + *block * NUMBER, n, ret);
    return code < 0 ? code : (ssize_t)n;
}

int cachefile_remove(const struct cachefile *cache, uint64_t block)
{
    static const uint8_t zeros[PIECES * NUMBER];
    const uint64_t n_left = count_pieces(cache) - block * PIECES;
    const size_t n = n_left < PIECES ? (size_t)n_left : PIECES;
    const uint64_t begin = block * CACHEFILE_BLOCK;
    size_t n_written;
    int code =
        io_write_at(cache->fd, zeros, n * NUMBER, cache->sums + block * sizeof(zeros), &n_written);
    if (code == 0)
        code = store(cache, cache->times + block * NUMBER, 0);
    /* The last block may share its last 4096 bytes with nothing: sums begin behind them. */
    const uint64_t n_bytes =
        cache->n_bytes - begin < CACHEFILE_BLOCK ? cache->n_bytes - begin : CACHEFILE_BLOCK;
    return code < 0 ? code : punch(cache, cache->base + begin, round_up(n_bytes));
}
