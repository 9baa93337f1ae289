/* SPDX-License-Identifier: MIT */
/*
 * The writer: heads and small contents.
 */
#include "format/records/mpk_out.h"

#include <string.h>

/* A marker and the low bytes of a number, big-endian. */
static void put(struct strbuf *out, unsigned marker, uint64_t value, unsigned n_bytes)
{
    uint8_t bytes[9] = {(uint8_t)marker};
    for (unsigned i = 0; i < n_bytes; i++)
        bytes[1 + i] = (uint8_t)(value >> 8 * (n_bytes - 1 - i));
    strbuf_add(out, (const char *)bytes, 1 + n_bytes);
}

void mpkout_nil(struct strbuf *out)
{
    put(out, 0xc0, 0, 0);
}

void mpkout_bool(struct strbuf *out, bool value)
{
    put(out, value ? 0xc3 : 0xc2, 0, 0);
}

void mpkout_uint(struct strbuf *out, uint64_t value)
{
    if (value <= INT8_MAX)
        put(out, (unsigned)value, 0, 0);
    else if (value <= UINT8_MAX)
        put(out, 0xcc, value, 1);
    else if (value <= UINT16_MAX)
        put(out, 0xcd, value, 2);
    else if (value <= UINT32_MAX)
        put(out, 0xce, value, 4);
    else
        put(out, 0xcf, value, 8);
}

void mpkout_int(struct strbuf *out, int64_t value)
{
    if (value >= 0)
        mpkout_uint(out, (uint64_t)value);
    else if (value >= -32)
        put(out, (uint8_t)value, 0, 0);
    else if (value >= INT8_MIN)
        put(out, 0xd0, (uint64_t)value, 1);
    else if (value >= INT16_MIN)
        put(out, 0xd1, (uint64_t)value, 2);
    else if (value >= INT32_MIN)
        put(out, 0xd2, (uint64_t)value, 4);
    else
        put(out, 0xd3, (uint64_t)value, 8);
}

void mpkout_f32(struct strbuf *out, double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    put(out, 0xca, bits, 4);
}

void mpkout_f64(struct strbuf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put(out, 0xcb, bits, 8);
}

/* short_max: the longest length that goes into the marker itself; without such a form, below 0. */
static void put_length(struct strbuf *out, unsigned marker, int short_max, unsigned wide,
                       bool has_byte, uint32_t n)
{
    if ((int64_t)n <= short_max)
        put(out, marker | n, 0, 0);
    else if (has_byte && n <= UINT8_MAX)
        put(out, wide, n, 1);
    else if (n <= UINT16_MAX)
        put(out, wide + has_byte, n, 2);
    else
        put(out, wide + has_byte + 1, n, 4);
}

void mpkout_text(struct strbuf *out, const char *text, size_t n_bytes)
{
    if (n_bytes > UINT32_MAX)
        strbuf_fail(out);
    put_length(out, 0xa0, 31, 0xd9, true, (uint32_t)n_bytes);
    strbuf_add(out, text, n_bytes);
}

void mpkout_string(struct strbuf *out, const char *text)
{
    mpkout_text(out, text, strlen(text));
}

void mpkout_array(struct strbuf *out, uint32_t n_items)
{
    put_length(out, 0x90, 15, 0xdc, false, n_items);
}

void mpkout_map(struct strbuf *out, uint32_t n_pairs)
{
    put_length(out, 0x80, 15, 0xde, false, n_pairs);
}

void mpkout_bytes(struct strbuf *out, uint32_t n_bytes)
{
    put_length(out, 0, -1, 0xc4, true, n_bytes);
}
