/* SPDX-License-Identifier: MIT */
/*
 * The writer: a growing buffer, heads from libcbor.
 */
#include "format/burnpack/cbor_out.h"

#include <weightfs/array.h>

#include <stdlib.h>
#include <string.h>

#include <cbor.h>

#include "base/bytes.h"
#include "tensor/cast.h"

enum { HEAD_MAX = 9 }; /* bytes */

void cborout_done(struct cbor_out *out)
{
    free(out->bytes);
    *out = (struct cbor_out){0};
}

/* Room for n_bytes more, or NULL. */
static uint8_t *reserve(struct cbor_out *out, size_t n_bytes)
{
    if (out->has_failed)
        return NULL;
    out->has_failed = array_reserve(&out->bytes, 1, out->n_bytes, n_bytes, &out->n_room) < 0;
    return out->has_failed ? NULL : out->bytes + out->n_bytes;
}

void cborout_raw(struct cbor_out *out, const void *bytes, size_t n_bytes)
{
    uint8_t *to = reserve(out, n_bytes);
    if (to == NULL)
        return;
    if (n_bytes > 0)
        memcpy(to, bytes, n_bytes);
    out->n_bytes += n_bytes;
}

/* libcbor's functions for heads have one type: value, where to, room. */
static void put_head(struct cbor_out *out, size_t (*encode)(uint64_t, unsigned char *, size_t),
                     uint64_t n)
{
    uint8_t *to = reserve(out, HEAD_MAX);
    if (to != NULL)
        out->n_bytes += encode(n, to, HEAD_MAX);
}

void cborout_map(struct cbor_out *out, uint64_t n_pairs)
{
    put_head(out, cbor_encode_map_start, n_pairs);
}

void cborout_array(struct cbor_out *out, uint64_t n_items)
{
    put_head(out, cbor_encode_array_start, n_items);
}

void cborout_text(struct cbor_out *out, const char *text, size_t n_bytes)
{
    put_head(out, cbor_encode_string_start, n_bytes);
    cborout_raw(out, text, n_bytes);
}

void cborout_string(struct cbor_out *out, const char *text)
{
    cborout_text(out, text, strlen(text));
}

void cborout_uint(struct cbor_out *out, uint64_t value)
{
    put_head(out, cbor_encode_uint, value);
}

void cborout_int(struct cbor_out *out, int64_t value)
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
void cborout_real(struct cbor_out *out, double value)
{
    uint8_t half[2], big[3];
    double back = 0;
    cast_elems(WFS_F64, &value, WFS_F16, half, 1);
    const bool is_half =
        wfs_dtype_decode(WFS_F16, half, 1, &back) == 0 && is_same_bits(back, value);
    if (is_half) {
        big[0] = 0xf9;
        big[1] = half[1];
        big[2] = half[0];
        cborout_raw(out, big, sizeof(big));
        return;
    }
    uint8_t *to = reserve(out, HEAD_MAX);
    if (to == NULL)
        return;
    if (is_same_bits((double)(float)value, value))
        out->n_bytes += cbor_encode_single((float)value, to, HEAD_MAX);
    else
        out->n_bytes += cbor_encode_double(value, to, HEAD_MAX);
}

void cborout_bool(struct cbor_out *out, bool value)
{
    uint8_t *to = reserve(out, HEAD_MAX);
    if (to != NULL)
        out->n_bytes += cbor_encode_bool(value, to, HEAD_MAX);
}
