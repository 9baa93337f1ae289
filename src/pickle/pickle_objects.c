/* SPDX-License-Identifier: MIT */
/*
 * Items are added to containers on the stack, and to calls that make a container.
 */
#include "pickle/pickle_objects.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "pickle/pickle_record.h"

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

/* Replaces the last n values by one. */
static int push_items(struct pickle *p, enum value_kind kind, const uint32_t *items, uint32_t n)
{
    const uint32_t id =
        kind == VALUE_TUPLE && n == 0 ? p->empty : value_new_items(p->graph, kind, items, n);
    vm_drop(p, n);
    return vm_push(p, id);
}

int op_tuple(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n;
    const int code = vm_items(p, &items, &n);
    return code < 0 ? code : push_items(p, VALUE_TUPLE, items, n);
}

/* TUPLE1, TUPLE2, TUPLE3. */
int op_short_tuple(struct pickle *p)
{
    uint32_t items[3];
    const uint32_t n = p->opcode - 0x84u;
    for (uint32_t i = n; i-- > 0;) {
        const int code = vm_pop(p, &items[i]);
        if (code < 0)
            return code;
    }
    return vm_push(p, value_new_items(p->graph, VALUE_TUPLE, items, n));
}

/* LIST, DICT, FROZENSET. */
int op_collect(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n;
    int code = vm_items(p, &items, &n);
    if (code < 0)
        return code;
    if (p->opcode == 'd' && n % 2 != 0)
        return vm_fail(p, "an odd number of keys and values");
    code = push_items(p,
                      p->opcode == 'd'   ? VALUE_DICT
                      : p->opcode == 'l' ? VALUE_LIST
                                         : VALUE_SET,
                      items, n);
    if (code == 0 && p->opcode == 0x91)
        graph_at(p->graph, p->stack[p->n_stack - 1])->form = FORM_FROZEN;
    return code;
}

/* Adds the last n values to the one below them. */
static int add_to_top(struct pickle *p, enum value_kind kind, uint32_t n, const char *what)
{
    const uint32_t *items = vm_from(p, p->n_stack - n);
    vm_drop(p, n);
    uint32_t target;
    int code = vm_top(p, &target);
    if (code < 0)
        return code;
    const struct value *value = graph_at(p->graph, target);
    room_change(&p->room, target);
    if (value->kind == VALUE_CALL)
        code = value_append_part(p->graph, target, kind == VALUE_DICT ? PART_ITEMS : PART_ELEMENTS,
                                 items, n);
    else if (value->kind == kind && value->form != FORM_FROZEN)
        code = value_append(p->graph, target, items, n);
    else
        return vm_fail(p, "%s", what);
    return code < 0 ? wfs_fail_memory(p->err) : 0;
}

/* APPEND, APPENDS, ADDITEMS. */
int op_append(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n = 1, id;
    int code;
    if (p->opcode == 'a') {
        if ((code = vm_pop(p, &id)) < 0)
            return code;
        p->n_stack++;
    } else if ((code = vm_items(p, &items, &n)) < 0) {
        return code;
    }
    return p->opcode == 0x90
               ? add_to_top(p, VALUE_SET, n, "adds items to a value that is not a set")
               : add_to_top(p, VALUE_LIST, n, "appends to a value that is not a list");
}

/* SETITEM, SETITEMS. */
int op_setitem(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n = 2, id;
    int code;
    if (p->opcode == 's') {
        if ((code = vm_pop(p, &id)) < 0 || (code = vm_pop(p, &id)) < 0)
            return code;
        p->n_stack += 2;
    } else if ((code = vm_items(p, &items, &n)) < 0) {
        return code;
    }
    if (n % 2 != 0)
        return vm_fail(p, "an odd number of keys and values");
    return add_to_top(p, VALUE_DICT, n, "sets an item of a value that is not a dict");
}

/* Reads the two lines after GLOBAL and INST. */
static int read_global(struct pickle *p, uint32_t *ret)
{
    const char *line;
    size_t n;
    int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    const size_t n_module = n;
    const char *module = arena_copy(p->graph->arena, line, n);
    if (module == NULL)
        return wfs_fail_memory(p->err);
    if ((code = vm_line(p, &line, &n)) < 0)
        return code;
    *ret = value_new_global(p->graph, module, n_module, line, n);
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
    uint32_t name, module;
    int code;
    if ((code = vm_pop(p, &name)) < 0 || (code = vm_pop(p, &module)) < 0)
        return code;
    const struct value *m = graph_at(p->graph, module), *n = graph_at(p->graph, name);
    if (m->kind != VALUE_TEXT || n->kind != VALUE_TEXT)
        return vm_fail(p, "the module or the name is not a string");
    return vm_push(p, value_new_global(p->graph, m->text, m->n, n->text, n->n));
}

static int push_call(struct pickle *p, enum value_form form, uint32_t callable, uint32_t args)
{
    if (callable == 0 || args == 0)
        return wfs_fail_memory(p->err);
    return vm_push(p, value_new_call(p->graph, form, callable, args));
}

int op_inst(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n, callable;
    int code;
    if ((code = read_global(p, &callable)) < 0 || (code = vm_items(p, &items, &n)) < 0)
        return code;
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items, n);
    vm_drop(p, n);
    return push_call(p, FORM_INST, callable, args);
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
    const uint32_t callable = items[0];
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items + 1, n - 1);
    vm_drop(p, n);
    return push_call(p, FORM_INST, callable, args);
}

/* REDUCE, NEWOBJ. */
int op_call(struct pickle *p)
{
    uint32_t args, callable;
    int code;
    if ((code = vm_pop(p, &args)) < 0 || (code = vm_pop(p, &callable)) < 0)
        return code;
    code = push_call(p, p->opcode == 'R' ? FORM_REDUCE : FORM_NEWOBJ, callable, args);
    if (code == 0 && p->opcode != 'R')
        room_begin(&p->room, p->graph, p->stack[p->n_stack - 1]);
    return code;
}

int op_newobj_ex(struct pickle *p)
{
    uint32_t both[2], callable;
    int code;
    if ((code = vm_pop(p, &both[1])) < 0 || (code = vm_pop(p, &both[0])) < 0 ||
        (code = vm_pop(p, &callable)) < 0)
        return code;
    return push_call(p, FORM_NEWOBJ_EX, callable, value_new_items(p->graph, VALUE_TUPLE, both, 2));
}

/* Replaces an object that has its state by the number of a record. */
static int fold(struct pickle *p, uint32_t id)
{
    cleanup(record_done) struct pickle_record record = {
        .graph = p->graph, .object = id, .n_most = p->job->limits->rank};
    uint32_t number;
    const int code = vm_fold(p, &record, &number);
    if (code > 0)
        *graph_at(p->graph, id) = (struct value){.kind = VALUE_RECORD, .id = number};
    if (code >= 0)
        room_end(&p->room, p->graph, id, code > 0);
    return code < 0 ? code : 0;
}

int op_build(struct pickle *p)
{
    uint32_t state, target;
    int code;
    if ((code = vm_pop(p, &state)) < 0 || (code = vm_top(p, &target)) < 0)
        return code;
    room_change(&p->room, target);
    if (graph_at(p->graph, target)->kind == VALUE_CALL) {
        code = value_append_part(p->graph, target, PART_STATES, &state, 1);
        if (code == 0 && p->job->fold != NULL)
            return fold(p, target);
    } else {
        const uint32_t stray[2] = {target, state};
        if (p->graph->strays == 0)
            p->graph->strays = value_new(p->graph, VALUE_LIST);
        room_hold(&p->room, state > p->graph->strays ? state : p->graph->strays);
        code = p->graph->strays == 0 ? -ENOMEM : value_append(p->graph, p->graph->strays, stray, 2);
    }
    return code < 0 ? wfs_fail_memory(p->err) : 0;
}

/* EXT1, EXT2, EXT4. */
int op_extension(struct pickle *p)
{
    const uint8_t *bytes;
    const size_t n = p->opcode == 0x82 ? 1 : p->opcode == 0x83 ? 2 : 4;
    const int code = vm_take(p, n, &bytes);
    if (code < 0)
        return code;
    const int64_t number = n == 1 ? *bytes : n == 2 ? load_le16(bytes) : (int32_t)load_le32(bytes);
    const uint32_t args = value_new_integer(p->graph, number);
    if (args == 0)
        return wfs_fail_memory(p->err);
    p->job->notes |= PICKLE_EXTENSION;
    return vm_push(p, value_new_call(p->graph, FORM_EXTENSION, 0, args));
}

int op_binpersid(struct pickle *p)
{
    uint32_t inner;
    const int code = vm_pop(p, &inner);
    if (code < 0)
        return code;
    const uint32_t id = value_new(p->graph, VALUE_PERSISTENT);
    if (id != 0)
        graph_at(p->graph, id)->id = inner;
    return vm_push(p, id);
}
