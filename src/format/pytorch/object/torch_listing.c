/* SPDX-License-Identifier: MIT */
/*
 * From the graph to named tensors and values: a stack of values that are being listed, and the
 * dotted path to the current one. Each step lists one value, or goes into it. A container on its
 * own path is a cycle and left out; one that is reached again is listed again, within a budget, so
 * that sharing cannot list more than a small multiple of the file.
 *
 * A module is listed like in state_dict(); a tensor subclass by the tensors in it; every other
 * object by arguments, items, elements and attributes.
 */
#include "format/pytorch/object/torch_listing.h"

#include <weightfs/array.h>
#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_marks.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum walk_mode {
    WALK_ITEMS,
    WALK_PAIRS,
    WALK_ARGS,       /* as items, but only those with tensors */
    WALK_BOUND_ARGS, /* the same after the first, which is a class */
    WALK_CALL,
    WALK_MODULE,
    WALK_PARTS,
    WALK_WRAPPER,
};

struct frame {
    uint32_t id;
    uint32_t next;
    size_t n_path; /* of the path to it */
    uint32_t n_components;
    uint32_t place;
    uint32_t whole;   /* of which its tensors are parts; 0: none */
    uint32_t unsaved; /* 1 + number of the set of buffers that state_dict() leaves out; 0: none */
    const char *role; /* of the tensors in it, as walk.role */
    enum walk_mode mode;
    bool is_filtered;   /* lists only what has tensors */
    bool is_attributes; /* the attributes of a module: its own dicts are listed before */
};

struct walk {
    struct torch *torch;
    struct graph *graph;
    int code; /* of the first failure, which was reported; nothing is listed after it */
    struct frame *frames;
    uint32_t n_frames;
    size_t n_frame_room;
    uint32_t n_modules; /* among the frames */
    uint32_t item;      /* of the top frame, listed next; PLACE_FIXED: none of its items */
    uint32_t holder;    /* place of the tensor whose parts are listed; 0: that of the top frame */
    uint32_t key;       /* value: the dict key that was added to the path last; 0: another text */
    uint32_t pending;   /* value to be listed under the current path; 0: none */
    const char *role; /* what the next tensor is in a module, if state_dict() does not return it */
    bool is_owned;    /* the module of the top frame owns what is listed next */
    struct strbuf path;
    size_t n_to_nul; /* bytes of the path to the end of an escaped NUL; 0: it has none */
    uint32_t n_components;
    uint64_t n_repeats_left;
    bool is_deep, is_repetitive;
    struct value_set *sets; /* malloc'ed: modules can share one */
    uint32_t n_sets;
    size_t n_set_room;
    struct map set_numbers; /* by the list of their items */
};

static void walk_done(struct walk *walk)
{
    const int saved = errno;
    for (uint32_t i = 0; i < walk->n_sets; i++)
        value_set_done(&walk->sets[i]);
    free(walk->sets);
    map_done(&walk->set_numbers);
    free(walk->frames);
    strbuf_done(&walk->path);
    errno = saved;
}

static void fail_memory(struct walk *walk)
{
    if (walk->code == 0)
        walk->code = wfs_fail_memory(walk->torch->err);
}

/* ---- the path: each adds one component, which the top frame removes again ---- */

static void add_component(struct walk *walk, const char *bytes, size_t n)
{
    if (walk->n_components++ > 0)
        strbuf_add(&walk->path, ".", 1);
    strbuf_add(&walk->path, bytes, n);
}

static void add_name(struct walk *walk, const char *name)
{
    add_component(walk, name, strlen(name));
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

/* Adds a key of a dict; one that cannot be spelled gets "%key" and a number of its own. */
static void add_key(struct walk *walk, uint32_t key)
{
    add_component(walk, "", 0);
    const size_t n_before = walk->path.n_bytes;
    walk->key = key;
    if (!value_add_key(&walk->path, walk->graph, key))
        strbuf_printf(&walk->path, "%%key%08x", python_key_digest(walk->graph, key));
    escape_nuls(walk, n_before);
}

/* Adds the place of what the path leads to, and returns its number; 0 when out of memory. */
static uint32_t add_place(struct walk *walk, uint32_t id, const char *name)
{
    const struct frame *top = walk->n_frames == 0 ? NULL : &walk->frames[walk->n_frames - 1];
    struct catalog_place place = {.name = name,
                                  .n_name = (uint32_t)walk->path.n_bytes,
                                  .item = walk->item,
                                  .id = id,
                                  .parent = walk->holder,
                                  .start = PLACE_FIXED};
    if (top != NULL && walk->holder == 0) {
        place.parent = top->place;
        if (walk->n_components > top->n_components)
            place.start = top->n_components == 0 ? 0 : (uint32_t)top->n_path + 1;
    }
    if (name != NULL)
        place.n_name = (uint32_t)strlen(name);
    walk->item = PLACE_FIXED;
    const uint32_t number = catalog_add_place(walk->torch->catalog, &place);
    if (number == 0)
        fail_memory(walk);
    return number;
}

/* ---- the stack ---- */

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

/*
 * Goes into a value: it becomes the top frame, and components in it are added to the current path.
 * Does nothing for a value that the mode cannot step through, one that is open already, one too
 * deep, or one that was listed too often.
 */
static void enter_value(struct walk *walk, enum walk_mode mode, uint32_t id)
{
    if (id == 0 || !is_walkable(graph_at(walk->graph, id), mode))
        return;
    struct value *value = graph_at(walk->graph, id);
    if (walk->n_frames >= walk->torch->limits->depth) {
        walk->is_deep = true;
        return;
    }
    if ((value->marks & MARK_OPEN) != 0)
        return;
    if ((value->marks & MARK_EXPANDED) != 0) {
        const uint64_t cost = 1 + (value_has_items(value) ? value->n : 0);
        if (cost > walk->n_repeats_left) {
            walk->is_repetitive = true;
            return;
        }
        walk->n_repeats_left -= cost;
    }
    if (array_reserve(&walk->frames, sizeof(*walk->frames), walk->n_frames, 1,
                      &walk->n_frame_room) < 0) {
        fail_memory(walk);
        return;
    }
    const uint32_t place = add_place(walk, id, NULL);
    if (place == 0)
        return;
    value->marks |= MARK_OPEN | MARK_EXPANDED;
    walk->n_modules += mode == WALK_MODULE;
    walk->frames[walk->n_frames++] = (struct frame){.id = id,
                                                    .mode = mode,
                                                    .n_path = walk->path.n_bytes,
                                                    .n_components = walk->n_components,
                                                    .place = place,
                                                    .role = walk->role};
}

/* Goes into a container. */
static void enter_items(struct walk *walk, uint32_t id)
{
    enter_value(walk, graph_at(walk->graph, id)->kind == VALUE_DICT ? WALK_PAIRS : WALK_ITEMS, id);
}

/* ---- objects ---- */

/* Returns the attributes in a state: a dict, or the first of two items (the second has
 * __slots__). */
static uint32_t attributes_of(const struct walk *walk, uint32_t state)
{
    const bool is_pair = state != 0 && graph_at(walk->graph, state)->kind == VALUE_TUPLE &&
                         torch_n_args(walk->graph, state) == 2;
    return is_pair ? torch_arg(walk->graph, state, 0) : state;
}

static bool is_mapping(const struct walk *walk, uint32_t id)
{
    if (id == 0)
        return false;
    const struct value *value = graph_at(walk->graph, id);
    return value->kind == VALUE_DICT || torch_what_of(walk->graph, value) == WHAT_ORDERED_DICT;
}

/* Returns the attributes of a module; 0 when the call does not make an nn.Module, judged by its
 * state. A traced module is what a function makes of them. */
static uint32_t module_attributes(const struct walk *walk, const struct value *call)
{
    const uint32_t state = torch_state(walk->graph, call);
    const uint32_t dict =
        state == 0 ? torch_arg(walk->graph, call->call.args, 0) : attributes_of(walk, state);
    return is_mapping(walk, dict) &&
                   is_mapping(walk, value_get(walk->graph, dict, "_parameters")) &&
                   is_mapping(walk, value_get(walk->graph, dict, "_modules"))
               ? dict
               : 0;
}

/* Returns the state of a wrapper that _rebuild_from_type_v2 makes, a tensor whose content is the
 * tensors in its state; 0 for other calls. */
static uint32_t wrapper_state(const struct walk *walk, const struct value *call)
{
    if (torch_what_of(walk->graph, call) != WHAT_REBUILD_TYPE)
        return 0;
    const struct torch_global *inner =
        torch_global_of(walk->graph, torch_arg(walk->graph, call->call.args, 0));
    return inner == NULL || inner->what != WHAT_REBUILD_WRAPPER
               ? 0
               : torch_arg(walk->graph, call->call.args, 3);
}

/* Goes into a dict that has the same name as the frame. Returns its frame; NULL if there is nothing
 * to go into. */
static struct frame *enter_mapping(struct walk *walk, uint32_t dict)
{
    const uint32_t n_frames = walk->n_frames;
    if (dict != 0 && graph_at(walk->graph, dict)->kind == VALUE_CALL)
        dict = value_part(walk->graph, graph_at(walk->graph, dict), PART_ITEMS);
    enter_value(walk, WALK_PAIRS, dict);
    return walk->n_frames > n_frames ? &walk->frames[n_frames] : NULL;
}

/* Goes into a state; whole: of which its tensors are parts, or 0. */
static void enter_state(struct walk *walk, uint32_t state, uint32_t whole)
{
    if (state == 0 || graph_at(walk->graph, state)->kind == VALUE_NONE)
        return;
    if (is_mapping(walk, state)) {
        struct frame *frame = enter_mapping(walk, state);
        if (frame != NULL)
            frame->whole = whole;
        return;
    }
    add_name(walk, "%state");
    walk->pending = state;
}

/* Returns the attributes in __slots__: the second of two dicts, the first of which may be missing;
 * 0 when the state is anything else. */
static uint32_t slots_of(const struct walk *walk, uint32_t state)
{
    const uint32_t dict = attributes_of(walk, state), slots = torch_arg(walk->graph, state, 1);
    return dict != state && is_mapping(walk, slots) &&
                   (is_mapping(walk, dict) || graph_at(walk->graph, dict)->kind == VALUE_NONE)
               ? slots
               : 0;
}

/* Goes into a state. Both dicts of a tuple of two are attributes. */
static void enter_states(struct walk *walk, uint32_t state, uint32_t whole)
{
    const uint32_t slots = slots_of(walk, state);
    if (slots == 0) {
        enter_state(walk, state, whole);
        return;
    }
    const size_t n_path = walk->path.n_bytes;
    const uint32_t n_components = walk->n_components;
    enter_state(walk, slots, whole);
    walk->path.n_bytes = n_path;
    walk->n_components = n_components;
    enter_state(walk, attributes_of(walk, state), whole);
}

/* Goes into the arguments when tensors are in them. An argument that has the items of what the call
 * makes is named as the call itself. */
static void enter_args(struct walk *walk, const struct value *call)
{
    const uint32_t args = call->call.args;
    if (call->form == FORM_NEWOBJ_EX) {
        enter_value(walk, WALK_ARGS, torch_arg(walk->graph, args, 0));
        return;
    }
    const uint32_t content = torch_container_content(walk->graph, call);
    if (content != 0 && value_has_items(graph_at(walk->graph, content)))
        enter_items(walk, content);
    else if (content != 0)
        walk->pending = torch_has_tensor(walk->graph, content) ? content : walk->pending;
    else if (torch_has_tensor(walk->graph, args))
        enter_value(walk, call->form == FORM_NEWOBJ ? WALK_ITEMS : WALK_ARGS, args);
}

/* Returns the i-th item of the state of functools.partial(function, *args, **kwargs); 0 when the
 * value is something else. */
static uint32_t partial_item(const struct walk *walk, uint32_t id, uint32_t i)
{
    const struct value *value = id == 0 ? NULL : graph_at(walk->graph, id);
    if (value == NULL || torch_what_of(walk->graph, value) != WHAT_PARTIAL)
        return 0;
    return torch_arg(walk->graph, torch_state(walk->graph, value), i);
}

/* Goes into what is called, where that is an object. Up to protocol 3, class.__new__(class, *args,
 * **kwargs) is pickled as partial(class.__new__, class, *args, **kwargs)(): the arguments are named
 * as those of the class. */
static void enter_callable(struct walk *walk, const struct value *call)
{
    const uint32_t args = partial_item(walk, call->call.callable, 1),
                   first = torch_arg(walk->graph, args, 0);
    if (first != 0) {
        const bool is_bound = graph_at(walk->graph, first)->kind == VALUE_GLOBAL;
        enter_value(walk, is_bound ? WALK_BOUND_ARGS : WALK_ARGS, args);
    } else if (args == 0 && torch_has_tensor(walk->graph, call->call.callable)) {
        add_name(walk, "%callable");
        walk->pending = call->call.callable;
    }
}

/* Each of these does one step of the frame. Returns false when nothing is left in it. */
static bool step_call(struct walk *walk, struct frame *frame)
{
    enum { N_STEPS = 5 };
    const struct graph *graph = walk->graph;
    const struct value *call = graph_at(graph, frame->id);
    const uint32_t states = value_part(graph, call, PART_STATES), i = frame->next++;
    switch (i) {
    case 0:
        enter_callable(walk, call);
        return true;
    case 1:
        enter_args(walk, call);
        return true;
    case 2:
        enter_mapping(walk, call->form == FORM_NEWOBJ_EX
                                ? torch_arg(graph, call->call.args, 1)
                                : partial_item(walk, call->call.callable, 2));
        return true;
    case 3:
        enter_mapping(walk, value_part(graph, call, PART_ITEMS));
        return true;
    case 4:
        enter_value(walk, WALK_ITEMS, value_part(graph, call, PART_ELEMENTS));
        return true;
    default:
        if (i - N_STEPS >= torch_n_args(graph, states) || torch_array_objects(graph, call) != 0)
            return false;
        enter_states(walk, torch_arg(graph, states, i - N_STEPS), 0);
        return true;
    }
}

struct set_query {
    const struct walk *walk;
    const uint32_t *items;
};

static bool is_set(const void *ctx, uint32_t i)
{
    const struct set_query *query = ctx;
    return query->walk->sets[i].items == query->items;
}

/* Makes a set of the items of that value, or finds it. Returns 1 + its number. */
static uint32_t set_of(struct walk *walk, uint32_t items)
{
    const struct value *value = graph_at(walk->graph, items);
    const struct set_query query = {walk, value_items(value)};
    const uint64_t hash = hash_bytes(&items, sizeof(items), hash_seed());
    uint32_t i;
    if (map_find(&walk->set_numbers, hash, is_set, &query, &i))
        return i + 1;
    if (array_reserve(&walk->sets, sizeof(*walk->sets), walk->n_sets, 1, &walk->n_set_room) < 0 ||
        map_add(&walk->set_numbers, hash, walk->n_sets) < 0) {
        fail_memory(walk);
        return 0;
    }
    if (value_set_init(&walk->sets[walk->n_sets++], walk->graph, value) < 0)
        fail_memory(walk);
    return walk->n_sets;
}

/* Notes in the frame of the buffers which of them state_dict() leaves out: those in a set, or in
 * the list that set() was called with. */
static void note_unsaved(struct walk *walk, struct frame *frame, uint32_t set)
{
    if (set != 0 && graph_at(walk->graph, set)->kind == VALUE_CALL)
        set = torch_arg(walk->graph, graph_at(walk->graph, set)->call.args, 0);
    if (set != 0 && value_has_items(graph_at(walk->graph, set)))
        frame->unsaved = set_of(walk, set);
}

/* What the module owns comes first, in the order of state_dict(), then its other attributes. */
static bool step_module(struct walk *walk, struct frame *frame)
{
    enum { BUFFERS = 1, ATTRIBUTES = TORCH_N_OWNED, SLOTS };
    const struct value *call = graph_at(walk->graph, frame->id);
    const uint32_t dict = module_attributes(walk, call), i = frame->next++;
    uint32_t mapping = dict;
    if (i > SLOTS)
        return false;
    if (i == SLOTS)
        mapping = slots_of(walk, torch_state(walk->graph, call));
    else if (i < ATTRIBUTES)
        mapping = value_get(walk->graph, dict, torch_owned[i]);
    struct frame *inner = enter_mapping(walk, mapping);
    if (inner == NULL)
        return true;
    inner->is_filtered = true;
    inner->is_attributes = i >= ATTRIBUTES;
    if (inner->is_attributes)
        inner->role = "attribute";
    if (i == BUFFERS)
        note_unsaved(walk, inner, value_get(walk->graph, dict, "_non_persistent_buffers_set"));
    return true;
}

/* ---- what is listed ---- */

/* Returns the key of the dict when it is the whole path; otherwise NULL. */
static const char *lasting_path(const struct walk *walk)
{
    const struct value *key = walk->key == 0 ? NULL : graph_at(walk->graph, walk->key);
    return key != NULL && key->kind == VALUE_TEXT && key->n == walk->path.n_bytes && key->n > 0 &&
                   memcmp(key->text, walk->path.bytes, key->n) == 0
               ? key->text
               : NULL;
}

/* A long key of a dict is a part of the names of all that is in it, so that a small pickle can make
 * names without end. */
static uint64_t names_most(const struct torch *torch)
{
    enum { N_FREE = 16 << 20, N_TIMES = 64 };
    const uint64_t n_pickle = torch->limits->pickle - torch->budget.n_bytes;
    const uint64_t n_most =
        n_pickle < UINT64_MAX / N_TIMES - N_FREE ? N_FREE + N_TIMES * n_pickle : UINT64_MAX;
    return n_most < torch->limits->names ? n_most : torch->limits->names;
}

/* Makes the path a text of the arena, different from all others. NULL: a failure. */
static const char *make_key(struct walk *walk, struct names *names)
{
    struct torch *torch = walk->torch;
    const struct strbuf *path = &walk->path;
    const char *key = NULL;
    torch->n_names += path->n_bytes + 1;
    const uint64_t n_most = names_most(torch);
    if (!path->is_cut && path->n_bytes > torch->limits->key)
        walk->code =
            wfs_fail(torch->err, E2BIG, "the key %s... is above the limit of %s (limit key)",
                     wfs_quote_n(path->bytes, path->n_bytes).text,
                     wfs_count(torch->limits->key, "byte").text);
    else if (!path->is_cut && torch->n_names > n_most)
        walk->code = wfs_fail(torch->err, E2BIG, "all keys take more than %s (limit names)",
                              wfs_count(n_most, "byte").text);
    else if (path->is_cut || names_make(names, &torch->catalog->arena, path->bytes, path->n_bytes,
                                        lasting_path(walk), &key) < 0)
        fail_memory(walk);
    return walk->code < 0 ? NULL : key;
}

static void add_value(struct walk *walk, uint32_t id)
{
    struct torch *torch = walk->torch;
    if (torch->catalog->values.n >= torch->limits->tensors) {
        walk->code = wfs_fail(torch->err, E2BIG, "more than %s beside the tensors (limit tensors)",
                              wfs_count(torch->limits->tensors, "value").text);
        return;
    }
    const char *name = make_key(walk, &torch->value_names);
    const uint32_t place = name == NULL ? 0 : add_place(walk, id, name);
    if (place == 0)
        return;
    if (catalog_add_value(torch->catalog, name, id, place) < 0)
        fail_memory(walk);
    torch->catalog->values.places[place].kind = PLACE_VALUE;
}

/* Adds the tensor itself. Returns its place; 0: a failure. */
static uint32_t add_to_catalog(struct walk *walk, uint32_t id, struct torch_tensor *tensor)
{
    struct torch *torch = walk->torch;
    const struct frame *frame = walk->n_frames == 0 ? NULL : &walk->frames[walk->n_frames - 1];
    const bool has_nul = walk->n_to_nul > 0;
    if (has_nul && !torch->is_forced && !torch->escapes_nul) {
        walk->code =
            wfs_fail(torch->err, EOPNOTSUPP,
                     "the key '%s' contains a NUL (%%00), which no file name can" NUL_KEY_HINT,
                     wfs_quote_n(walk->path.bytes, walk->path.n_bytes).text);
        return 0;
    }
    const char *key = make_key(walk, &torch->names);
    /* A part of a composite tensor gets the text about the whole. */
    if (frame != NULL && frame->whole != 0 && tensor->attr_value == NULL)
        tensor->attr_value =
            torch_composite_text(torch, graph_at(walk->graph, frame->whole), &tensor->attr_name);
    const uint32_t place = key == NULL ? 0 : add_place(walk, id, key);
    if (place == 0 || (walk->code = torch_tensor_add(torch, key, place, tensor)) < 0)
        return 0;
    struct wfs_tensor *added = &torch->catalog->tensors[torch->catalog->n_tensors - 1];
    added->changes = has_nul ? nul_key_mark : NULL;
    if (walk->role != NULL && catalog_add_attr(torch->catalog, added, "role", walk->role) < 0)
        fail_memory(walk);
    return place;
}

static void list_value(struct walk *walk, uint32_t id);

static void visit_pending(struct walk *walk)
{
    const uint32_t id = walk->pending;
    walk->pending = 0;
    if (id != 0 && walk->code == 0)
        list_value(walk, id);
}

/* Lists a tensor, and goes into its parts and attributes, which are named after it. */
static void add_tensor(struct walk *walk, uint32_t id, struct torch_tensor *tensor)
{
    const char *name;
    const uint32_t attributes = attributes_of(walk, tensor->state);
    walk->holder = add_to_catalog(walk, id, tensor);
    if (walk->holder == 0)
        return;
    if (torch_composite_part(walk->graph, graph_at(walk->graph, id), 0, &name) != 0)
        enter_value(walk, WALK_PARTS, id);
    if (attributes != tensor->state || is_mapping(walk, attributes))
        enter_states(walk, tensor->state, 0);
    visit_pending(walk);
    walk->holder = 0;
}

/* Goes into a module. The whole of an outermost one is also listed as a value. */
static void enter_module(struct walk *walk, uint32_t id)
{
    const bool is_outermost = walk->n_modules == 0;
    enter_value(walk, WALK_MODULE, id);
    if (!is_outermost || walk->n_modules == 0)
        return;
    add_name(walk, "__dict__");
    add_value(walk, id);
}

/* Lists a tensor, or goes into an object that has some in it. */
static void visit_object(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    struct torch_tensor tensor;
    const int code = torch_builder_read(walk->torch, id, &tensor);
    if (code < 0)
        walk->code = code;
    else if (code > 0)
        add_tensor(walk, id, &tensor);
    else if (value->kind != VALUE_CALL)
        add_value(walk, id);
    else if (module_attributes(walk, value) != 0)
        enter_module(walk, id);
    else
        enter_value(walk, WALK_CALL, id);
}

/* Lists a value under the current path, or goes into it. */
static void list_value(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    const bool has_tensor = torch_has_tensor(walk->graph, id);
    /* A parameter can be an attribute too (as in an LSTM), and so can a module; attributes without
     * tensors are in the value of the whole module. */
    if (walk->role != NULL && !walk->is_owned && (!has_tensor || (value->marks & MARK_OWNED) != 0))
        return;
    if (!has_tensor)
        add_value(walk, id);
    else if (value_has_items(value))
        enter_items(walk, id);
    else if (torch_is_composite(walk->graph, value))
        enter_value(walk, WALK_PARTS, id);
    else if (torch_has_tensor(walk->graph, wrapper_state(walk, value)))
        enter_value(walk, WALK_WRAPPER, id);
    else
        visit_object(walk, id);
}

/* Lists the next item of a list, tuple or set. */
static bool step_items(struct walk *walk, struct frame *frame)
{
    const struct value *value = graph_at(walk->graph, frame->id);
    if (frame->next >= value->n)
        return false;
    const uint32_t i = frame->next++, item = value_items(value)[i];
    const bool is_item = frame->mode == WALK_ITEMS;
    if (!is_item && !torch_has_tensor(walk->graph, item))
        return true;
    add_name(walk, is_item ? "" : "%arg");
    strbuf_printf(&walk->path, "%u", frame->mode == WALK_BOUND_ARGS ? i - 1 : i);
    walk->item = i;
    walk->pending = item;
    return true;
}

/* Returns whether it is the key of one of the dicts that are listed before the attributes. */
static bool is_own_dict(const struct walk *walk, const struct frame *frame, uint32_t key)
{
    for (unsigned i = 0; frame->is_attributes && i < TORCH_N_OWNED; i++)
        if (value_is_text(walk->graph, key, torch_owned[i]))
            return true;
    return false;
}

/* Lists the next item of a dict. */
static bool step_pairs(struct walk *walk, struct frame *frame)
{
    const struct value *value = graph_at(walk->graph, frame->id);
    if (frame->next >= value->n)
        return false;
    const uint32_t i = frame->next++;
    const uint32_t key = value_items(value)[i & ~1u], item = value_items(value)[i];
    if ((i % 2 == 0 && !torch_has_tensor(walk->graph, key)) ||
        (frame->is_filtered &&
         (!torch_has_tensor(walk->graph, item) || is_own_dict(walk, frame, key))))
        return true;
    if (walk->role == NULL && frame->unsaved != 0 &&
        value_set_has(&walk->sets[frame->unsaved - 1], key))
        walk->role = "non-persistent buffer";
    add_key(walk, key);
    walk->item = i;
    walk->pending = item;
    return true;
}

static bool step_parts(struct walk *walk, struct frame *frame)
{
    const char *name;
    const uint32_t id =
        torch_composite_part(walk->graph, graph_at(walk->graph, frame->id), frame->next++, &name);
    if (id == 0)
        return false;
    frame->whole = frame->id;
    add_name(walk, name);
    walk->pending = id;
    return true;
}

static bool step_frame(struct walk *walk)
{
    struct frame *frame = &walk->frames[walk->n_frames - 1];
    walk->path.n_bytes = frame->n_path;
    walk->n_components = frame->n_components;
    walk->n_to_nul = walk->n_to_nul > frame->n_path ? 0 : walk->n_to_nul;
    walk->item = PLACE_FIXED;
    walk->key = 0;
    walk->role = frame->role;
    walk->is_owned = frame->is_filtered && !frame->is_attributes;
    switch (frame->mode) {
    case WALK_ITEMS:
    case WALK_ARGS:
    case WALK_BOUND_ARGS:
        return step_items(walk, frame);
    case WALK_PAIRS:
        return step_pairs(walk, frame);
    case WALK_PARTS:
        return step_parts(walk, frame);
    case WALK_MODULE:
        return step_module(walk, frame);
    case WALK_WRAPPER:
        if (frame->next++ > 0)
            return false;
        enter_states(walk, wrapper_state(walk, graph_at(walk->graph, frame->id)), frame->id);
        return true;
    default:
        return step_call(walk, frame);
    }
}

/* Adds findings about what was not listed. */
static int report_unlisted(struct walk *walk)
{
    struct wfs_catalog *catalog = walk->torch->catalog;
    int code = 0;
    if (walk->is_deep)
        code = catalog_add_finding(catalog, WFS_MEDIUM,
                                   "values nested deeper than %s are not listed (limit depth)",
                                   wfs_count(walk->torch->limits->depth, "level").text);
    if (code == 0 && walk->is_repetitive)
        code = catalog_add_finding(
            catalog, WFS_MEDIUM,
            "containers that occur many times are not listed every time (limit repeats)");
    return code < 0 ? wfs_fail_memory(walk->torch->err) : 0;
}

static int list_graph(struct torch *torch, uint32_t root, const char *prefix)
{
    cleanup(walk_done) struct walk walk = {.torch = torch,
                                           .graph = torch->graph,
                                           .item = PLACE_FIXED,
                                           .n_repeats_left = torch->limits->repeats};
    if (*prefix != '\0')
        add_name(&walk, prefix);
    /* A container is the directory of everything, even without tensors. */
    if (value_has_items(graph_at(walk.graph, root)))
        enter_items(&walk, root);
    else
        list_value(&walk, root);
    while (walk.code == 0 && walk.n_frames > 0) {
        if (step_frame(&walk)) {
            visit_pending(&walk);
            continue;
        }
        const struct frame *left = &walk.frames[--walk.n_frames];
        graph_at(walk.graph, left->id)->marks &= (uint8_t)~MARK_OPEN;
        walk.n_modules -= left->mode == WALK_MODULE;
    }
    return walk.code < 0 ? walk.code : report_unlisted(&walk);
}

int torch_listing_add(struct torch *torch, uint32_t root, const char *prefix)
{
    struct value_lookup lookup = {0};
    int code = torch_marks_set(torch, root);
    torch_marks_modules(torch); /* looks at each dict once */
    if (code < 0)
        return code;
    torch->graph->lookup = &lookup;
    code = list_graph(torch, root, prefix);
    torch->graph->lookup = NULL;
    value_lookup_done(&lookup);
    return code;
}
