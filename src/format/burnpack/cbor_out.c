/* SPDX-License-Identifier: MIT */
/*
 * The writer: heads from libcbor.
 */
#include "format/burnpack/cbor_out.h"

#include <string.h>

#include <cbor.h>

#include "base/bytes.h"
#include "tensor/cast.h"

enum { HEAD_MAX = 9 }; /* bytes */

/* libcbor's functions for heads have one type: value, where to, room. */
static void put_head(struct strbuf *out, size_t (*encode)(uint64_t, unsigned char *, size_t),
                     uint64_t n)
{
    uint8_t head[HEAD_MAX];
    strbuf_add(out, (const char *)head, encode(n, head, sizeof(head)));
}

void cborout_map(struct strbuf *out, uint64_t n_pairs)
{
    put_head(out, cbor_encode_map_start, n_pairs);
}

void cborout_array(struct strbuf *out, uint64_t n_items)
{
    put_head(out, cbor_encode_array_start, n_items);
}

void cborout_text(struct strbuf *out, const char *text, size_t n_bytes)
{
    put_head(out, cbor_encode_string_start, n_bytes);
    strbuf_add(out, text, n_bytes);
}

void cborout_string(struct strbuf *out, const char *text)
{
    cborout_text(out, text, strlen(text));
}

void cborout_uint(struct strbuf *out, uint64_t value)
{
    put_head(out, cbor_encode_uint, value);
}

void cborout_int(struct strbuf *out, int64_t value)
{
    if (value >= 0)
        put_head(out, cbor_encode_uint, (uint64_t)value);
    else
        put_head(out, cbor_encode_negint, (uint64_t)(-1 - value));
}

static bool is_same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

/* The shortest of the three widths that keeps every bit. */
void cborout_real(struct strbuf *out, double value)
{
    uint8_t half[2], head[HEAD_MAX];
    size_t n;
    double back = 0;
    cast_elems(WFS_F64, &value, WFS_F16, half, 1);
    const bool is_half =
        wfs_dtype_decode(WFS_F16, half, 1, &back) == 0 && is_same_bits(back, value);
    if (is_half) {
        head[0] = 0xf9;
        head[1] = half[1];
        head[2] = half[0];
        n = 3;
    } else if (is_same_bits((double)(float)value, value))
        n = cbor_encode_single((float)value, head, sizeof(head));
    else
        n = cbor_encode_double(value, head, sizeof(head));
    strbuf_add(out, (const char *)head, n);
}

void cborout_bool(struct strbuf *out, bool value)
{
    uint8_t head[HEAD_MAX];
    strbuf_add(out, (const char *)head, cbor_encode_bool(value, head, sizeof(head)));
}
