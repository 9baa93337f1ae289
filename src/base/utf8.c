/* SPDX-License-Identifier: MIT */
/*
 * One decoder, with bounds for the second byte that leave out overlong forms and surrogates.
 */
#include "base/utf8.h"

#include "base/bytes.h"

/* Returns the bytes of the character at the front, 0 when it is not one. */
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

static uint32_t number_of(const uint8_t *b, size_t n)
{
    uint32_t c = n == 1 ? b[0] : b[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (b[i] & 0x3f);
    return c;
}

size_t utf8_decode(const void *bytes, size_t n_bytes, uint32_t *ret)
{
    const uint8_t *b = bytes;
    const size_t n = b[0] < 0x80 ? 1 : character(b, n_bytes);
    if (n > 0)
        *ret = number_of(b, n);
    return n;
}

size_t utf8_decode_surrogate(const void *bytes, size_t n_bytes, uint32_t *ret)
{
    const uint8_t *b = bytes;
    if (n_bytes < 3 || b[0] != 0xed || b[1] < 0xa0 || b[1] > 0xbf || (b[2] & 0xc0) != 0x80)
        return utf8_decode(bytes, n_bytes, ret);
    *ret = number_of(b, 3);
    return 3;
}

size_t utf8_put(uint32_t c, char ret[4])
{
    static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        ret[i] = (char)(0x80 | (c & 0x3f));
    ret[0] = (char)(leads[n] | c);
    return n;
}
