/* SPDX-License-Identifier: MIT */
/*
 * The walk over MessagePack: heads and small values are read, the bytes of tensors are stepped
 * over.
 *
 * Burn writes the length of bytes with 32 bits, and cuts longer ones without a word: a tensor of
 * 2^32 + 7 bytes has the length 7 in front of all its bytes. What follows then is not the key
 * `shape`; it is where 2^32 bytes more, or a multiple of that, lead to it.
 */
#include "format/records/record_mpk.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/records/mpk_in.h"
#include "format/records/record_dtype.h"

#define LENGTH_CUT ((uint64_t)1 << 32)

enum { N_DIMS_MAX = 64, N_DTYPE_MAX = 16, N_IN_VAIN_MAX = 64 };

struct parser {
    struct build *build;
    struct record_load *load;
    struct stream stream;
    char *scratch; /* malloc'ed room for a key */
    size_t n_scratch;
    unsigned n_in_vain; /* searches for a length that found none */
};

static int fail(struct parser *parser, int code, uint64_t offset)
{
    const struct record_load *load = parser->load;
    if (code == -ENODATA)
        return record_fail_short(load, offset);
    if (code == -EBADMSG)
        return wfs_fail(load->err, EBADMSG,
                        "the byte at %" PRIu64 "%s is not the start of a MessagePack value", offset,
                        record_where(load));
    return record_fail_read(load, code);
}

static bool is_number(enum mpk_kind kind)
{
    return kind >= MPK_BOOL && kind <= MPK_F64;
}

static struct element element_of(const struct mpk_token *token)
{
    static const uint8_t kinds[] = {[MPK_BOOL] = ELEMENT_BOOL,
                                    [MPK_UINT] = ELEMENT_UINT,
                                    [MPK_NEGATIVE] = ELEMENT_NEGATIVE,
                                    [MPK_F32] = ELEMENT_F32,
                                    [MPK_F64] = ELEMENT_F64};
    return (struct element){token->n, kinds[token->kind]};
}

/* ---- keys and texts ---- */

static int read_scratch(struct parser *parser, uint64_t n_bytes)
{
    if (array_reserve(&parser->scratch, 1, 0, (size_t)n_bytes + 1, &parser->n_scratch) < 0)
        return -ENOMEM;
    return stream_read(&parser->stream, parser->scratch, (size_t)n_bytes);
}

static int take_key(struct parser *parser)
{
    const struct record_load *load = parser->load;
    const uint64_t offset = stream_offset(&parser->stream), limit = load->context->limits.key;
    struct mpk_token token;
    int code = mpk_next(&parser->stream, &token);
    if (code < 0)
        return fail(parser, code, offset);
    if (token.kind != MPK_TEXT && token.kind != MPK_BYTES)
        return wfs_fail(load->err, token.kind == MPK_UINT ? EOPNOTSUPP : EBADMSG,
                        token.kind == MPK_UINT
                            ? "the fields are numbered instead of named at byte %" PRIu64
                              "%s, so there are no keys: save it with NamedMpkFileRecorder"
                            : "expected a key at byte %" PRIu64 "%s",
                        offset, record_where(load));
    if (token.n > limit)
        return wfs_fail(load->err, E2BIG,
                        "the key at byte %" PRIu64 "%s has %s, the limit is %" PRIu64
                        " (limit key)",
                        offset, record_where(load), wfs_count(token.n, "byte").text, limit);
    code = read_scratch(parser, token.n);
    if (code < 0)
        return fail(parser, code, offset);
    return build_key(parser->build, parser->scratch, (size_t)token.n, offset);
}

static int take_text(struct parser *parser, uint64_t n_bytes, uint64_t offset)
{
    const struct record_load *load = parser->load;
    const uint64_t limit = load->context->limits.text;
    if (n_bytes > stream_left(&parser->stream))
        return record_fail_short(load, offset);
    if (n_bytes > limit)
        return wfs_fail(load->err, E2BIG,
                        "the text at byte %" PRIu64 "%s has %s, the limit is %" PRIu64
                        " (limit text)",
                        offset, record_where(load), wfs_count(n_bytes, "byte").text, limit);
    char *text = arena_chars(&load->catalog->arena, (size_t)n_bytes + 1);
    if (text == NULL)
        return record_fail_memory(load);
    const int code = stream_read(&parser->stream, text, (size_t)n_bytes);
    if (code < 0)
        return fail(parser, code, offset);
    text[n_bytes] = '\0';
    if (utf8_valid(text, (size_t)n_bytes) != n_bytes)
        return wfs_fail(load->err, EBADMSG, "the text at byte %" PRIu64 "%s is not UTF-8", offset,
                        record_where(load));
    return build_text(parser->build, text, (size_t)n_bytes);
}

/* ---- bytes ---- */

static int take_word(struct stream *stream, const char *word)
{
    const size_t n = strlen(word);
    const uint8_t *bytes;
    struct mpk_token token;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != MPK_TEXT || token.n != n)
        return code < 0 && code != -ENODATA ? code : -EBADMSG;
    code = stream_take(stream, n, &bytes);
    return code < 0 ? code : memcmp(bytes, word, n) == 0 ? 0 : -EBADMSG;
}

/* Reads the shape behind its key, as the number of elements. */
static int take_product(struct stream *stream, uint64_t *ret)
{
    struct mpk_token token;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != MPK_ARRAY || token.n > N_DIMS_MAX)
        return code < 0 ? code : -EBADMSG;
    *ret = 1;
    for (uint64_t n = token.n; n > 0; n--) {
        code = mpk_next(stream, &token);
        if (code < 0 || token.kind != MPK_UINT || !checked_mul(*ret, token.n, ret))
            return code < 0 ? code : -EBADMSG;
    }
    return 0;
}

static int take_dtype_bytes(struct stream *stream, uint64_t *ret)
{
    struct mpk_token token;
    const uint8_t *name;
    enum wfs_dtype dtype;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != MPK_TEXT || token.n > N_DTYPE_MAX)
        return code < 0 ? code : -EBADMSG;
    code = stream_take(stream, (size_t)token.n, &name);
    if (code < 0 || !record_dtype_parse((const char *)name, (size_t)token.n, &dtype))
        return code < 0 ? code : -EBADMSG;
    *ret = wfs_dtype_bits(dtype) / 8;
    return 0;
}

/* Returns 1 if the shape and dtype that follow the bytes at `end` take n_bytes, else 0. Errors
 * other than of the content are errors. */
static int is_followed(const struct source *bytes, uint64_t end, uint64_t n_bytes)
{
    cleanup(stream_done) struct stream stream = {0};
    uint64_t n_elems = 0, n_each = 0, n_all;
    int code = stream_init(&stream, bytes, end, bytes->n_bytes);
    if (code == 0)
        code = take_word(&stream, "shape");
    if (code == 0)
        code = take_product(&stream, &n_elems);
    if (code == 0)
        code = take_word(&stream, "dtype");
    if (code == 0)
        code = take_dtype_bytes(&stream, &n_each);
    if (code == -EBADMSG || code == -ENODATA)
        return 0;
    return code < 0 ? code : checked_mul(n_elems, n_each, &n_all) && n_all == n_bytes;
}

/* Returns whether the key `shape` comes next; takes nothing. */
static bool is_at_shape(struct stream *stream)
{
    static const char key[] = "\xa5shape";
    const uint8_t *bytes;
    if (stream_left(stream) < sizeof(key) - 1 || stream_take(stream, sizeof(key) - 1, &bytes) < 0)
        return false;
    stream->at -= sizeof(key) - 1;
    return memcmp(bytes, key, sizeof(key) - 1) == 0;
}

/* Finds the length of bytes at `data` that the writer may have cut; the stream is behind them. */
static int restore_length(struct parser *parser, uint64_t data, uint64_t *n_bytes)
{
    struct record_load *load = parser->load;
    const uint64_t n_left = load->bytes->n_bytes - data;
    int code = 0;
    if (n_left < LENGTH_CUT || parser->n_in_vain == N_IN_VAIN_MAX || is_at_shape(&parser->stream))
        return 0;
    uint64_t n = *n_bytes;
    while (code == 0 && n <= n_left - LENGTH_CUT) {
        n += LENGTH_CUT;
        code = is_followed(load->bytes, data + n, n);
    }
    if (code < 0)
        return record_fail_read(load, code);
    parser->n_in_vain += code == 0;
    if (code == 0)
        return 0;
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_LENGTH,
               "the bytes at %" PRIu64 "%s are %" PRIu64
               ", but Burn has written a length of %" PRIu64 ": it cannot load the file again",
               data, record_where(load), n, *n_bytes);
    *n_bytes = n;
    code = stream_skip(&parser->stream, data + n - stream_offset(&parser->stream));
    return code < 0 ? record_fail_read(load, code) : 0;
}

/* Bytes, or a text in their place, which Burn takes too. */
static int take_bytes(struct parser *parser, uint64_t n_bytes, bool is_text, uint64_t offset)
{
    const struct record_load *load = parser->load;
    const uint64_t data = stream_offset(&parser->stream);
    if (n_bytes > stream_left(&parser->stream))
        return record_fail_short(load, offset);
    int code = stream_skip(&parser->stream, n_bytes);
    if (code < 0)
        return fail(parser, code, offset);
    if (build_is_at(parser->build, "bytes"))
        code = restore_length(parser, data, &n_bytes);
    if (code < 0)
        return code;
    const uint32_t id = value_new_bytes(load->graph, load->bytes, data, n_bytes);
    if (id != 0 && is_text)
        graph_at(load->graph, id)->form = FORM_BYTE_TEXT;
    return build_add(parser->build, id);
}

/* An extension: Burn writes none, and steps over it. */
static int take_ext(struct parser *parser, uint64_t n_bytes, uint64_t offset)
{
    struct record_load *load = parser->load;
    if (stream_skip(&parser->stream, n_bytes) < 0)
        return record_fail_short(load, offset);
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_EXTENSION,
               "a MessagePack extension at byte %" PRIu64 "%s is ignored: its value is null",
               offset, record_where(load));
    return build_add(parser->build, value_new(load->graph, VALUE_NONE));
}

/* ---- containers ---- */

/*
 * Takes all items as one list of numbers. Returns 1; 0 when one of them is something else, and goes
 * back.
 */
static int take_list(struct parser *parser, uint64_t n)
{
    struct record_lists *lists = &parser->load->lists;
    const uint64_t start = stream_offset(&parser->stream);
    struct list_draft draft;
    struct mpk_token token;
    list_begin(&draft, lists);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t offset = stream_offset(&parser->stream);
        const int code = mpk_next(&parser->stream, &token);
        if (code < 0)
            return fail(parser, code, offset);
        if (!is_number(token.kind)) {
            list_drop(&draft, lists);
            mpk_return(&parser->stream, start);
            return 0;
        }
        const struct element element = element_of(&token);
        if (list_put(&draft, lists, &element, offset) < 0)
            return wfs_fail_memory(parser->load->err);
    }
    draft.list.end = stream_offset(&parser->stream);
    const int code = build_list(parser->build, &draft);
    return code < 0 ? code : 1;
}

static int take_container(struct parser *parser, const struct mpk_token *token, uint64_t offset)
{
    const bool is_map = token->kind == MPK_MAP;
    /* Every item takes a byte at least. */
    if (token->n > stream_left(&parser->stream) / (is_map ? 2 : 1))
        return record_fail_short(parser->load, offset);
    if (!is_map && token->n > 0) {
        const int code = take_list(parser, token->n);
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return build_open(parser->build, is_map, token->n, offset);
}

static int take_value(struct parser *parser)
{
    const uint64_t offset = stream_offset(&parser->stream);
    struct mpk_token token;
    const int code = mpk_next(&parser->stream, &token);
    if (code < 0)
        return fail(parser, code, offset);
    switch (token.kind) {
    case MPK_NIL:
        return build_add(parser->build, value_new(parser->load->graph, VALUE_NONE));
    case MPK_MAP:
    case MPK_ARRAY:
        return take_container(parser, &token, offset);
    case MPK_TEXT:
        if (!build_is_at(parser->build, "bytes"))
            return take_text(parser, token.n, offset);
        return take_bytes(parser, token.n, true, offset);
    case MPK_BYTES:
        return take_bytes(parser, token.n, false, offset);
    case MPK_EXT:
        return take_ext(parser, token.n, offset);
    default: {
        const struct element element = element_of(&token);
        return build_number(parser->build, &element);
    }
    }
}

/* Closes containers that are complete, or takes the next item of the innermost one. */
static int step(struct parser *parser)
{
    struct build_level *level = build_level(parser->build);
    if (level == NULL)
        return take_value(parser);
    if (level->n_left == 0)
        return build_close(parser->build);
    level->n_left--;
    const int code = level->is_map ? take_key(parser) : 0;
    return code < 0 ? code : take_value(parser);
}

static int parse(struct parser *parser)
{
    int code = 0;
    while (code == 0 && parser->build->root == 0)
        code = step(parser);
    return code;
}

int record_mpk_parse(struct build *build, uint64_t *ret_end)
{
    struct record_load *load = build->load;
    struct parser parser = {.build = build, .load = load};
    load->lists.encoding = RECORD_MPK;
    if (stream_init(&parser.stream, load->bytes, 0, load->bytes->n_bytes) < 0)
        return wfs_fail_memory(load->err);
    const int code = parse(&parser);
    *ret_end = stream_offset(&parser.stream);
    stream_done(&parser.stream);
    free(parser.scratch);
    return code;
}
