/* SPDX-License-Identifier: MIT */
/*
 * The stack of open containers. Keys are texts that occur again and again: each is one value.
 */
#include "value/value_build.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/text_index.h"
#include "base/utf8.h"
#include "text/json.h"
#include "value/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TWIN = 16 };

/* A key that occurred. */
struct build_key {
    uint32_t id;     /* of its text */
    uint32_t serial; /* of the innermost open map that has it, or of one that is closed */
    uint32_t n_same; /* in that map */
};

/* What a key was in the maps around one that has it too. */
struct build_outer {
    uint32_t number;
    struct build_key key;
};

/* ---- tokens ---- */

/* Reads an integer without a fraction. Returns false when it does not fit 64 bits. */
static bool parse_integer(const char *text, size_t n_bytes, struct token *ret)
{
    const bool is_negative = n_bytes > 0 && text[0] == '-';
    uint64_t n = 0;
    if (!digits_parse(text + is_negative, n_bytes - is_negative, &n))
        return false;
    if (is_negative && (n == 0 || n > (uint64_t)INT64_MAX + 1))
        return false; /* -0 is a float */
    *ret = (struct token){.kind = is_negative ? TOKEN_NEGATIVE : TOKEN_UINT,
                          .n = is_negative ? 0 - n : n};
    return true;
}

bool token_parse(const char *text, size_t n_bytes, struct token *ret)
{
    char copy[TOKEN_NUMBER_MAX + 1];
    if (n_bytes > TOKEN_NUMBER_MAX)
        return false;
    if (parse_integer(text, n_bytes, ret))
        return true;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    const double real = strtod(copy, NULL);
    *ret = (struct token){.kind = TOKEN_DECIMAL};
    memcpy(&ret->n, &real, sizeof(real));
    return true;
}

double token_real(const struct token *token)
{
    double real;
    float narrow;
    const uint32_t low = (uint32_t)token->n;
    switch (token->kind) {
    case TOKEN_F32:
        memcpy(&narrow, &low, sizeof(narrow));
        return narrow;
    case TOKEN_F64:
    case TOKEN_DECIMAL:
        memcpy(&real, &token->n, sizeof(real));
        return real;
    case TOKEN_NEGATIVE:
        return (double)(int64_t)token->n;
    default:
        return (double)token->n;
    }
}

static bool is_at_end(struct json *json, enum token_place place, struct json_text *ret_key)
{
    return (place == AT_ITEM && !json_next_item(json)) ||
           (place == AT_KEY && !json_next_key(json, ret_key));
}

bool token_take_json(struct json *json, enum token_place place, struct token *ret)
{
    struct json_text text;
    *ret = (struct token){.kind = TOKEN_END};
    if (is_at_end(json, place, &text))
        return json->error == NULL;
    const enum json_kind kind = place == AT_KEY ? JSON_KIND_STRING : json_kind(json);
    const char *start = json->at;
    switch (kind) {
    case JSON_KIND_OBJECT:
        ret->kind = TOKEN_MAP;
        return json_open_object(json);
    case JSON_KIND_ARRAY:
        ret->kind = TOKEN_LIST;
        return json_open_array(json);
    case JSON_KIND_STRING:
        if (place != AT_KEY && !json_take_string(json, &text))
            return false;
        *ret = (struct token){.kind = TOKEN_TEXT, .n = text.n_bytes, .bytes = text.bytes};
        return true;
    case JSON_KIND_NUMBER:
        return json_skip(json) && (token_parse(start, (size_t)(json->at - start), ret) ||
                                   json_fail(json, "expected a value"));
    case JSON_KIND_BOOL:
        *ret = (struct token){.kind = TOKEN_BOOL, .n = *start == 't'};
        return json_skip(json);
    case JSON_KIND_NULL:
        ret->kind = TOKEN_NULL;
        return json_take_null(json);
    default:
        return json_fail(json, "expected a value");
    }
}

/* ---- values ---- */

uint32_t value_new_lasting(struct graph *graph, const char *text, size_t n_bytes)
{
    const uint32_t id = n_bytes > UINT32_MAX ? 0 : value_new(graph, VALUE_TEXT);
    if (id != 0) {
        graph_at(graph, id)->text = text;
        graph_at(graph, id)->n = (uint32_t)n_bytes;
    }
    return id;
}

static uint32_t value_of_large(struct graph *graph, uint64_t n)
{
    uint8_t bytes[9] = {0};
    store_le64(bytes, n);
    const uint32_t id = value_new_text(graph, (const char *)bytes, sizeof(bytes));
    if (id != 0) {
        graph_at(graph, id)->kind = VALUE_BIG;
        graph_at(graph, id)->form = FORM_UNSIGNED;
    }
    return id;
}

uint32_t value_of_token(struct graph *graph, const struct token *token)
{
    static const uint8_t kinds[] = {
        [TOKEN_BOOL] = VALUE_BOOL, [TOKEN_UINT] = VALUE_INT,  [TOKEN_NEGATIVE] = VALUE_INT,
        [TOKEN_F32] = VALUE_FLOAT, [TOKEN_F64] = VALUE_FLOAT, [TOKEN_DECIMAL] = VALUE_FLOAT};
    if (token->kind == TOKEN_TEXT)
        return value_new_text(graph, token->bytes, (size_t)token->n);
    if (token->kind == TOKEN_UINT && token->n > INT64_MAX)
        return value_of_large(graph, token->n);
    const enum value_kind kind =
        token_is_number(token) ? (enum value_kind)kinds[token->kind] : VALUE_NONE;
    const uint32_t id = value_new(graph, kind);
    if (id == 0 || kind == VALUE_NONE)
        return id;
    struct value *value = graph_at(graph, id);
    if (kind == VALUE_FLOAT)
        value->real = token_real(token);
    else
        value->integer = kind == VALUE_BOOL ? token->n != 0 : (int64_t)token->n;
    value->tag = token->kind == TOKEN_F32 ? VALUE_NARROW : 0;
    return id;
}

/* ---- building ---- */

void build_done(struct build *build)
{
    free(build->levels);
    free(build->items);
    free(build->key_items);
    free(build->outers);
    text_index_done(&build->keys);
}

struct build_level *build_level(const struct build *build)
{
    return build->depth == 0 ? NULL : &build->levels[build->depth - 1];
}

enum token_place build_place(const struct build *build)
{
    const struct build_level *level = build_level(build);
    if (level == NULL || !level->is_map)
        return level == NULL ? AT_VALUE : AT_ITEM;
    return (build->n_items - level->first) % 2 == 0 ? AT_KEY : AT_VALUE;
}

bool build_is_at(const struct build *build, const char *key)
{
    return build->depth > 0 && build_place(build) == AT_VALUE &&
           value_is_text(build->graph, build->items[build->n_items - 1], key);
}

void build_open(struct build *build, bool is_map)
{
    if (array_reserve(&build->levels, sizeof(*build->levels), build->depth, 1,
                      &build->n_level_room) < 0 ||
        (is_map && build->n_maps == UINT32_MAX)) {
        build->has_failed = true;
        return;
    }
    build->n_maps += is_map;
    build->levels[build->depth++] = (struct build_level){.first = build->n_items,
                                                         .first_outer = build->n_outers,
                                                         .serial = build->n_maps,
                                                         .is_map = is_map};
}

void build_add(struct build *build, uint32_t id)
{
    if (id == 0 || build->has_failed ||
        (build->depth > 0 && array_reserve(&build->items, sizeof(*build->items), build->n_items, 1,
                                           &build->n_item_room) < 0))
        build->has_failed = true;
    else if (build->depth > 0)
        build->items[build->n_items++] = id;
    else
        build->root = id;
}

uint32_t build_close(struct build *build)
{
    if (build->has_failed)
        return 0;
    const struct build_level level = build->levels[--build->depth];
    const size_t n_open = build->n_items - level.first,
                 n = n_open - (level.is_map ? n_open % 2 : 0);
    const uint32_t *items = n > 0 ? build->items + level.first : NULL;
    const enum value_kind kind = level.is_map ? VALUE_DICT : VALUE_LIST;
    const uint32_t id =
        n > UINT32_MAX ? 0 : value_new_items(build->graph, kind, items, (uint32_t)n);
    build->n_items = level.first;
    while (build->n_outers > level.first_outer) {
        const struct build_outer *outer = &build->outers[--build->n_outers];
        build->key_items[outer->number] = outer->key;
    }
    if (id == 0 || (level.has_twins && value_drop_twins(build->graph, id) < 0))
        build->has_failed = true;
    return id;
}

/* ---- keys ---- */

/* Returns the number of the key, adding it when it is new; TEXT_INDEX_NONE: no memory. */
static uint32_t number_key(struct build *build, const char *key, size_t n_bytes)
{
    uint32_t number = text_index_find(&build->keys, key, n_bytes);
    if (number != TEXT_INDEX_NONE)
        return number;
    const size_t n = build->keys.n_texts;
    const uint32_t id = value_new_text(build->graph, key, n_bytes);
    if (id == 0 ||
        array_reserve(&build->key_items, sizeof(*build->key_items), n, 1, &build->n_key_room) < 0 ||
        text_index_add(&build->keys, graph_at(build->graph, id)->text, n_bytes, &number) < 0)
        return TEXT_INDEX_NONE;
    build->key_items[number] = (struct build_key){.id = id};
    return number;
}

static bool is_in_map(const struct build *build, uint32_t number)
{
    return number != TEXT_INDEX_NONE &&
           build->key_items[number].serial == build_level(build)->serial;
}

bool build_has_key(const struct build *build, const char *key, size_t n_bytes)
{
    return is_in_map(build, text_index_find(&build->keys, key, n_bytes));
}

/* Returns the number of the first of ~2, ~3 … behind the key that the innermost map does not have.
 */
static uint32_t number_twin(struct build *build, uint32_t first, const char *key, size_t n_bytes)
{
    autofree char *twin = malloc(n_bytes + N_TWIN);
    uint32_t number = TEXT_INDEX_NONE;
    if (twin == NULL)
        return number;
    if (n_bytes > 0)
        memcpy(twin, key, n_bytes);
    do {
        const int n = snprintf(twin + n_bytes, N_TWIN, "~%u", ++build->key_items[first].n_same);
        number = number_key(build, twin, n_bytes + (size_t)n);
    } while (is_in_map(build, number));
    return number;
}

/* Makes the key one of the innermost map, until that is closed. */
static int enter_key(struct build *build, uint32_t number)
{
    struct build_key *key = &build->key_items[number];
    if (key->serial != 0) {
        if (array_reserve(&build->outers, sizeof(*build->outers), build->n_outers, 1,
                          &build->n_outer_room) < 0)
            return -1;
        build->outers[build->n_outers++] = (struct build_outer){number, *key};
    }
    key->serial = build_level(build)->serial;
    key->n_same = 1;
    return 0;
}

void build_key(struct build *build, const char *key, size_t n_bytes)
{
    uint32_t number = number_key(build, key, n_bytes);
    const bool is_twin = is_in_map(build, number);
    if (is_twin && build->numbers_twins)
        number = number_twin(build, number, key, n_bytes);
    else if (is_twin)
        build_level(build)->has_twins = build->has_twins = true;
    if (number == TEXT_INDEX_NONE || (!is_in_map(build, number) && enter_key(build, number) < 0))
        build->has_failed = true;
    else
        build_add(build, build->key_items[number].id);
}

/* ---- all of it ---- */

bool build_token(struct build *build, const struct token *token)
{
    const bool is_key = build_place(build) == AT_KEY && token->kind != TOKEN_END;
    if (is_key && token->kind != TOKEN_TEXT)
        return false;
    if (is_key)
        build_key(build, token->bytes, (size_t)token->n);
    else if (token->kind == TOKEN_MAP || token->kind == TOKEN_LIST)
        build_open(build, token->kind == TOKEN_MAP);
    else
        build_add(build, token->kind == TOKEN_END ? build_close(build)
                                                  : value_of_token(build->graph, token));
    return true;
}

int value_of_json(struct graph *graph, const char *text, uint32_t *ret)
{
    cleanup(build_done) struct build build = {.graph = graph};
    const size_t n_bytes = strlen(text);
    autofree char *copy = strdup(text); /* strings are unescaped in place */
    if (copy == NULL)
        return -ENOMEM;
    struct json json = json_of(copy, n_bytes);
    struct token token;
    *ret = 0;
    if (utf8_valid(text, n_bytes) != n_bytes)
        return 0;
    while (build.root == 0 && !build.has_failed) {
        if (!token_take_json(&json, build_place(&build), &token))
            return 0;
        build_token(&build, &token);
    }
    if (build.has_failed)
        return -ENOMEM;
    *ret = json_end(&json) && !build.has_twins ? build.root : 0;
    return 0;
}
