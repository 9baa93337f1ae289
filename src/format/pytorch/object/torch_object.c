/* SPDX-License-Identifier: MIT */
/*
 * How objects are listed: a module like in state_dict(); a tensor subclass by the tensors in it;
 * everything else by arguments, items, elements and attributes.
 */
#include "format/pytorch/object/torch_object.h"

#include <stdlib.h>

#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_array.h"
#include "format/pytorch/object/torch_container.h"
#include "format/pytorch/object/torch_global.h"
#include "format/pytorch/object/torch_marks.h"

static uint32_t last_state(const struct walk *walk, const struct value *call)
{
    const uint32_t states = value_part(walk->graph, call, PART_STATES);
    const uint32_t n = torch_n_args(walk->graph, states);
    return n == 0 ? 0 : torch_arg(walk->graph, states, n - 1);
}

/* Returns the attributes in a state: a dict, or the first of two items (the second has
 * __slots__). */
static uint32_t attributes_of(const struct walk *walk, uint32_t state)
{
    if (state != 0 && graph_at(walk->graph, state)->kind == VALUE_TUPLE &&
        torch_n_args(walk->graph, state) == 2)
        return torch_arg(walk->graph, state, 0);
    return state;
}

static bool is_mapping(const struct walk *walk, uint32_t id)
{
    if (id == 0)
        return false;
    const struct value *value = graph_at(walk->graph, id);
    return value->kind == VALUE_DICT || torch_what_of(walk->graph, value) == WHAT_ORDERED_DICT;
}

/* Returns the attributes of a module; 0 when the call does not make one. A traced module is what a
 * function makes of them. */
static uint32_t module_attributes(const struct walk *walk, const struct value *call)
{
    const uint32_t state = last_state(walk, call);
    const uint32_t dict =
        state == 0 ? torch_arg(walk->graph, call->call.args, 0) : attributes_of(walk, state);
    return is_mapping(walk, dict) &&
                   is_mapping(walk, value_get(walk->graph, dict, "_parameters")) &&
                   is_mapping(walk, value_get(walk->graph, dict, "_modules"))
               ? dict
               : 0;
}

bool object_is_module(const struct walk *walk, const struct value *call)
{
    return call->kind == VALUE_CALL && module_attributes(walk, call) != 0;
}

/* Returns the state of a wrapper that _rebuild_from_type_v2 makes; 0 for other calls. */
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

bool object_is_wrapper(const struct walk *walk, const struct value *call)
{
    return torch_has_tensor(walk->graph, wrapper_state(walk, call));
}

/* Goes into a dict that has the same name as the frame. Returns its frame, NULL if there is nothing
 * to go into, in *ret. */
static int enter_mapping(struct walk *walk, uint32_t dict, struct frame **ret)
{
    *ret = NULL;
    if (dict != 0 && graph_at(walk->graph, dict)->kind == VALUE_CALL)
        dict = value_part(walk->graph, graph_at(walk->graph, dict), PART_ITEMS);
    if (dict == 0)
        return 0;
    const uint32_t n_frames = walk->n_frames;
    const int code = walk_enter(walk, WALK_PAIRS, dict);
    if (code == 0 && walk->n_frames > n_frames)
        *ret = &walk->frames[walk->n_frames - 1];
    return code;
}

/* The same; whole: of which its tensors are parts, or 0. */
static int enter_pairs(struct walk *walk, uint32_t dict, uint32_t whole)
{
    struct frame *frame;
    const int code = enter_mapping(walk, dict, &frame);
    if (frame != NULL)
        frame->whole = whole;
    return code;
}

static int enter_state(struct walk *walk, uint32_t state, uint32_t whole)
{
    if (state == 0 || graph_at(walk->graph, state)->kind == VALUE_NONE)
        return 0;
    if (is_mapping(walk, state))
        return enter_pairs(walk, state, whole);
    walk_add_name(walk, "%state");
    walk->pending = state;
    return 0;
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
static int enter_states(struct walk *walk, uint32_t state, uint32_t whole)
{
    const uint32_t dict = attributes_of(walk, state), slots = slots_of(walk, state);
    if (slots == 0)
        return enter_state(walk, state, whole);
    const size_t n_path = walk->path.n_bytes;
    const uint32_t n_components = walk->n_components;
    const int code = enter_state(walk, slots, whole);
    walk->path.n_bytes = n_path;
    walk->n_components = n_components;
    return code < 0 ? code : enter_state(walk, dict, whole);
}

int object_enter_state(struct walk *walk, uint32_t state)
{
    const uint32_t dict = attributes_of(walk, state);
    return is_mapping(walk, dict) || dict != state ? enter_states(walk, state, 0) : 0;
}

/* Goes into an argument that has the items of what a call makes: they are named as its own. */
static int enter_content(struct walk *walk, uint32_t id)
{
    const struct value *value = graph_at(walk->graph, id);
    if (value_has_items(value))
        return walk_enter(walk, value->kind == VALUE_DICT ? WALK_PAIRS : WALK_ITEMS, id);
    if (torch_has_tensor(walk->graph, id))
        walk->pending = id;
    return 0;
}

/* Goes into the arguments when tensors are in them. */
static int enter_args(struct walk *walk, const struct value *call)
{
    const uint32_t args = call->call.args;
    if (call->form == FORM_NEWOBJ_EX)
        return walk_enter(walk, WALK_ARGS, torch_arg(walk->graph, args, 0));
    const uint32_t content = torch_container_content(walk->graph, call);
    if (content != 0)
        return enter_content(walk, content);
    if (!torch_has_tensor(walk->graph, args) || !value_has_items(graph_at(walk->graph, args)))
        return 0;
    return walk_enter(walk, call->form == FORM_NEWOBJ ? WALK_ITEMS : WALK_ARGS, args);
}

/* Returns the i-th item of the state of functools.partial(function, *args, **kwargs); 0 when the
 * value is something else. */
static uint32_t partial_item(const struct walk *walk, uint32_t id, uint32_t i)
{
    const struct value *value = id == 0 ? NULL : graph_at(walk->graph, id);
    if (value == NULL || torch_what_of(walk->graph, value) != WHAT_PARTIAL)
        return 0;
    return torch_arg(walk->graph, last_state(walk, value), i);
}

/* Goes into what is called, where that is an object. Up to protocol 3, class.__new__(class, *args,
 * **kwargs) is pickled as partial(class.__new__, class, *args, **kwargs)(): the arguments are named
 * as those of the class. */
static int enter_callable(struct walk *walk, const struct value *call)
{
    const uint32_t args = partial_item(walk, call->call.callable, 1),
                   first = torch_arg(walk->graph, args, 0);
    if (first != 0)
        return walk_enter(
            walk, graph_at(walk->graph, first)->kind == VALUE_GLOBAL ? WALK_BOUND_ARGS : WALK_ARGS,
            args);
    if (args == 0 && torch_has_tensor(walk->graph, call->call.callable)) {
        walk_add_name(walk, "%callable");
        walk->pending = call->call.callable;
    }
    return 0;
}

/* Goes into the arguments that have names. */
static int enter_kwargs(struct walk *walk, const struct value *call)
{
    const uint32_t dict = call->form == FORM_NEWOBJ_EX ? torch_arg(walk->graph, call->call.args, 1)
                                                       : partial_item(walk, call->call.callable, 2);
    return enter_pairs(walk, dict, 0);
}

int object_step_call(struct walk *walk, struct frame *frame)
{
    enum { N_STEPS = 5 };
    const struct value *call = graph_at(walk->graph, frame->id);
    const uint32_t states = value_part(walk->graph, call, PART_STATES);
    const uint32_t elements = value_part(walk->graph, call, PART_ELEMENTS);
    const uint32_t i = frame->next++;
    switch (i) {
    case 0:
        return enter_callable(walk, call);
    case 1:
        return enter_args(walk, call);
    case 2:
        return enter_kwargs(walk, call);
    case 3:
        return enter_pairs(walk, value_part(walk->graph, call, PART_ITEMS), 0);
    case 4:
        return elements == 0 ? 0 : walk_enter(walk, WALK_ITEMS, elements);
    default:
        if (i - N_STEPS >= torch_n_args(walk->graph, states) ||
            torch_array_objects(walk->graph, call) != 0)
            return 1;
        return enter_states(walk, torch_arg(walk->graph, states, i - N_STEPS), 0);
    }
}

/* Returns the items of a set: itself, or the list that set() was called with. */
static uint32_t set_items(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    return value->kind == VALUE_CALL ? torch_arg(graph, value->call.args, 0) : id;
}

/* Notes in the frame of the buffers which of them state_dict() leaves out. */
static int set_unsaved(struct walk *walk, struct frame *frame, uint32_t set)
{
    const uint32_t items = set == 0 ? 0 : set_items(walk->graph, set);
    if (items == 0 || !value_has_items(graph_at(walk->graph, items)))
        return 0;
    frame->unsaved = walk_set(walk, items);
    return frame->unsaved == NULL ? wfs_fail_memory(walk->torch->err) : 0;
}

/* What the module owns comes first, in the order of state_dict(), then its other attributes. */
int object_step_module(struct walk *walk, struct frame *frame)
{
    enum { BUFFERS = 1, ATTRIBUTES = TORCH_N_OWNED, SLOTS };
    const struct value *call = graph_at(walk->graph, frame->id);
    const uint32_t dict = module_attributes(walk, call);
    const uint32_t i = frame->next++;
    if (i > SLOTS)
        return 1;
    const uint32_t mapping = i == SLOTS        ? slots_of(walk, last_state(walk, call))
                             : i == ATTRIBUTES ? dict
                                               : value_get(walk->graph, dict, torch_owned[i]);
    struct frame *inner;
    const int code = enter_mapping(walk, mapping, &inner);
    if (inner == NULL)
        return code;
    inner->is_filtered = true;
    inner->is_attributes = i >= ATTRIBUTES;
    if (inner->is_attributes)
        inner->role = "attribute";
    return i != BUFFERS ? code
                        : set_unsaved(walk, inner,
                                      value_get(walk->graph, dict, "_non_persistent_buffers_set"));
}

int object_step_wrapper(struct walk *walk, struct frame *frame)
{
    const uint32_t id = frame->id;
    if (frame->next++ > 0)
        return 1;
    return enter_states(walk, wrapper_state(walk, graph_at(walk->graph, id)), id);
}

const char *object_role(const struct frame *frame, uint32_t key)
{
    if (frame->role != NULL || frame->unsaved == NULL)
        return frame->role;
    return value_set_has(frame->unsaved, key) ? "non-persistent buffer" : NULL;
}
