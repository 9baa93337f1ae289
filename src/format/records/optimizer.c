/* SPDX-License-Identifier: MIT */
/*
 * Either all names of a catalog are those of a state, or none is touched: nothing else marks a file
 * as one of an optimizer.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/search.h"
#include "format/records/record_names.h"
#include "format/records/records.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_KEY "__rank"

enum { RANK_MAX = 8, N_DEPTH_MAX = 64, N_UUID = 36, N_OLD_DIGITS = 10 };

/* A name in its parts. */
struct state_name {
    uint64_t id;
    uint32_t rank;    /* of a nested one */
    const char *rest; /* NULL: there is nothing behind the rank */
};

struct parameter {
    uint64_t id;
    uint32_t rank;
    bool has_state; /* besides its rank */
};

struct state {
    struct wfs_catalog *catalog;
    struct graph graph;           /* with the values that are new */
    struct catalog_value *values; /* malloc'ed; what those of the catalog become */
    size_t n_values, n_value_room;
    struct parameter *parameters; /* malloc'ed */
    size_t n_parameters, n_parameter_room;
};

static void state_done(struct state *state)
{
    free(state->values);
    free(state->parameters);
}

static int add_value(struct state *state, const char *name, uint32_t id, bool is_edited)
{
    if (name == NULL || id == 0 ||
        array_reserve(&state->values, sizeof(*state->values), state->n_values, 1,
                      &state->n_value_room) < 0)
        return -ENOMEM;
    state->values[state->n_values++] =
        (struct catalog_value){.name = name, .id = id, .is_edited = is_edited};
    return 0;
}

static int add_parameter(struct state *state, uint64_t id, uint32_t rank)
{
    if (array_reserve(&state->parameters, sizeof(*state->parameters), state->n_parameters, 1,
                      &state->n_parameter_room) < 0)
        return -ENOMEM;
    state->parameters[state->n_parameters++] = (struct parameter){.id = id, .rank = rank};
    return 0;
}

static int compare_parameters(const void *a, const void *b)
{
    const struct parameter *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Leaves one of each. Returns whether no parameter has two ranks, and there are any. */
static bool sort_parameters(struct state *state)
{
    struct parameter *parameters = state->parameters;
    size_t n = 0;
    if (state->n_parameters > 0)
        qsort(parameters, state->n_parameters, sizeof(*parameters), compare_parameters);
    for (size_t i = 0; i < state->n_parameters; i++) {
        if (n == 0 || parameters[n - 1].id != parameters[i].id)
            parameters[n++] = parameters[i];
        else if (parameters[n - 1].rank != parameters[i].rank)
            return false;
    }
    state->n_parameters = n;
    return n > 0;
}

/* The values and their graph are taken over; those of the catalog were borrowed from it. */
static void replace_values(struct state *state)
{
    struct wfs_catalog *catalog = state->catalog;
    free(catalog->values.list);
    catalog->values.list = steal(&state->values);
    catalog->values.n = state->n_values;
    catalog->values.n_room = state->n_value_room;
    catalog->values.graph = state->graph;
}

/* ---- nested to flat ---- */

/* Reads the id at the start of the name. Returns how many characters it has, 0: it is none. */
static size_t parse_id(const char *name, uint64_t *ret)
{
    const size_t n = strcspn(name, ".");
    const bool is_id = n == RECORD_ID_N || n == N_OLD_DIGITS || n == N_UUID;
    return is_id && record_id_parse(name, n, ret) != RECORD_ID_OTHER ? n : 0;
}

static bool parse_nested(const char *name, struct state_name *ret)
{
    static const char version[] = ".V1.Rank";
    const size_t n_id = parse_id(name, &ret->id), n_version = sizeof(version) - 1;
    if (n_id == 0 || strncmp(name + n_id, version, n_version) != 0)
        return false;
    const char *rank = name + n_id + n_version;
    if (rank[0] < '0' || rank[0] > '0' + RANK_MAX || (rank[1] != '.' && rank[1] != '\0'))
        return false;
    ret->rank = (uint32_t)(rank[0] - '0');
    ret->rest = rank[1] == '\0' ? NULL : rank + 2;
    return true;
}

/* Adds everything in a value that is not a map itself, with its name. */
static int flatten(struct state *state, const struct catalog_value *value, const char *name,
                   uint32_t id, unsigned depth)
{
    const struct value *map = graph_at(&state->graph, id);
    int code = 0;
    if (map->kind != VALUE_DICT || map->n == 0 || depth == N_DEPTH_MAX)
        return add_value(state, name, id, value->is_edited);
    for (uint32_t i = 0; i + 1 < map->n && code == 0; i += 2) {
        const struct value *key = graph_at(&state->graph, value_items(map)[i]);
        const char *below = arena_print(&state->catalog->arena, "%s.%s", name,
                                        key->kind == VALUE_TEXT ? key->text : "");
        code = below == NULL ? -ENOMEM
                             : flatten(state, value, below, value_items(map)[i + 1], depth + 1);
    }
    return code;
}

/* 1: everything is nested state, 0: it is not. */
static int collect_nested(struct state *state)
{
    const struct wfs_catalog *catalog = state->catalog;
    struct state_name name;
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++) {
        if (!parse_nested(wfs_catalog_tensor(catalog, i)->key, &name) || name.rest == NULL)
            return 0;
        code = add_parameter(state, name.id, name.rank);
    }
    for (size_t i = 0; i < catalog->values.n && code == 0; i++) {
        const struct catalog_value *value = &catalog->values.list[i];
        if (parse_id(value->name, &name.id) == 0)
            return 0;
        code = flatten(state, value, value->name, value->id, 0);
    }
    for (size_t i = 0; i < state->n_values && code == 0; i++) {
        if (!parse_nested(state->values[i].name, &name))
            return 0;
        code = add_parameter(state, name.id, name.rank);
    }
    return code < 0 ? code : sort_parameters(state);
}

static const char *flat_name(const struct state *state, uint64_t id, const char *rest)
{
    return arena_print(&state->catalog->arena, "%" PRIu64 ".%s", id, rest);
}

/* Burn has counts without a sign. */
static uint32_t unsigned_of(struct state *state, uint32_t id)
{
    const struct value *value = graph_at(&state->graph, id);
    if (value->kind != VALUE_INT || value->integer < 0)
        return id;
    const uint32_t copy = value_new_integer(&state->graph, value->integer);
    if (copy != 0)
        graph_at(&state->graph, copy)->form = FORM_UNSIGNED;
    return copy;
}

static int flatten_values(struct state *state)
{
    size_t n_kept = 0;
    int code = 0;
    for (size_t i = 0; i < state->n_values; i++) {
        struct catalog_value *value = &state->values[i];
        struct state_name name;
        parse_nested(value->name, &name);
        if (name.rest == NULL || graph_at(&state->graph, value->id)->kind == VALUE_NONE)
            continue;
        value->name = flat_name(state, name.id, name.rest);
        value->id = unsigned_of(state, value->id);
        if (value->name == NULL || value->id == 0)
            return -ENOMEM;
        state->values[n_kept++] = *value;
    }
    state->n_values = n_kept;
    for (size_t i = 0; i < state->n_parameters && code == 0; i++) {
        const uint32_t rank = value_new_integer(&state->graph, state->parameters[i].rank);
        code = rank == 0 ? -ENOMEM
                         : add_value(state, flat_name(state, state->parameters[i].id, RANK_KEY),
                                     unsigned_of(state, rank), false);
    }
    return code;
}

static int flatten_tensors(struct state *state)
{
    struct wfs_catalog *catalog = state->catalog;
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++) {
        struct wfs_tensor *tensor = &catalog->tensors[i];
        struct state_name name;
        char id[24];
        parse_nested(tensor->key, &name);
        snprintf(id, sizeof(id), "%" PRIu64, name.id);
        tensor->key = flat_name(state, name.id, name.rest);
        code = tensor->key == NULL ? -ENOMEM : catalog_add_attr(catalog, tensor, "param_id", id);
    }
    return code;
}

/* ---- flat to nested ---- */

static bool parse_flat(const char *name, struct state_name *ret)
{
    const size_t n = strcspn(name, ".");
    uint64_t id;
    if (!digits_parse(name, n, &id))
        return false;
    *ret = (struct state_name){.id = id, .rest = name + n + 1};
    return (name[0] != '0' || n == 1) && name[n] == '.' && name[n + 1] != '\0';
}

static struct parameter *parameter_of(const struct state *state, const struct state_name *name)
{
    const size_t n = search_starts(state->parameters, state->n_parameters, sizeof(struct parameter),
                                   offsetof(struct parameter, id), name->id);
    struct parameter *parameter = n == 0 ? NULL : &state->parameters[n - 1];
    return parameter != NULL && parameter->id == name->id ? parameter : NULL;
}

static bool is_rank(const char *name, struct state_name *ret)
{
    return parse_flat(name, ret) && strcmp(ret->rest, RANK_KEY) == 0;
}

/* Returns whether the name is that of a parameter whose rank is known, and notes that it has some
 * state. */
static bool has_parameter(const struct state *state, const char *text)
{
    struct state_name name;
    struct parameter *parameter = parse_flat(text, &name) ? parameter_of(state, &name) : NULL;
    if (parameter != NULL && strcmp(name.rest, RANK_KEY) != 0)
        parameter->has_state = true;
    return parameter != NULL;
}

/* 1: everything is flat state, 0: it is not. */
static int collect_flat(struct state *state)
{
    const struct wfs_catalog *catalog = state->catalog;
    for (size_t i = 0; i < catalog->values.n; i++) {
        const struct value *rank = graph_at(&catalog->values.graph, catalog->values.list[i].id);
        struct state_name name;
        if (!is_rank(catalog->values.list[i].name, &name))
            continue;
        if (rank->kind != VALUE_INT || rank->integer < 0 || rank->integer > RANK_MAX)
            return 0;
        if (add_parameter(state, name.id, (uint32_t)rank->integer) < 0)
            return -ENOMEM;
    }
    bool is_state = sort_parameters(state);
    for (size_t i = 0; i < catalog->values.n && is_state; i++)
        is_state = has_parameter(state, catalog->values.list[i].name);
    for (size_t i = 0; i < catalog->n_tensors && is_state; i++)
        is_state = has_parameter(state, wfs_catalog_tensor(catalog, i)->key);
    return is_state;
}

static const char *nested_name(const struct state *state, const struct parameter *parameter,
                               const char *rest)
{
    char id[RECORD_ID_N + 1];
    record_id_print(parameter->id, id);
    return arena_print(&state->catalog->arena, "%s.V1.Rank%" PRIu32 "%s%s", id, parameter->rank,
                       rest == NULL ? "" : ".", rest == NULL ? "" : rest);
}

static const char *nest(const struct state *state, const char *text)
{
    struct state_name name;
    parse_flat(text, &name);
    return nested_name(state, parameter_of(state, &name), name.rest);
}

static int nest_values(struct state *state)
{
    const struct wfs_catalog *catalog = state->catalog;
    struct state_name name;
    int code = 0;
    for (size_t i = 0; i < catalog->values.n && code == 0; i++) {
        const struct catalog_value *value = &catalog->values.list[i];
        if (!is_rank(value->name, &name))
            code = add_value(state, nest(state, value->name), value->id, value->is_edited);
    }
    for (size_t i = 0; i < state->n_parameters && code == 0; i++) {
        if (!state->parameters[i].has_state)
            code = add_value(state, nested_name(state, &state->parameters[i], NULL),
                             value_new(&state->graph, VALUE_DICT), false);
    }
    return code;
}

static int nest_tensors(struct state *state)
{
    struct wfs_catalog *catalog = state->catalog;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        catalog->tensors[i].key = nest(state, catalog->tensors[i].key);
        if (catalog->tensors[i].key == NULL)
            return -ENOMEM;
    }
    catalog->output.is_state = true;
    return 0;
}

/* ---- both ---- */

int optimizer_fit(struct wfs_catalog *catalog, const struct wfs_format *format)
{
    cleanup(state_done) struct state state = {.catalog = catalog};
    if (format->state_names == WFS_STATE_NAMES_ANY || format == catalog->format)
        return 0;
    const bool is_flat = format->state_names == WFS_STATE_NAMES_FLAT;
    graph_fork(&state.graph, &catalog->values.graph, &catalog->arena);
    int code = is_flat ? collect_nested(&state) : collect_flat(&state);
    if (code <= 0)
        return code;
    if (catalog_own_tensors(catalog) < 0)
        return -ENOMEM;
    code = is_flat ? flatten_values(&state) : nest_values(&state);
    if (code == 0)
        code = is_flat ? flatten_tensors(&state) : nest_tensors(&state);
    if (code == 0)
        replace_values(&state);
    return code;
}
