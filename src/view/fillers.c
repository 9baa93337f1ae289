/* SPDX-License-Identifier: MIT */
/*
 * What a record has besides parameters, taken over from the record that `like` names: null for each
 * constant, lists of it, and the names of variants without content. A flat list of tensors does not
 * have them, and Burn does not load a record that lacks some of them.
 */
#include <weightfs/cleanup.h>

#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

enum { N_DEPTH_MAX = 64 };

struct fillers {
    struct pass *pass;
    struct text_index names; /* of tensors and values, and of all that they are in */
};

/* Returns whether there is nothing but structure in the value. */
static bool is_filler(const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    const bool is_map = value->kind == VALUE_DICT;
    bool is_empty = is_map || value->kind == VALUE_NONE || value->kind == VALUE_LIST;
    for (uint32_t i = 0; value_has_items(value) && i < value->n && is_empty; i++) {
        const uint32_t item = value_items(value)[i];
        is_empty = is_map && i % 2 == 0 ? graph_at(graph, item)->kind == VALUE_TEXT
                                        : depth < N_DEPTH_MAX && is_filler(graph, item, depth + 1);
    }
    return is_empty;
}

/* Adds a name and everything that it is in. -ENOMEM. */
static int add_name(struct fillers *fillers, const char *name)
{
    uint32_t number;
    for (size_t n = strlen(name); n > 0; n--) {
        if ((name[n] == '.' || name[n] == '\0') &&
            text_index_add(&fillers->names, name, n, &number) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int add_names(struct fillers *fillers)
{
    const struct wfs_catalog *catalog = fillers->pass->catalog;
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++)
        code = add_name(fillers, catalog->tensors[i].key);
    for (size_t i = 0; i < catalog->n_values && code == 0; i++)
        code = add_name(fillers, catalog->values[i].name);
    return code;
}

/* Returns whether a tensor or value has the name, or is in something that has it. */
static bool is_taken(const struct fillers *fillers, const char *name)
{
    return text_index_find(&fillers->names, name, strlen(name)) != TEXT_INDEX_NONE;
}

static int add_filler(struct fillers *fillers, const struct catalog_value *value)
{
    struct wfs_catalog *catalog = fillers->pass->catalog;
    const char *name = arena_copy(&catalog->arena, value->name, strlen(value->name));
    const uint32_t id = value_copy(&catalog->graph, &fillers->pass->like->graph, value->id);
    return name == NULL || id == 0 ? -1 : catalog_add_value(catalog, name, id, 0);
}

static void fillers_done(struct fillers *fillers)
{
    text_index_done(&fillers->names);
}

int pass_fillers(struct pass *pass)
{
    const struct wfs_catalog *like = pass->like;
    cleanup(fillers_done) struct fillers fillers = {.pass = pass};
    if (like == NULL || like->format == NULL || !like->format->has_fillers)
        return 0;
    if (pass->catalog->graph.arena == NULL)
        pass->catalog->graph.arena = &pass->catalog->arena;
    int code = add_names(&fillers);
    for (size_t i = 0; i < like->n_values && code == 0; i++) {
        const struct catalog_value *value = &like->values[i];
        if (!is_taken(&fillers, value->name) && is_filler(&like->graph, value->id, 0))
            code = add_filler(&fillers, value);
    }
    return code < 0 ? wfs_fail_memory(pass->err) : 0;
}
