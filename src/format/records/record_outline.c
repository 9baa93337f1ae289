/* SPDX-License-Identifier: MIT */
/*
 * Making the tree: items in the order of their places, then lists.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "format/records/record_write.h"
#include "format/records/record_load.h"
#include "format/records/record_map.h"
#include "format/records/record_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ROOT = 1, N_DEPTH_MAX = 1000 };

/* A tensor or a value on its way into the tree. */
struct item {
    const char *key;
    const struct wfs_tensor *tensor;
    uint32_t value, place;
    size_t i;
};

void record_outline_done(struct record_outline *outline)
{
    free(outline->nodes);
    map_done(&outline->by_name);
}

/* ---- nodes ---- */

struct wanted {
    const struct record_outline *outline;
    uint32_t parent;
    const char *name;
    size_t n_name;
};

static bool is_wanted(const void *ctx, uint32_t id)
{
    const struct wanted *wanted = ctx;
    const struct outline_node *node = &wanted->outline->nodes[id];
    return node->parent == wanted->parent && node->n_name == wanted->n_name &&
           memcmp(node->name, wanted->name, wanted->n_name) == 0;
}

static uint64_t hash_of(uint32_t parent, const char *name, size_t n_name)
{
    return hash_bytes(name, n_name, hash_seed() ^ parent);
}

uint32_t record_outline_child(const struct record_outline *outline, uint32_t parent,
                              const char *name, size_t n_bytes)
{
    const struct wanted wanted = {outline, parent, name, n_bytes};
    uint32_t found;
    return map_find(&outline->by_name, hash_of(parent, name, n_bytes), is_wanted, &wanted, &found)
               ? found
               : 0;
}

/* Adds a node; 0 when out of memory. */
static uint32_t add_node(struct record_outline *outline, uint32_t parent, const char *name,
                         size_t n_name)
{
    if (array_reserve(&outline->nodes, sizeof(*outline->nodes), outline->n_nodes, 2,
                      &outline->n_room) < 0)
        return 0;
    const uint32_t id = (uint32_t)outline->n_nodes++;
    outline->nodes[id] =
        (struct outline_node){.name = name, .n_name = (uint32_t)n_name, .parent = parent};
    if (parent == 0)
        return id;
    struct outline_node *above = &outline->nodes[parent];
    if (above->last != 0)
        outline->nodes[above->last].next = id;
    else
        above->first = id;
    above->last = id;
    above->n_children++;
    return map_add(&outline->by_name, hash_of(parent, name, n_name), id) < 0 ? 0 : id;
}

static bool is_leaf(const struct outline_node *node)
{
    return node->tensor != NULL || node->value != 0;
}

/* ---- items ---- */

static int fail_twins(const struct item *item, struct wfs_error *err)
{
    return wfs_fail(err, EINVAL,
                    "'%s' has the place of another tensor or value, which a record cannot hold: "
                    "rename it",
                    wfs_quote(item->key).text);
}

/* The name that a component has in the file. */
static void strip_raw(const char **name, size_t *n_name)
{
    const size_t n_raw = strlen(RECORD_RAW);
    if (*n_name > n_raw && memcmp(*name, RECORD_RAW, n_raw) == 0 &&
        record_is_keyword(*name + n_raw, *n_name - n_raw)) {
        *name += n_raw;
        *n_name -= n_raw;
    }
}

/* Goes down to the node of the item, adding what is missing on the way. */
static int find_node(struct record_outline *outline, const struct item *item, uint32_t *ret,
                     struct wfs_error *err)
{
    const char *at = item->key;
    uint32_t node = ROOT;
    for (unsigned depth = 0; at != NULL; depth++) {
        const char *dot = strchr(at, '.'), *name = at;
        size_t n_name = dot == NULL ? strlen(at) : (size_t)(dot - at);
        if (depth == N_DEPTH_MAX)
            return wfs_fail(err, E2BIG, "'%s' has more than %d parts, and Burn reads no deeper",
                            wfs_quote(item->key).text, N_DEPTH_MAX);
        if (is_leaf(&outline->nodes[node]))
            return fail_twins(item, err);
        strip_raw(&name, &n_name);
        uint32_t child = record_outline_child(outline, node, name, n_name);
        if (child == 0)
            child = add_node(outline, node, name, n_name);
        if (child == 0)
            return wfs_fail_memory(err);
        node = child;
        at = dot == NULL ? NULL : dot + 1;
    }
    *ret = node;
    return 0;
}

/* Returns whether the item is all that a record holds, and not a field of it. */
static bool is_root(const struct record_outline *outline, const struct item *item, size_t n_items)
{
    const struct wfs_catalog *catalog = outline->catalog;
    return n_items == 1 && item->place != 0 && item->place <= catalog->values.n_places &&
           catalog->values.places[item->place].parent == 0 && strcmp(item->key, RECORD_ITEM) == 0;
}

static int add_item(struct record_outline *outline, const struct item *item, size_t n_items,
                    struct wfs_error *err)
{
    uint32_t id = ROOT;
    const int code = is_root(outline, item, n_items) ? 0 : find_node(outline, item, &id, err);
    if (code < 0)
        return code;
    struct outline_node *node = &outline->nodes[id];
    if (is_leaf(node) || node->n_children > 0)
        return fail_twins(item, err);
    node->tensor = item->tensor;
    node->value = item->value;
    return 0;
}

/* By place; what has none comes last, as it is listed. */
static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->place != y->place)
        return x->place - 1 < y->place - 1 ? -1 : 1; /* 0 becomes the largest */
    return x->i < y->i ? -1 : x->i > y->i;
}

static int add_items(struct record_outline *outline, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = outline->catalog;
    const size_t n = catalog->n_tensors + catalog->values.n;
    autofree struct item *items = calloc(n + 1, sizeof(*items));
    int code = 0;
    if (items == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < catalog->n_tensors; i++)
        items[i] = (struct item){.key = wfs_catalog_tensor(catalog, i)->key,
                                 .tensor = wfs_catalog_tensor(catalog, i),
                                 .place = wfs_catalog_tensor(catalog, i)->place,
                                 .i = i};
    for (size_t i = catalog->n_tensors; i < n; i++) {
        const struct catalog_value *value = &catalog->values.list[i - catalog->n_tensors];
        items[i] =
            (struct item){.key = value->name, .value = value->id, .place = value->place, .i = i};
    }
    qsort(items, n, sizeof(*items), compare_items);
    for (size_t i = 0; i < n && code == 0; i++)
        code = add_item(outline, &items[i], n, err);
    return code;
}

/* ---- lists ---- */

static bool parse_index(const struct outline_node *node, uint32_t *ret)
{
    uint64_t n;
    if ((node->n_name > 1 && node->name[0] == '0') || !digits_parse(node->name, node->n_name, &n) ||
        n > UINT32_MAX)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static int fail_gap(const struct record_outline *outline, uint32_t id, uint32_t missing,
                    struct wfs_error *err)
{
    const struct outline_node *node = &outline->nodes[id];
    return wfs_fail(err, EINVAL,
                    "the list '%s' would have no item %" PRIu32
                    ": give its items the numbers from 0 on",
                    id == ROOT ? RECORD_ITEM : wfs_quote_n(node->name, node->n_name).text, missing);
}

/* Puts the children of a list into the order of their numbers. */
static int sort_list(struct record_outline *outline, uint32_t id, struct wfs_error *err)
{
    struct outline_node *nodes = outline->nodes, *list = &nodes[id];
    autofree uint32_t *order = calloc(list->n_children, sizeof(*order));
    uint32_t index = 0;
    if (order == NULL)
        return wfs_fail_memory(err);
    for (uint32_t child = list->first; child != 0; child = nodes[child].next) {
        parse_index(&nodes[child], &index);
        if (index < list->n_children)
            order[index] = child;
    }
    for (uint32_t i = 0; i < list->n_children; i++) {
        if (order[i] == 0)
            return fail_gap(outline, id, i, err);
    }
    for (uint32_t i = 0; i < list->n_children; i++)
        nodes[order[i]].next = i + 1 < list->n_children ? order[i + 1] : 0;
    list->first = order[0];
    list->is_list = true;
    return 0;
}

static int find_lists(struct record_outline *outline, struct wfs_error *err)
{
    int code = 0;
    for (uint32_t id = ROOT; id < outline->n_nodes && code == 0; id++) {
        const struct outline_node *node = &outline->nodes[id];
        bool has_only_numbers = node->n_children > 0;
        uint32_t index;
        for (uint32_t child = node->first; child != 0 && has_only_numbers;
             child = outline->nodes[child].next)
            has_only_numbers = parse_index(&outline->nodes[child], &index);
        if (has_only_numbers)
            code = sort_list(outline, id, err);
    }
    return code;
}

/* ---- maps ---- */

bool record_outline_is_parameter(const struct record_outline *outline,
                                 const struct wfs_tensor *tensor)
{
    const bool has_id = wfs_tensor_attr(tensor, "param_id") != NULL;
    return !outline->catalog->output.is_state &&
           (has_id || !outline->is_record || catalog_place(outline->catalog, tensor) == 0);
}

static uint8_t kind_of(const struct record_outline *outline, uint32_t id)
{
    const struct outline_node *node = &outline->nodes[id];
    if (node->value != 0)
        return record_kind(&outline->catalog->values.graph, node->value);
    return record_kind_of(node->is_list ? VALUE_LIST : VALUE_DICT);
}

static uint8_t find_kind(const void *ctx, uint32_t id, const char *name)
{
    const struct record_outline *outline = ctx;
    const uint32_t child = record_outline_child(outline, id, name, strlen(name));
    return child == 0 ? 0 : kind_of(outline, child);
}

/* Returns what the reader will find in the map of a node. */
static struct record_map map_of(const struct record_outline *outline, uint32_t id)
{
    const struct outline_node *node = &outline->nodes[id];
    if (node->value != 0)
        return record_map_of(&outline->catalog->values.graph, node->value);
    if (node->tensor != NULL)
        return record_outline_is_parameter(outline, node->tensor) ? record_map_of_parameter()
                                                                  : record_map_of_tensor();
    return node->is_list ? (struct record_map){0}
                         : record_map_make(node->n_children, find_kind, outline, id);
}

/* Checks that nothing but a tensor looks like one. */
static int check_map(const struct record_outline *outline, uint32_t id, struct wfs_error *err)
{
    const struct outline_node *node = &outline->nodes[id];
    const struct record_map map = map_of(outline, id);
    struct record_map param = {0};
    if (map.param != 0)
        param = map_of(outline, record_outline_child(outline, id, "param", strlen("param")));
    if (!record_map_is_tensor(&map) && !record_map_is_parameter(&map, &param))
        return 0;
    return wfs_fail(err, EINVAL,
                    "'%s' is not a tensor and would be read as one, because it has '%s': rename "
                    "that",
                    id == ROOT ? RECORD_ITEM : wfs_quote_n(node->name, node->n_name).text,
                    map.param != 0 ? "param" : "shape");
}

static int check_maps(const struct record_outline *outline, struct wfs_error *err)
{
    int code = 0;
    for (uint32_t id = ROOT; id < outline->n_nodes && code == 0; id++) {
        if (!is_leaf(&outline->nodes[id]))
            code = check_map(outline, id, err);
    }
    return code;
}

int record_outline_make(struct record_outline *outline, const struct wfs_catalog *catalog,
                        bool is_record, struct wfs_error *err)
{
    *outline = (struct record_outline){.catalog = catalog, .is_record = is_record, .n_nodes = ROOT};
    if (add_node(outline, 0, "", 0) == 0)
        return wfs_fail_memory(err);
    int code = add_items(outline, err);
    if (code == 0)
        code = find_lists(outline, err);
    return code < 0 ? code : check_maps(outline, err);
}
