/* SPDX-License-Identifier: MIT */
/*
 * state_dict() gives its OrderedDict an attribute _metadata: the version of each module, by the
 * name of the module. Loading depends on it, so a module keeps its version under its new name, and
 * in another dict. A module is where its tensors are; one without tensors follows the module around
 * it, and one that has lost all of them goes.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Names of modules are shorter: without this, N dots would cost N^2. */
    MAX_NAME = 4096,
    /* All tables have fewer keys, unless a dict with a large one is in many places. */
    MAX_KEYS = 4 << 20,
};

/* How sure it is that a module has a name. */
enum rank {
    RANK_NONE,
    RANK_DEPTH,  /* tensors in it have names that begin with this, but end in another way */
    RANK_INNER,  /* a tensor of its own has another last name */
    RANK_SUFFIX, /* a tensor of a module in it */
    RANK_OWN,    /* a tensor of its own */
};

struct module {
    uint32_t table;        /* place of the OrderedDict that it is from */
    uint32_t key, value;   /* in the graph; 0: an outermost one that the table does not have */
    struct text_slice old; /* in that dict */
    struct text_slice to;  /* at the end */
    uint32_t taker;        /* node of the dict that it is in at the end */
    uint8_t rank;          /* enum rank */
    bool has_content;      /* a tensor or value was in it */
    bool is_left;          /* it is in a table at the end */
};

struct versions {
    struct torch_edit *edit;
    struct module *modules; /* malloc'ed */
    uint32_t n_modules;
    size_t n_module_room;
    uint32_t n_keys;  /* of all tables that were read */
    uint32_t *tables; /* malloc'ed: by place of an OrderedDict, the place of its table */
    uint32_t *owners; /* malloc'ed: by place, the OrderedDict with a table that it is an item of */
    struct map by_name; /* modules, by their old names and tables */
    struct map by_end;  /* modules that are left, by their names and takers */
};

static void versions_done(struct versions *versions)
{
    const int saved = errno;
    map_done(&versions->by_name);
    map_done(&versions->by_end);
    free(versions->modules);
    free(versions->tables);
    free(versions->owners);
    errno = saved;
}

static uint64_t hash_of(uint32_t dict, struct text_slice name)
{
    return edit_name_hash(name) ^ hash_bytes(&dict, sizeof(dict), hash_seed());
}

struct wanted {
    const struct versions *versions;
    uint32_t dict;
    struct text_slice name;
};

static bool is_old(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct module *module = &wanted->versions->modules[i];
    return module->table == wanted->dict && edit_name_is_same(module->old, wanted->name);
}

static bool is_end(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct module *module = &wanted->versions->modules[i];
    return module->taker == wanted->dict && edit_name_is_same(module->to, wanted->name);
}

static struct module *find(const struct versions *versions, const struct map *map, map_match match,
                           uint32_t dict, struct text_slice name)
{
    const struct wanted wanted = {versions, dict, name};
    uint32_t i;
    return map_find(map, hash_of(dict, name), match, &wanted, &i) ? &versions->modules[i] : NULL;
}

static struct module *find_old(const struct versions *versions, uint32_t table,
                               struct text_slice name)
{
    return find(versions, &versions->by_name, is_old, table, name);
}

/* Returns the dict with the items of a table: itself, or those of an OrderedDict. 0: it has
 * none. */
static uint32_t items_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_DICT)
        return id;
    return value->kind == VALUE_CALL ? value_part(graph, value, PART_ITEMS) : 0;
}

/* Adds a module; there is room. */
static int add_module(struct versions *versions, uint32_t dict, uint32_t key, uint32_t value)
{
    const struct value *text = key == 0 ? NULL : graph_at(&versions->edit->plan->graph, key);
    const struct text_slice name = {text == NULL ? "" : text->text, text == NULL ? 0 : text->n};
    versions->modules[versions->n_modules] =
        (struct module){.table = dict, .key = key, .value = value, .old = name};
    return map_add(&versions->by_name, hash_of(dict, name), versions->n_modules++);
}

/* Reads a table of the dict, if all of its keys are names. */
static int add_table(struct versions *versions, uint32_t dict, uint32_t place)
{
    const struct graph *graph = &versions->edit->plan->graph;
    const uint32_t items = items_of(graph, versions->edit->nodes[place].id);
    const struct value *table = items == 0 ? NULL : graph_at(graph, items);
    const uint32_t n = table == NULL ? 0 : table->n;
    if (n / 2 > MAX_KEYS - versions->n_keys)
        return 0;
    versions->n_keys += n / 2;
    for (uint32_t k = 0; k < n; k += 2)
        if (graph_at(graph, value_items(table)[k])->kind != VALUE_TEXT)
            return 0;
    versions->tables[dict] = place;
    if (n > 0 && array_reserve(&versions->modules, sizeof(*versions->modules), versions->n_modules,
                               n / 2 + 1, &versions->n_module_room) < 0)
        return -ENOMEM;
    int code = 0;
    for (uint32_t k = 0; k < n && code == 0; k += 2)
        code = add_module(versions, dict, value_items(table)[k], value_items(table)[k + 1]);
    if (code < 0 || n == 0 || find_old(versions, dict, (struct text_slice){0}) != NULL)
        return code;
    return add_module(versions, dict, 0, 0);
}

/* Reads the tables. One that was removed counts only when its dict is gone, too. */
static int read_tables(struct versions *versions)
{
    const struct torch_edit *edit = versions->edit;
    int code = 0;
    for (uint32_t i = edit->root; i <= edit->end && code == 0; i++) {
        const uint32_t dict = torch_edit_version_dict(edit, i);
        if (dict != 0 && versions->tables[dict] == 0 &&
            (edit->nodes[i].claim != 0 || !edit->nodes[dict].is_alive))
            code = add_table(versions, dict, i);
    }
    for (uint32_t i = edit->root; i <= edit->end; i++) {
        const struct catalog_place *place = &edit->places[i];
        const uint32_t parent = place->parent;
        if (i == edit->root || parent == 0)
            continue;
        if (versions->tables[parent] == 0)
            versions->owners[i] = versions->owners[parent];
        else if (place->id == items_of(&edit->plan->graph, edit->places[parent].id))
            versions->owners[i] = parent;
    }
    return code;
}

/* Returns the innermost dict that a node is in at the end. 0: none. */
static uint32_t taker_of(const struct torch_edit *edit, uint32_t i)
{
    i = edit->nodes[i].parent;
    while (i != 0 && i <= edit->n_places) {
        if (torch_edit_is_dict(edit, i) &&
            (i == edit->root || edit->places[i].start != PLACE_FIXED))
            return i;
        if (i == edit->root)
            return 0;
        i = edit->nodes[i].parent;
    }
    return i;
}

/* Returns the name in a container with the name prefix; bytes NULL: it is not in it. */
static struct text_slice name_in(struct text_slice name, struct text_slice prefix)
{
    if (!edit_name_begins(name, prefix))
        return (struct text_slice){0};
    const size_t n_before = prefix.n_bytes == 0 ? 0 : prefix.n_bytes + 1;
    return (struct text_slice){name.bytes + n_before, name.n_bytes - n_before};
}

/* Removes components from the end of a name. Returns false when it has fewer. */
static bool cut(struct text_slice *name, size_t n_components)
{
    while (n_components > 0) {
        if (name->n_bytes == 0)
            return false;
        while (name->n_bytes > 0 && name->bytes[name->n_bytes - 1] != '.')
            name->n_bytes--;
        name->n_bytes -= name->n_bytes > 0;
        n_components--;
    }
    return true;
}

/* Lets a thing in a module, rest of its name there, decide about the module. */
static void vote(struct module *module, struct text_slice rest, uint32_t taker,
                 struct text_slice end)
{
    struct text_slice to = end;
    size_t n_dots = 0;
    for (size_t i = 0; i < rest.n_bytes; i++)
        n_dots += rest.bytes[i] == '.';
    const bool is_suffix =
        end.n_bytes >= rest.n_bytes &&
        memcmp(end.bytes + end.n_bytes - rest.n_bytes, rest.bytes, rest.n_bytes) == 0 &&
        (end.n_bytes == rest.n_bytes || end.bytes[end.n_bytes - rest.n_bytes - 1] == '.');
    const enum rank rank = is_suffix ? (n_dots == 0 ? RANK_OWN : RANK_SUFFIX)
                                     : (n_dots == 0 ? RANK_INNER : RANK_DEPTH);
    if (rank <= module->rank || !cut(&to, n_dots + 1))
        return;
    module->rank = (uint8_t)rank;
    module->taker = taker;
    module->to = to;
}

static void vote_for_modules(struct versions *versions, uint32_t i)
{
    const struct torch_edit *edit = versions->edit;
    const uint32_t table = versions->owners[i];
    const struct text_slice old = name_in(edit_name_old(edit, i), edit_name_old(edit, table));
    const uint32_t taker = edit->nodes[i].claim == 0 ? 0 : taker_of(edit, i);
    struct text_slice end = {0};
    if (taker != 0)
        end = name_in(edit->nodes[i].to, edit->nodes[taker].to);
    for (size_t n = old.n_bytes < MAX_NAME ? old.n_bytes : MAX_NAME; n-- > 0;) {
        if (n > 0 && old.bytes[n] != '.')
            continue;
        const size_t n_skipped = n > 0 ? n + 1 : 0;
        struct module *module = find_old(versions, table, (struct text_slice){old.bytes, n});
        if (module == NULL)
            continue;
        module->has_content = true;
        if (end.bytes != NULL)
            vote(module, (struct text_slice){old.bytes + n_skipped, old.n_bytes - n_skipped}, taker,
                 end);
    }
}

/* Gives a module without tensors the name that it has in the module around it. */
static int follow(struct versions *versions, struct module *module)
{
    struct text_slice name = module->old;
    const struct module *outer = NULL;
    if (module->rank != RANK_NONE || module->has_content || name.n_bytes > MAX_NAME)
        return 0;
    while ((outer == NULL || (outer->rank == RANK_NONE && !outer->has_content)) &&
           name.n_bytes > 0 && cut(&name, 1))
        outer = find_old(versions, module->table, name);
    if (outer == NULL || outer->taker == 0)
        return 0;
    const size_t n_dot = outer->to.n_bytes > 0, n_skipped = name.n_bytes > 0 ? name.n_bytes + 1 : 0,
                 n_rest = module->old.n_bytes - n_skipped;
    char *to = arena_chars(versions->edit->plan->graph.arena, outer->to.n_bytes + n_dot + n_rest);
    if (to == NULL)
        return -ENOMEM;
    char *at = mempcpy(to, outer->to.bytes, outer->to.n_bytes);
    memcpy(mempcpy(at, ".", n_dot), module->old.bytes + n_skipped, n_rest);
    module->to = (struct text_slice){to, outer->to.n_bytes + n_dot + n_rest};
    module->taker = outer->taker;
    return 0;
}

/* Of several modules with the same name at the end, the one that is surest of it is left. */
static int settle(struct versions *versions, struct module *module)
{
    if (module->taker == 0 || module->key == 0)
        return 0;
    const uint64_t hash = hash_of(module->taker, module->to);
    struct module *other = find(versions, &versions->by_end, is_end, module->taker, module->to);
    if (other != NULL && other->rank >= module->rank)
        return 0;
    if (other != NULL) {
        other->is_left = false;
        map_remove(&versions->by_end, hash, (uint32_t)(other - versions->modules));
    }
    module->is_left = true;
    return map_add(&versions->by_end, hash, (uint32_t)(module - versions->modules));
}

/* Orders modules by their dicts; those that a dict had come first. */
static int compare(const void *a, const void *b)
{
    const struct module *x = *(struct module *const *)a, *y = *(struct module *const *)b;
    const bool x_is_new = x->table != x->taker, y_is_new = y->table != y->taker;
    if (x->taker != y->taker)
        return x->taker < y->taker ? -1 : 1;
    if (x_is_new != y_is_new)
        return x_is_new ? 1 : -1;
    return x < y ? -1 : x > y;
}

/* Returns whether the modules are just those of the loaded table. */
static bool is_same_table(const struct versions *versions, uint32_t place,
                          struct module *const *modules, uint32_t n)
{
    const struct graph *graph = &versions->edit->plan->graph;
    const uint32_t items = items_of(graph, versions->edit->nodes[place].id);
    bool is_same = n == (items == 0 ? 0 : graph_at(graph, items)->n / 2);
    for (uint32_t k = 0; k < n && is_same; k++)
        is_same = modules[k]->table == modules[k]->taker &&
                  edit_name_is_same(modules[k]->old, modules[k]->to);
    return is_same;
}

/* Gives a dict the table of n modules, unless it has that, or the table was removed. */
static int put_table(struct versions *versions, uint32_t taker, struct module *const *modules,
                     uint32_t n)
{
    struct torch_edit *edit = versions->edit;
    struct graph *graph = &edit->plan->graph;
    const uint32_t place = taker <= edit->n_places ? versions->tables[taker] : 0;
    if (place != 0 && (edit->nodes[place].claim == 0 || is_same_table(versions, place, modules, n)))
        return 0;
    const uint32_t table = torch_plan_dict(edit->plan);
    for (uint32_t k = 0; k < n && table != 0; k++) {
        const struct module *module = modules[k];
        const uint32_t pair[] = {edit_name_is_same(module->old, module->to)
                                     ? module->key
                                     : value_new_text(graph, module->to.bytes, module->to.n_bytes),
                                 module->value};
        if (pair[0] == 0 || value_append_part(graph, table, PART_ITEMS, pair, 2) < 0)
            return -ENOMEM;
    }
    *(place != 0 ? &edit->nodes[place].id : &edit->nodes[taker].versions) = table;
    return table == 0 ? -ENOMEM : 0;
}

static int put_tables(struct versions *versions)
{
    struct torch_edit *edit = versions->edit;
    autofree struct module **left = calloc((size_t)versions->n_modules + 1, sizeof(*left));
    uint32_t n = 0;
    if (left == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < versions->n_modules; i++)
        if (versions->modules[i].is_left)
            left[n++] = &versions->modules[i];
    qsort(left, n, sizeof(*left), compare);
    int code = 0;
    for (uint32_t i = 0, end; i < n && code == 0; i = end) {
        const uint32_t taker = left[i]->taker;
        for (end = i + 1; end < n && left[end]->taker == taker; end++)
            ;
        code = put_table(versions, taker, left + i, end - i);
        if (taker <= edit->n_places)
            versions->tables[taker] = 0;
    }
    /* Those that have lost all. */
    for (uint32_t i = edit->root; i <= edit->end && code == 0; i++)
        if (versions->tables[i] != 0 && edit->nodes[i].is_alive)
            code = put_table(versions, i, NULL, 0);
    return code;
}

/* Lets everything in a dict with a table decide where the modules around it are. */
static void vote_all(struct versions *versions)
{
    const struct torch_edit *edit = versions->edit;
    for (uint32_t i = edit->root; i <= edit->end; i++)
        if (versions->owners[i] != 0 && edit->places[i].item != PLACE_FIXED &&
            edit->places[i].name != NULL && edit->nodes[i].kind != PLACE_HOLDER)
            vote_for_modules(versions, i);
    /* The outermost module is still that of its dict when no tensor says where it is. */
    for (uint32_t i = 0; i < versions->n_modules; i++) {
        struct module *module = &versions->modules[i];
        if (module->old.n_bytes == 0 && module->rank == RANK_NONE &&
            edit->nodes[module->table].is_alive)
            module->taker = module->table;
    }
}

int torch_edit_versions(struct torch_edit *edit)
{
    cleanup(versions_done) struct versions versions = {.edit = edit};
    versions.tables = calloc((size_t)edit->n_places + 1, sizeof(*versions.tables));
    versions.owners = calloc((size_t)edit->n_places + 1, sizeof(*versions.owners));
    if (versions.tables == NULL || versions.owners == NULL)
        return -ENOMEM;
    int code = read_tables(&versions);
    if (code == 0)
        vote_all(&versions);
    for (uint32_t i = 0; i < versions.n_modules && code == 0; i++)
        code = follow(&versions, &versions.modules[i]);
    for (uint32_t i = 0; i < versions.n_modules && code == 0; i++)
        code = settle(&versions, &versions.modules[i]);
    return code < 0 ? code : put_tables(&versions);
}
