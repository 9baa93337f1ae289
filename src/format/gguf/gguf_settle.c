/* SPDX-License-Identifier: MIT */
/*
 * Types for values that have none, or that were changed. A value that replaces one of the file has
 * its type; texts of metadata become values, as a GGUF knows no other metadata.
 */
#include "format/gguf/gguf_load.h"

#include <weightfs/cleanup.h>
#include "base/bytes.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 64, N_UNSIGNED = 9 }; /* of lists in lists; bytes of a large integer */

struct settling {
    struct wfs_catalog *catalog;
    struct graph *graph;
    struct wfs_error *err;
    const char *name; /* of the value at hand */
    bool is_edited;
};

static int refuse(const struct settling *s, enum gguf_type type, const char *problem)
{
    return type == GGUF_NONE
               ? wfs_fail(s->err, EINVAL, "value '%s' cannot be stored in a GGUF: %s",
                          wfs_quote(s->name).text, problem)
               : wfs_fail(s->err, EINVAL, "value '%s' has the type %s in the GGUF: %s",
                          wfs_quote(s->name).text, gguf_type_name(type), problem);
}

static bool is_list(const struct value *value)
{
    return value->kind == VALUE_LIST || value->kind == VALUE_TUPLE;
}

static bool is_float(enum gguf_type type)
{
    return type == GGUF_F32 || type == GGUF_F64;
}

/* Returns whether an integer fits the type. */
static bool fits(const struct value *value, enum gguf_type type)
{
    const unsigned n_bits = 8 * gguf_type_bytes(type);
    const bool is_signed =
        type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    const int64_t n = value->integer;
    if (value->kind == VALUE_BIG)
        return type == GGUF_U64 && value->n == N_UNSIGNED && value->text[N_UNSIGNED - 1] == 0;
    if (!is_signed)
        return n >= 0 && (n_bits == 64 || (uint64_t)n >> n_bits == 0);
    return n >= -((int64_t)1 << (n_bits - 2)) * 2 &&
           n <= (int64_t)((UINT64_C(1) << (n_bits - 1)) - 1);
}

static enum gguf_type type_of_integer(const struct value *value)
{
    static const enum gguf_type types[] = {GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64};
    size_t i = 0;
    while (i < sizeof(types) / sizeof(*types) && !fits(value, types[i]))
        i++;
    return i < sizeof(types) / sizeof(*types) ? types[i] : GGUF_NONE;
}

static int settle_integer(const struct settling *s, struct value *value, enum gguf_type type)
{
    if (is_float(type) && value->kind == VALUE_INT) {
        value->kind = VALUE_FLOAT;
        value->real = (double)value->integer;
        gguf_type_keep(value, type);
        return 0;
    }
    const enum gguf_type own = type == GGUF_NONE ? type_of_integer(value) : type;
    const bool is_integer =
        own != GGUF_NONE && gguf_type_bytes(own) > 0 && own != GGUF_BOOL && !is_float(own);
    if (!is_integer || !fits(value, own))
        return refuse(s, type,
                      is_integer || own == GGUF_NONE ? "the number is out of its range"
                                                     : "it is a number");
    gguf_type_keep(value, own);
    return 0;
}

/* What somebody typed is of single precision, as all floats that llama.cpp looks for. */
static int settle_float(const struct settling *s, struct value *value, enum gguf_type type)
{
    if (type == GGUF_NONE)
        type = s->is_edited || value->tag == VALUE_NARROW ? GGUF_F32 : GGUF_F64;
    if (!is_float(type))
        return refuse(s, type, "it is a number with a fraction");
    if (type == GGUF_F32 && isfinite(value->real) && fabs(value->real) > FLT_MAX)
        return refuse(s, type, "the number is out of its range");
    if (type == GGUF_F32)
        value->real = (double)(float)value->real;
    gguf_type_keep(value, type);
    return 0;
}

static int settle(const struct settling *s, uint32_t *id, uint32_t old, unsigned depth);

/* Returns the type that all items can have; GGUF_NONE: there is none. */
static enum gguf_type type_of_items(const struct settling *s, const struct value *list)
{
    enum gguf_type all = GGUF_NONE;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct value *item = graph_at(s->graph, value_items(list)[i]);
        const enum gguf_type one =
            item->kind == VALUE_TEXT    ? GGUF_TEXT
            : item->kind == VALUE_BOOL  ? GGUF_BOOL
            : item->kind == VALUE_FLOAT ? (s->is_edited ? GGUF_F32 : GGUF_F64)
            : is_list(item)             ? GGUF_ARRAY
            : item->kind == VALUE_BIG   ? GGUF_U64
            : item->kind == VALUE_INT   ? (fits(item, GGUF_I32) ? GGUF_I32 : GGUF_I64)
                                        : GGUF_NONE;
        const bool is_wider = (all == GGUF_I32 && one == GGUF_I64) ||
                              ((all == GGUF_I32 || all == GGUF_I64) && is_float(one));
        const bool is_in = (all == GGUF_I64 && one == GGUF_I32) ||
                           (is_float(all) && (one == GGUF_I32 || one == GGUF_I64));
        if (one == GGUF_NONE || (i > 0 && one != all && !is_wider && !is_in))
            return GGUF_NONE;
        all = i == 0 || is_wider ? one : all;
    }
    return list->n == 0 ? GGUF_I32 : all;
}

static int settle_scalar(const struct settling *s, uint32_t id, enum gguf_type type)
{
    struct value *value = graph_at(s->graph, id);
    switch (value->kind) {
    case VALUE_INT:
    case VALUE_BIG:
        return settle_integer(s, value, type);
    case VALUE_FLOAT:
        return settle_float(s, value, type);
    case VALUE_BOOL:
    case VALUE_TEXT:
        break;
    default:
        return refuse(s, type, "it is not a number, a text or a list of them");
    }
    const enum gguf_type own = value->kind == VALUE_BOOL ? GGUF_BOOL : GGUF_TEXT;
    if (type != GGUF_NONE && type != own)
        return refuse(s, type, own == GGUF_BOOL ? "it is true or false" : "it is a text");
    gguf_type_keep(value, own);
    return 0;
}

/* old: the list that it replaces, 0: none. */
static int settle_list(const struct settling *s, uint32_t id, uint32_t old, unsigned depth)
{
    struct value *list = graph_at(s->graph, id);
    const struct value *was = old == 0 ? NULL : graph_at(s->graph, old);
    enum gguf_type type = was == NULL || was->kind != VALUE_LIST ? GGUF_NONE : gguf_type_of(was);
    if (depth == DEPTH_MAX)
        return refuse(s, GGUF_NONE, "its lists are nested too deep");
    if (depth > 0 && gguf_type_of(list) != GGUF_NONE) /* in several lists: it is settled */
        return 0;
    if (type == GGUF_NONE)
        type = type_of_items(s, list);
    if (type == GGUF_NONE)
        return refuse(s, GGUF_NONE, "the items of a list must have one type");
    int code = 0;
    for (uint32_t i = 0; i < list->n && code == 0; i++) {
        const uint32_t item = value_items(list)[i];
        const bool has_items = is_list(graph_at(s->graph, item));
        if (has_items != (type == GGUF_ARRAY))
            code = refuse(s, type, "the items of a list must have one type");
        else
            code = has_items ? settle_list(s, item, 0, depth + 1) : settle_scalar(s, item, type);
    }
    gguf_type_keep(list, type);
    return code;
}

/* A text that takes the place of something else is the JSON of it. */
static int take_text(const struct settling *s, uint32_t *id, enum gguf_type type)
{
    const struct value *value = graph_at(s->graph, *id);
    uint32_t made = 0;
    if (value->kind != VALUE_TEXT || type == GGUF_NONE || type == GGUF_TEXT)
        return 0;
    if (value_of_json(s->graph, value->text, &made) < 0)
        return wfs_fail_memory(s->err);
    if (made == 0)
        return refuse(s, type, "the text is not JSON");
    *id = made;
    return 0;
}

static int settle(const struct settling *s, uint32_t *id, uint32_t old, unsigned depth)
{
    const struct value *was = old == 0 ? NULL : graph_at(s->graph, old);
    const bool was_list = was != NULL && was->kind == VALUE_LIST;
    const enum gguf_type type = was_list ? GGUF_ARRAY : was == NULL ? GGUF_NONE : gguf_type_of(was);
    const int code = take_text(s, id, type);
    if (code < 0)
        return code;
    const struct value *value = graph_at(s->graph, *id);
    if ((value->marks & MARK_CUT) != 0)
        return refuse(s, type, "its content is used many times over");
    if (gguf_type_of(value) != GGUF_NONE && *id == old)
        return 0;
    if (is_list(value) && (type == GGUF_NONE || type == GGUF_ARRAY))
        return settle_list(s, *id, old, depth);
    return is_list(value) ? refuse(s, type, "it is a list") : settle_scalar(s, *id, type);
}

/* ---- all of them ---- */

/* Returns the value of that name in the loaded catalog; 0: there is none. */
static uint32_t loaded_as(const struct wfs_catalog *catalog, const char *name)
{
    const struct catalog_values *values = &catalog->own->owner->values;
    for (size_t i = 0; i < values->n && catalog->own->owner != catalog; i++) {
        if (strcmp(values->list[i].name, name) == 0)
            return values->list[i].id;
    }
    return 0;
}

/* Returns what the value was loaded as from a GGUF; 0: it is new, or of another format. Values of a
 * set have no places. */
static uint32_t loaded(const struct wfs_catalog *catalog, const struct catalog_value *value)
{
    const struct catalog_values *values = &catalog->values;
    uint32_t id = 0;
    if (values->n_places == 0)
        id = value->is_edited ? loaded_as(catalog, value->name) : value->id;
    else if (value->place != 0 && value->place <= values->n_places)
        id = values->places[value->place].id;
    return id != 0 && gguf_type_of(graph_at(&values->graph, id)) != GGUF_NONE ? id : 0;
}

static int add_text(struct wfs_catalog *catalog, const struct wfs_text *text,
                    const struct text_index *names)
{
    const uint32_t n = text_index_find(names, text->name, strlen(text->name));
    const uint32_t id = value_new_lasting(&catalog->values.graph, text->value, text->n_bytes);
    if (id == 0 || (n == TEXT_INDEX_NONE && catalog_add_value(catalog, text->name, id, 0) < 0))
        return -ENOMEM;
    struct catalog_value *value =
        &catalog->values.list[n == TEXT_INDEX_NONE ? catalog->values.n - 1 : n];
    value->id = id;
    value->is_edited = true;
    return 0;
}

static int add_texts(struct wfs_catalog *catalog)
{
    cleanup(text_index_done) struct text_index names = {0};
    uint32_t number;
    for (size_t i = 0; i < catalog->values.n && catalog->meta.first != NULL; i++) {
        const char *name = catalog->values.list[i].name;
        if (text_index_add(&names, name, strlen(name), &number) < 0)
            return -ENOMEM;
    }
    int code = 0;
    for (const struct wfs_text *text = catalog->meta.first; text != NULL && code == 0;
         text = text->next)
        code = add_text(catalog, text, &names);
    catalog->meta.first = NULL;
    catalog->meta.end = (struct wfs_text **)(uintptr_t)&catalog->meta.first;
    catalog->meta.exists = false;
    return code;
}

int gguf_settle(struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct settling s = {.catalog = catalog, .graph = &catalog->values.graph, .err = err};
    if (s.graph->arena == NULL)
        s.graph->arena = &catalog->arena;
    if (add_texts(catalog) < 0)
        return wfs_fail_memory(err);
    int code = 0;
    for (size_t i = 0; i < catalog->values.n && code == 0; i++) {
        struct catalog_value *value = &catalog->values.list[i];
        s.name = value->name;
        s.is_edited = value->is_edited;
        code = settle(&s, &value->id, loaded(catalog, value), 0);
    }
    return code;
}
