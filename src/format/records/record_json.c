/* SPDX-License-Identifier: MIT */
/*
 * The walk over JSON. Lists of numbers are found again in the file by the places of their numbers.
 */
#include "format/records/record_json.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/records/record_value.h"
#include "text/json.h"

struct parser {
    struct build *build;
    struct record_load *load;
    struct json json;
};

static int fail(const struct parser *parser)
{
    return wfs_fail(parser->load->err, EBADMSG, "the JSON is damaged at byte %zu%s: %s",
                    json_offset(&parser->json), record_where(parser->load), parser->json.error);
}

/* Takes the number or bool that comes next; *ret_offset is where it begins. 0: it is something
 * else, or a number of too many digits. */
static int take_element(struct json *json, struct element *ret, uint64_t *ret_offset)
{
    const enum json_kind kind = json_kind(json);
    const char *start = json->at;
    *ret_offset = json_offset(json);
    if ((kind != JSON_KIND_NUMBER && kind != JSON_KIND_BOOL) || !json_skip(json))
        return 0;
    if (kind == JSON_KIND_NUMBER)
        return element_parse(start, (size_t)(json->at - start), ret);
    *ret = (struct element){*start == 't', ELEMENT_BOOL};
    return 1;
}

/*
 * Takes all items as one list of numbers. Returns 1; 0 when one of them is something else, or there
 * are none, and goes back.
 */
static int take_list(struct parser *parser)
{
    struct record_lists *lists = &parser->load->lists;
    const struct json before = parser->json;
    struct list_draft draft;
    bool is_list = json_open_array(&parser->json);
    list_begin(&draft, lists);
    while (is_list && json_next_item(&parser->json)) {
        struct element element;
        uint64_t offset;
        is_list = take_element(&parser->json, &element, &offset);
        if (is_list && list_put(&draft, lists, &element, offset) < 0)
            return wfs_fail_memory(parser->load->err);
    }
    if (!is_list || parser->json.error != NULL || draft.list.n == 0) {
        list_drop(&draft, lists);
        parser->json = before;
        return 0;
    }
    const int code = build_list(parser->build, &draft);
    return code < 0 ? code : 1;
}

static int take_text(struct parser *parser)
{
    const struct record_load *load = parser->load;
    const uint64_t limit = load->context->limits.text;
    struct json_text text;
    if (!json_take_string(&parser->json, &text))
        return fail(parser);
    if (text.n_bytes > limit)
        return wfs_fail(load->err, E2BIG,
                        "the text at byte %zu%s has %s, the limit is %" PRIu64 " (limit text)",
                        text.offset, record_where(load), wfs_count(text.n_bytes, "byte").text,
                        limit);
    const char *copy = arena_copy(&load->catalog->arena, text.bytes, text.n_bytes);
    if (copy == NULL)
        return record_fail_memory(load);
    return build_is_at(parser->build, "bytes")
               ? build_text_of_bytes(parser->build, copy, text.n_bytes)
               : build_text(parser->build, copy, text.n_bytes);
}

static int take_scalar(struct parser *parser)
{
    struct element element;
    uint64_t offset;
    if (json_kind(&parser->json) == JSON_KIND_NULL)
        return json_take_null(&parser->json)
                   ? build_add(parser->build, value_new(parser->load->graph, VALUE_NONE))
                   : fail(parser);
    if (take_element(&parser->json, &element, &offset))
        return build_number(parser->build, &element);
    json_fail(&parser->json, "expected a value");
    return fail(parser);
}

static int take_value(struct parser *parser)
{
    struct json *json = &parser->json;
    const enum json_kind kind = json_kind(json);
    const size_t offset = json_offset(json);
    int code;
    switch (kind) {
    case JSON_KIND_OBJECT:
        return json_open_object(json) ? build_open(parser->build, true, 0, offset) : fail(parser);
    case JSON_KIND_ARRAY:
        if ((code = take_list(parser)) != 0)
            return code < 0 ? code : 0;
        return json_open_array(json) ? build_open(parser->build, false, 0, offset) : fail(parser);
    case JSON_KIND_STRING:
        return take_text(parser);
    default:
        return take_scalar(parser);
    }
}

/* Takes the next item of the innermost container, or closes it. */
static int step(struct parser *parser)
{
    const struct record_load *load = parser->load;
    const struct build_level *level = build_level(parser->build);
    struct json_text key;
    if (level == NULL)
        return take_value(parser);
    if (!(level->is_map ? json_next_key(&parser->json, &key) : json_next_item(&parser->json)))
        return parser->json.error != NULL ? fail(parser) : build_close(parser->build);
    if (level->is_map && key.n_bytes > load->context->limits.key)
        return wfs_fail(load->err, E2BIG, "the key at byte %zu%s has %s (limit key)", key.offset,
                        record_where(load), wfs_count(key.n_bytes, "byte").text);
    const int code =
        level->is_map ? build_key(parser->build, key.bytes, key.n_bytes, key.offset) : 0;
    return code < 0 ? code : take_value(parser);
}

static int read_text(const struct record_load *load, char **ret)
{
    const uint64_t n_bytes = load->bytes->n_bytes, limit = load->context->limits.record_json;
    if (n_bytes > limit)
        return wfs_fail(load->err, E2BIG,
                        "it has %s of JSON, the limit is %" PRIu64 " (limit record_json)",
                        wfs_count(n_bytes, "byte").text, limit);
    autofree char *text = malloc((size_t)n_bytes + 1);
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
    *ret = steal(&text);
    return 0;
}

int record_json_parse(struct build *build, uint64_t *ret_end)
{
    struct record_load *load = build->load;
    autofree char *text = NULL;
    load->lists.encoding = RECORD_JSON;
    int code = read_text(load, &text);
    if (code < 0)
        return code;
    struct parser parser = {
        .build = build, .load = load, .json = json_of(text, (size_t)load->bytes->n_bytes)};
    while (code == 0 && build->root == 0)
        code = step(&parser);
    if (code == 0 && json_end(&parser.json))
        *ret_end = load->bytes->n_bytes; /* with white space */
    else
        *ret_end = json_offset(&parser.json);
    return code;
}
