/* SPDX-License-Identifier: MIT */
/*
 * The writer: heads and small contents.
 */
#include "format/records/record_write.h"

#include <weightfs/strbuf.h>
#include "base/stream.h"

#include <mpack.h>

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t bits_of(const mpack_token_t *token)
{
    return (uint64_t)token->data.value.hi << 32 | token->data.value.lo;
}

/* The value of a negative integer, of which the library gives as many bytes as there are. */
static uint64_t negative_of(const mpack_token_t *token)
{
    switch (token->length) {
    case 1:
        return (uint64_t)(int64_t)(int8_t)token->data.value.lo;
    case 2:
        return (uint64_t)(int64_t)(int16_t)token->data.value.lo;
    case 4:
        return (uint64_t)(int64_t)(int32_t)token->data.value.lo;
    default:
        return bits_of(token);
    }
}

static struct token token_of(const mpack_token_t *token)
{
    static const uint8_t kinds[] = {
        [MPACK_TOKEN_NIL] = TOKEN_NULL,  [MPACK_TOKEN_BOOLEAN] = TOKEN_BOOL,
        [MPACK_TOKEN_UINT] = TOKEN_UINT, [MPACK_TOKEN_SINT] = TOKEN_NEGATIVE,
        [MPACK_TOKEN_FLOAT] = TOKEN_F64, [MPACK_TOKEN_STR] = TOKEN_TEXT,
        [MPACK_TOKEN_BIN] = TOKEN_BYTES, [MPACK_TOKEN_ARRAY] = TOKEN_LIST,
        [MPACK_TOKEN_MAP] = TOKEN_MAP,   [MPACK_TOKEN_EXT] = TOKEN_OTHER,
    };
    struct token ret = {.kind = kinds[token->type], .n = token->length};
    if (token->type == MPACK_TOKEN_SINT)
        ret.n = negative_of(token);
    else if (token_is_number(&ret))
        ret.n = bits_of(token);
    if (ret.kind == TOKEN_NEGATIVE && ret.n <= INT64_MAX)
        ret.kind = TOKEN_UINT;
    if (ret.kind == TOKEN_F64 && token->length == 4)
        ret.kind = TOKEN_F32;
    return ret;
}

int mpk_next(struct stream *stream, struct token *ret)
{
    const uint64_t n_left = stream_left(stream);
    const size_t n_head = n_left < MPACK_MAX_TOKEN_LEN ? (size_t)n_left : MPACK_MAX_TOKEN_LEN;
    const uint8_t *head;
    if (n_head == 0)
        return -ENODATA;
    const int code = stream_take(stream, n_head, &head);
    if (code < 0)
        return code;
    mpack_tokbuf_t buffer = MPACK_TOKBUF_INITIAL_VALUE;
    mpack_token_t token;
    const char *at = (const char *)head;
    size_t n_rest = n_head;
    const int state = mpack_read(&buffer, &at, &n_rest, &token);
    stream->at -= state == MPACK_OK ? n_rest : n_head;
    if (state != MPACK_OK)
        return state == MPACK_EOF ? -ENODATA : -EBADMSG;
    *ret = token_of(&token);
    return 0;
}

void mpk_return(struct stream *stream, uint64_t offset)
{
    const uint64_t n_back = stream_offset(stream) - offset;
    if (n_back <= (size_t)(stream->at - stream->window)) {
        stream->at -= n_back;
    } else {
        stream->next = offset;
        stream->at = stream->stop = stream->window;
    }
}

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
