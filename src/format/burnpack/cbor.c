/* SPDX-License-Identifier: MIT */
/*
 * The pull parser decodes one head at a time with libcbor's stateless decoder: no tree is built and
 * nothing recurses. Every count is compared with the bytes that are left before it is believed. The
 * writer has its heads from libcbor, too.
 */
#include "format/burnpack/cbor.h"

#include <weightfs/array.h>
#include <weightfs/strbuf.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "tensor/cast.h"
#include "value/value_build.h"

#include <cbor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CBOR_FIELD_MAX = 4096 }; /* bytes of a field or variant name */

/* One decoded head, with its payload if it has one. */
struct item {
    enum token_kind kind;
    bool is_indefinite;
    uint64_t n; /* number, -1 - number, bits of a double, count, tag, truth */
    const uint8_t *bytes;
};

static void on_uint8(void *item, uint8_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_UINT, .n = n};
}

static void on_uint16(void *item, uint16_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_UINT, .n = n};
}

static void on_uint32(void *item, uint32_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_UINT, .n = n};
}

static void on_uint64(void *item, uint64_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_UINT, .n = n};
}

static void on_negative8(void *item, uint8_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_NEGATIVE, .n = n};
}

static void on_negative16(void *item, uint16_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_NEGATIVE, .n = n};
}

static void on_negative32(void *item, uint32_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_NEGATIVE, .n = n};
}

static void on_negative64(void *item, uint64_t n)
{
    *(struct item *)item = (struct item){.kind = TOKEN_NEGATIVE, .n = n};
}

static void on_bytes(void *item, cbor_data bytes, size_t n_bytes)
{
    *(struct item *)item = (struct item){.kind = TOKEN_BYTES, .n = n_bytes, .bytes = bytes};
}

static void on_bytes_start(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_BYTES, .is_indefinite = true};
}

static void on_text(void *item, cbor_data bytes, size_t n_bytes)
{
    *(struct item *)item = (struct item){.kind = TOKEN_TEXT, .n = n_bytes, .bytes = bytes};
}

static void on_text_start(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_TEXT, .is_indefinite = true};
}

static void on_array(void *item, size_t n_items)
{
    *(struct item *)item = (struct item){.kind = TOKEN_LIST, .n = n_items};
}

static void on_array_start(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_LIST, .is_indefinite = true};
}

static void on_map(void *item, size_t n_pairs)
{
    *(struct item *)item = (struct item){.kind = TOKEN_MAP, .n = n_pairs};
}

static void on_map_start(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_MAP, .is_indefinite = true};
}

static void on_tag(void *item, uint64_t tag)
{
    *(struct item *)item = (struct item){.kind = TOKEN_OTHER, .n = tag};
}

static void on_double(void *item, double real)
{
    struct item *ret = item;
    *ret = (struct item){.kind = TOKEN_F64};
    memcpy(&ret->n, &real, sizeof(real));
}

static void on_float(void *item, float real)
{
    on_double(item, (double)real);
}

static void on_bool(void *item, bool is_true)
{
    *(struct item *)item = (struct item){.kind = TOKEN_BOOL, .n = is_true};
}

static void on_null(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_NULL};
}

static void on_break(void *item)
{
    *(struct item *)item = (struct item){.kind = TOKEN_END};
}

static const struct cbor_callbacks callbacks = {
    .uint8 = on_uint8,
    .uint16 = on_uint16,
    .uint32 = on_uint32,
    .uint64 = on_uint64,
    .negint8 = on_negative8,
    .negint16 = on_negative16,
    .negint32 = on_negative32,
    .negint64 = on_negative64,
    .byte_string = on_bytes,
    .byte_string_start = on_bytes_start,
    .string = on_text,
    .string_start = on_text_start,
    .array_start = on_array,
    .indef_array_start = on_array_start,
    .map_start = on_map,
    .indef_map_start = on_map_start,
    .tag = on_tag,
    .float2 = on_float,
    .float4 = on_float,
    .float8 = on_double,
    .undefined = on_null,
    .null = on_null,
    .boolean = on_bool,
    .indef_break = on_break,
};

void cborin_init(struct cbor_in *in, void *bytes, size_t n_bytes, uint64_t depth_max)
{
    *in = (struct cbor_in){.start = bytes, .at = bytes, .depth_max = depth_max};
    in->end = in->start + n_bytes;
}

void cborin_done(struct cbor_in *in)
{
    free(in->levels);
    in->levels = NULL;
}

size_t cborin_offset(const struct cbor_in *in)
{
    return (size_t)(in->at - in->start);
}

bool cborin_fail(struct cbor_in *in, const char *error)
{
    if (in->error == NULL)
        in->error = error;
    return false;
}

bool cbor_span_is(const struct cbor_span *span, const char *text)
{
    return span->n_bytes == strlen(text) && memcmp(span->bytes, text, span->n_bytes) == 0;
}

/* Decodes the head in front; *ret_n is how many bytes it takes. */
static bool decode(struct cbor_in *in, struct item *item, size_t *ret_n)
{
    if (in->error != NULL)
        return false;
    const struct cbor_decoder_result result =
        cbor_stream_decode(in->at, (size_t)(in->end - in->at), &callbacks, item);
    *ret_n = result.read;
    if (result.status == CBOR_DECODER_NEDATA)
        return cborin_fail(in, "it ends too early");
    return result.status == CBOR_DECODER_FINISHED || cborin_fail(in, "this is not CBOR");
}

/* Decodes the next head, skipping tags. */
static bool peek(struct cbor_in *in, struct item *item, size_t *ret_n)
{
    for (;;) {
        if (!decode(in, item, ret_n))
            return false;
        if (item->kind != TOKEN_OTHER)
            return true;
        in->at += *ret_n;
    }
}

enum token_kind cborin_kind(struct cbor_in *in)
{
    struct item item;
    size_t n;
    if (!peek(in, &item, &n) || item.kind == TOKEN_END)
        return TOKEN_OTHER;
    return item.kind;
}

static bool take(struct cbor_in *in, enum token_kind kind, struct item *item, const char *error)
{
    size_t n;
    if (!peek(in, item, &n))
        return false;
    if (item->kind != kind)
        return cborin_fail(in, error);
    in->at += n;
    return true;
}

static bool grow_levels(struct cbor_in *in)
{
    if (array_reserve(&in->levels, sizeof(*in->levels), in->depth, 1, &in->n_level_room) == 0)
        return true;
    in->is_out_of_memory = true;
    return cborin_fail(in, "out of memory");
}

/* An item takes at least one byte, so a count above the bytes that are left is a lie. */
static bool push(struct cbor_in *in, const struct item *item)
{
    const uint64_t n_left = (uint64_t)(in->end - in->at), per = item->kind == TOKEN_MAP ? 2 : 1;
    if (item->n > n_left / per)
        return cborin_fail(in, "it ends too early");
    if (in->depth == in->depth_max) {
        in->is_too_deep = true;
        return cborin_fail(in, "it is nested too deeply");
    }
    if (!grow_levels(in))
        return false;
    in->levels[in->depth++] =
        (struct cbor_level){item->n * per, item->is_indefinite, item->kind == TOKEN_MAP};
    return true;
}

bool cborin_open_map(struct cbor_in *in)
{
    struct item item;
    return take(in, TOKEN_MAP, &item, "expected a map") && push(in, &item);
}

bool cborin_open_array(struct cbor_in *in)
{
    struct item item;
    return take(in, TOKEN_LIST, &item, "expected an array") && push(in, &item);
}

/* One more item in the innermost container? At its end the container is closed. */
static bool next_item(struct cbor_in *in)
{
    struct cbor_level *level = &in->levels[in->depth - 1];
    if (level->is_indefinite) {
        /* n_left counts down from 0: an odd number of items of a map is seen in its lowest bit. */
        if (in->at == in->end)
            return cborin_fail(in, "it ends too early");
        if (*in->at != 0xff) {
            level->n_left--;
            return true;
        }
        if (level->is_map && level->n_left % 2 != 0)
            return cborin_fail(in, "a key has no value");
        in->at++;
    } else if (level->n_left > 0) {
        level->n_left--;
        return true;
    }
    in->depth--;
    return false;
}

bool cborin_next(struct cbor_in *in)
{
    if (in->error != NULL || !next_item(in))
        return false;
    struct cbor_level *level = &in->levels[in->depth - 1];
    if (level->is_map)
        level->n_left--; /* the value, which the caller takes too */
    return true;
}

static bool check_text(struct cbor_in *in, const struct item *item)
{
    if (item->kind == TOKEN_TEXT && utf8_valid(item->bytes, (size_t)item->n) < item->n)
        return cborin_fail(in, "a string is not UTF-8");
    return true;
}

/*
 * The pieces of a text or byte string of indefinite length, up to the break. With ret they are
 * moved together, over the heads between them; NULL: they are only checked.
 */
static bool join(struct cbor_in *in, enum token_kind kind, struct cbor_span *ret)
{
    uint8_t *const first = in->at;
    size_t n_done = 0;
    for (;;) {
        struct item item;
        size_t n;
        if (!decode(in, &item, &n))
            return false;
        if (item.kind == TOKEN_END) {
            in->at += n;
            break;
        }
        if (item.kind != kind || item.is_indefinite)
            return cborin_fail(in, "a chunk of a string is of another type");
        if (!check_text(in, &item))
            return false;
        in->at += n;
        if (ret != NULL && item.n > 0)
            memmove(first + n_done, item.bytes, (size_t)item.n);
        n_done += (size_t)item.n;
    }
    if (ret != NULL)
        *ret = (struct cbor_span){(const char *)first, n_done};
    return true;
}

bool cborin_text(struct cbor_in *in, struct cbor_span *ret)
{
    struct item item;
    size_t n;
    if (!peek(in, &item, &n))
        return false;
    if (item.kind != TOKEN_TEXT)
        return cborin_fail(in, "expected a string");
    if (!item.is_indefinite && !check_text(in, &item))
        return false;
    in->at += n;
    if (item.is_indefinite)
        return join(in, TOKEN_TEXT, ret);
    *ret = (struct cbor_span){(const char *)item.bytes, (size_t)item.n};
    return true;
}

bool cborin_uint(struct cbor_in *in, uint64_t *ret)
{
    struct item item;
    if (!take(in, TOKEN_UINT, &item, "expected an unsigned integer"))
        return false;
    *ret = item.n;
    return true;
}

bool cborin_null(struct cbor_in *in)
{
    struct item item;
    return take(in, TOKEN_NULL, &item, "expected null");
}

bool cborin_skip(struct cbor_in *in)
{
    const uint64_t depth = in->depth;
    do {
        struct item item;
        size_t n;
        if (!peek(in, &item, &n))
            return false;
        if (item.kind == TOKEN_END)
            return cborin_fail(in, "expected a value");
        if (!item.is_indefinite && !check_text(in, &item))
            return false;
        in->at += n;
        if (item.kind == TOKEN_LIST || item.kind == TOKEN_MAP) {
            if (!push(in, &item))
                return false;
        } else if (item.is_indefinite && !join(in, item.kind, NULL)) {
            return false;
        }
        while (in->depth > depth && !next_item(in)) {
            if (in->error != NULL)
                return false;
        }
    } while (in->depth > depth);
    return true;
}

/* Takes a number or a bool. */
static bool take_number(struct cbor_in *in, const struct item *item, size_t n_bytes,
                        struct token *ret)
{
    in->at += n_bytes;
    if (item->kind == TOKEN_NEGATIVE && item->n > INT64_MAX)
        return cborin_fail(in, "expected a signed 64-bit integer");
    *ret = (struct token){.kind = (uint8_t)item->kind,
                          .n = item->kind == TOKEN_NEGATIVE ? ~item->n : item->n};
    return true;
}

bool cborin_token(struct cbor_in *in, enum token_place place, struct token *ret)
{
    struct item item;
    struct cbor_span text;
    size_t n_bytes;
    *ret = (struct token){.kind = TOKEN_END};
    if (place != AT_VALUE && !cborin_next(in))
        return in->error == NULL;
    if (!peek(in, &item, &n_bytes))
        return false;
    if (item.kind <= TOKEN_F64)
        return take_number(in, &item, n_bytes, ret);
    ret->kind = (uint8_t)item.kind;
    switch (item.kind) {
    case TOKEN_TEXT:
        if (!cborin_text(in, &text))
            return false;
        *ret = (struct token){.kind = TOKEN_TEXT, .n = text.n_bytes, .bytes = text.bytes};
        return true;
    case TOKEN_LIST:
    case TOKEN_MAP:
        in->at += n_bytes;
        return push(in, &item);
    default:
        return cborin_skip(in);
    }
}

bool cborin_field(struct cbor_in *in, struct cbor_span *ret)
{
    struct item item;
    size_t n;
    if (!peek(in, &item, &n))
        return false;
    if ((item.kind != TOKEN_TEXT && item.kind != TOKEN_BYTES) || item.is_indefinite)
        return cborin_fail(in, "expected a name of definite length");
    if (item.n > CBOR_FIELD_MAX)
        return cborin_fail(in, "a field's name is longer than 4096 bytes");
    if (!check_text(in, &item))
        return false;
    in->at += n;
    *ret = (struct cbor_span){(const char *)item.bytes, (size_t)item.n};
    return true;
}

bool cborin_variant(struct cbor_in *in, struct cbor_span *ret, bool *ret_has_payload)
{
    *ret_has_payload = cborin_kind(in) == TOKEN_MAP;
    if (!*ret_has_payload) {
        if (cborin_kind(in) != TOKEN_TEXT)
            return cborin_fail(in, "expected a name, or a map of one");
        return cborin_field(in, ret);
    }
    if (!cborin_open_map(in))
        return false;
    if (in->levels[in->depth - 1].is_indefinite || in->levels[in->depth - 1].n_left != 2)
        return cborin_fail(in, "expected a map of one pair");
    return cborin_next(in) && cborin_field(in, ret);
}

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
