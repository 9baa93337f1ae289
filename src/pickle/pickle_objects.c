/* SPDX-License-Identifier: MIT */
/*
 * Opcodes that make containers, names, calls and persistent objects. Items are added to containers
 * on the stack, and to calls that make a container.
 */
#include "pickle/pickle_vm.h"

#include <errno.h>

int op_constant(struct pickle *p)
{
    return vm_push(p, p->opcode == 'N' ? p->none : p->truth[p->opcode == 0x88]);
}

int op_empty(struct pickle *p)
{
    switch (p->opcode) {
    case ')':
        return vm_push(p, p->empty);
    case ']':
        return vm_push(p, value_new(p->graph, VALUE_LIST));
    case '}':
        return vm_push(p, value_new(p->graph, VALUE_DICT));
    default:
        return vm_push(p, value_new(p->graph, VALUE_SET));
    }
}

/* TUPLE1, TUPLE2, TUPLE3 of the last values; TUPLE, LIST, DICT, FROZENSET of all above a mark. */
int op_collect(struct pickle *p)
{
    const bool is_short = p->opcode >= 0x85 && p->opcode <= 0x87;
    enum value_kind kind = VALUE_TUPLE;
    const uint32_t *items;
    uint32_t n = p->opcode - 0x84u;
    const int code = is_short ? vm_last(p, n, &items) : vm_items(p, &items, &n);
    if (code < 0)
        return code;
    if (p->opcode == 'd' && n % 2 != 0)
        return vm_fail(p, "an odd number of keys and values");
    if (p->opcode == 'd')
        kind = VALUE_DICT;
    else if (p->opcode == 'l')
        kind = VALUE_LIST;
    else if (p->opcode == 0x91)
        kind = VALUE_SET;
    const uint32_t id =
        kind == VALUE_TUPLE && n == 0 ? p->empty : value_new_items(p->graph, kind, items, n);
    if (id != 0 && kind == VALUE_SET)
        graph_at(p->graph, id)->form = FORM_FROZEN;
    vm_drop(p, n);
    return vm_push(p, id);
}

/* Adds the last n values to the one below them. */
static int add_to_top(struct pickle *p, enum value_kind kind, const uint32_t *items, uint32_t n,
                      const char *what)
{
    const uint32_t *target;
    vm_drop(p, n);
    int code = vm_last(p, 1, &target);
    if (code < 0)
        return code;
    const struct value *value = graph_at(p->graph, *target);
    room_change(&p->room, *target);
    if (value->kind == VALUE_CALL)
        code = value_append_part(p->graph, *target, kind == VALUE_DICT ? PART_ITEMS : PART_ELEMENTS,
                                 items, n);
    else if (value->kind == kind && value->form != FORM_FROZEN)
        code = value_append(p->graph, *target, items, n);
    else
        return vm_fail(p, "%s", what);
    return code < 0 ? wfs_fail_memory(p->err) : 0;
}

/* APPEND, APPENDS, ADDITEMS. */
int op_append(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n = 1;
    const int code = p->opcode == 'a' ? vm_last(p, n, &items) : vm_items(p, &items, &n);
    if (code < 0)
        return code;
    return p->opcode == 0x90
               ? add_to_top(p, VALUE_SET, items, n, "adds items to a value that is not a set")
               : add_to_top(p, VALUE_LIST, items, n, "appends to a value that is not a list");
}

/* SETITEM, SETITEMS. */
int op_setitem(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n = 2;
    const int code = p->opcode == 's' ? vm_last(p, n, &items) : vm_items(p, &items, &n);
    if (code < 0)
        return code;
    if (n % 2 != 0)
        return vm_fail(p, "an odd number of keys and values");
    return add_to_top(p, VALUE_DICT, items, n, "sets an item of a value that is not a dict");
}

/* Reads the two lines after GLOBAL and INST. */
static int read_global(struct pickle *p, uint32_t *ret)
{
    int code = vm_line(p);
    if (code < 0)
        return code;
    const size_t n_module = p->n_line;
    const char *module = arena_copy(p->graph->arena, p->line, n_module);
    if (module == NULL)
        return wfs_fail_memory(p->err);
    if ((code = vm_line(p)) < 0)
        return code;
    *ret = value_new_global(p->graph, module, n_module, p->line, p->n_line);
    return *ret == 0 ? wfs_fail_memory(p->err) : 0;
}

int op_global(struct pickle *p)
{
    uint32_t id;
    const int code = read_global(p, &id);
    return code < 0 ? code : vm_push(p, id);
}

int op_stack_global(struct pickle *p)
{
    const uint32_t *both;
    const int code = vm_last(p, 2, &both);
    if (code < 0)
        return code;
    const struct value *module = graph_at(p->graph, both[0]), *name = graph_at(p->graph, both[1]);
    if (module->kind != VALUE_TEXT || name->kind != VALUE_TEXT)
        return vm_fail(p, "the module or the name is not a string");
    vm_drop(p, 2);
    return vm_push(p, value_new_global(p->graph, module->text, module->n, name->text, name->n));
}

/* Replaces the last n values by a call. */
static int push_call(struct pickle *p, enum value_form form, uint32_t callable, uint32_t args,
                     uint32_t n)
{
    vm_drop(p, n);
    return vm_push(p,
                   callable == 0 || args == 0 ? 0 : value_new_call(p->graph, form, callable, args));
}

int op_inst(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n, callable;
    int code = read_global(p, &callable);
    if (code < 0 || (code = vm_items(p, &items, &n)) < 0)
        return code;
    return push_call(p, FORM_INST, callable, value_new_items(p->graph, VALUE_TUPLE, items, n), n);
}

int op_obj(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n;
    const int code = vm_items(p, &items, &n);
    if (code < 0)
        return code;
    if (n == 0)
        return vm_fail(p, "stack underflow");
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items + 1, n - 1);
    return push_call(p, FORM_INST, items[0], args, n);
}

/* REDUCE, NEWOBJ. */
int op_call(struct pickle *p)
{
    const uint32_t *items;
    int code = vm_last(p, 2, &items);
    if (code < 0)
        return code;
    code = push_call(p, p->opcode == 'R' ? FORM_REDUCE : FORM_NEWOBJ, items[0], items[1], 2);
    if (code == 0 && p->opcode != 'R')
        room_begin(&p->room, p->graph, p->stack[p->n_stack - 1]);
    return code;
}

int op_newobj_ex(struct pickle *p)
{
    const uint32_t *items;
    const int code = vm_last(p, 3, &items);
    if (code < 0)
        return code;
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items + 1, 2);
    return push_call(p, FORM_NEWOBJ_EX, items[0], args, 3);
}

int op_build(struct pickle *p)
{
    const uint32_t *both;
    int code = vm_last(p, 2, &both);
    if (code < 0)
        return code;
    const uint32_t target = both[0], state = both[1];
    vm_drop(p, 1);
    room_change(&p->room, target);
    if (graph_at(p->graph, target)->kind == VALUE_CALL) {
        code = value_append_part(p->graph, target, PART_STATES, &state, 1);
        if (code == 0 && p->job->fold != NULL)
            return fold_object(p, target);
    } else {
        if (p->graph->strays == 0)
            p->graph->strays = value_new(p->graph, VALUE_LIST);
        room_hold(&p->room, state > p->graph->strays ? state : p->graph->strays);
        code = p->graph->strays == 0 ? -ENOMEM : value_append(p->graph, p->graph->strays, both, 2);
    }
    return code < 0 ? wfs_fail_memory(p->err) : 0;
}

/* EXT1, EXT2, EXT4. */
int op_extension(struct pickle *p)
{
    const uint32_t args =
        value_new_integer(p->graph, p->opcode == 0x84 ? (int32_t)p->number : (int64_t)p->number);
    p->job->notes |= PICKLE_EXTENSION;
    return vm_push(p, args == 0 ? 0 : value_new_call(p->graph, FORM_EXTENSION, 0, args));
}

int op_binpersid(struct pickle *p)
{
    const uint32_t *inner;
    const int code = vm_last(p, 1, &inner);
    if (code < 0)
        return code;
    const uint32_t id = value_new(p->graph, VALUE_PERSISTENT);
    if (id != 0)
        graph_at(p->graph, id)->id = *inner;
    vm_drop(p, 1);
    return vm_push(p, id);
}
