/* SPDX-License-Identifier: MIT */
/*
 * Heads of MessagePack by libmpack, whose reader keeps no more than the head at hand.
 */
#include "format/records/mpk_in.h"

#include <errno.h>
#include <mpack.h>

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

static struct mpk_token token_of(const mpack_token_t *token)
{
    switch (token->type) {
    case MPACK_TOKEN_NIL:
        return (struct mpk_token){MPK_NIL, 0};
    case MPACK_TOKEN_BOOLEAN:
        return (struct mpk_token){MPK_BOOL, token->data.value.lo};
    case MPACK_TOKEN_UINT:
        return (struct mpk_token){MPK_UINT, bits_of(token)};
    case MPACK_TOKEN_SINT: {
        const uint64_t n = negative_of(token);
        return (struct mpk_token){n <= INT64_MAX ? MPK_UINT : MPK_NEGATIVE, n};
    }
    case MPACK_TOKEN_FLOAT:
        return (struct mpk_token){token->length == 4 ? MPK_F32 : MPK_F64, bits_of(token)};
    case MPACK_TOKEN_STR:
        return (struct mpk_token){MPK_TEXT, token->length};
    case MPACK_TOKEN_BIN:
        return (struct mpk_token){MPK_BYTES, token->length};
    case MPACK_TOKEN_ARRAY:
        return (struct mpk_token){MPK_ARRAY, token->length};
    case MPACK_TOKEN_MAP:
        return (struct mpk_token){MPK_MAP, token->length};
    default:
        return (struct mpk_token){MPK_EXT, token->length};
    }
}

int mpk_next(struct stream *stream, struct mpk_token *ret)
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
