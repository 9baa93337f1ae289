/* SPDX-License-Identifier: MIT */
/*
 * The table of element types, and single elements as numbers.
 */
#include <weightfs/tensor.h>

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "tensor/cast.h"

struct dtype {
    const char *name;
    const char *descr;
    uint16_t n_elems, n_bytes; /* of a block */
    uint8_t kind;
};

static const struct dtype dtypes[WFS_N_DTYPES] = {
#define X(id, name_, n_elems_, n_bytes_, kind_, descr_)                                            \
    [WFS_##id] = {name_, descr_, n_elems_, n_bytes_, WFS_KIND_##kind_},
    WFS_DTYPES(X)
#undef X
};

const char *wfs_dtype_name(enum wfs_dtype dtype)
{
    return dtypes[dtype].name;
}

unsigned wfs_dtype_bits(enum wfs_dtype dtype)
{
    const unsigned n_bits = 8u * dtypes[dtype].n_bytes / dtypes[dtype].n_elems;
    return wfs_dtype_has_blocks(dtype) && n_bits > 7 ? 7 : n_bits;
}

bool wfs_dtype_has_blocks(enum wfs_dtype dtype)
{
    return dtype > WFS_OPAQUE;
}

struct wfs_block wfs_dtype_block(enum wfs_dtype dtype)
{
    return (struct wfs_block){dtypes[dtype].n_elems, dtypes[dtype].n_bytes};
}

enum wfs_kind wfs_dtype_kind(enum wfs_dtype dtype)
{
    return (enum wfs_kind)dtypes[dtype].kind;
}

const char *wfs_dtype_descr(enum wfs_dtype dtype)
{
    return dtypes[dtype].descr;
}

bool wfs_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret)
{
    for (size_t i = 0; i < WFS_N_DTYPES; i++) {
        if (strlen(dtypes[i].name) == n_bytes && memcmp(dtypes[i].name, name, n_bytes) == 0) {
            *ret = (enum wfs_dtype)i;
            return true;
        }
    }
    return false;
}

bool wfs_dtype_spelled(const char *name, size_t n_bytes, enum wfs_dtype *ret)
{
    static const struct {
        const char *name;
        enum wfs_dtype dtype;
    } others[] = {
        {"float16", WFS_F16},         {"half", WFS_F16},
        {"bfloat16", WFS_BF16},       {"float32", WFS_F32},
        {"float", WFS_F32},           {"float64", WFS_F64},
        {"double", WFS_F64},          {"float8_e4m3fn", WFS_F8_E4M3},
        {"float8_e5m2", WFS_F8_E5M2}, {"int8", WFS_I8},
        {"int16", WFS_I16},           {"int32", WFS_I32},
        {"int64", WFS_I64},           {"uint8", WFS_U8},
        {"uint16", WFS_U16},          {"uint32", WFS_U32},
        {"uint64", WFS_U64},          {"float8_e8m0fnu", WFS_F8_E8M0},
    };
    const size_t n_others = sizeof(others) / sizeof(others[0]);
    for (size_t i = 0; i < WFS_N_DTYPES + n_others; i++) {
        const bool is_own = i < WFS_N_DTYPES;
        const char *known = is_own ? dtypes[i].name : others[i - WFS_N_DTYPES].name;
        if (strlen(known) == n_bytes && strncasecmp(known, name, n_bytes) == 0) {
            *ret = is_own ? (enum wfs_dtype)i : others[i - WFS_N_DTYPES].dtype;
            return true;
        }
    }
    return false;
}

/* A float of less than a byte: a sign, exponent, mantissa; the largest exponent is that of numbers.
 */
struct small_float {
    uint8_t n_exponent, n_mantissa;
    uint8_t bias;
};

static double decode_small(uint32_t code, struct small_float f)
{
    const uint32_t mantissa = code & ((1u << f.n_mantissa) - 1);
    const uint32_t exponent = code >> f.n_mantissa & ((1u << f.n_exponent) - 1);
    const double sign = code >> (f.n_mantissa + f.n_exponent) & 1 ? -1.0 : 1.0;
    const uint32_t significand =
        exponent == 0 ? mantissa << 1 : (mantissa | 1u << f.n_mantissa) << exponent;
    return sign * significand / (1u << (f.n_mantissa + f.bias));
}

/* Bits [i * width, (i + 1) * width) of a stream whose first bits are the low ones of its first
 * byte. */
static uint32_t packed(const uint8_t *bytes, size_t i, unsigned width)
{
    const size_t first = i * width;
    uint32_t pair = bytes[first / 8];
    if (first % 8 + width > 8)
        pair |= (uint32_t)bytes[first / 8 + 1] << 8;
    return pair >> first % 8 & ((1u << width) - 1);
}

/* One that has no cast. */
static double decode_one(enum wfs_dtype dtype, const uint8_t *bytes, size_t i)
{
    const uint8_t *at = bytes + i * (wfs_dtype_bits(dtype) / 8);
    switch (dtype) {
    case WFS_F4:
        return decode_small(packed(bytes, i, 4), (struct small_float){2, 1, 1});
    case WFS_F6_E2M3:
        return decode_small(packed(bytes, i, 6), (struct small_float){2, 3, 1});
    case WFS_F6_E3M2:
        return decode_small(packed(bytes, i, 6), (struct small_float){3, 2, 3});
    case WFS_QI8:
        return (int8_t)*at;
    case WFS_QI32:
        return (int32_t)load_le32(at);
    case WFS_BOOL32:
        return load_le32(at);
    default: /* BOOL, QU8 */
        return *at;
    }
}

int wfs_dtype_decode(enum wfs_dtype dtype, const void *bytes, size_t n_elems, double *ret)
{
    if (dtypes[dtype].kind == WFS_KIND_COMPLEX || dtypes[dtype].kind == WFS_KIND_BITS)
        return -EOPNOTSUPP;
    if (dtypes[dtype].kind != WFS_KIND_BOOL && cast_is_possible(dtype, WFS_F64)) {
        cast_elems(dtype, bytes, WFS_F64, ret, n_elems);
        return 0;
    }
    for (size_t i = 0; i < n_elems; i++)
        ret[i] = decode_one(dtype, bytes, i);
    return 0;
}

enum wfs_dtype wfs_dtype_part(enum wfs_dtype dtype)
{
    static const uint8_t parts[] = {
        [WFS_C32] = WFS_F16, [WFS_BC32] = WFS_BF16, [WFS_C64] = WFS_F32, [WFS_C128] = WFS_F64};
    return (enum wfs_dtype)parts[dtype];
}
