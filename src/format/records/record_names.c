/* SPDX-License-Identifier: MIT */
/*
 * What Burn calls things. Ids are Base32 with the extended hexadecimal alphabet, most significant
 * bit first, over the bytes of the number from the lowest on; the last digit is filled up with zero
 * bits.
 */
#include "format/records/record_names.h"

#include <weightfs/percent.h>
#include "base/hash.h"
#include "catalog/catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* In the order of strcmp. */
static const char *const keywords[] = {
    "abstract", "as",     "async",   "await",  "become",  "box",      "break", "const",
    "continue", "do",     "dyn",     "else",   "enum",    "extern",   "false", "final",
    "fn",       "for",    "gen",     "if",     "impl",    "in",       "let",   "loop",
    "macro",    "match",  "mod",     "move",   "mut",     "override", "priv",  "pub",
    "ref",      "return", "static",  "struct", "trait",   "true",     "try",   "type",
    "typeof",   "unsafe", "unsized", "use",    "virtual", "where",    "while", "yield",
};

enum { N_KEYWORD_MAX = 8 };

static int compare(const void *a, const void *b)
{
    return strcmp(a, *(const char *const *)b);
}

bool record_is_keyword(const char *name, size_t n_bytes)
{
    char copy[N_KEYWORD_MAX + 1] = "";
    if (n_bytes > N_KEYWORD_MAX)
        return false;
    memcpy(copy, name, n_bytes);
    return bsearch(copy, keywords, sizeof(keywords) / sizeof(keywords[0]), sizeof(keywords[0]),
                   compare) != NULL;
}

enum { MINOR_FIRST = 8, MINOR_LAST = 21 };

unsigned record_version_minor(const char *text)
{
    unsigned minor;
    char dot = '.';
    const int n = sscanf(text, "0.%3u%c", &minor, &dot);
    return n >= 1 && dot == '.' && minor >= MINOR_FIRST && minor <= MINOR_LAST ? minor : 0;
}

int record_version_check(const char *text, struct wfs_error *err)
{
    const size_t n_digits = strncmp(text, "0.", 2) == 0 ? strspn(text + 2, "0123456789") : 0;
    return n_digits >= 1 && n_digits <= 2 && record_version_minor(text) != 0
               ? 0
               : wfs_fail(err, EINVAL, "must be a version from 0.%d to 0.%d, not '%s'", MINOR_FIRST,
                          MINOR_LAST, wfs_quote(text).text);
}

/* ---- dtypes ---- */

enum { MINOR_U16 = 16, MINOR_FLEX32 = 17 };

/* In the order of their numbers; since says in which 0.x one was put between the others. */
static const struct {
    const char *name;
    uint8_t dtype, since;
} names[] = {
    {"F64", WFS_F64, 0}, {"F32", WFS_F32, 0},   {"Flex32", WFS_FLEX32, MINOR_FLEX32},
    {"F16", WFS_F16, 0}, {"BF16", WFS_BF16, 0}, {"I64", WFS_I64, 0},
    {"I32", WFS_I32, 0}, {"I16", WFS_I16, 0},   {"I8", WFS_I8, 0},
    {"U64", WFS_U64, 0}, {"U32", WFS_U32, 0},   {"U16", WFS_U16, MINOR_U16},
    {"U8", WFS_U8, 0},   {"Bool", WFS_BOOL, 0},
};

static const struct {
    const char *name;
    uint8_t dtype;
} rust_names[] = {
    {"f32", WFS_F32},
    {"f64", WFS_F64},
    {"half::binary16::f16", WFS_F16},
    {"half::bfloat::bf16", WFS_BF16},
    {"i64", WFS_I64},
    {"i32", WFS_I32},
    {"i16", WFS_I16},
    {"i8", WFS_I8},
    {"u64", WFS_U64},
    {"u32", WFS_U32},
    {"u16", WFS_U16},
    {"u8", WFS_U8},
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static bool is_same(const char *name, const char *bytes, size_t n_bytes)
{
    return strlen(name) == n_bytes && memcmp(name, bytes, n_bytes) == 0;
}

bool record_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (is_same(names[i].name, name, n_bytes)) {
            *ret = (enum wfs_dtype)names[i].dtype;
            return true;
        }
    }
    return false;
}

const char *record_dtype_name(enum wfs_dtype dtype)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (names[i].dtype == dtype)
            return names[i].name;
    }
    return NULL;
}

enum wfs_dtype record_dtype_of_rust(const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof(rust_names) / sizeof(rust_names[0]); i++) {
        if (is_same(rust_names[i].name, name, n_bytes))
            return (enum wfs_dtype)rust_names[i].dtype;
    }
    return WFS_OPAQUE;
}

bool record_dtype_of_number(int64_t number, unsigned minor, enum wfs_dtype *ret)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        if (minor != 0 && minor < names[i].since)
            continue;
        if (number-- == 0) {
            *ret = (enum wfs_dtype)names[i].dtype;
            return true;
        }
    }
    return false;
}
