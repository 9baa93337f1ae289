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
    uint32_t table;       /* place of the OrderedDict that it is from */
    uint32_t key, value;  /* in the graph; 0: an outermost one that the table does not have */
    struct edit_name old; /* in that dict */
    struct edit_name to;  /* at the end */
    uint32_t taker;       /* node of the dict that it is in at the end */
    uint8_t rank;         /* enum rank */
    bool has_content;     /* a tensor or value was in it */
    bool is_left;         /* it is in a table at the end */
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

static uint64_t hash_of(uint32_t dict, struct edit_name name)
{
    return edit_name_hash(name) ^ hash_bytes(&dict, sizeof(dict), hash_seed());
}

struct wanted {
    const struct versions *versions;
    uint32_t dict;
    struct edit_name name;
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

static struct module *find_old(const struct versions *versions, uint32_t table,
                               struct edit_name name)
{
    const struct wanted wanted = {versions, table, name};
    uint32_t i;
    return map_find(&versions->by_name, hash_of(table, name), is_old, &wanted, &i)
               ? &versions->modules[i]
               : NULL;
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

/* Returns whether all keys of a table are names. */
static bool has_names(const struct graph *graph, const struct value *table)
{
    for (uint32_t k = 0; table != NULL && k < table->n; k += 2)
        if (graph_at(graph, value_items(table)[k])->kind != VALUE_TEXT)
            return false;
    return true;
}

/* Adds a module; there is room. */
static int add_module(struct versions *versions, uint32_t dict, uint32_t key, uint32_t value)
{
    const struct graph *graph = &versions->edit->plan->graph;
    struct edit_name name = {"", 0};
    if (key != 0)
        name = (struct edit_name){graph_at(graph, key)->text, graph_at(graph, key)->n};
    versions->modules[versions->n_modules] =
        (struct module){.table = dict, .key = key, .value = value, .old = name};
    return map_add(&versions->by_name, hash_of(dict, name), versions->n_modules++);
}

/* Reads a table of the dict. */
static int add_table(struct versions *versions, uint32_t dict, uint32_t place)
{
    const struct graph *graph = &versions->edit->plan->graph;
    const uint32_t items = items_of(graph, versions->edit->nodes[place].id);
    const struct value *table = items == 0 ? NULL : graph_at(graph, items);
    if (table != NULL && table->n / 2 > MAX_KEYS - versions->n_keys)
        return 0;
    versions->n_keys += table == NULL ? 0 : table->n / 2;
    if (!has_names(graph, table))
        return 0;
    versions->tables[dict] = place;
    if (table == NULL || table->n == 0)
        return 0;
    if (array_reserve(&versions->modules, sizeof(*versions->modules), versions->n_modules,
                      table->n / 2 + 1, &versions->n_module_room) < 0)
        return -ENOMEM;
    for (uint32_t k = 0; k < table->n; k += 2)
        if (add_module(versions, dict, value_items(table)[k], value_items(table)[k + 1]) < 0)
            return -ENOMEM;
    return find_old(versions, dict, (struct edit_name){0}) == NULL
               ? add_module(versions, dict, 0, 0)
               : 0;
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
static struct edit_name name_in(struct edit_name name, struct edit_name prefix)
{
    if (!edit_name_begins(name, prefix))
        return (struct edit_name){0};
    const size_t n_before = prefix.n_bytes == 0 ? 0 : prefix.n_bytes + 1;
    return (struct edit_name){name.bytes + n_before, name.n_bytes - n_before};
}

static size_t count_dots(struct edit_name name)
{
    size_t n = 0;
    for (size_t i = 0; i < name.n_bytes; i++)
        n += name.bytes[i] == '.';
    return n;
}

/* Removes components from the end of a name. Returns false when it has fewer. */
static bool cut(struct edit_name *name, size_t n_components)
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
static void vote(struct module *module, struct edit_name rest, uint32_t taker, struct edit_name end)
{
    const size_t n_dots = count_dots(rest);
    struct edit_name to = end;
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

static void vote_all(struct versions *versions, uint32_t i)
{
    const struct torch_edit *edit = versions->edit;
    const uint32_t table = versions->owners[i];
    const struct edit_name old = name_in(edit_name_old(edit, i), edit_name_old(edit, table));
    const uint32_t taker = edit->nodes[i].claim == 0 ? 0 : taker_of(edit, i);
    struct edit_name end = {0};
    if (taker != 0)
        end = name_in(edit_name_end(&edit->nodes[i]), edit_name_end(&edit->nodes[taker]));
    for (size_t n = old.n_bytes < MAX_NAME ? old.n_bytes : MAX_NAME; n-- > 0;) {
        if (n > 0 && old.bytes[n] != '.')
            continue;
        const size_t n_skipped = n > 0 ? n + 1 : 0;
        struct module *module = find_old(versions, table, (struct edit_name){old.bytes, n});
        if (module == NULL)
            continue;
        module->has_content = true;
        if (end.bytes != NULL)
            vote(module, (struct edit_name){old.bytes + n_skipped, old.n_bytes - n_skipped}, taker,
                 end);
    }
}

/* The outermost module is still that of its dict when no tensor says where it is. */
static void keep_outermost(const struct torch_edit *edit, struct module *module)
{
    if (module->old.n_bytes == 0 && module->rank == RANK_NONE &&
        edit->nodes[module->table].is_alive)
        module->taker = module->table;
}

/* Gives a module without tensors the name that it has in the module around it. */
static int follow(struct versions *versions, struct module *module)
{
    struct edit_name name = module->old;
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
    memcpy(to, outer->to.bytes, outer->to.n_bytes);
    memcpy(to + outer->to.n_bytes, ".", n_dot);
    memcpy(to + outer->to.n_bytes + n_dot, module->old.bytes + n_skipped, n_rest);
    module->to = (struct edit_name){to, outer->to.n_bytes + n_dot + n_rest};
    module->taker = outer->taker;
    return 0;
}

/* Of several modules with the same name at the end, the one that is surest of it is left. */
static int settle(struct versions *versions, uint32_t i)
{
    struct module *module = &versions->modules[i];
    if (module->taker == 0 || module->key == 0)
        return 0;
    const struct wanted wanted = {versions, module->taker, module->to};
    const uint64_t hash = hash_of(module->taker, module->to);
    uint32_t other;
    module->is_left = true;
    if (!map_find(&versions->by_end, hash, is_end, &wanted, &other))
        return map_add(&versions->by_end, hash, i);
    if (versions->modules[other].rank >= module->rank) {
        module->is_left = false;
        return 0;
    }
    versions->modules[other].is_left = false;
    map_remove(&versions->by_end, hash, other);
    return map_add(&versions->by_end, hash, i);
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

/* Makes the table of a dict from n modules. Returns 0 when out of memory. */
static uint32_t make_table(struct torch_edit *edit, struct module *const *modules, uint32_t n)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t table = torch_plan_dict(edit->plan);
    for (uint32_t k = 0; k < n && table != 0; k++) {
        const struct module *module = modules[k];
        const uint32_t pair[] = {edit_name_is_same(module->old, module->to)
                                     ? module->key
                                     : value_new_text(graph, module->to.bytes, module->to.n_bytes),
                                 module->value};
        if (pair[0] == 0 || value_append_part(graph, table, PART_ITEMS, pair, 2) < 0)
            return 0;
    }
    return table;
}

/* Returns whether the modules are just those of the loaded table. */
static bool is_same_table(const struct versions *versions, uint32_t place,
                          struct module *const *modules, uint32_t n)
{
    const struct graph *graph = &versions->edit->plan->graph;
    const uint32_t items = items_of(graph, versions->edit->nodes[place].id);
    if (n != (items == 0 ? 0 : graph_at(graph, items)->n / 2))
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (modules[k]->table != modules[k]->taker ||
            !edit_name_is_same(modules[k]->old, modules[k]->to))
            return false;
    return true;
}

static int put_table(struct versions *versions, uint32_t taker, struct module *const *modules,
                     uint32_t n)
{
    struct torch_edit *edit = versions->edit;
    const uint32_t place = taker <= edit->n_places ? versions->tables[taker] : 0;
    if (place != 0 && (edit->nodes[place].claim == 0 || is_same_table(versions, place, modules, n)))
        return 0;
    const uint32_t made = make_table(edit, modules, n);
    if (made == 0)
        return -ENOMEM;
    if (place != 0)
        edit->nodes[place].id = made;
    else
        edit->nodes[taker].versions = made;
    return 0;
}

static int put_tables(struct versions *versions)
{
    struct torch_edit *edit = versions->edit;
    autofree struct module **left = calloc((size_t)versions->n_modules + 1, sizeof(*left));
    uint32_t n = 0;
    int code = left == NULL ? -ENOMEM : 0;
    for (uint32_t i = 0; i < versions->n_modules && code == 0; i++)
        if (versions->modules[i].is_left)
            left[n++] = &versions->modules[i];
    if (code == 0)
        qsort(left, n, sizeof(*left), compare);
    for (uint32_t i = 0, end; i < n && code == 0; i = end) {
        for (end = i + 1; end < n && left[end]->taker == left[i]->taker; end++)
            ;
        code = put_table(versions, left[i]->taker, left + i, end - i);
        if (left[i]->taker <= edit->n_places)
            versions->tables[left[i]->taker] = 0;
    }
    /* Those that have lost all. */
    for (uint32_t i = edit->root; i <= edit->end && code == 0; i++)
        if (versions->tables[i] != 0 && edit->nodes[i].is_alive)
            code = put_table(versions, i, NULL, 0);
    return code;
}

static int decide(struct versions *versions)
{
    const struct torch_edit *edit = versions->edit;
    int code = read_tables(versions);
    for (uint32_t i = edit->root; i <= edit->end && code == 0; i++)
        if (versions->owners[i] != 0 && edit->places[i].item != PLACE_FIXED &&
            edit->places[i].name != NULL && edit->nodes[i].kind != PLACE_HOLDER)
            vote_all(versions, i);
    for (uint32_t i = 0; i < versions->n_modules; i++)
        keep_outermost(edit, &versions->modules[i]);
    for (uint32_t i = 0; i < versions->n_modules && code == 0; i++)
        code = follow(versions, &versions->modules[i]);
    for (uint32_t i = 0; i < versions->n_modules && code == 0; i++)
        code = settle(versions, i);
    return code < 0 ? code : put_tables(versions);
}

int torch_edit_versions(struct torch_edit *edit)
{
    cleanup(versions_done) struct versions versions = {.edit = edit};
    versions.tables = calloc((size_t)edit->n_places + 1, sizeof(*versions.tables));
    versions.owners = calloc((size_t)edit->n_places + 1, sizeof(*versions.owners));
    if (versions.tables == NULL || versions.owners == NULL || decide(&versions) < 0)
        return wfs_fail_memory(edit->plan->err);
    return 0;
}
