/* SPDX-License-Identifier: MIT */
/*
 * The stack of open containers. Keys are texts that occur again and again: each is one value.
 */
#include "format/records/record_build.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/records/record_map.h"
#include "format/records/record_value.h"
#include "value/value_leaf.h"

enum { N_TWIN = 16 };

void build_init(struct build *build, struct record_load *load)
{
    *build = (struct build){.load = load};
}

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

bool build_is_at(const struct build *build, const char *key)
{
    const struct build_level *level = build_level(build);
    if (level == NULL || !level->is_map || (build->n_items - level->first) % 2 == 0)
        return false;
    return value_is_text(build->load->graph, build->items[build->n_items - 1], key);
}

int build_open(struct build *build, bool is_map, uint64_t n, uint64_t offset)
{
    const struct record_load *load = build->load;
    const uint64_t limit = load->context->limits.record_depth;
    if (build->depth >= limit)
        return wfs_fail(load->err, E2BIG,
                        "nested deeper than %s at byte %" PRIu64 "%s (limit record_depth)",
                        wfs_count(limit, "level").text, offset, record_where(load));
    if (array_reserve(&build->levels, sizeof(*build->levels), build->depth, 1,
                      &build->n_level_room) < 0)
        return wfs_fail_memory(load->err);
    if (is_map && ++build->n_maps == UINT32_MAX)
        return wfs_fail(load->err, E2BIG, "more than 2^32 maps");
    build->levels[build->depth++] = (struct build_level){.first = build->n_items,
                                                         .first_outer = build->n_outers,
                                                         .serial = build->n_maps,
                                                         .is_map = is_map,
                                                         .n_left = n,
                                                         .n = n};
    return 0;
}

static int push(struct build *build, uint32_t id)
{
    if (array_reserve(&build->items, sizeof(*build->items), build->n_items, 1,
                      &build->n_item_room) < 0)
        return wfs_fail_memory(build->load->err);
    build->items[build->n_items++] = id;
    return 0;
}

/* Returns the number of the key, adding it when it is new; negative when there is no memory. */
static int64_t number_key(struct build *build, const char *key, size_t n_bytes)
{
    struct record_load *load = build->load;
    uint32_t number = text_index_find(&build->keys, key, n_bytes);
    if (number != TEXT_INDEX_NONE)
        return number;
    const size_t n = build->keys.n_texts;
    const char *copy = arena_copy(&load->catalog->arena, key, n_bytes);
    const uint32_t id = copy == NULL ? 0 : value_new_lasting(load->graph, copy, n_bytes);
    if (id == 0 ||
        array_reserve(&build->key_items, sizeof(*build->key_items), n, 1, &build->n_key_room) < 0 ||
        text_index_add(&build->keys, copy, n_bytes, &number) < 0)
        return -ENOMEM;
    build->key_items[number] = (struct build_key){.id = id};
    return number;
}

static int note_twin(struct build *build, const char *key, size_t n_bytes, uint64_t offset)
{
    struct record_load *load = build->load;
    const struct wfs_quoted quoted = wfs_quote_n(key, n_bytes);
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG,
                        "the key '%s' is a duplicate at byte %" PRIu64 "%s, which Burn refuses",
                        quoted.text, offset, record_where(load));
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_DUPLICATE,
               "the key '%s' is a duplicate at byte %" PRIu64 "%s", quoted.text, offset,
               record_where(load));
    return 0;
}

static bool is_in_map(const struct build *build, int64_t number)
{
    return number >= 0 && build->key_items[number].serial == build_level(build)->serial;
}

/* Returns the number of the first of ~2, ~3 … behind the key that the innermost map does not have;
 * negative when there is no memory. */
static int64_t number_twin(struct build *build, int64_t first, const char *key, size_t n_bytes)
{
    autofree char *twin = malloc(n_bytes + N_TWIN);
    int64_t number = -ENOMEM;
    if (twin == NULL)
        return number;
    if (n_bytes > 0)
        memcpy(twin, key, n_bytes);
    do {
        const int n =
            snprintf(twin + n_bytes, N_TWIN, "~%" PRIu32, ++build->key_items[first].n_same);
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
            return -ENOMEM;
        build->outers[build->n_outers++] = (struct build_outer){number, *key};
    }
    key->serial = build_level(build)->serial;
    key->n_same = 1;
    return 0;
}

int build_key(struct build *build, const char *key, size_t n_bytes, uint64_t offset)
{
    const struct record_load *load = build->load;
    if (utf8_valid(key, n_bytes) != n_bytes)
        return wfs_fail(load->err, EBADMSG, "the key '%s' at byte %" PRIu64 "%s is not UTF-8",
                        wfs_quote_n(key, n_bytes).text, offset, record_where(load));
    if (n_bytes > 0 && memchr(key, '\0', n_bytes) != NULL)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the key '%s' contains a NUL, which no file name can",
                        wfs_quote_n(key, n_bytes).text);
    int64_t number = number_key(build, key, n_bytes);
    if (is_in_map(build, number)) {
        const int code = note_twin(build, key, n_bytes, offset);
        if (code < 0)
            return code;
        number = number_twin(build, number, key, n_bytes);
    }
    if (number < 0 || enter_key(build, (uint32_t)number) < 0)
        return record_fail_memory(load);
    return push(build, build->key_items[number].id);
}

int build_add(struct build *build, uint32_t id)
{
    const struct record_load *load = build->load;
    const uint64_t limit = load->context->limits.values;
    if (id == 0)
        return record_fail_memory(load);
    if (load->graph->n_values > limit)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit values)",
                        wfs_count(limit, "value").text);
    if (build->depth > 0)
        return push(build, id);
    build->root = id;
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
    if (id == 0)
        return 0;
    const struct record_map fields = record_map_of(graph, map);
    if (record_map_has_bytes(&fields))
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

int build_close(struct build *build)
{
    const struct build_level level = build->levels[--build->depth];
    const size_t n = build->n_items - level.first;
    const uint32_t *items = n > 0 ? build->items + level.first : NULL;
    const enum value_kind kind = level.is_map ? VALUE_DICT : VALUE_LIST;
    const uint32_t id =
        n > UINT32_MAX ? 0 : value_new_items(build->load->graph, kind, items, (uint32_t)n);
    const int code = level.is_map && id != 0 ? restore_text(build->load, id) : 0;
    if (code < 0)
        return code == -ENOMEM ? record_fail_memory(build->load)
                               : record_fail_read(build->load, code);
    build->n_items = level.first;
    while (build->n_outers > level.first_outer) {
        const struct build_outer *outer = &build->outers[--build->n_outers];
        build->key_items[outer->number] = outer->key;
    }
    return build_add(build, id);
}

int build_number(struct build *build, const struct element *element)
{
    return build_add(build, value_of_element(build->load->graph, element));
}

int build_text(struct build *build, const char *text, size_t n_bytes)
{
    return build_add(build, value_new_lasting(build->load->graph, text, n_bytes));
}

/* Adds a list by its number; a negative one is an error. */
static int add_list(struct build *build, int64_t number)
{
    struct graph *graph = build->load->graph;
    const uint32_t id = number < 0 || number > UINT32_MAX ? 0 : value_new(graph, VALUE_PERSISTENT);
    if (id != 0)
        graph_at(graph, id)->id = (uint32_t)number;
    return build_add(build, id);
}

int build_list(struct build *build, const struct list_draft *draft)
{
    struct record_load *load = build->load;
    return add_list(build, list_end(draft, &load->lists, &load->catalog->arena));
}

int build_text_of_bytes(struct build *build, const char *text, size_t n_bytes)
{
    return add_list(build, list_of_text(&build->load->lists, text, n_bytes));
}

int build_abandon(struct build *build)
{
    int code = 0;
    while (build->depth > 0 && code == 0) {
        const struct build_level *level = build_level(build);
        if (level->is_map && (build->n_items - level->first) % 2 != 0)
            build->n_items--;
        code = build_close(build);
    }
    return code;
}
