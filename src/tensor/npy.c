/* SPDX-License-Identifier: MIT */
/*
 * The header of a .npy file, as numpy writes it:
 *
 *   \x93 N U M P Y | major minor | length of the text (2 bytes, or 4 in version 2) | text
 *
 * The text is a Python dict of three things, {'descr': '<f4', 'fortran_order': False, 'shape': (2,
 * 3), }, padded with spaces and one newline until the data starts at a multiple of 64. It is read
 * here as that and nothing else.
 */
#include "tensor/npy.h"

#include <weightfs/tensor.h>
#include "base/arena.h"
#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Text that is cut at the end of buf but counted in full. */
struct text {
    char *buf;
    size_t n_room, n_used;
};

static void put(struct text *text, const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++, text->n_used++) {
        if (text->n_used < text->n_room)
            text->buf[text->n_used] = bytes[i];
    }
}

static void put_string(struct text *text, const char *string)
{
    put(text, string, strlen(string));
}

static void put_dim(struct text *text, uint64_t dim, bool is_first)
{
    char number[24];
    snprintf(number, sizeof(number), "%s%" PRIu64, is_first ? "" : ", ", dim);
    put_string(text, number);
}

/* Sub-byte and opaque tensors as bytes: per row of the last dimension where that is whole, else all
 * in one. */
static void put_shape(struct text *text, const struct wfs_tensor *tensor)
{
    const struct wfs_shape *shape = &tensor->shape;
    const struct wfs_block block = wfs_dtype_block((enum wfs_dtype)tensor->dtype);
    const uint64_t last = shape->rank == 0 ? 1 : shape->dims[shape->rank - 1];
    uint64_t last_bytes;
    put_string(text, "(");
    if (tensor->dtype == WFS_OPAQUE || last % block.n_elems != 0 ||
        !checked_mul(last / block.n_elems, (uint64_t)block.n_bytes, &last_bytes)) {
        put_dim(text, tensor->n_bytes, true);
        put_string(text, ",");
    } else {
        for (uint32_t i = 0; i < shape->rank; i++) {
            const bool is_packed = block.n_elems > 1 && i + 1 == shape->rank;
            put_dim(text, is_packed ? last_bytes : shape->dims[i], i == 0);
        }
        if (shape->rank == 1)
            put_string(text, ",");
    }
    put_string(text, ")");
}

uint64_t npy_unpack(enum wfs_dtype dtype, uint64_t n_bytes)
{
    const struct wfs_block block = wfs_dtype_block(dtype);
    uint64_t n_elems;
    return checked_mul(n_bytes / block.n_bytes, (uint64_t)block.n_elems, &n_elems) ? n_elems
                                                                                   : UINT64_MAX;
}

static void put_dict(struct text *text, const struct wfs_tensor *tensor)
{
    put_string(text, "{'descr': '");
    put_string(text, wfs_dtype_descr((enum wfs_dtype)tensor->dtype));
    put_string(text, "', 'fortran_order': False, 'shape': ");
    put_shape(text, tensor);
    put_string(text, ", }");
}

size_t wfs_npy_header(const struct wfs_tensor *tensor, char *buf, size_t n_bytes)
{
    struct text measure = {0};
    put_dict(&measure, tensor);
    size_t n_start = 10; /* before the text */
    size_t n_all = (n_start + measure.n_used + 1 + 63) / 64 * 64;
    const bool is_long = n_all - n_start > UINT16_MAX;
    if (is_long) {
        n_start = 12;
        n_all = (n_start + measure.n_used + 1 + 63) / 64 * 64;
    }
    uint8_t start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', is_long ? 2 : 1, 0};
    if (is_long)
        store_le32(start + 8, (uint32_t)(n_all - n_start));
    else
        store_le16(start + 8, (uint16_t)(n_all - n_start));
    struct text text = {.buf = buf, .n_room = n_bytes};
    put(&text, (const char *)start, n_start);
    put_dict(&text, tensor);
    while (text.n_used < n_all - 1)
        put(&text, " ", 1);
    put(&text, "\n", 1);
    return n_all;
}

/* What is left of the text. */
struct words {
    struct cursor text;
    const char *reason; /* of the failure */
};

static int fail(struct words *words, int code, const char *reason)
{
    words->reason = reason;
    return -code;
}

static int malformed(struct words *words)
{
    return fail(words, EBADMSG, "has a damaged .npy header");
}

static void skip_spaces(struct words *words)
{
    while (words->text.n_left > 0 &&
           (*words->text.at == ' ' || *words->text.at == '\t' || *words->text.at == '\n'))
        words->text = cursor_of(words->text.at + 1, words->text.n_left - 1);
}

/* Takes the token if it is next. */
static bool take(struct words *words, const char *token)
{
    const size_t n = strlen(token);
    skip_spaces(words);
    if (words->text.n_left < n || memcmp(words->text.at, token, n) != 0)
        return false;
    words->text = cursor_of(words->text.at + n, words->text.n_left - n);
    return true;
}

/* A string without escapes, cut to the room there is. */
static bool take_string(struct words *words, char *buf, size_t n_room)
{
    skip_spaces(words);
    if (words->text.n_left == 0 || (*words->text.at != '\'' && *words->text.at != '"'))
        return false;
    const uint8_t *start = words->text.at + 1;
    const uint8_t *end = memchr(start, *words->text.at, words->text.n_left - 1);
    if (end == NULL || memchr(start, '\\', (size_t)(end - start)) != NULL)
        return false;
    const size_t n = (size_t)(end - start);
    const size_t n_kept = n < n_room ? n : n_room - 1;
    memcpy(buf, start, n_kept);
    buf[n_kept] = '\0';
    words->text = cursor_of(end + 1, words->text.n_left - n - 2);
    return true;
}

static bool take_number(struct words *words, uint64_t *ret)
{
    uint64_t number = 0;
    size_t n_digits = 0;
    skip_spaces(words);
    while (n_digits < words->text.n_left) {
        const unsigned digit = (unsigned)words->text.at[n_digits] - '0';
        if (digit > 9)
            break;
        if (!checked_mul(number, (uint64_t)10, &number) ||
            !checked_add(number, (uint64_t)digit, &number))
            return false;
        n_digits++;
    }
    if (n_digits == 0)
        return false;
    words->text = cursor_of(words->text.at + n_digits, words->text.n_left - n_digits);
    take(words, "L"); /* as Python 2 wrote it */
    *ret = number;
    return true;
}

static int take_shape(struct words *words, struct arena *arena, struct wfs_shape *ret)
{
    /* Two bytes a dimension at least: a digit and a comma. */
    uint64_t *dims = arena_calloc(arena, words->text.n_left / 2 + 1, sizeof(*dims));
    uint32_t rank = 0;
    if (dims == NULL)
        return -ENOMEM;
    if (!take(words, "("))
        return malformed(words);
    while (!take(words, ")")) {
        if (!take_number(words, &dims[rank]))
            return malformed(words);
        rank++;
        if (!take(words, ",")) {
            if (rank < 2 || !take(words, ")"))
                return malformed(words);
            break;
        }
    }
    *ret = (struct wfs_shape){rank, dims};
    return 0;
}

/* What numpy calls '|V2' is '<V2' here, '<u1' is '|u1'. */
static int take_descr(struct words *words, struct npy_header *ret)
{
    char descr[sizeof(ret->descr)];
    if (take(words, "[")) /* a list of fields */
        return fail(words, EOPNOTSUPP, "has a structured numpy type, which a tensor cannot have");
    if (!take_string(words, descr, sizeof(descr)) || strlen(descr) < 3 ||
        strchr("<>|", descr[0]) == NULL)
        return malformed(words);
    const bool is_byte = strcmp(descr + 2, "1") == 0;
    if (descr[0] == '>' && !is_byte)
        return fail(words, EOPNOTSUPP,
                    "is big-endian: convert it, in numpy with a.astype(a.dtype.newbyteorder('<'))");
    descr[0] = is_byte ? '|' : '<';
    memcpy(ret->descr, descr, sizeof(descr));
    bool is_known = false;
    for (int i = 0; i < WFS_N_DTYPES && !ret->has_dtype; i++) {
        const enum wfs_dtype dtype = (enum wfs_dtype)i;
        if (strcmp(wfs_dtype_descr(dtype), descr) != 0)
            continue;
        is_known = true;
        ret->dtype = dtype;
        ret->has_dtype = descr[1] != 'V';
    }
    return is_known ? 0 : fail(words, EOPNOTSUPP, "has a numpy type that a tensor cannot have");
}

static int take_order(struct words *words)
{
    if (take(words, "False"))
        return 0;
    if (take(words, "True"))
        return fail(words, EOPNOTSUPP,
                    "is in Fortran order: convert it, in numpy with "
                    "numpy.ascontiguousarray(a)");
    return malformed(words);
}

static int take_dict(struct words *words, struct arena *arena, struct npy_header *ret)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    if (!take(words, "{"))
        return malformed(words);
    while (!take(words, "}")) {
        char name[16];
        if (!take_string(words, name, sizeof(name)) || !take(words, ":"))
            return malformed(words);
        const unsigned what = strcmp(name, "descr") == 0           ? DESCR
                              : strcmp(name, "fortran_order") == 0 ? ORDER
                              : strcmp(name, "shape") == 0         ? SHAPE
                                                                   : 0;
        if (what == 0 || (seen & what) != 0)
            return malformed(words);
        seen |= what;
        const int code = what == DESCR   ? take_descr(words, ret)
                         : what == ORDER ? take_order(words)
                                         : take_shape(words, arena, &ret->shape);
        if (code < 0)
            return code;
        if (!take(words, ",")) {
            if (!take(words, "}"))
                return malformed(words);
            break;
        }
    }
    skip_spaces(words);
    return seen == (DESCR | ORDER | SHAPE) && words->text.n_left == 0 ? 0 : malformed(words);
}

static int take_version(struct words *words, uint32_t *ret_n_text)
{
    const uint8_t *magic;
    uint8_t major, minor;
    uint16_t n_short = 0;
    if (!cursor_take(&words->text, NPY_MAGIC_BYTES, &magic) ||
        memcmp(magic, NPY_MAGIC, NPY_MAGIC_BYTES) != 0)
        return fail(words, EBADMSG, "is not a .npy file");
    if (!cursor_u8(&words->text, &major) || !cursor_u8(&words->text, &minor))
        return malformed(words);
    if (major < 1 || major > 3 || minor != 0)
        return fail(words, EOPNOTSUPP, "is a .npy file of an unknown version");
    if (major == 1 ? !cursor_le16(&words->text, &n_short) : !cursor_le32(&words->text, ret_n_text))
        return malformed(words);
    if (major == 1)
        *ret_n_text = n_short;
    if (*ret_n_text > NPY_HEADER_MAX)
        return fail(words, E2BIG, "has a .npy header of more than 65536 bytes");
    return *ret_n_text > words->text.n_left ? malformed(words) : 0;
}

int npy_parse(const char *bytes, size_t n_bytes, struct arena *arena, struct npy_header *ret,
              const char **ret_reason)
{
    struct words words = {cursor_of(bytes, n_bytes), "cannot be described: out of memory"};
    uint32_t n_text = 0;
    *ret = (struct npy_header){0};
    int code = take_version(&words, &n_text);
    if (code == 0) {
        ret->n_bytes = (size_t)(words.text.at - (const uint8_t *)bytes) + n_text;
        words.text.n_left = n_text;
        code = take_dict(&words, arena, ret);
    }
    if (code < 0)
        *ret_reason = words.reason;
    return code;
}
