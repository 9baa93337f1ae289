/* SPDX-License-Identifier: MIT */
/*
 * Containers with new items, and their tables of versions. A container that has one place is
 * changed in place, so that everything that refers to it sees the change; one with several places
 * is copied.
 *
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

/* ---- versions of modules ---- */

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
    uint32_t n_keys;    /* of all tables that were read */
    uint32_t *tables;   /* malloc'ed: by place of an OrderedDict, the place of its table */
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
    return code;
}

/* Returns the innermost OrderedDict with a table that a place is in, if it is among the items. */
static uint32_t owner_of(const struct versions *versions, uint32_t i)
{
    const struct torch_edit *edit = versions->edit;
    for (uint32_t parent = 0; i != edit->root && edit->places[i].parent != 0; i = parent) {
        parent = edit->places[i].parent;
        if (versions->tables[parent] != 0)
            return edit->places[i].id == items_of(&edit->plan->graph, edit->places[parent].id)
                       ? parent
                       : 0;
    }
    return 0;
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
    const uint32_t table = owner_of(versions, i);
    if (table == 0)
        return;
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
        if (edit->places[i].item != PLACE_FIXED && edit->places[i].name != NULL &&
            edit->nodes[i].kind != PLACE_HOLDER)
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
    if (versions.tables == NULL)
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

/* ---- containers ---- */

static bool is_changed(const struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    for (uint32_t k = node->old_first; k != 0; k = edit->nodes[k].old_next) {
        const struct edit_node *child = &edit->nodes[k];
        if (child->is_gone || child->key != 0 || child->id != edit->places[k].id)
            return true;
    }
    return node->versions != 0 || node->last > edit->n_places ||
           (node->last != 0 && edit->places[node->last].parent != i);
}

/* Returns whether a child of a container was not in it before. */
static bool is_added(const struct torch_edit *edit, uint32_t i, uint32_t child)
{
    return child > edit->n_places || edit->places[child].parent != i;
}

static uint32_t count_added(const struct torch_edit *edit, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next)
        n += is_added(edit, i, k);
    return n;
}

static int fail_several(const struct torch_edit *edit, uint32_t k)
{
    return wfs_fail(edit->plan->err, EINVAL,
                    "'%s' is used in several places of an object: it can only be changed in all of "
                    "them",
                    wfs_quote_n(edit->nodes[k].to.bytes, edit->nodes[k].to.n_bytes).text);
}

/* Replaces one item; those that are gone from a dict become 0. */
static int replace_item(struct torch_edit *edit, uint32_t k, const struct value *value,
                        uint32_t *ids)
{
    const struct edit_node *child = &edit->nodes[k];
    const uint32_t item = edit->places[k].item;
    if (item >= value->n)
        return child->id == edit->places[k].id ? 0 : fail_several(edit, k);
    if (child->is_gone) {
        ids[item] = value->kind == VALUE_DICT ? 0 : value_new(&edit->plan->graph, VALUE_NONE);
        return ids[item] == 0 && value->kind != VALUE_DICT ? -ENOMEM : 0;
    }
    ids[item] = child->id;
    if (child->key != 0)
        ids[item - 1] = child->key;
    return 0;
}

/* Replaces all items that were loaded. A tensor that is the key of an item and the item must both
 * stay, or both go. */
static int replace_items(struct torch_edit *edit, uint32_t i, const struct value *value,
                         uint32_t *ids)
{
    const uint32_t first = edit->nodes[i].old_first;
    int code = 0;
    for (uint32_t k = first; k != 0 && code == 0; k = edit->nodes[k].old_next)
        code = replace_item(edit, k, value, ids);
    if (code < 0 || value->kind != VALUE_DICT)
        return code;
    for (uint32_t k = first; k != 0; k = edit->nodes[k].old_next) {
        const uint32_t item = edit->places[k].item;
        if (item < value->n && item % 2 == 0 && (ids[item] == 0) != (ids[item + 1] == 0))
            return torch_edit_fail(
                edit, edit_name_old(edit, k),
                edit->nodes[k].is_gone
                    ? "it is the key of an item that is still in a dict: keep it, or remove both"
                    : "it is the key of an item that is removed from a dict: remove it too, or "
                      "keep both");
    }
    for (uint32_t k = 1; k < value->n; k += 2)
        if (ids[k] == 0)
            ids[k - 1] = 0;
    return 0;
}

/* Gives the node a new content: in the value that it had, or as a new value. */
static int put_value(struct torch_edit *edit, uint32_t i, uint32_t made)
{
    struct torch_plan *plan = edit->plan;
    if (made == 0)
        return -ENOMEM;
    if (graph_at(&plan->graph, made)->kind == graph_at(&plan->graph, edit->places[i].id)->kind)
        graph_at(&plan->graph, made)->form = graph_at(&plan->graph, edit->places[i].id)->form;
    if (torch_edit_is_shared(edit, i)) {
        edit->nodes[i].id = made;
        return 0;
    }
    return torch_plan_become(plan, edit->places[i].id, made);
}

/* Gives an OrderedDict the attribute with its table of versions. The list of its states is copied:
 * others may have it. */
static int append_versions(struct torch_edit *edit, uint32_t i, uint32_t call)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t states = value_part(graph, graph_at(graph, call), PART_STATES),
                   name = value_new_text(graph, "_metadata", strlen("_metadata"));
    const uint32_t pair[] = {name, edit->nodes[i].versions};
    const uint32_t state = name == 0 ? 0 : value_new_items(graph, VALUE_DICT, pair, 2);
    if (state == 0)
        return -ENOMEM;
    if (states != 0) {
        const struct value *list = graph_at(graph, states);
        const uint32_t copy = value_new_items(graph, VALUE_LIST, value_items(list), list->n);
        if (copy == 0)
            return -ENOMEM;
        graph_at(graph, graph_at(graph, call)->n)->n = copy;
    }
    return value_append_part(graph, call, PART_STATES, &state, 1);
}

/* Makes an OrderedDict with versions from a dict. Returns 0 when out of memory. */
static uint32_t add_versions(struct torch_edit *edit, uint32_t i, uint32_t dict)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *value = dict == 0 ? NULL : graph_at(graph, dict);
    const uint32_t call = value == NULL ? 0 : torch_plan_dict(edit->plan);
    if (call == 0 || value_append_part(graph, call, PART_ITEMS, value_items(value), value->n) < 0 ||
        append_versions(edit, i, call) < 0)
        return 0;
    return call;
}

/* Names an item whose key another one has in the dict that was made. */
static int fail_twin(const struct torch_edit *edit, uint32_t i, uint32_t made)
{
    const struct graph *graph = &edit->plan->graph;
    const struct value *dict = graph_at(graph, made);
    autofree bool *is_left = calloc((size_t)graph->n_values + 1, sizeof(*is_left));
    if (is_left == NULL)
        return -ENOMEM;
    for (uint32_t k = 1; k < dict->n; k += 2)
        is_left[value_items(dict)[k]] = true;
    uint32_t twin = edit->nodes[i].first;
    while (twin != 0 && is_left[edit->nodes[twin].id])
        twin = edit->nodes[twin].next;
    return torch_edit_fail(edit, edit->nodes[twin == 0 ? i : twin].to,
                           "another item has that name, or a key that is equal in Python, as 1 and "
                           "True are: rename one of them");
}

static int rebuild_items(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *value = graph_at(graph, edit->places[i].id);
    const size_t n_room = (size_t)value->n + 2 * (size_t)count_added(edit, i) + 1;
    autofree uint32_t *ids = calloc(n_room, sizeof(*ids));
    uint32_t n = 0;
    if (ids == NULL)
        return -ENOMEM;
    if (value->n > 0)
        memcpy(ids, value_items(value), value->n * sizeof(*ids));
    const int code = replace_items(edit, i, value, ids);
    if (code < 0)
        return code;
    for (uint32_t k = 0; k < value->n; k++)
        if (ids[k] != 0)
            ids[n++] = ids[k];
    for (uint32_t k = edit->nodes[i].first; k != 0; k = edit->nodes[k].next) {
        if (!is_added(edit, i, k))
            continue;
        ids[n++] = edit->nodes[k].key;
        ids[n++] = edit->nodes[k].id;
    }
    const uint32_t made = value_new_items(graph, (enum value_kind)value->kind, ids, n);
    const int64_t n_twins =
        made != 0 && value->kind == VALUE_DICT ? value_drop_twins(graph, made) : 0;
    if (n_twins > 0)
        return fail_twin(edit, i, made);
    if (n_twins < 0)
        return -ENOMEM;
    return put_value(edit, i, edit->nodes[i].versions == 0 ? made : add_versions(edit, i, made));
}

/* Replaces an item of a list or tuple: a state of an object, or an argument. Returns a copy of it,
 * 0 when the item is not in it. */
static uint32_t replace_in(struct graph *graph, uint32_t id, uint32_t old, uint32_t new)
{
    const struct value *list = id == 0 ? NULL : graph_at(graph, id);
    const uint32_t n = list != NULL && value_has_items(list) ? list->n : 0;
    uint32_t k = 0;
    while (k < n && value_items(list)[k] != old)
        k++;
    const uint32_t copy =
        k == n ? 0 : value_new_items(graph, (enum value_kind)list->kind, value_items(list), n);
    if (copy != 0)
        (n <= 2 ? graph_at(graph, copy)->pair : graph_at(graph, copy)->items)[k] = new;
    return copy;
}

/* Makes a dict of what a call without items gets. Returns 0 when out of memory. */
static uint32_t first_items(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const uint32_t dict = value_new(graph, VALUE_DICT);
    for (uint32_t k = edit->nodes[i].first; k != 0 && dict != 0; k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        if (is_added(edit, i, k) && value_append(graph, dict, pair, 2) < 0)
            return 0;
    }
    return dict;
}

/* Rebuilds a call of which an argument, the dict or a state is another one now, or which gets its
 * first items. */
static int rebuild_call(struct torch_edit *edit, uint32_t i)
{
    struct graph *graph = &edit->plan->graph;
    const struct value *call = graph_at(graph, edit->places[i].id);
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    uint32_t dict = items, states = value_part(graph, call, PART_STATES), args = call->call.args;
    for (uint32_t k = edit->nodes[i].old_first; k != 0; k = edit->nodes[k].old_next) {
        const uint32_t old = edit->places[k].id, new = edit->nodes[k].id;
        if (new == old)
            continue;
        if (edit->places[k].item != PLACE_FIXED)
            return fail_several(edit, k);
        if (old == items) {
            dict = new;
            continue;
        }
        const uint32_t state = replace_in(graph, states, old, new),
                       arg = state != 0 ? 0 : replace_in(graph, args, old, new);
        if (state == 0 && arg == 0)
            return fail_several(edit, k);
        states = state != 0 ? state : states;
        args = arg != 0 ? arg : args;
    }
    if (items == 0 && count_added(edit, i) > 0) {
        dict = first_items(edit, i);
        if (dict == 0)
            return -ENOMEM;
    }
    const uint32_t parts = value_new(graph, VALUE_PARTS), copy = value_new(graph, VALUE_CALL);
    if (parts == 0 || copy == 0)
        return -ENOMEM;
    if (call->n != 0)
        *graph_at(graph, parts) = *graph_at(graph, call->n);
    graph_at(graph, parts)->parts.items = dict;
    graph_at(graph, parts)->n = states;
    *graph_at(graph, copy) = *call;
    graph_at(graph, copy)->call.args = args;
    graph_at(graph, copy)->n = parts;
    if (edit->nodes[i].versions != 0 && append_versions(edit, i, copy) < 0)
        return -ENOMEM;
    return put_value(edit, i, copy);
}

/* Sets the order of the tensors in the new file, for a comparison. */
static int set_order(struct torch_edit *edit)
{
    struct wfs_layout *layout = edit->plan->layout;
    const struct wfs_catalog *catalog = edit->catalog;
    size_t n = 0;
    layout->order = arena_calloc(&layout->arena, catalog->n_tensors, sizeof(*layout->order));
    if (layout->order == NULL)
        return -ENOMEM;
    for (uint32_t k = 0; k < edit->n_walk; k++) {
        const struct edit_node *node = &edit->nodes[edit->walk[k]];
        if (node->kind == PLACE_TENSOR && node->claim != 0 && n < catalog->n_tensors)
            layout->order[n++] = wfs_catalog_tensor(catalog, node->claim - 1);
    }
    return n == catalog->n_tensors
               ? 0
               : wfs_fail(edit->plan->err, EIO, "internal error: %zu of %s have a place", n,
                          wfs_count(catalog->n_tensors, "tensor").text);
}

/* Fills the new dict in the place of the root. */
static int make_shell(struct torch_edit *edit)
{
    struct edit_node *shell = &edit->nodes[edit->shell];
    shell->id = torch_plan_dict(edit->plan);
    int code = shell->id == 0 ? -ENOMEM : 0;
    for (uint32_t k = shell->first; k != 0 && code == 0; k = edit->nodes[k].next) {
        const uint32_t pair[] = {edit->nodes[k].key, edit->nodes[k].id};
        code = value_append_part(&edit->plan->graph, shell->id, PART_ITEMS, pair, 2);
    }
    if (code == 0 && shell->versions != 0)
        code = append_versions(edit, edit->shell, shell->id);
    return code < 0 ? -ENOMEM : 0;
}

int torch_edit_containers(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t k = edit->n_walk; k-- > 0 && code == 0;) {
        const uint32_t i = edit->walk[k];
        if (i <= edit->n_places && edit->nodes[i].kind == PLACE_HOLDER && is_changed(edit, i))
            code = value_has_items(graph_at(&edit->plan->graph, edit->places[i].id))
                       ? rebuild_items(edit, i)
                       : rebuild_call(edit, i);
    }
    if (code == 0 && edit->shell != 0)
        code = make_shell(edit);
    if (code < 0)
        return code;
    edit->plan->root = edit->nodes[edit->shell != 0 ? edit->shell : edit->root].id;
    return set_order(edit);
}
