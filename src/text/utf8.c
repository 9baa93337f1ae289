/* SPDX-License-Identifier: MIT */
/*
 * Strict UTF-8.
 */
#include "base/bytes.h"

/* Bytes of the character at the front, 0 when it is none. */
static size_t character(const uint8_t *b, size_t n_left)
{
    size_t n;
    uint8_t low = 0x80, high = 0xbf; /* bounds of the second byte */
    if (b[0] >= 0xc2 && b[0] <= 0xdf) {
        n = 2;
    } else if (b[0] >= 0xe0 && b[0] <= 0xef) {
        n = 3;
        low = b[0] == 0xe0 ? 0xa0 : low;   /* overlong */
        high = b[0] == 0xed ? 0x9f : high; /* surrogates */
    } else if (b[0] >= 0xf0 && b[0] <= 0xf4) {
        n = 4;
        low = b[0] == 0xf0 ? 0x90 : low;
        high = b[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (n > n_left || b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

size_t utf8_valid(const void *bytes, size_t n_bytes)
{
    const uint8_t *b = bytes;
    size_t i = 0;
    while (i < n_bytes) {
        if (n_bytes - i >= 8 && (load_le64(b + i) & 0x8080808080808080u) == 0) {
            i += 8;
            continue;
        }
        const size_t n = b[i] < 0x80 ? 1 : character(b + i, n_bytes - i);
        if (n == 0)
            return i;
        i += n;
    }
    return n_bytes;
}
