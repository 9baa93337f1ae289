/* SPDX-License-Identifier: MIT */
/*
 * The stack and the path. Keys are the components on the way, joined with dots. A container on its
 * own path is a cycle and left out; one that is reached again is listed again, within a budget, so
 * that sharing cannot list more than a small multiple of the file.
 */
#include "format/pytorch/object/torch_walk.h"

#include "format/pytorch/object/python_key.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* NULL: nothing. */
static void free_set(struct value_set *set)
{
    if (set != NULL)
        value_set_done(set);
    free(set);
}

void walk_done(struct walk *walk)
{
    const int saved = errno;
    for (uint32_t i = 0; i < walk->n_sets; i++)
        free_set(walk->sets[i]);
    free(walk->sets);
    map_done(&walk->set_numbers);
    free(walk->frames);
    strbuf_done(&walk->path);
    errno = saved;
}

struct set_query {
    const struct walk *walk;
    const uint32_t *items;
};

static bool is_set(const void *ctx, uint32_t i)
{
    const struct set_query *query = ctx;
    return query->walk->sets[i]->items == query->items;
}

const struct value_set *walk_set(struct walk *walk, uint32_t items)
{
    const struct value *value = graph_at(walk->graph, items);
    const struct set_query query = {walk, value_items(value)};
    const uint64_t hash = hash_bytes(&items, sizeof(items), hash_seed());
    uint32_t i;
    if (map_find(&walk->set_numbers, hash, is_set, &query, &i))
        return walk->sets[i];
    struct value_set *set = calloc(1, sizeof(*set));
    if (set == NULL ||
        array_reserve(&walk->sets, sizeof(*walk->sets), walk->n_sets, 1, &walk->n_set_room) < 0 ||
        value_set_init(set, walk->graph, value) < 0 ||
        map_add(&walk->set_numbers, hash, walk->n_sets) < 0) {
        free_set(set);
        return NULL;
    }
    walk->sets[walk->n_sets++] = set;
    return set;
}

/* Returns whether the mode can step through the value: arguments and states can be anything. */
static bool is_walkable(const struct value *value, enum walk_mode mode)
{
    switch (mode) {
    case WALK_PAIRS:
        return value->kind == VALUE_DICT;
    case WALK_ITEMS:
    case WALK_ARGS:
    case WALK_BOUND_ARGS:
        return value_has_items(value);
    default:
        return value->kind == VALUE_CALL;
    }
}

int walk_enter(struct walk *walk, enum walk_mode mode, uint32_t id)
{
    if (id == 0 || !is_walkable(graph_at(walk->graph, id), mode))
        return 0;
    struct value *value = graph_at(walk->graph, id);
    if (walk->n_frames >= walk->torch->limits->depth) {
        walk->is_deep = true;
        return 0;
    }
    if ((value->marks & MARK_OPEN) != 0)
        return 0;
    if ((value->marks & MARK_EXPANDED) != 0) {
        const uint64_t cost = 1 + (value_has_items(value) ? value->n : 0);
        if (cost > walk->n_repeats_left) {
            walk->is_repetitive = true;
            return 0;
        }
        walk->n_repeats_left -= cost;
    }
    if (array_reserve(&walk->frames, sizeof(*walk->frames), walk->n_frames, 1,
                      &walk->n_frame_room) < 0)
        return wfs_fail_memory(walk->torch->err);
    const uint32_t place = walk_add_place(walk, id, NULL);
    if (place == 0)
        return wfs_fail_memory(walk->torch->err);
    value->marks |= MARK_OPEN | MARK_EXPANDED;
    walk->n_modules += mode == WALK_MODULE;
    walk->frames[walk->n_frames++] = (struct frame){.id = id,
                                                    .mode = mode,
                                                    .n_path = walk->path.n_bytes,
                                                    .n_components = walk->n_components,
                                                    .place = place,
                                                    .role = walk->role};
    return 0;
}

void walk_leave(struct walk *walk)
{
    const struct frame *frame = &walk->frames[--walk->n_frames];
    graph_at(walk->graph, frame->id)->marks &= (uint8_t)~MARK_OPEN;
    walk->n_modules -= frame->mode == WALK_MODULE;
}

static void add_component(struct walk *walk, const char *bytes, size_t n)
{
    if (walk->n_components++ > 0)
        strbuf_add(&walk->path, ".", 1);
    strbuf_add(&walk->path, bytes, n);
}

void walk_add_name(struct walk *walk, const char *name)
{
    add_component(walk, name, strlen(name));
}

void walk_add_number(struct walk *walk, const char *prefix, uint32_t number)
{
    add_component(walk, prefix, strlen(prefix));
    strbuf_printf(&walk->path, "%u", number);
}

/* Writes each NUL of the component at n_before as "%00", and notes where the last one is. */
static void escape_nuls(struct walk *walk, size_t n_before)
{
    const size_t n = walk->path.n_bytes - n_before;
    if (walk->path.is_cut || n == 0 || memchr(walk->path.bytes + n_before, '\0', n) == NULL)
        return;
    autofree char *copy = malloc(n);
    if (copy == NULL) {
        strbuf_fail(&walk->path);
        return;
    }
    memcpy(copy, walk->path.bytes + n_before, n);
    walk->path.n_bytes = n_before;
    for (size_t i = 0; i < n; i++)
        strbuf_add(&walk->path, copy[i] == '\0' ? "%00" : copy + i, copy[i] == '\0' ? 3 : 1);
    walk->n_to_nul = walk->path.n_bytes;
}

void walk_add_key(struct walk *walk, uint32_t key)
{
    add_component(walk, "", 0);
    const size_t n_before = walk->path.n_bytes;
    walk->key = key;
    if (!value_add_key(&walk->path, walk->graph, key))
        strbuf_printf(&walk->path, "%%key%08x", python_key_digest(walk->graph, key));
    escape_nuls(walk, n_before);
}

uint32_t walk_add_place(struct walk *walk, uint32_t id, const char *name)
{
    const struct frame *top = walk->n_frames == 0 ? NULL : &walk->frames[walk->n_frames - 1];
    struct catalog_place place = {
        .name = name, .n_name = (uint32_t)walk->path.n_bytes, .item = walk->item, .id = id};
    place.parent = walk->holder != 0 ? walk->holder : top != NULL ? top->place : 0;
    place.start = PLACE_FIXED;
    if (top != NULL && walk->holder == 0 && walk->n_components > top->n_components)
        place.start = top->n_components == 0 ? 0 : (uint32_t)top->n_path + 1;
    if (name != NULL)
        place.n_name = (uint32_t)strlen(name);
    walk->item = PLACE_FIXED;
    return catalog_add_place(walk->torch->catalog, &place);
}
