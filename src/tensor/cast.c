/* SPDX-License-Identifier: MIT */
/*
 * Casts in two steps: elements are decoded into one of three working types (F32, F64, 64-bit
 * integers) and encoded from there. The step that would change nothing is left out, so the common
 * casts (F32 to BF16 or F16 and back) are one loop, written without branches so that it becomes
 * vector code.
 */
#include "tensor/cast.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define always_inline static inline __attribute__((always_inline))

enum { N_PIECE = 1024 }; /* elements in working form at a time */

/*
 * A float narrower than F32: sign, exponent, mantissa, packed in n_bytes. Codes are without the
 * sign. Above `largest` comes `overflow`; where has_inf the top exponent means infinity and NaN.
 * A FNUZ type has no negative zero and its one NaN is the code of that.
 */
struct small {
    unsigned n_bytes, n_mantissa, bias;
    uint32_t largest, overflow, nan;
    bool has_inf, is_fnuz;
};

#define F16 ((struct small){2, 10, 15, 0x7bff, 0x7c00, 0x7e00, true, false})
#define E5M2 ((struct small){1, 2, 15, 0x7b, 0x7c, 0x7f, true, false})
#define E4M3 ((struct small){1, 3, 7, 0x7e, 0x7e, 0x7f, false, false})
#define E5M2FNUZ ((struct small){1, 2, 16, 0x7f, 0x80, 0x80, false, true})
#define E4M3FNUZ ((struct small){1, 3, 8, 0x7f, 0x80, 0x80, false, true})

always_inline uint64_t load(const void *elems, size_t i, unsigned n_bytes)
{
    const char *at = (const char *)elems + i * n_bytes;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (n_bytes) {
    case 1:
        return (uint8_t)*at;
    case 2:
        memcpy(&u16, at, 2);
        return le16toh(u16);
    case 4:
        memcpy(&u32, at, 4);
        return le32toh(u32);
    default:
        memcpy(&u64, at, 8);
        return le64toh(u64);
    }
}

always_inline void store(void *elems, size_t i, unsigned n_bytes, uint64_t value)
{
    char *at = (char *)elems + i * n_bytes;
    const uint16_t u16 = htole16((uint16_t)value);
    const uint32_t u32 = htole32((uint32_t)value);
    const uint64_t u64 = htole64(value);
    switch (n_bytes) {
    case 1:
        *at = (char)value;
        break;
    case 2:
        memcpy(at, &u16, 2);
        break;
    case 4:
        memcpy(at, &u32, 4);
        break;
    default:
        memcpy(at, &u64, 8);
    }
}

always_inline float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

always_inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

always_inline double f64_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

always_inline double load_f64(const void *elems, size_t i)
{
    return f64_of(load(elems, i, 8));
}

always_inline void store_f64(void *elems, size_t i, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    store(elems, i, 8, bits);
}

/* The bits of the code, put where F32 has its own, are the value times a power of two: also where
 * both are subnormal. */
always_inline float f32_of_small(uint32_t code, struct small f)
{
    const unsigned n_bits = f.n_bytes * 8, shift = 23 - f.n_mantissa;
    const uint32_t sign = code >> (n_bits - 1) << 31;
    const uint32_t magnitude = code & ((1u << (n_bits - 1)) - 1);
    const float scale = f32_of((127 - f.bias + 127) << 23);
    const uint32_t finite = bits_of(f32_of(magnitude << shift) * scale);
    const uint32_t special = magnitude << shift | 0x7f800000;
    const bool is_nan = f.is_fnuz ? code == f.nan : !f.has_inf && magnitude == f.nan;
    const uint32_t bits = f.has_inf && magnitude > f.largest ? special : finite;
    return f32_of((is_nan ? 0x7fc00000 : bits) | sign);
}

/*
 * To nearest even. A normal result is rounded by adding just less than half of its last bit (half
 * where it is odd); a subnormal one by adding the power of two whose last bit is its own.
 */
always_inline uint32_t small_of_f32(uint32_t bits, struct small f)
{
    const unsigned shift = 23 - f.n_mantissa;
    const uint32_t sign = bits >> 31 << (f.n_bytes * 8 - 1);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t odd = magnitude >> shift & 1;
    const uint32_t normal =
        ((magnitude + ((1u << (shift - 1)) - 1) + odd) >> shift) - ((127 - f.bias) << f.n_mantissa);
    const uint32_t power = (127 - f.bias + shift + 1) << 23;
    const uint32_t subnormal = bits_of(f32_of(magnitude) + f32_of(power)) - power;
    const uint32_t finite = magnitude < (127 - f.bias + 1) << 23 ? subnormal : normal;
    const uint32_t code = finite > f.largest ? f.overflow : finite;
    const uint32_t result = magnitude > 0x7f800000 ? f.nan : code;
    return f.is_fnuz && (result == 0 || result == f.nan) ? result : result | sign;
}

always_inline uint32_t bf16_of_f32(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded;
}

/* A power of two; ties go up, the sign is dropped. */
static uint32_t e8m0_of_f32(uint32_t bits)
{
    const uint32_t exponent = bits >> 23 & 0xff, mantissa = bits & 0x7fffff;
    if (exponent == 0xff)
        return 0xff;
    return exponent == 0 ? mantissa > 0x400000 : exponent + (mantissa >= 0x400000);
}

static float f32_of_e8m0(uint32_t code)
{
    return code == 0xff ? NAN : f32_of(code == 0 ? 0x400000 : code << 23);
}

always_inline int64_t sign_extend(uint64_t value, unsigned n_bytes)
{
    const unsigned n_above = 64 - n_bytes * 8;
    return (int64_t)(value << n_above) >> n_above;
}

static bool is_signed(enum wfs_dtype dtype)
{
    return wfs_dtype_kind(dtype) == WFS_KIND_SIGNED;
}

static bool is_float(enum wfs_dtype dtype)
{
    return wfs_dtype_kind(dtype) == WFS_KIND_FLOAT;
}

static bool is_bool(enum wfs_dtype dtype)
{
    return wfs_dtype_kind(dtype) == WFS_KIND_BOOL;
}

static unsigned bytes_of(enum wfs_dtype dtype)
{
    return wfs_dtype_bits(dtype) / 8;
}

/* ---- decoding ---- */

always_inline void ints_of(const void *in, unsigned n_bytes, bool has_sign, uint64_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t value = load(in, i, n_bytes);
        out[i] = has_sign ? (uint64_t)sign_extend(value, n_bytes) : value;
    }
}

/* Integers and booleans as 64 bits, sign-extended. */
static void decode_ints(enum wfs_dtype from, const void *in, uint64_t *out, size_t n)
{
    switch (bytes_of(from)) {
    case 1:
        ints_of(in, 1, is_signed(from), out, n);
        break;
    case 2:
        ints_of(in, 2, is_signed(from), out, n);
        break;
    case 4:
        ints_of(in, 4, is_signed(from), out, n);
        break;
    default:
        ints_of(in, 8, false, out, n);
    }
    for (size_t i = 0; i < n && is_bool(from); i++)
        out[i] = out[i] != 0;
}

always_inline void smalls_of(const void *in, struct small f, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store(out, i, 4, bits_of(f32_of_small((uint32_t)load(in, i, f.n_bytes), f)));
}

static void f32_of_ints(enum wfs_dtype from, const void *in, void *out, size_t n)
{
    uint64_t ints[N_PIECE];
    decode_ints(from, in, ints, n);
    for (size_t i = 0; i < n; i++) {
        const float value = is_signed(from) ? (float)(int64_t)ints[i] : (float)ints[i];
        store(out, i, 4, bits_of(value));
    }
}

/* F32 in file form, so that it may be the result itself. */
CAST_CLONES static void decode_f32(enum wfs_dtype from, const void *in, void *out, size_t n)
{
    switch (from) {
    case WFS_F16:
        smalls_of(in, F16, out, n);
        break;
    case WFS_BF16:
        for (size_t i = 0; i < n; i++)
            store(out, i, 4, load(in, i, 2) << 16);
        break;
    case WFS_F8_E5M2:
        smalls_of(in, E5M2, out, n);
        break;
    case WFS_F8_E4M3:
        smalls_of(in, E4M3, out, n);
        break;
    case WFS_F8_E5M2FNUZ:
        smalls_of(in, E5M2FNUZ, out, n);
        break;
    case WFS_F8_E4M3FNUZ:
        smalls_of(in, E4M3FNUZ, out, n);
        break;
    case WFS_F8_E8M0:
        for (size_t i = 0; i < n; i++)
            store(out, i, 4, bits_of(f32_of_e8m0((uint32_t)load(in, i, 1))));
        break;
    case WFS_F64:
        for (size_t i = 0; i < n; i++)
            store(out, i, 4, bits_of((float)load_f64(in, i)));
        break;
    case WFS_F32:
    case WFS_FLEX32:
        memcpy(out, in, n * 4);
        break;
    default:
        f32_of_ints(from, in, out, n);
    }
}

/* F64 in file form, too. */
CAST_CLONES static void decode_f64(enum wfs_dtype from, const void *in, void *out, size_t n)
{
    uint64_t ints[N_PIECE];
    if (from == WFS_F64) {
        memcpy(out, in, n * 8);
    } else if (is_float(from)) {
        decode_f32(from, in, ints, n);
        for (size_t i = 0; i < n; i++)
            store_f64(out, i, (double)f32_of((uint32_t)load(ints, i, 4)));
    } else {
        decode_ints(from, in, ints, n);
        for (size_t i = 0; i < n; i++)
            store_f64(out, i, is_signed(from) ? (double)(int64_t)ints[i] : (double)ints[i]);
    }
}

/* ---- encoding ---- */

always_inline void encode_small(const void *in, struct small f, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store(out, i, f.n_bytes, small_of_f32((uint32_t)load(in, i, 4), f));
}

CAST_CLONES static void encode_f32(const void *in, enum wfs_dtype to, void *out, size_t n)
{
    switch (to) {
    case WFS_F16:
        encode_small(in, F16, out, n);
        break;
    case WFS_BF16:
        for (size_t i = 0; i < n; i++)
            store(out, i, 2, bf16_of_f32((uint32_t)load(in, i, 4)));
        break;
    case WFS_F8_E5M2:
        encode_small(in, E5M2, out, n);
        break;
    case WFS_F8_E4M3:
        encode_small(in, E4M3, out, n);
        break;
    case WFS_F8_E5M2FNUZ:
        encode_small(in, E5M2FNUZ, out, n);
        break;
    case WFS_F8_E4M3FNUZ:
        encode_small(in, E4M3FNUZ, out, n);
        break;
    case WFS_F8_E8M0:
        for (size_t i = 0; i < n; i++)
            store(out, i, 1, e8m0_of_f32((uint32_t)load(in, i, 4)));
        break;
    default:
        memcpy(out, in, n * 4);
    }
}

/* Truncated to the nearest value that n_bits hold. */
static uint64_t int_of_f64(double value, unsigned n_bits, bool has_sign)
{
    const double end = ldexp(1.0, (int)n_bits - has_sign);
    if (isnan(value))
        return 0;
    if (value >= end)
        return UINT64_MAX >> (64 - n_bits + has_sign);
    if (has_sign)
        return value <= -end ? (uint64_t)1 << (n_bits - 1) : (uint64_t)(int64_t)value;
    return value <= 0 ? 0 : (uint64_t)value;
}

static void cast_to_int(enum wfs_dtype from, const void *in, enum wfs_dtype to, void *out, size_t n)
{
    uint64_t ints[N_PIECE], floats[N_PIECE];
    const unsigned n_bytes = bytes_of(to);
    if (is_float(from)) {
        decode_f64(from, in, floats, n);
        for (size_t i = 0; i < n; i++)
            ints[i] = is_bool(to) ? load_f64(floats, i) != 0
                                  : int_of_f64(load_f64(floats, i), n_bytes * 8, is_signed(to));
    } else {
        decode_ints(from, in, ints, n);
        for (size_t i = 0; i < n && is_bool(to); i++)
            ints[i] = ints[i] != 0;
    }
    for (size_t i = 0; i < n; i++)
        store(out, i, n_bytes, ints[i]);
}

static void cast_piece(enum wfs_dtype from, const void *in, enum wfs_dtype to, void *out, size_t n)
{
    uint32_t floats[N_PIECE];
    if (!is_float(to)) {
        cast_to_int(from, in, to, out, n);
    } else if (to == WFS_F64) {
        decode_f64(from, in, out, n);
    } else if (from == WFS_F32 || from == WFS_FLEX32) {
        encode_f32(in, to, out, n);
    } else if (to == WFS_F32 || to == WFS_FLEX32) {
        decode_f32(from, in, out, n);
    } else {
        decode_f32(from, in, floats, n);
        encode_f32(floats, to, out, n);
    }
}

bool cast_is_possible(enum wfs_dtype from, enum wfs_dtype to)
{
    const enum wfs_dtype both[] = {from, to};
    for (size_t i = 0; i < 2; i++) {
        const enum wfs_kind kind = wfs_dtype_kind(both[i]);
        if (kind == WFS_KIND_COMPLEX || kind == WFS_KIND_BITS || wfs_dtype_bits(both[i]) % 8 != 0 ||
            both[i] == WFS_QI8 || both[i] == WFS_QU8 || both[i] == WFS_QI32)
            return false;
    }
    return true;
}

void cast_elems(enum wfs_dtype from, const void *in, enum wfs_dtype to, void *out, size_t n_elems)
{
    const unsigned n_in = bytes_of(from), n_out = bytes_of(to);
    for (size_t i = 0; i < n_elems; i += N_PIECE) {
        const size_t n = n_elems - i < N_PIECE ? n_elems - i : N_PIECE;
        cast_piece(from, (const char *)in + i * n_in, to, (char *)out + i * n_out, n);
    }
}

/*
 * A double as a float that rounds to anything narrower as the double does: cut off, with the last
 * bit set where something was lost (round to odd).
 */
CAST_CLONES static void odd_of_f64(const void *in, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double value = load_f64(in, i);
        const float nearest = (float)value;
        const uint32_t bits = bits_of(nearest);
        const uint32_t is_farther = fabs((double)nearest) > fabs(value);
        const uint32_t is_nearer = fabs((double)nearest) < fabs(value);
        store(out, i, 4, (bits - is_farther) | is_farther | is_nearer);
    }
}

void cast_once(const void *in, enum wfs_dtype to, void *out, size_t n_elems)
{
    uint32_t floats[N_PIECE];
    if (!is_float(to) || to == WFS_F64 || to == WFS_F32 || to == WFS_FLEX32) {
        cast_elems(WFS_F64, in, to, out, n_elems);
        return;
    }
    for (size_t i = 0; i < n_elems; i += N_PIECE) {
        const size_t n = n_elems - i < N_PIECE ? n_elems - i : N_PIECE;
        odd_of_f64((const char *)in + i * 8, floats, n);
        encode_f32(floats, to, (char *)out + i * bytes_of(to), n);
    }
}

/* Half of the last step away from the largest value is where rounding leaves the range. */
static bool is_overflow(double before, double after, enum wfs_dtype to)
{
    if (is_bool(to) || !isfinite(before))
        return false;
    if (!isfinite(after))
        return true;
    if (!is_float(to))
        return fabs(after - before) >= 1;
    return to == WFS_F8_E4M3 && fabs(before) > 464;
}

void cast_count(enum wfs_dtype from, const void *in, enum wfs_dtype to, size_t n_elems,
                uint64_t *n_overflow, uint64_t *n_nan)
{
    uint64_t before[N_PIECE], after[N_PIECE], result[N_PIECE];
    for (size_t i = 0; i < n_elems; i += N_PIECE) {
        const size_t n = n_elems - i < N_PIECE ? n_elems - i : N_PIECE;
        const char *at = (const char *)in + i * bytes_of(from);
        cast_piece(from, at, to, result, n);
        decode_f64(from, at, before, n);
        decode_f64(to, result, after, n);
        for (size_t j = 0; j < n; j++) {
            *n_overflow += is_overflow(load_f64(before, j), load_f64(after, j), to);
            *n_nan += isnan(load_f64(before, j)) != 0;
        }
    }
}
