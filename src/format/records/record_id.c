/* SPDX-License-Identifier: MIT */
/*
 * Base32 with the extended hexadecimal alphabet, most significant bit first, over the bytes of the
 * number from the lowest on; the last digit is filled up with zero bits.
 */
#include "format/records/record_id.h"

#include "base/hash.h"
#include <weightfs/percent.h>

static const char alphabet[] = "0123456789abcdefghijklmnopqrstuv";

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'v')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'V' ? c - 'A' + 10 : -1;
}

/* Up to 13 digits whose bits behind the last whole byte are zero. Lengths that end in the middle of
 * a byte with a digit too many are not what the encoding has. */
static bool parse_digits(const char *text, size_t n_bytes, uint64_t *ret)
{
    uint64_t id = 0;
    unsigned pending = 0, n_pending = 0, n_done = 0;
    if (n_bytes > RECORD_ID_N || n_bytes % 8 == 1 || n_bytes % 8 == 3 || n_bytes % 8 == 6)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0)
            return false;
        pending = pending << 5 | (unsigned)digit;
        n_pending += 5;
        if (n_pending >= 8) {
            n_pending -= 8;
            id |= (uint64_t)(pending >> n_pending & 0xff) << 8 * n_done++;
        }
    }
    *ret = id;
    return (pending & ((1U << n_pending) - 1)) == 0;
}

static bool is_uuid(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (is_dash ? text[i] != '-' : hex_digit(text[i]) < 0)
            return false;
    }
    return n_bytes == 36;
}

enum record_id_kind record_id_parse(const char *text, size_t n_bytes, uint64_t *ret)
{
    if (parse_digits(text, n_bytes, ret))
        return RECORD_ID_DIGITS;
    *ret = hash_bytes(text, n_bytes, 0);
    return is_uuid(text, n_bytes) ? RECORD_ID_UUID : RECORD_ID_OTHER;
}

void record_id_print(uint64_t id, char ret[RECORD_ID_N + 1])
{
    unsigned pending = 0, n_pending = 0;
    for (unsigned i = 0; i < RECORD_ID_N; i++) {
        if (n_pending < 5) {
            pending = pending << 8 | (unsigned)(i < RECORD_ID_N - 1 ? id & 0xff : 0);
            n_pending += 8;
            id >>= 8;
        }
        n_pending -= 5;
        ret[i] = alphabet[pending >> n_pending & 31];
    }
    ret[RECORD_ID_N] = '\0';
}
