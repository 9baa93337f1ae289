/* SPDX-License-Identifier: MIT */
/*
 * One function for each type: from a block to its elements. Each operation is one of F32, in the
 * order in which it is written. f16 scales have 11 bits, and what they are multiplied with has 12
 * together, so that only the last sum is rounded: compilers may fuse operations.
 *
 * j counts the elements of a block; the comment of a function is its layout.
 */
#include "tensor/blocks.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "tensor/cast.h"

typedef void (*decoder)(const uint8_t *b, float *y);

static uint32_t u16(const uint8_t *b)
{
    return b[0] | (uint32_t)b[1] << 8;
}

static uint32_t u32(const uint8_t *b)
{
    return u16(b) | u16(b + 2) << 16;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float half_of(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
    if ((h & 0x7c00) == 0) /* subnormal */
        return of_bits(sign) + (sign != 0 ? -1.0f : 1.0f) * ((float)(h & 0x3ff) * 0x1p-24f);
    return of_bits(sign | (rest + ((h & 0x7c00) == 0x7c00 ? 0x70000000 : 0x38000000)));
}

static float half(const uint8_t *b)
{
    return half_of(u16(b));
}

/* Element j of n packed in halves of bytes, low halves first. */
static unsigned nibble(const uint8_t *b, unsigned n, unsigned j)
{
    return j < n / 2 ? b[j] & 15u : b[j - n / 2] >> 4;
}

/* Element i of run k of 16, of 256 elements of two bits in two groups of four planes. Loops over i
 * become vector code. */
static int pair(const uint8_t *b, unsigned k, unsigned i)
{
    return b[32 * (k / 8) + 16 * (k % 2) + i] >> 2 * (k % 8 / 2) & 3;
}

static float sign(unsigned bits, unsigned i)
{
    return (float)(1 - 2 * (int)(bits >> i & 1));
}

/* Seven signs, and an eighth that makes their number even. */
static unsigned even(unsigned bits)
{
    return bits | (unsigned)__builtin_parity(bits) << 7;
}

/* ---- one scale for a block ---- */

/* d, bits[16] */
static void q1_0(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 128; j++)
        y[j] = b[2 + j / 8] >> j % 8 & 1 ? d : -d;
}

/* d, qs[16] */
static void q2_0(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 64; j++)
        y[j] = (float)((int)(b[2 + j / 4] >> 2 * (j % 4) & 3) - 1) * d;
}

/* d, qs[16] */
static void q4_0(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)((int)nibble(b + 2, 32, j) - 8);
}

/* d, m, qs[16] */
static void q4_1(const uint8_t *b, float *y)
{
    const float d = half(b), m = half(b + 2);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)nibble(b + 4, 32, j) + m;
}

/* d, high bits u32, qs[16] */
static void q5_0(const uint8_t *b, float *y)
{
    const float d = half(b);
    const uint32_t high = u32(b + 2);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)((int)(nibble(b + 6, 32, j) | (high >> j & 1) << 4) - 16);
}

/* d, m, high bits u32, qs[16] */
static void q5_1(const uint8_t *b, float *y)
{
    const float d = half(b), m = half(b + 2);
    const uint32_t high = u32(b + 4);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)(nibble(b + 8, 32, j) | (high >> j & 1) << 4) + m;
}

/* d, qs i8[32] */
static void q8_0(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 32; j++)
        y[j] = (float)(int8_t)b[2 + j] * d;
}

/* d, a sum, qs i8[32] */
static void q8_1(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)(int8_t)b[4 + j];
}

/* d f32, qs i8[256], sums i16[16] */
static void q8_k(const uint8_t *b, float *y)
{
    const float d = of_bits(u32(b));
    for (unsigned j = 0; j < 256; j++)
        y[j] = d * (float)(int8_t)b[4 + j];
}

/* qs[48], qh[4], d: five, or four, digits of base 3 in a byte */
static void tq1_0(const uint8_t *b, float *y)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    static const struct {
        uint8_t from, n, n_digits;
    } runs[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    const float d = half(b + 52);
    for (unsigned k = 0; k < 3; k++) {
        for (unsigned p = 0; p < runs[k].n_digits; p++) {
            for (unsigned i = 0; i < runs[k].n; i++)
                *y++ = d * (float)((b[runs[k].from + i] * powers[p] % 256 * 3 >> 8) - 1);
        }
    }
}

/* qs[64], d */
static void tq2_0(const uint8_t *b, float *y)
{
    const float d = half(b + 64);
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned i = 0; i < 16; i++)
            y[16 * k + i] = d * (float)(pair(b, k, i) - 1);
    }
}

/* ---- tables of 16 ---- */

static const int8_t non_linear[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t twice_e2m1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* d, qs[16] */
static void iq4_nl(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)non_linear[nibble(b + 2, 32, j)];
}

/* d, high bits of scales u16, low ones[4], qs[128] */
static void iq4_xs(const uint8_t *b, float *y)
{
    const float d = half(b);
    const uint32_t high = u16(b + 2);
    for (unsigned k = 0; k < 8; k++) {
        const unsigned s = (b[4 + k / 2] >> 4 * (k % 2) & 15u) | (high >> 2 * k & 3) << 4;
        const float scale = d * (float)((int)s - 32);
        for (unsigned j = 0; j < 32; j++)
            y[32 * k + j] = scale * (float)non_linear[nibble(b + 8 + 16 * k, 32, j)];
    }
}

/* exponent, qs[16]: half of 2^(e - 127), as twice its values are in the table */
static void mxfp4(const uint8_t *b, float *y)
{
    const uint32_t e = b[0];
    const float d = of_bits(e < 2 ? UINT32_C(0x200000) << e : (e - 1) << 23);
    for (unsigned j = 0; j < 32; j++)
        y[j] = d * (float)twice_e2m1[nibble(b + 1, 32, j)];
}

/* Half of an E4M3 without sign; 0x7f is 0. */
static float half_e4m3(unsigned code)
{
    const unsigned e = code >> 3 & 15, m = code & 7;
    if (code == 0x7f)
        return 0.0f;
    return 0.5f * (e == 0 ? (float)m * 0x1p-9f : of_bits((e + 120) << 23 | m << 20));
}

/* s[4], qs[32] */
static void nvfp4(const uint8_t *b, float *y)
{
    for (unsigned k = 0; k < 4; k++) {
        const float d = half_e4m3(b[k]);
        for (unsigned j = 0; j < 16; j++)
            y[16 * k + j] = d * (float)twice_e2m1[nibble(b + 4 + 8 * k, 16, j)];
    }
}

/* ---- K types: scales of scales ---- */

/* sc[16], qs[64], d, m */
static void q2_k(const uint8_t *b, float *y)
{
    const float d = half(b + 80), m = half(b + 82);
    for (unsigned k = 0; k < 16; k++) {
        const float scale = d * (float)(b[k] & 15), least = m * (float)(b[k] >> 4);
        for (unsigned i = 0; i < 16; i++)
            y[16 * k + i] = scale * (float)pair(b + 16, k, i) - least;
    }
}

/* high bits[32], qs[64], sc[12], d */
static void q3_k(const uint8_t *b, float *y)
{
    const float d = half(b + 108);
    for (unsigned k = 0; k < 16; k++) {
        const unsigned s =
            (b[96 + k % 8] >> 4 * (k / 8) & 15u) | (b[104 + k % 4] >> 2 * (k / 4) & 3u) << 4;
        const float scale = d * (float)((int)s - 32);
        const uint8_t *high = b + 16 * (k % 2);
        for (unsigned i = 0; i < 16; i++)
            y[16 * k + i] = scale * (float)(pair(b + 32, k, i) + (high[i] >> k / 2 & 1) * 4 - 4);
    }
}

/* Scale and minimum i of eight, of six bits each, in 12 bytes. */
static void take_scales(const uint8_t *sc, unsigned i, float *s, float *z)
{
    const unsigned low = i < 4 ? sc[i] & 63u : (sc[i + 4] & 15u) | (unsigned)sc[i - 4] >> 6 << 4;
    const unsigned high =
        i < 4 ? sc[i + 4] & 63u : (unsigned)sc[i + 4] >> 4 | (unsigned)sc[i] >> 6 << 4;
    *s = (float)low;
    *z = (float)high;
}

/* d, m, sc[12], qs[128] */
static void q4_k(const uint8_t *b, float *y)
{
    const float d = half(b), m = half(b + 2);
    for (unsigned k = 0; k < 8; k++) {
        float s, z;
        take_scales(b + 4, k, &s, &z);
        const float scale = d * s, least = m * z;
        for (unsigned j = 0; j < 32; j++)
            y[32 * k + j] = scale * (float)(b[16 + 32 * (k / 2) + j] >> 4 * (k % 2) & 15) - least;
    }
}

/* d, m, sc[12], high bits[32], qs[128] */
static void q5_k(const uint8_t *b, float *y)
{
    const float d = half(b), m = half(b + 2);
    for (unsigned k = 0; k < 8; k++) {
        float s, z;
        take_scales(b + 4, k, &s, &z);
        const float scale = d * s, least = m * z;
        for (unsigned j = 0; j < 32; j++) {
            const unsigned q =
                (b[48 + 32 * (k / 2) + j] >> 4 * (k % 2) & 15u) | (b[16 + j] >> k & 1u) << 4;
            y[32 * k + j] = scale * (float)q - least;
        }
    }
}

/* ql[128], qh[64], sc i8[16], d */
static void q6_k(const uint8_t *b, float *y)
{
    const float d = half(b + 208);
    for (unsigned k = 0; k < 16; k++) {
        const float scale = d * (float)(int8_t)b[192 + k];
        const uint8_t *low = b + 64 * (k / 8) + 16 * (k % 4);
        for (unsigned i = 0; i < 16; i++) {
            const int q = (low[i] >> 4 * (k % 8 / 4) & 15) | pair(b + 128, k, i) << 4;
            y[16 * k + i] = scale * (float)(q - 32);
        }
    }
}

/* ---- IQ types: eight or four elements are an entry of a grid ---- */

/* 8, 25 or 43 */
static float grid2(unsigned entry, unsigned j)
{
    const int code = (int)(entry >> 2 * j & 3);
    return (float)(8 + 17 * code + (code >> 1));
}

/* 4, 12, 20 and so on, but 62 for 60 */
static float grid3_xxs(unsigned entry, unsigned j)
{
    const int code = (int)(entry >> 4 * j & 7);
    return (float)(4 + 8 * code + (code == 7 ? 2 : 0));
}

static float grid1(unsigned entry, unsigned j)
{
    return (float)((int)(block_grid_iq1[entry] >> 2 * j & 3) - 1);
}

/* d, (idx[4], w u32)[8] */
static void iq2_xxs(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned i = 0; i < 32; i++) {
        const uint8_t *group = b + 2 + 8 * (i / 4);
        const uint32_t w = u32(group + 4);
        const float scale = (d * (0.5f + (float)(w >> 28))) * 0.25f;
        const unsigned entry = block_grid_iq2_xxs[group[i % 4]],
                       signs = even(w >> 7 * (i % 4) & 127);
        for (unsigned j = 0; j < 8; j++)
            y[8 * i + j] = (scale * grid2(entry, j)) * sign(signs, j);
    }
}

/* d, q u16[32], sc[8] */
static void iq2_xs(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned k = 0; k < 32; k++) {
        const uint32_t q = u16(b + 2 + 2 * k);
        const unsigned s = b[66 + k / 4] >> 4 * (k / 2 % 2) & 15u, signs = even(q >> 9);
        const float scale = (d * (0.5f + (float)s)) * 0.25f;
        const unsigned entry = block_grid_iq2_xs[q & 511];
        for (unsigned j = 0; j < 8; j++)
            y[8 * k + j] = (scale * grid2(entry, j)) * sign(signs, j);
    }
}

/* d, idx[32], signs[32], qh[8], sc[8] */
static void iq2_s(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned k = 0; k < 32; k++) {
        const unsigned entry =
            block_grid_iq2_s[b[2 + k] | (b[66 + k / 4] >> 2 * (k % 4) & 3u) << 8];
        const unsigned s = b[74 + k / 4] >> 4 * (k / 2 % 2) & 15u;
        const float scale = (d * (0.5f + (float)s)) * 0.25f;
        for (unsigned j = 0; j < 8; j++)
            y[8 * k + j] = (scale * grid2(entry, j)) * sign(b[34 + k], j);
    }
}

/* d, idx[64], w u32[8] */
static void iq3_xxs(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned i = 0; i < 64; i++) {
        const uint32_t w = u32(b + 66 + 4 * (i / 8));
        const float scale = (d * (0.5f + (float)(w >> 28))) * 0.5f;
        const unsigned entry = block_grid_iq3_xxs[b[2 + i]];
        const unsigned signs = even(w >> 7 * (i % 8 / 2) & 127) >> 4 * (i % 2);
        for (unsigned j = 0; j < 4; j++)
            y[4 * i + j] = (scale * grid3_xxs(entry, j)) * sign(signs, j);
    }
}

/* d, idx[64], qh[8], signs[32], sc[4] */
static void iq3_s(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned i = 0; i < 64; i++) {
        const unsigned entry = block_grid_iq3_s[b[2 + i] | (b[66 + i / 8] >> i % 8 & 1u) << 8];
        const unsigned s = b[106 + i / 16] >> 4 * (i / 8 % 2) & 15u;
        const unsigned signs = b[74 + i / 2] >> 4 * (i % 2);
        const float scale = d * (float)(1 + 2 * s);
        for (unsigned j = 0; j < 4; j++)
            y[4 * i + j] = (scale * (float)(2 * (int)(entry >> 4 * j & 7) + 1)) * sign(signs, j);
    }
}

/* d, idx[32], w u16[8] */
static void iq1_s(const uint8_t *b, float *y)
{
    const float d = half(b);
    for (unsigned i = 0; i < 32; i++) {
        const uint32_t w = u16(b + 34 + 2 * (i / 4));
        const float scale = d * (float)(2 * (w >> 12 & 7) + 1);
        const float delta = w & 0x8000 ? -0.125f : 0.125f;
        const unsigned entry = b[2 + i] | (w >> 3 * (i % 4) & 7) << 8;
        for (unsigned j = 0; j < 8; j++)
            y[8 * i + j] = scale * (grid1(entry, j) + delta);
    }
}

/* idx[32], qh[16], s u16[4], whose top halves of bytes are d */
static void iq1_m(const uint8_t *b, float *y)
{
    const uint32_t s[] = {u16(b + 48), u16(b + 50), u16(b + 52), u16(b + 54)};
    const float d =
        half_of(s[0] >> 12 | (s[1] >> 8 & 0xf0) | (s[2] >> 4 & 0xf00) | (s[3] & 0xf000));
    for (unsigned k = 0; k < 32; k++) {
        const unsigned h = b[32 + k / 2] >> 4 * (k % 2) & 15u;
        const float scale = d * (float)(2 * (s[k / 8] >> 3 * (k / 2 % 4) & 7) + 1);
        const float delta = h & 8 ? -0.125f : 0.125f;
        for (unsigned j = 0; j < 8; j++)
            y[8 * k + j] = scale * (grid1(b[k] | (h & 7) << 8, j) + delta);
    }
}

/* ---- from numbers to blocks ---- */

/* The nearest half, ties to even; NaN stays one. */
static void store_half(uint8_t *b, float value)
{
    cast_elems(WFS_F32, &value, WFS_F16, b, 1);
}

static float inverse(float d)
{
    return d != 0 ? 1.0f / d : 0.0f;
}

static unsigned clip(double value, unsigned most)
{
    return value > most ? most : value > 0 ? (unsigned)value : 0;
}

/* Puts low halves of bytes first, as nibble takes them. */
static void put_nibble(uint8_t *b, unsigned j, unsigned q)
{
    if (j < 16)
        b[j] = (uint8_t)(q & 15);
    else
        b[j - 16] |= (uint8_t)((q & 15) << 4);
}

/* Codes around the number that is largest without its sign, of 4 or 5 bits. */
static void encode_signed(const float *x, uint8_t *b, unsigned n_bits)
{
    const unsigned most = (1u << n_bits) - 1, half_most = 1u << (n_bits - 1);
    float largest = 0;
    uint32_t high = 0;
    for (unsigned j = 0; j < 32; j++)
        largest = fabsf(x[j]) > fabsf(largest) ? x[j] : largest;
    const float d = largest / -(float)half_most, id = inverse(d);
    store_half(b, d);
    for (unsigned j = 0; j < 32; j++) {
        const unsigned q = clip((double)x[j] * (double)id + (double)half_most + 0.5, most);
        put_nibble(b + (n_bits == 5 ? 6 : 2), j, q);
        high |= (uint32_t)(q >> 4) << j;
    }
    if (n_bits == 5)
        store_le32(b + 2, high);
}

/* Codes from the least number up. */
static void encode_unsigned(const float *x, uint8_t *b, unsigned n_bits)
{
    const unsigned most = (1u << n_bits) - 1;
    float least = x[0], largest = x[0];
    uint32_t high = 0;
    for (unsigned j = 1; j < 32; j++) {
        least = x[j] < least ? x[j] : least;
        largest = x[j] > largest ? x[j] : largest;
    }
    const float d = (largest - least) / (float)most, id = inverse(d);
    store_half(b, d);
    store_half(b + 2, least);
    for (unsigned j = 0; j < 32; j++) {
        const float scaled = (x[j] - least) * id;
        const unsigned q = clip((double)(scaled + 0.5f), most);
        put_nibble(b + (n_bits == 5 ? 8 : 4), j, q);
        high |= (uint32_t)(q >> 4) << j;
    }
    if (n_bits == 5)
        store_le32(b + 4, high);
}

static void encode_q8_0(const float *x, uint8_t *b)
{
    float largest = 0;
    for (unsigned j = 0; j < 32; j++)
        largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
    const float d = largest / 127, id = inverse(d);
    store_half(b, d);
    for (unsigned j = 0; j < 32; j++) {
        const float q = roundf(x[j] * id);
        b[2 + j] = (uint8_t)(int8_t)(q > 127 ? 127 : q >= -128 ? (int)q : q < -128 ? -128 : 0);
    }
}

bool blocks_can_be_made(enum wfs_dtype dtype)
{
    return dtype == WFS_Q8_0 || dtype == WFS_Q4_0 || dtype == WFS_Q4_1 || dtype == WFS_Q5_0 ||
           dtype == WFS_Q5_1;
}

void blocks_encode(enum wfs_dtype dtype, const float *numbers, size_t n_blocks, void *out)
{
    const struct wfs_block block = wfs_dtype_block(dtype);
    for (size_t i = 0; i < n_blocks; i++) {
        const float *x = numbers + i * block.n_elems;
        uint8_t *b = (uint8_t *)out + i * block.n_bytes;
        if (dtype == WFS_Q8_0)
            encode_q8_0(x, b);
        else if (dtype == WFS_Q4_0 || dtype == WFS_Q5_0)
            encode_signed(x, b, dtype == WFS_Q4_0 ? 4 : 5);
        else
            encode_unsigned(x, b, dtype == WFS_Q4_1 ? 4 : 5);
    }
}

/* ---- all types ---- */

/* Elements of F4 and F6. */
static void decode_packed(enum wfs_dtype dtype, const uint8_t *bytes, size_t n_elems, float *out)
{
    enum { N_PIECE = 256 };
    double numbers[N_PIECE];
    for (size_t i = 0; i < n_elems; i += N_PIECE) {
        const size_t n = n_elems - i < N_PIECE ? n_elems - i : N_PIECE;
        (void)wfs_dtype_decode(dtype, bytes + i / 8 * wfs_dtype_bits(dtype), n, numbers);
        for (size_t j = 0; j < n; j++)
            out[i + j] = (float)numbers[j];
    }
}

void blocks_decode(enum wfs_dtype dtype, const void *blocks, size_t n_blocks, float *out)
{
    static const decoder decoders[] = {
        [WFS_Q1_0] = q1_0,     [WFS_Q2_0] = q2_0,       [WFS_Q4_0] = q4_0,
        [WFS_Q4_1] = q4_1,     [WFS_Q5_0] = q5_0,       [WFS_Q5_1] = q5_1,
        [WFS_Q8_0] = q8_0,     [WFS_Q8_1] = q8_1,       [WFS_Q2_K] = q2_k,
        [WFS_Q3_K] = q3_k,     [WFS_Q4_K] = q4_k,       [WFS_Q5_K] = q5_k,
        [WFS_Q6_K] = q6_k,     [WFS_Q8_K] = q8_k,       [WFS_IQ1_S] = iq1_s,
        [WFS_IQ1_M] = iq1_m,   [WFS_IQ2_XXS] = iq2_xxs, [WFS_IQ2_XS] = iq2_xs,
        [WFS_IQ2_S] = iq2_s,   [WFS_IQ3_XXS] = iq3_xxs, [WFS_IQ3_S] = iq3_s,
        [WFS_IQ4_NL] = iq4_nl, [WFS_IQ4_XS] = iq4_xs,   [WFS_TQ1_0] = tq1_0,
        [WFS_TQ2_0] = tq2_0,   [WFS_MXFP4] = mxfp4,     [WFS_NVFP4] = nvfp4,
    };
    const struct wfs_block block = wfs_dtype_block(dtype);
    const uint8_t *from = blocks;
    if (!wfs_dtype_has_blocks(dtype)) {
        decode_packed(dtype, from, n_blocks * block.n_elems, out);
        return;
    }
    for (size_t i = 0; i < n_blocks; i++)
        decoders[dtype](from + i * block.n_bytes, out + i * block.n_elems);
}
