/* SPDX-License-Identifier: MIT */
/*
 * Numbers out of bytes: a bounded cursor, little-endian loads and stores, checked arithmetic.
 * Whatever comes from a file goes through these.
 */
#ifndef WFS_BYTES_H
#define WFS_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* False when the true result does not fit; *ret is unspecified then. */
#define checked_add(a, b, ret) (!__builtin_add_overflow((a), (b), (ret)))
#define checked_sub(a, b, ret) (!__builtin_sub_overflow((a), (b), (ret)))
#define checked_mul(a, b, ret) (!__builtin_mul_overflow((a), (b), (ret)))

/* value rounded up to a multiple of step (not 0); false when that overflows. */
static inline bool checked_round_up(uint64_t value, uint64_t step, uint64_t *ret)
{
    const uint64_t rest = value % step;
    return checked_add(value, rest == 0 ? 0 : step - rest, ret);
}

/* Reads n decimal digits and nothing else, at least one. False also past 2^64-1. */
static inline bool digits_parse(const char *text, size_t n, uint64_t *ret)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || !checked_mul(value, (uint64_t)10, &value) ||
            !checked_add(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    }
    if (n > 0)
        *ret = value;
    return n > 0;
}

/* Returns whether a text has this end, and something before it. */
static inline bool text_ends(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

static inline uint16_t load_le16(const void *bytes)
{
    const uint8_t *b = bytes;
    return (uint16_t)(b[0] | (unsigned)b[1] << 8);
}

static inline uint32_t load_le32(const void *bytes)
{
    const uint8_t *b = bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_le64(const void *bytes)
{
    const uint8_t *b = bytes;
    return load_le32(b) | (uint64_t)load_le32(b + 4) << 32;
}

static inline void store_le16(void *bytes, uint16_t value)
{
    uint8_t *b = bytes;
    b[0] = (uint8_t)value;
    b[1] = (uint8_t)(value >> 8);
}

static inline void store_le32(void *bytes, uint32_t value)
{
    store_le16(bytes, (uint16_t)value);
    store_le16((uint8_t *)bytes + 2, (uint16_t)(value >> 16));
}

static inline void store_le64(void *bytes, uint64_t value)
{
    store_le32(bytes, (uint32_t)value);
    store_le32((uint8_t *)bytes + 4, (uint32_t)(value >> 32));
}

/* What is left of a piece of memory. */
struct cursor {
    const uint8_t *at;
    size_t n_left;
};

static inline struct cursor cursor_of(const void *bytes, size_t n_bytes)
{
    return (struct cursor){bytes, n_bytes};
}

/* Each takes from the front, or returns false and takes nothing when too little is left. */
static inline bool cursor_take(struct cursor *cursor, uint64_t n_bytes, const uint8_t **ret)
{
    if (n_bytes > cursor->n_left)
        return false;
    *ret = cursor->at;
    cursor->at += n_bytes;
    cursor->n_left -= (size_t)n_bytes;
    return true;
}

static inline bool cursor_u8(struct cursor *cursor, uint8_t *ret)
{
    const uint8_t *b;
    if (!cursor_take(cursor, 1, &b))
        return false;
    *ret = *b;
    return true;
}

static inline bool cursor_le16(struct cursor *cursor, uint16_t *ret)
{
    const uint8_t *b;
    if (!cursor_take(cursor, 2, &b))
        return false;
    *ret = load_le16(b);
    return true;
}

static inline bool cursor_le32(struct cursor *cursor, uint32_t *ret)
{
    const uint8_t *b;
    if (!cursor_take(cursor, 4, &b))
        return false;
    *ret = load_le32(b);
    return true;
}

static inline bool cursor_le64(struct cursor *cursor, uint64_t *ret)
{
    const uint8_t *b;
    if (!cursor_take(cursor, 8, &b))
        return false;
    *ret = load_le64(b);
    return true;
}

#endif
