/* SPDX-License-Identifier: MIT */
/*
 * The new text is walked beside the text of the old value and the old value itself. Where both
 * texts are equal, as numbers are, the old value stays, whatever it is.
 */
#include <weightfs/cleanup.h>
#include "value/value_build.h"
#include "value/value_json.h"
#include "value/value_leaf.h"

#include <jansson.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, N_PATH = 128 };

struct editing {
    struct graph *graph;
    struct build build;
    const char *file;
    struct wfs_error *err;
    char path[N_PATH]; /* of keys, to where the walk is; may be cut */
    unsigned depth;
};

/* The old value and its JSON; id 0 and NULL where there is none. */
struct old {
    uint32_t id;
    const json_t *json;
};

static void done_json(json_t **json)
{
    json_decref(*json);
}

#define auto_json cleanup(done_json)

static uint32_t refuse(struct editing *editing, const char *reason)
{
    wfs_fail(editing->err, EBADMSG, "'%s': %s%s%s", wfs_quote(editing->file).text,
             editing->path[0] != '\0' ? wfs_quote(editing->path).text : "the value",
             editing->path[0] != '\0' ? " " : " ", reason);
    return 0;
}

/* ---- equal texts ---- */

static bool is_same(const json_t *a, const json_t *b);

static bool is_same_object(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (json_object_size(a) != json_object_size(b))
        return false;
    /* Order counts as well: dicts of Python have one. */
    void *at = json_object_iter((json_t *)(uintptr_t)b);
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        if (strcmp(key, json_object_iter_key(at)) != 0 ||
            !is_same(value, json_object_iter_value(at)))
            return false;
        at = json_object_iter_next((json_t *)(uintptr_t)b, at);
    }
    return true;
}

/* Programs write 1 for 1.0 and the other way round. jansson bounds the depth of both. */
static bool is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b)
                   ? json_integer_value(a) == json_integer_value(b)
                   : json_number_value(a) == json_number_value(b);
    if (json_is_object(a) && json_is_object(b))
        return is_same_object(a, b);
    if (!json_is_array(a) || !json_is_array(b))
        return json_equal(a, b) == 1;
    if (json_array_size(a) != json_array_size(b))
        return false;
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (!is_same(json_array_get(a, i), json_array_get(b, i)))
            return false;
    }
    return true;
}

/* ---- new values ---- */

static uint32_t convert(struct editing *editing, const json_t *now, struct old old);

static bool is_notation(const json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (key[0] == '$' && key[1] != '$')
            return true;
    }
    return false;
}

static uint32_t new_float(struct graph *graph, double real)
{
    const uint32_t id = value_new(graph, VALUE_FLOAT);
    if (id != 0)
        graph_at(graph, id)->real = real;
    return id;
}

/* {"$float": "nan"}: the one notation that can be written. */
static const char *special_float(const json_t *json)
{
    return json_object_size(json) == 1 ? json_string_value(json_object_get(json, "$float")) : NULL;
}

static uint32_t convert_special(struct editing *editing, const json_t *now)
{
    const char *text = special_float(now);
    if (text == NULL)
        return refuse(editing, "is an object that only Python can build, and cannot be changed");
    if (strcmp(text, "nan") != 0 && strcmp(text, "inf") != 0 && strcmp(text, "-inf") != 0)
        return refuse(editing, "has a $float other than nan, inf and -inf");
    return new_float(editing->graph, strtod(text, NULL));
}

static uint32_t convert_scalar(struct graph *graph, const json_t *now, const struct value *old)
{
    if (json_is_real(now) || (json_is_integer(now) && old != NULL && old->kind == VALUE_FLOAT))
        return new_float(graph, json_number_value(now));
    if (json_is_string(now))
        return value_new_text(graph, json_string_value(now), json_string_length(now));
    const enum value_kind kind = json_is_integer(now)   ? VALUE_INT
                                 : json_is_boolean(now) ? VALUE_BOOL
                                                        : VALUE_NONE;
    const uint32_t id = value_new(graph, kind);
    if (id == 0)
        return 0;
    struct value *value = graph_at(graph, id);
    value->integer = kind == VALUE_INT ? json_integer_value(now) : json_is_true(now);
    if (kind == VALUE_INT && old != NULL && old->kind == VALUE_INT && value->integer >= 0)
        value->form = old->form;
    return id;
}

static uint32_t convert_array(struct editing *editing, const json_t *now, struct old old)
{
    const struct value *was = old.id == 0 ? NULL : graph_at(editing->graph, old.id);
    const bool is_list = was != NULL && (was->kind == VALUE_LIST || was->kind == VALUE_TUPLE);
    build_open(&editing->build, false);
    for (size_t i = 0; i < json_array_size(now); i++) {
        struct old item = {0};
        if (is_list && i < was->n)
            item = (struct old){value_items(was)[i], json_array_get(old.json, i)};
        build_add(&editing->build, convert(editing, json_array_get(now, i), item));
    }
    const uint32_t id = build_close(&editing->build);
    if (id != 0 && is_list)
        graph_at(editing->graph, id)->kind = was->kind;
    return id;
}

/* ---- dicts ---- */

/* Places of the old keys, by the spelling that they have in JSON. NULL: out of memory. */
static json_t *index_keys(const struct graph *graph, const struct value *dict)
{
    json_t *places = json_object();
    for (uint32_t i = 0; places != NULL && i + 1 < dict->n; i += 2) {
        autostrbuf struct strbuf key = {0};
        const struct value *value = graph_at(graph, value_items(dict)[i]);
        if (value->kind == VALUE_TEXT && value->n > 0 && value->text[0] == '$')
            strbuf_add(&key, "$", 1);
        if (!value_add_key(&key, graph, value_items(dict)[i]))
            continue;
        if (key.is_cut || json_object_set_new_nocheck(places, key.bytes, json_integer(i)) < 0) {
            json_decref(places);
            return NULL;
        }
    }
    return places;
}

static uint32_t new_key(struct editing *editing, const struct value *dict, const char *key)
{
    const bool has_texts = dict == NULL || dict->n == 0 ||
                           graph_at(editing->graph, value_items(dict)[0])->kind == VALUE_TEXT;
    char *end;
    key += has_texts && key[0] == '$';
    if (has_texts)
        return value_new_text(editing->graph, key, strlen(key));
    errno = 0;
    const long long number = strtoll(key, &end, 10);
    if (*end != '\0' || end == key || errno != 0)
        return refuse(editing, "is a new key among keys that are not text");
    return value_new_integer(editing->graph, number);
}

static void convert_member(struct editing *editing, const struct value *dict, const json_t *places,
                           struct old old, const char *key, const json_t *now)
{
    const size_t n_path = strlen(editing->path);
    const json_t *place = json_object_get(places, key);
    struct old member = {0};
    snprintf(editing->path + n_path, N_PATH - n_path, "%s%s", n_path > 0 ? "." : "", key);
    if (place != NULL) {
        const uint32_t *items = value_items(dict) + json_integer_value(place);
        build_add(&editing->build, items[0]);
        member = (struct old){items[1], json_object_get(old.json, key)};
    } else {
        build_add(&editing->build, new_key(editing, dict, key));
    }
    if (!editing->build.has_failed)
        build_add(&editing->build, convert(editing, now, member));
    editing->path[n_path] = '\0';
}

/* Returns the dict that the value is or is shown as; NULL: it is neither. */
static const struct value *dict_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    if (value == NULL || value->kind == VALUE_DICT)
        return value;
    const bool is_call = value->kind == VALUE_CALL && graph->notation != NULL;
    return is_call ? graph->notation->dict_of(graph, value) : NULL;
}

/* Makes a dict the items of a call such as the old one was. */
static uint32_t as_call(struct graph *graph, const struct value *was, uint32_t dict)
{
    const struct value *items = graph_at(graph, dict);
    const uint32_t id =
        value_new_call(graph, (enum value_form)was->form, was->call.callable, was->call.args);
    const bool is_made =
        id != 0 && value_append_part(graph, id, PART_ITEMS, value_items(items), items->n) == 0;
    return is_made ? id : 0;
}

static uint32_t convert_object(struct editing *editing, const json_t *now, struct old old)
{
    struct graph *graph = editing->graph;
    const struct value *dict = json_is_object(old.json) ? dict_of(graph, old.id) : NULL;
    if (is_notation(now))
        return convert_special(editing, now);
    auto_json json_t *places = dict == NULL ? json_object() : index_keys(graph, dict);
    if (places == NULL)
        return 0;
    const char *key;
    json_t *value;
    build_open(&editing->build, true);
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
        convert_member(editing, dict, places, old, key, value);
    const uint32_t id = build_close(&editing->build);
    const struct value *was = dict == NULL ? NULL : graph_at(graph, old.id);
    return id == 0 || was == NULL || was->kind != VALUE_CALL ? id : as_call(graph, was, id);
}

/* May it be changed, or replaced by anything? Lists and dicts that are shown as such may, unless
 * they are the inside of some object. */
static bool is_plain(const struct graph *graph, struct old old)
{
    const struct value *value = graph_at(graph, old.id);
    if (json_is_object(old.json) && is_notation(old.json))
        return special_float(old.json) != NULL;
    return value->kind != VALUE_CALL || dict_of(graph, old.id) != NULL;
}

static uint32_t convert(struct editing *editing, const json_t *now, struct old old)
{
    if (editing->build.has_failed)
        return 0;
    if (old.id != 0 && is_same(now, old.json))
        return old.id;
    if (old.id != 0 && !is_plain(editing->graph, old))
        return refuse(editing, "is an object that only Python can build, and cannot be changed");
    if (editing->depth >= MAX_DEPTH)
        return refuse(editing, "is nested more than 256 deep");
    editing->depth++;
    const uint32_t id = json_is_object(now) ? convert_object(editing, now, old)
                        : json_is_array(now)
                            ? convert_array(editing, now, old)
                            : convert_scalar(editing->graph, now,
                                             old.id == 0 ? NULL : graph_at(editing->graph, old.id));
    editing->depth--;
    return id;
}

/* ---- the whole ---- */

static const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;

static json_t *parse(struct editing *editing, const char *text, size_t n_bytes)
{
    json_error_t error;
    errno = 0;
    json_t *json = json_loadb(text, n_bytes, flags, &error);
    if (json == NULL && errno == ENOMEM)
        wfs_fail_memory(editing->err);
    else if (json == NULL)
        wfs_fail(editing->err, EBADMSG, "'%s': line %d, column %d: %s",
                 wfs_quote(editing->file).text, error.line, error.column,
                 wfs_prose(error.text).text);
    return json;
}

int value_edit(struct graph *graph, struct value_old old, const char *file, const char *text,
               size_t n_bytes, uint32_t *ret_id, struct wfs_error *err)
{
    struct editing editing = {.graph = graph, .build = {.graph = graph}, .file = file, .err = err};
    auto_json json_t *was = NULL, *now = NULL;
    if (old.id != 0 && old.text->n_bytes == n_bytes &&
        memcmp(old.text->bytes, text, n_bytes) == 0) {
        *ret_id = old.id;
        return 0;
    }
    errno = 0;
    if (old.id != 0 && !old.text->is_cut)
        was = json_loadb(old.text->bytes, old.text->n_bytes, flags, NULL);
    if (old.id != 0 && was == NULL && errno == ENOMEM)
        return wfs_fail_memory(err);
    if (old.id != 0 && was == NULL)
        return wfs_fail(err, EBADMSG,
                        "'%s': JSON cannot describe the old value, so it cannot be changed",
                        wfs_quote(file).text);
    now = parse(&editing, text, n_bytes);
    const uint32_t id = now == NULL ? 0 : convert(&editing, now, (struct old){old.id, was});
    build_done(&editing.build);
    if (id == 0) {
        wfs_fail_memory(err); /* unless something else was wrong */
        return -EBADMSG;
    }
    *ret_id = id;
    return 0;
}
