/* SPDX-License-Identifier: MIT */
/*
 * From MessagePack or JSON to the graph of a record. Heads and small values are read; lists of
 * numbers and the bytes of tensors stay where they are.
 *
 * Burn writes the length of bytes with 32 bits, and cuts longer ones without a word: a tensor of
 * 2^32 + 7 bytes has the length 7 in front of all its bytes. What follows then is not the key
 * `shape`; it is where 2^32 bytes more, or a multiple of that, lead to it.
 */
#include "format/records/record_load.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/records/record_map.h"
#include "format/records/record_names.h"
#include "format/records/record_write.h"
#include "value/value_build.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_CUT ((uint64_t)1 << 32)

enum { N_DIMS_MAX = 64, N_DTYPE_MAX = 16, N_IN_VAIN_MAX = 64 };

enum { DEPTH, JSON };

const struct wfs_limit record_limits[] = {
    [DEPTH] = {"record_depth", 1024, "nesting of a record, as Burn"},
    [JSON] = {"record_json", 1073741824, "bytes of a record in JSON, which is parsed in memory"},
    {0}};

struct parser {
    struct record_load *load;
    struct build build;
    uint64_t offset;      /* of the token at hand */
    struct json json;     /* JSON */
    struct stream stream; /* MessagePack */
    char *scratch;        /* malloc'ed: a key of MessagePack, or all of the JSON */
    size_t n_scratch;
    unsigned n_in_vain; /* searches for a length that found none */
};

static bool is_json(const struct parser *parser)
{
    return parser->load->lists.encoding == RECORD_JSON;
}

static int fail_json(const struct parser *parser)
{
    return wfs_fail(parser->load->err, EBADMSG, "the JSON is damaged at byte %zu%s: %s",
                    json_offset(&parser->json), record_where(parser->load), parser->json.error);
}

static int fail_mpk(const struct parser *parser, int code)
{
    const struct record_load *load = parser->load;
    if (code == -ENODATA)
        return record_fail_short(load, parser->offset);
    if (code == -EBADMSG)
        return wfs_fail(load->err, EBADMSG,
                        "the byte at %" PRIu64 "%s is not the start of a MessagePack value",
                        parser->offset, record_where(load));
    return record_fail_read(load, code);
}

static int take_mpk(struct parser *parser, struct token *ret)
{
    parser->offset = stream_offset(&parser->stream);
    const int code = mpk_next(&parser->stream, ret);
    return code < 0 ? fail_mpk(parser, code) : 0;
}

static int take_token(struct parser *parser, struct token *ret)
{
    const enum token_place place = build_place(&parser->build);
    if (is_json(parser)) {
        if (!token_take_json(&parser->json, place, ret))
            return fail_json(parser);
        parser->offset = ret->kind == TOKEN_TEXT ? (uint64_t)(ret->bytes - 1 - parser->json.start)
                                                 : json_offset(&parser->json) - 1;
        return 0;
    }
    struct build_level *level = build_level(&parser->build);
    if (place == AT_VALUE || level->n_left > 0) {
        if (place != AT_VALUE)
            level->n_left--;
        return take_mpk(parser, ret);
    }
    *ret = (struct token){.kind = TOKEN_END};
    return 0;
}

/* ---- values ---- */

static int add(struct parser *parser, uint32_t id)
{
    const struct record_load *load = parser->load;
    const uint64_t limit = load->context->limits.values;
    build_add(&parser->build, id);
    if (parser->build.has_failed)
        return record_fail_memory(load);
    return load->graph->n_values <= limit ? 0 : record_fail_values(load);
}

/* Adds a list by its number; a negative one is an error. */
static int add_list(struct parser *parser, int64_t number)
{
    struct graph *graph = parser->load->graph;
    const uint32_t id = number < 0 || number > UINT32_MAX ? 0 : value_new(graph, VALUE_PERSISTENT);
    if (id != 0)
        graph_at(graph, id)->id = (uint32_t)number;
    return add(parser, id);
}

static int note_twin(const struct parser *parser, const char *key, size_t n_bytes)
{
    struct record_load *load = parser->load;
    const struct wfs_quoted quoted = wfs_quote_n(key, n_bytes);
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG,
                        "the key '%s' is a duplicate at byte %" PRIu64 "%s, which Burn refuses",
                        quoted.text, parser->offset, record_where(load));
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, REC_DUPLICATE,
               "the key '%s' is a duplicate at byte %" PRIu64 "%s", quoted.text, parser->offset,
               record_where(load));
    return 0;
}

/* A key must be UTF-8 without NUL. A duplicate is an error; with force it gets ~2 behind it, so
 * that nothing is written with two equal keys. */
static int add_key(struct parser *parser, const char *key, size_t n_bytes)
{
    const struct record_load *load = parser->load;
    if (utf8_valid(key, n_bytes) != n_bytes)
        return wfs_fail(load->err, EBADMSG, "the key '%s' at byte %" PRIu64 "%s is not UTF-8",
                        wfs_quote_n(key, n_bytes).text, parser->offset, record_where(load));
    if (n_bytes > 0 && memchr(key, '\0', n_bytes) != NULL)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the key '%s' contains a NUL, which no file name can",
                        wfs_quote_n(key, n_bytes).text);
    const int code =
        build_has_key(&parser->build, key, n_bytes) ? note_twin(parser, key, n_bytes) : 0;
    if (code < 0)
        return code;
    build_key(&parser->build, key, n_bytes);
    return parser->build.has_failed ? record_fail_memory(load) : 0;
}

static int take_key(struct parser *parser, const struct token *token)
{
    const struct record_load *load = parser->load;
    const uint64_t limit = load->context->limits.key;
    if (token->kind != TOKEN_TEXT && token->kind != TOKEN_BYTES)
        return wfs_fail(load->err, token->kind == TOKEN_UINT ? EOPNOTSUPP : EBADMSG,
                        token->kind == TOKEN_UINT
                            ? "the fields are numbered instead of named at byte %" PRIu64
                              "%s, so there are no keys: save it with NamedMpkFileRecorder"
                            : "expected a key at byte %" PRIu64 "%s",
                        parser->offset, record_where(load));
    if (token->n > limit && is_json(parser))
        return wfs_fail(load->err, E2BIG, "the key at byte %" PRIu64 "%s has %s (limit key)",
                        parser->offset, record_where(load), wfs_count(token->n, "byte").text);
    if (token->n > limit)
        return wfs_fail(
            load->err, E2BIG,
            "the key at byte %" PRIu64 "%s has %s, the limit is %" PRIu64 " (limit key)",
            parser->offset, record_where(load), wfs_count(token->n, "byte").text, limit);
    const size_t n_bytes = (size_t)token->n;
    if (is_json(parser))
        return add_key(parser, token->bytes, n_bytes);
    if (array_reserve(&parser->scratch, 1, 0, n_bytes + 1, &parser->n_scratch) < 0)
        return fail_mpk(parser, -ENOMEM);
    const int code = stream_read(&parser->stream, parser->scratch, n_bytes);
    return code < 0 ? fail_mpk(parser, code) : add_key(parser, parser->scratch, n_bytes);
}

/* Copies a text of MessagePack from the stream. */
static int read_text(struct parser *parser, size_t n_bytes, char *text)
{
    const int code = stream_read(&parser->stream, text, n_bytes);
    if (code < 0)
        return fail_mpk(parser, code);
    text[n_bytes] = '\0';
    if (utf8_valid(text, n_bytes) != n_bytes)
        return wfs_fail(parser->load->err, EBADMSG, "the text at byte %" PRIu64 "%s is not UTF-8",
                        parser->offset, record_where(parser->load));
    return 0;
}

/* A text, which JSON may have in place of the bytes of a tensor. */
static int take_text(struct parser *parser, const struct token *token)
{
    struct record_load *load = parser->load;
    const uint64_t limit = load->context->limits.text;
    if (!is_json(parser) && token->n > stream_left(&parser->stream))
        return record_fail_short(load, parser->offset);
    if (token->n > limit)
        return wfs_fail(
            load->err, E2BIG,
            "the text at byte %" PRIu64 "%s has %s, the limit is %" PRIu64 " (limit text)",
            parser->offset, record_where(load), wfs_count(token->n, "byte").text, limit);
    const size_t n_bytes = (size_t)token->n;
    char *text = arena_chars(&load->catalog->arena, n_bytes + 1);
    if (text == NULL)
        return record_fail_memory(load);
    if (is_json(parser))
        memcpy(text, token->bytes, n_bytes + 1);
    const int code = is_json(parser) ? 0 : read_text(parser, n_bytes, text);
    if (code < 0)
        return code;
    return build_is_at(&parser->build, "bytes")
               ? add_list(parser, list_of_text(&load->lists, text, n_bytes))
               : add(parser, value_new_lasting(load->graph, text, n_bytes));
}

/* ---- bytes of MessagePack ---- */

static int take_word(struct stream *stream, const char *word)
{
    const size_t n = strlen(word);
    const uint8_t *bytes;
    struct token token;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != TOKEN_TEXT || token.n != n)
        return code < 0 && code != -ENODATA ? code : -EBADMSG;
    code = stream_take(stream, n, &bytes);
    return code < 0 ? code : memcmp(bytes, word, n) == 0 ? 0 : -EBADMSG;
}

/* Reads the shape behind its key, as the number of elements. */
static int take_product(struct stream *stream, uint64_t *ret)
{
    struct token token;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != TOKEN_LIST || token.n > N_DIMS_MAX)
        return code < 0 ? code : -EBADMSG;
    *ret = 1;
    for (uint64_t n = token.n; n > 0; n--) {
        code = mpk_next(stream, &token);
        if (code < 0 || token.kind != TOKEN_UINT || !checked_mul(*ret, token.n, ret))
            return code < 0 ? code : -EBADMSG;
    }
    return 0;
}

static int take_dtype_bytes(struct stream *stream, uint64_t *ret)
{
    struct token token;
    const uint8_t *name;
    enum wfs_dtype dtype;
    int code = mpk_next(stream, &token);
    if (code < 0 || token.kind != TOKEN_TEXT || token.n > N_DTYPE_MAX)
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
    tally_note(&load->tally, &load->catalog->arena, WFS_LOW, REC_LENGTH,
               "the bytes at %" PRIu64 "%s are %" PRIu64
               ", but Burn has written a length of %" PRIu64 ": it cannot load the file again",
               data, record_where(load), n, *n_bytes);
    *n_bytes = n;
    code = stream_skip(&parser->stream, data + n - stream_offset(&parser->stream));
    return code < 0 ? record_fail_read(load, code) : 0;
}

/* Bytes, or a text in their place, which Burn takes too. */
static int take_bytes(struct parser *parser, const struct token *token)
{
    const struct record_load *load = parser->load;
    const uint64_t data = stream_offset(&parser->stream);
    uint64_t n_bytes = token->n;
    if (n_bytes > stream_left(&parser->stream))
        return record_fail_short(load, parser->offset);
    int code = stream_skip(&parser->stream, n_bytes);
    if (code < 0)
        return fail_mpk(parser, code);
    if (build_is_at(&parser->build, "bytes"))
        code = restore_length(parser, data, &n_bytes);
    if (code < 0)
        return code;
    const uint32_t id = value_new_bytes(load->graph, load->bytes, data, n_bytes);
    if (id != 0 && token->kind == TOKEN_TEXT)
        graph_at(load->graph, id)->form = FORM_BYTE_TEXT;
    return add(parser, id);
}

/* An extension: Burn writes none, and steps over it. */
static int take_ext(struct parser *parser, const struct token *token)
{
    struct record_load *load = parser->load;
    if (stream_skip(&parser->stream, token->n) < 0)
        return record_fail_short(load, parser->offset);
    tally_note(&load->tally, &load->catalog->arena, WFS_INFO, REC_EXTENSION,
               "a MessagePack extension at byte %" PRIu64 "%s is ignored: its value is null",
               parser->offset, record_where(load));
    return add(parser, value_new(load->graph, VALUE_NONE));
}

/* ---- containers ---- */

enum item { ITEM_NONE, ITEM_NUMBER, ITEM_OTHER };

/* Takes the next item of a list if it is a number. Returns enum item, or an error. */
static int take_number(struct parser *parser, uint64_t *n_left, struct token *ret)
{
    struct json *json = &parser->json;
    if (!is_json(parser)) {
        if (*n_left == 0)
            return ITEM_NONE;
        --*n_left;
        const int code = take_mpk(parser, ret);
        return code < 0 ? code : token_is_number(ret) ? ITEM_NUMBER : ITEM_OTHER;
    }
    if (!json_next_item(json))
        return json->error == NULL ? ITEM_NONE : ITEM_OTHER;
    const enum json_kind kind = json_kind(json);
    parser->offset = json_offset(json);
    return (kind == JSON_KIND_NUMBER || kind == JSON_KIND_BOOL) &&
                   token_take_json(json, AT_VALUE, ret)
               ? ITEM_NUMBER
               : ITEM_OTHER;
}

/*
 * Takes all items as one list of numbers. Returns 1; 0 when one of them is something else, or there
 * are none, and goes back.
 */
static int take_list(struct parser *parser, uint64_t n_items)
{
    struct record_load *load = parser->load;
    const struct json json = parser->json;
    const uint64_t start = is_json(parser) ? 0 : stream_offset(&parser->stream);
    struct list_draft draft;
    struct token token;
    list_begin(&draft, &load->lists);
    int item = take_number(parser, &n_items, &token);
    for (; item == ITEM_NUMBER; item = take_number(parser, &n_items, &token)) {
        if (list_put(&draft, &load->lists, &token, parser->offset) < 0)
            return wfs_fail_memory(load->err);
    }
    if (item < 0)
        return item;
    if (item == ITEM_OTHER || draft.list.n == 0) {
        list_drop(&draft, &load->lists);
        parser->json = json;
        if (!is_json(parser))
            mpk_return(&parser->stream, start);
        return 0;
    }
    draft.list.end = is_json(parser) ? 0 : stream_offset(&parser->stream);
    const int code = add_list(parser, list_end(&draft, &load->lists, &load->catalog->arena));
    return code < 0 ? code : 1;
}

static int open_container(struct parser *parser, const struct token *token)
{
    const struct record_load *load = parser->load;
    const bool is_map = token->kind == TOKEN_MAP;
    const uint64_t limit = limits_own(&load->context->limits, &record_limits[DEPTH]);
    const uint64_t offset = parser->offset;
    /* Every item takes a byte at least. */
    if (!is_json(parser) && token->n > stream_left(&parser->stream) / (is_map ? 2 : 1))
        return record_fail_short(load, offset);
    const int code = is_map ? 0 : take_list(parser, token->n);
    if (code != 0)
        return code < 0 ? code : 0;
    if (parser->build.depth >= limit)
        return wfs_fail(load->err, E2BIG,
                        "nested deeper than %s at byte %" PRIu64 "%s (limit record_depth)",
                        wfs_count(limit, "level").text, offset, record_where(load));
    build_open(&parser->build, is_map);
    if (parser->build.has_failed)
        return wfs_fail_memory(load->err);
    build_level(&parser->build)->n_left = token->n;
    return 0;
}

static void make_text(struct value *value, const char *text, size_t n_bytes)
{
    value->kind = VALUE_TEXT;
    value->form = 0;
    value->text = text;
    value->n = (uint32_t)n_bytes;
}

/* A text called "bytes" has been taken for the elements of a tensor: in a map that is none it is a
 * text like others, unless it is large or no UTF-8. */
static int restore_text(const struct record_load *load, uint32_t map)
{
    const struct graph *graph = load->graph;
    const uint32_t id = value_get(graph, map, "bytes");
    const struct record_map fields = record_map_of(graph, map);
    if (id == 0 || record_map_has_bytes(&fields))
        return 0;
    struct value *found = graph_at(graph, id);
    if (found->kind == VALUE_PERSISTENT && load->lists.items[found->id].text != NULL)
        make_text(found, load->lists.items[found->id].text, load->lists.items[found->id].n);
    if (found->kind != VALUE_BYTES || found->form != FORM_BYTE_TEXT)
        return 0;
    autofree uint8_t *text = NULL;
    size_t n_text;
    const int code = value_copy_range(found->bytes, &text, &n_text);
    if (code <= 0 || utf8_valid(text, n_text) != n_text)
        return code < 0 ? code : 0;
    const char *copy = arena_copy(graph->arena, (const char *)text, n_text);
    if (copy == NULL)
        return -ENOMEM;
    make_text(found, copy, n_text);
    return 0;
}

static int close_container(struct parser *parser)
{
    const bool is_map = build_level(&parser->build)->is_map;
    const uint32_t id = build_close(&parser->build);
    const int code = is_map && id != 0 ? restore_text(parser->load, id) : 0;
    return code < 0 ? record_fail_read(parser->load, code) : add(parser, id);
}

static int step(struct parser *parser)
{
    const enum token_place place = build_place(&parser->build);
    struct token token;
    const int code = take_token(parser, &token);
    if (code < 0)
        return code;
    if (place == AT_KEY && token.kind != TOKEN_END)
        return take_key(parser, &token);
    switch (token.kind) {
    case TOKEN_END:
        return close_container(parser);
    case TOKEN_MAP:
    case TOKEN_LIST:
        return open_container(parser, &token);
    case TOKEN_TEXT:
        return !is_json(parser) && build_is_at(&parser->build, "bytes") ? take_bytes(parser, &token)
                                                                        : take_text(parser, &token);
    case TOKEN_BYTES:
        return take_bytes(parser, &token);
    case TOKEN_OTHER:
        return take_ext(parser, &token);
    default:
        return add(parser, value_of_token(parser->load->graph, &token));
    }
}

/* ---- the whole ---- */

/* Reads all of the JSON, which is in memory only while it is parsed. */
static int begin_json(struct parser *parser)
{
    const struct record_load *load = parser->load;
    const uint64_t n_bytes = load->bytes->n_bytes;
    const uint64_t limit = limits_own(&load->context->limits, &record_limits[JSON]);
    if (n_bytes > limit)
        return wfs_fail(load->err, E2BIG,
                        "it has %s of JSON, the limit is %" PRIu64 " (limit record_json)",
                        wfs_count(n_bytes, "byte").text, limit);
    char *text = parser->scratch = malloc((size_t)n_bytes + 1);
    if (text == NULL)
        return wfs_fail_memory(load->err);
    const int code = source_read(load->bytes, 0, text, (size_t)n_bytes);
    if (code < 0)
        return record_fail_read(load, code);
    text[n_bytes] = '\0';
    const size_t n_valid = utf8_valid(text, (size_t)n_bytes);
    if (n_valid != n_bytes)
        return wfs_fail(load->err, EBADMSG, "the JSON is damaged at byte %zu%s: it is not UTF-8",
                        n_valid, record_where(load));
    parser->json = json_of(text, (size_t)n_bytes);
    return 0;
}

static int begin(struct parser *parser)
{
    const struct source *bytes = parser->load->bytes;
    if (is_json(parser))
        return begin_json(parser);
    return stream_init(&parser->stream, bytes, 0, bytes->n_bytes) < 0
               ? wfs_fail_memory(parser->load->err)
               : 0;
}

/* With force, what there is of a record that was cut. */
static int keep_front(struct parser *parser, const struct wfs_error *why)
{
    struct record_load *load = parser->load;
    int code = 0;
    if (why->code != EBADMSG || !load->context->force || parser->build.depth == 0)
        return wfs_fail(load->err, why->code, "%s", why->text);
    tally_note(&load->tally, &load->catalog->arena, WFS_HIGH, REC_SHORT, "%s", why->text);
    while (parser->build.depth > 0 && code == 0)
        code = close_container(parser);
    return code;
}

/* White space may follow JSON. */
static void note_rest(struct parser *parser)
{
    struct record_load *load = parser->load;
    uint64_t end = load->bytes->n_bytes;
    if (!is_json(parser))
        end = stream_offset(&parser->stream);
    else if (!json_end(&parser->json))
        end = json_offset(&parser->json);
    if (end < load->bytes->n_bytes)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, REC_TRAILING,
                   "%s the record, which Burn ignores",
                   wfs_count_as(load->bytes->n_bytes - end, "byte follows", "bytes follow").text);
}

int record_read(struct record_load *load, uint32_t *ret_root)
{
    struct parser parser = {.load = load, .build = {.graph = load->graph, .numbers_twins = true}};
    struct wfs_error first = {0}, *const err = load->err;
    load->err = &first;
    int code = begin(&parser);
    while (code == 0 && parser.build.root == 0)
        code = step(&parser);
    load->err = err;
    if (code < 0)
        code = keep_front(&parser, &first);
    else
        note_rest(&parser);
    *ret_root = parser.build.root;
    stream_done(&parser.stream);
    build_done(&parser.build);
    free(parser.scratch);
    return code;
}
