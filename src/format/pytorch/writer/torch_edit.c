/* SPDX-License-Identifier: MIT */
/*
 * Questions about the places of a loaded checkpoint and their names, old and new; the names of
 * containers, for which their content votes; and objects that exist as a whole or not at all:
 * tensors with attributes, and composite tensors. One that has lost a tensor, or of which one is
 * renamed, is taken apart, and its rest becomes items of a dict; one that has lost all tensors
 * goes, with its values.
 */
#include "format/pytorch/writer/torch_edit.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_builder.h"
#include "value/value_leaf.h"

void torch_edit_done(struct torch_edit *edit)
{
    const int saved = errno;
    text_index_done(&edit->takers);
    map_done(&edit->by_name);
    free(edit->taker_nodes);
    free(edit->firsts);
    free(edit->nodes);
    free(edit->walk);
    free(edit->n_same);
    errno = saved;
}

struct text_slice edit_name_old(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    return (struct text_slice){place->name, place->name == NULL ? 0 : place->n_name};
}

bool edit_name_is_same(struct text_slice a, struct text_slice b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.bytes, b.bytes, a.n_bytes) == 0);
}

bool edit_name_begins(struct text_slice name, struct text_slice prefix)
{
    return prefix.n_bytes == 0 ||
           (name.n_bytes > prefix.n_bytes && name.bytes[prefix.n_bytes] == '.' &&
            memcmp(name.bytes, prefix.bytes, prefix.n_bytes) == 0);
}

uint64_t edit_name_hash(struct text_slice name)
{
    return hash_bytes(name.n_bytes == 0 ? "" : name.bytes, name.n_bytes, hash_seed());
}

int torch_edit_fail(const struct torch_edit *edit, struct text_slice name, const char *why)
{
    return wfs_fail(edit->plan->err, EINVAL, "'%s' cannot be in the checkpoint: %s",
                    wfs_quote_n(name.bytes, name.n_bytes).text, why);
}

bool torch_edit_is_shown(const struct torch_edit *edit, uint32_t i)
{
    return edit->nodes[i].claim != 0 && torch_edit_version_dict(edit, i) == 0 &&
           (edit->nodes[i].kind != PLACE_VALUE || edit->places[i].item != PLACE_FIXED ||
            !edit_name_is_same(edit->nodes[i].to, edit_name_old(edit, i)));
}

struct named {
    const struct torch_edit *edit;
    struct text_slice name;
    uint32_t i; /* a node that is ignored */
};

/* Two nodes with the same loaded name may share it again: a tensor that is the key of a dict. */
static bool is_named(const void *ctx, uint32_t i)
{
    const struct named *wanted = ctx;
    const struct torch_edit *edit = wanted->edit;
    if (i == wanted->i || !edit_name_is_same(edit->nodes[i].to, wanted->name))
        return false;
    return wanted->i == 0 || i > edit->n_places || wanted->i > edit->n_places ||
           !edit_name_is_same(edit_name_old(edit, i), edit_name_old(edit, wanted->i));
}

bool torch_edit_is_taken(const struct torch_edit *edit, uint32_t i, struct text_slice name)
{
    const struct named wanted = {edit, name, i};
    uint32_t found;
    return map_find(&edit->by_name, edit_name_hash(name), is_named, &wanted, &found);
}

/* Of several nodes with the name, the first place is the one that was loaded with it. */
static bool stays(const struct torch_edit *edit, struct text_slice name)
{
    const struct named wanted = {edit, name, 0};
    uint32_t i;
    return map_find(&edit->by_name, edit_name_hash(name), is_named, &wanted, &i) &&
           i <= edit->n_places && edit->nodes[i].claim != 0 &&
           edit_name_is_same(edit_name_old(edit, i), name);
}

static const struct value *value_at(const struct torch_edit *edit, uint32_t i)
{
    return graph_at(&edit->plan->graph, edit->places[i].id);
}

static bool is_wrapper(const struct graph *graph, const struct value *value)
{
    if (torch_what_of(graph, value) != WHAT_REBUILD_TYPE)
        return false;
    const struct torch_global *inner =
        torch_global_of(graph, torch_arg(graph, value->call.args, 0));
    return inner != NULL && inner->what == WHAT_REBUILD_WRAPPER;
}

/* Returns whether it is made of several tensors. */
static bool torch_edit_is_composed(const struct torch_edit *edit, uint32_t i)
{
    const struct graph *graph = &edit->plan->graph;
    const char *name;
    return edit->nodes[i].kind == PLACE_HOLDER && value_at(edit, i)->kind == VALUE_CALL &&
           (torch_composite_part(graph, value_at(edit, i), 0, &name) != 0 ||
            is_wrapper(graph, value_at(edit, i)));
}

bool torch_edit_is_object(const struct torch_edit *edit, uint32_t i)
{
    return i <= edit->n_places &&
           (edit->nodes[i].kind == PLACE_TENSOR || torch_edit_is_composed(edit, i));
}

uint32_t torch_edit_holder(const struct torch_edit *edit, uint32_t i)
{
    i = edit->places[i].parent;
    while (i != 0 && i != edit->root && edit->places[i].start == PLACE_FIXED &&
           !torch_edit_is_object(edit, i))
        i = edit->places[i].parent;
    return i;
}

uint32_t torch_edit_old_key(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    const struct value *holder =
        place->parent == 0 ? NULL : graph_at(&edit->plan->graph, edit->places[place->parent].id);
    const bool is_dict = holder != NULL && holder->kind == VALUE_DICT && place->item % 2 == 1 &&
                         place->item < holder->n;
    return is_dict ? value_items(holder)[place->item - 1] : 0;
}

static bool is_mapping(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_DICT || torch_what_of(graph, value) == WHAT_ORDERED_DICT;
}

bool torch_edit_is_dict(const struct torch_edit *edit, uint32_t i)
{
    if (i > edit->n_places || edit->nodes[i].kind != PLACE_HOLDER)
        return false;
    return is_mapping(&edit->plan->graph, edit->places[i].id);
}

/* Returns whether it is a dict of dicts, judged by its first item. */
static bool is_table(const struct graph *graph, uint32_t id)
{
    if (!is_mapping(graph, id))
        return false;
    if (graph_at(graph, id)->kind == VALUE_CALL)
        id = value_part(graph, graph_at(graph, id), PART_ITEMS);
    return id == 0 || graph_at(graph, id)->n < 2 ||
           is_mapping(graph, value_items(graph_at(graph, id))[1]);
}

uint32_t torch_edit_version_dict(const struct torch_edit *edit, uint32_t i)
{
    const struct graph *graph = &edit->plan->graph;
    const uint32_t attributes = i > edit->n_places ? 0 : edit->places[i].parent,
                   dict = attributes == 0 ? 0 : edit->places[attributes].parent;
    if (dict == 0 || edit->nodes[i].kind != PLACE_VALUE ||
        edit->places[attributes].start != PLACE_FIXED ||
        !value_is_text(graph, torch_edit_old_key(edit, i), "_metadata") ||
        torch_what_of(graph, value_at(edit, dict)) != WHAT_ORDERED_DICT ||
        edit->places[attributes].id == value_part(graph, value_at(edit, dict), PART_ITEMS))
        return 0;
    return is_table(graph, edit->places[i].id) ? dict : 0;
}

/* Returns whether it is the root, or the dict of its attributes. */
static bool is_outermost(const struct torch_edit *edit, uint32_t i)
{
    while (i != edit->root && edit->places[i].start == PLACE_FIXED && edit->places[i].parent != 0)
        i = edit->places[i].parent;
    return i == edit->root && (edit->shell == 0 || edit->nodes[i].kind == PLACE_HOLDER);
}

/* Returns the length of the name without "~2"; 0: it does not end so. */
static size_t twin_end(struct text_slice name)
{
    size_t n = name.n_bytes;
    while (n > 0 && name.bytes[n - 1] >= '0' && name.bytes[n - 1] <= '9')
        n--;
    return n > 1 && n < name.n_bytes && name.bytes[n - 1] == '~' ? n - 1 : 0;
}

/* Returns whether "~2" is no longer needed: the other thing with that spelling is gone. */
static bool is_lone_twin(const struct torch_edit *edit, uint32_t i, struct text_slice old)
{
    const size_t n = twin_end(old);
    const uint32_t key = n == 0 ? 0 : torch_edit_old_key(edit, i);
    autostrbuf struct strbuf spelled = {.n_max = old.n_bytes + 1};
    if (n == 0)
        return false;
    if (key != 0 && value_add_key(&spelled, &edit->plan->graph, key) &&
        spelled.n_bytes == old.n_bytes - edit->places[i].start &&
        memcmp(spelled.bytes, old.bytes + edit->places[i].start, spelled.n_bytes) == 0)
        return false;
    return !edit_name_is_same(edit->nodes[i].to, old) ||
           !stays(edit, (struct text_slice){old.bytes, n});
}

/* Returns whether it has a key with a NUL, whose name is an escaped one. */
static bool has_nul(const struct torch_edit *edit, uint32_t i)
{
    const uint32_t id = edit->nodes[i].kind == PLACE_VALUE ? 0 : torch_edit_old_key(edit, i);
    const struct value *key = id == 0 ? NULL : graph_at(&edit->plan->graph, id);
    return key != NULL && key->kind == VALUE_TEXT && key->n > 0 &&
           memchr(key->text, '\0', key->n) != NULL;
}

bool torch_edit_is_at_home(const struct torch_edit *edit, uint32_t i)
{
    const struct catalog_place *place = &edit->places[i];
    const struct text_slice holder = edit->nodes[place->parent].to, name = edit->nodes[i].to,
                            old = edit_name_old(edit, i);
    const size_t n_own = old.n_bytes - place->start;
    const size_t n_before = is_outermost(edit, place->parent) ? 0 : holder.n_bytes + 1;
    return name.n_bytes == n_before + n_own &&
           memcmp(name.bytes + n_before, old.bytes + place->start, n_own) == 0 &&
           (n_before == 0 || edit_name_begins(name, holder)) &&
           (edit->nodes[i].kind == PLACE_HOLDER || !is_lone_twin(edit, i, old)) &&
           !has_nul(edit, i);
}

/* ---- names of containers ---- */

/*
 * Votes for the names of all containers of a leaf: the names that they would have if they had been
 * renamed as a whole. A container in which anything keeps its name stays.
 */
static void vote(struct torch_edit *edit, uint32_t leaf)
{
    const struct text_slice name = edit->nodes[leaf].to, old = edit_name_old(edit, leaf);
    for (uint32_t i = edit->places[leaf].parent; i != 0; i = edit->places[i].parent) {
        struct edit_node *node = &edit->nodes[i];
        const struct text_slice container = edit_name_old(edit, i);
        if (node->kind != PLACE_HOLDER || container.n_bytes == 0)
            continue;
        const size_t n_rest = old.n_bytes - container.n_bytes;
        if (edit_name_begins(name, container)) {
            node->stays = true;
        } else if (!node->has_vote && name.n_bytes > n_rest &&
                   memcmp(name.bytes + name.n_bytes - n_rest, old.bytes + container.n_bytes,
                          n_rest) == 0) {
            node->has_vote = true;
            node->to = (struct text_slice){name.bytes, name.n_bytes - n_rest};
        }
    }
}

static int add_name(struct torch_edit *edit, uint32_t i)
{
    return map_add(&edit->by_name, edit_name_hash(edit->nodes[i].to), i);
}

static int name_container(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    /* A proposed name is given if nothing else has it, and the container can be renamed. */
    if (i == edit->root) {
        node->to.n_bytes = 0;
    } else if (edit->places[i].start == PLACE_FIXED && node->parent != 0) {
        node->to = edit->nodes[node->parent].to;
    } else if (node->has_vote && !torch_edit_is_taken(edit, i, node->to) &&
               (edit->places[i].item != PLACE_FIXED || node->parent == 0 ||
                torch_edit_is_at_home(edit, i))) {
        return add_name(edit, i);
    } else {
        edit->nodes[i].to = edit_name_old(edit, i);
    }
    return 0;
}

/* Places precede those in them. */
int torch_edit_names(struct torch_edit *edit)
{
    int code = map_reserve(&edit->by_name, edit->n_nodes);
    for (uint32_t i = 1; i <= edit->n_places; i++)
        if (torch_edit_is_shown(edit, i))
            vote(edit, i);
    for (uint32_t i = 1; i <= edit->n_nodes && code == 0; i++) {
        struct edit_node *node = &edit->nodes[i];
        const bool is_container = i <= edit->n_places && node->kind == PLACE_HOLDER;
        if (is_container && node->stays) {
            node->has_vote = false;
            edit->nodes[i].to = edit_name_old(edit, i);
        }
        if (is_container ? node->stays && edit->places[i].start != PLACE_FIXED : node->claim != 0)
            code = add_name(edit, i);
    }
    for (uint32_t i = 1; i <= edit->n_places && code == 0; i++)
        code = edit->nodes[i].kind == PLACE_HOLDER ? name_container(edit, i) : 0;
    return code;
}

/* ---- objects ---- */

/* Decides about the scales of a quantized tensor, which needs them; they do not need it. */
static int judge_parts(struct torch_edit *edit, uint32_t i, uint32_t tensor)
{
    struct edit_node *node = &edit->nodes[i];
    if (edit->nodes[tensor].claim == 0)
        node->is_apart = node->has_tensor;
    else if (node->is_short || node->is_torn)
        return torch_edit_fail(edit, edit_name_old(edit, tensor),
                               "it is quantized by channel: keep its scales and zero points under "
                               "its name, or remove all three");
    return 0;
}

/* Decides about an object after everything in it. */
static int judge(struct torch_edit *edit, uint32_t i)
{
    struct edit_node *node = &edit->nodes[i];
    const uint32_t parent = edit->places[i].parent;
    if (node->kind == PLACE_TENSOR) {
        node->is_apart = node->claim == 0 && node->has_tensor;
        node->has_tensor = node->has_tensor || node->claim != 0;
    } else if (torch_edit_is_composed(edit, i)) {
        if (parent != 0 && edit->nodes[parent].kind == PLACE_TENSOR &&
            edit->places[parent].id == edit->places[i].id)
            return judge_parts(edit, i, parent);
        node->is_apart = node->has_tensor && (node->is_short || node->is_torn);
    }
    return 0;
}

/* Passes the decision on to its container. */
static void tell(struct torch_edit *edit, uint32_t i)
{
    const struct edit_node *node = &edit->nodes[i];
    const struct catalog_place *place = &edit->places[i];
    const uint32_t holder = torch_edit_holder(edit, i);
    const bool is_part = place->start != PLACE_FIXED && i != edit->root;
    edit->nodes[place->parent].has_tensor =
        edit->nodes[place->parent].has_tensor || node->has_tensor;
    if (is_part && !node->has_tensor && torch_edit_is_object(edit, i))
        edit->nodes[holder].is_short = true;
    if (is_part && node->has_tensor && (node->is_apart || !torch_edit_is_at_home(edit, i)))
        edit->nodes[holder].is_torn = true;
}

int torch_edit_objects(struct torch_edit *edit)
{
    int code = 0;
    for (uint32_t i = edit->n_places; i >= 1 && code == 0; i--) {
        code = judge(edit, i);
        if (code == 0 && edit->places[i].parent != 0)
            tell(edit, i);
    }
    return code;
}
