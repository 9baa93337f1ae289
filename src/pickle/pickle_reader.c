/* SPDX-License-Identifier: MIT */
/*
 * The loop over opcodes, those that change the stack, the memo or the input, and those that make
 * containers, names, calls and persistent objects. Items are added to containers on the stack, and
 * to calls that make a container.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "pickle/pickle.h"
#include "pickle/pickle_vm.h"

#include <errno.h>
#include <stdlib.h>

/* Reads the line and its length. */
static int read_line(struct pickle *p)
{
    const int code = stream_line(&p->input, p->job->limits->text, &p->line, &p->n_line);
    return code < 0 ? vm_fail_input(p, code) : 0;
}

/* Returns the height below which values are out of reach: that of the last mark. */
static size_t stack_floor(const struct pickle *p)
{
    return p->n_marks == 0 ? 0 : p->marks[p->n_marks - 1];
}

/* Each finds values at the top of the stack: the last n, or all above the last mark, which it
 * removes. They stay until they are dropped, and *ret is valid until the next push. */
static int last_values(struct pickle *p, uint32_t n, const uint32_t **ret)
{
    if (p->n_stack - stack_floor(p) < n)
        return vm_fail(p, "stack underflow");
    *ret = p->stack + p->n_stack - n;
    return 0;
}

static int marked_values(struct pickle *p, const uint32_t **ret, uint32_t *ret_n)
{
    if (p->n_marks == 0)
        return vm_fail(p, "no mark on the stack");
    const size_t floor = p->marks[--p->n_marks];
    if (p->n_stack - floor > UINT32_MAX / 2)
        return wfs_fail_memory(p->err);
    *ret = p->stack == NULL ? NULL : p->stack + floor;
    *ret_n = (uint32_t)(p->n_stack - floor);
    return 0;
}

static int op_mark(struct pickle *p)
{
    if (p->n_marks >= p->job->limits->marks)
        return wfs_fail(p->err, E2BIG, "pickle: more than %s (limit marks)",
                        wfs_count(p->job->limits->marks, "open mark").text);
    if (array_reserve(&p->marks, sizeof(*p->marks), p->n_marks, 1, &p->n_mark_room) < 0)
        return wfs_fail_memory(p->err);
    p->marks[p->n_marks++] = p->n_stack;
    if (p->n_marks > p->graph->n_marks)
        p->graph->n_marks = (uint32_t)p->n_marks;
    return 0;
}

static int op_pop(struct pickle *p)
{
    const uint32_t *last = NULL;
    if (p->n_marks > 0 && p->n_stack == stack_floor(p)) {
        p->n_marks--;
        return 0;
    }
    const int code = last_values(p, 1, &last);
    if (code == 0)
        p->n_stack -= 1;
    return code;
}

static int op_pop_mark(struct pickle *p)
{
    const uint32_t *items = NULL;
    uint32_t n = 0;
    const int code = marked_values(p, &items, &n);
    if (code == 0)
        p->n_stack -= n;
    return code;
}

static int op_dup(struct pickle *p)
{
    const uint32_t *last = NULL;
    const int code = last_values(p, 1, &last);
    return code < 0 ? code : vm_push(p, *last);
}

static int op_stop(struct pickle *p)
{
    if (p->n_marks > 0 || p->n_stack > 1)
        p->job->notes |= PICKLE_LEFTOVERS;
    p->is_done = p->n_stack > stack_floor(p);
    return p->is_done ? 0 : vm_fail(p, "stack underflow");
}

static int op_proto(struct pickle *p)
{
    if (p->number > 5)
        return wfs_fail(p->err, EOPNOTSUPP, "pickle protocol %u is not supported (0 to 5 are)",
                        (unsigned)p->number);
    if (p->graph->protocol < p->number)
        p->graph->protocol = (uint8_t)p->number;
    return 0;
}

/* FRAME, whose length need not be right, and READONLY_BUFFER. */
static int op_nothing(struct pickle *p)
{
    return 0;
}

static int op_next_buffer(struct pickle *p)
{
    return wfs_fail(p->err, EOPNOTSUPP,
                    "the pickle needs an out-of-band buffer, which the file does not contain");
}

/* Gets the index of a memo opcode, which may be a line of digits. */
static int memo_index(struct pickle *p, uint32_t *ret)
{
    uint64_t index = p->number;
    if (p->opcode == 'p' || p->opcode == 'g') {
        index = 0;
        for (size_t i = 0; i < p->n_line; i++) {
            if (p->line[i] < '0' || p->line[i] > '9' || index > UINT32_MAX)
                return vm_fail(p, "a memo index is not an integer");
            index = index * 10 + (uint64_t)(p->line[i] - '0');
        }
        if (p->n_line == 0 || index > UINT32_MAX)
            return vm_fail(p, "a memo index is not an integer of 32 bits");
    }
    *ret = (uint32_t)index;
    return 0;
}

static int put_memo(struct pickle *p, uint32_t index)
{
    const uint32_t *id = NULL;
    const int code = last_values(p, 1, &id);
    if (code < 0)
        return code;
    if (p->memo.n_used >= p->job->limits->memo && memo_get(&p->memo, index) == 0)
        return wfs_fail(p->err, E2BIG, "pickle: more than %s (limit memo)",
                        wfs_count(p->job->limits->memo, "memo entry").text);
    room_hold(&p->room, *id);
    return memo_put(&p->memo, index, *id) < 0 ? wfs_fail_memory(p->err) : 0;
}

static int op_put(struct pickle *p)
{
    uint32_t index;
    const int code = memo_index(p, &index);
    return code < 0 ? code : put_memo(p, index);
}

/* What is never fetched gets a number and no place. */
static int op_memoize(struct pickle *p)
{
    const uint32_t *id = NULL;
    const uint32_t index = p->room.used == NULL ? p->memo.n_used : p->room.n_memo;
    return room_is_fetched(&p->room, p->room.n_memo++) ? put_memo(p, index)
                                                       : last_values(p, 1, &id);
}

static int op_get(struct pickle *p)
{
    uint32_t index;
    int code = memo_index(p, &index);
    if (code < 0)
        return code;
    const uint32_t id = memo_get(&p->memo, index);
    if (id == 0)
        return vm_fail(p, "memo entry %u is not set", index);
    code = vm_push(p, id);
    if (code == 0 && p->room.used != NULL && graph_at(p->graph, id)->kind == VALUE_GLOBAL)
        code = fold_ahead(p);
    return code;
}

static int op_constant(struct pickle *p)
{
    return vm_push(p, p->opcode == 'N' ? p->none : p->truth[p->opcode == 0x88]);
}

static int op_empty(struct pickle *p)
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
static int op_collect(struct pickle *p)
{
    const bool is_short = p->opcode >= 0x85 && p->opcode <= 0x87;
    enum value_kind kind = VALUE_TUPLE;
    const uint32_t *items = NULL;
    uint32_t n = p->opcode - 0x84u;
    const int code = is_short ? last_values(p, n, &items) : marked_values(p, &items, &n);
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
    p->n_stack -= n;
    return vm_push(p, id);
}

/* Adds the last n values to the one below them. */
static int add_to_top(struct pickle *p, enum value_kind kind, const uint32_t *items, uint32_t n,
                      const char *what)
{
    const uint32_t *target = NULL;
    p->n_stack -= n;
    int code = last_values(p, 1, &target);
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
static int op_append(struct pickle *p)
{
    const uint32_t *items = NULL;
    uint32_t n = 1;
    const int code = p->opcode == 'a' ? last_values(p, n, &items) : marked_values(p, &items, &n);
    if (code < 0)
        return code;
    return p->opcode == 0x90
               ? add_to_top(p, VALUE_SET, items, n, "adds items to a value that is not a set")
               : add_to_top(p, VALUE_LIST, items, n, "appends to a value that is not a list");
}

/* SETITEM, SETITEMS. */
static int op_setitem(struct pickle *p)
{
    const uint32_t *items = NULL;
    uint32_t n = 2;
    const int code = p->opcode == 's' ? last_values(p, n, &items) : marked_values(p, &items, &n);
    if (code < 0)
        return code;
    if (n % 2 != 0)
        return vm_fail(p, "an odd number of keys and values");
    return add_to_top(p, VALUE_DICT, items, n, "sets an item of a value that is not a dict");
}

/* Reads the two lines after GLOBAL and INST. */
static int read_global(struct pickle *p, uint32_t *ret)
{
    int code = read_line(p);
    if (code < 0)
        return code;
    const size_t n_module = p->n_line;
    const char *module = arena_copy(p->graph->arena, p->line, n_module);
    if (module == NULL)
        return wfs_fail_memory(p->err);
    if ((code = read_line(p)) < 0)
        return code;
    *ret = value_new_global(p->graph, module, n_module, p->line, p->n_line);
    return *ret == 0 ? wfs_fail_memory(p->err) : 0;
}

static int op_global(struct pickle *p)
{
    uint32_t id;
    const int code = read_global(p, &id);
    return code < 0 ? code : vm_push(p, id);
}

static int op_stack_global(struct pickle *p)
{
    const uint32_t *both = NULL;
    const int code = last_values(p, 2, &both);
    if (code < 0)
        return code;
    const struct value *module = graph_at(p->graph, both[0]), *name = graph_at(p->graph, both[1]);
    if (module->kind != VALUE_TEXT || name->kind != VALUE_TEXT)
        return vm_fail(p, "the module or the name is not a string");
    p->n_stack -= 2;
    return vm_push(p, value_new_global(p->graph, module->text, module->n, name->text, name->n));
}

/* Replaces the last n values by a call. */
static int push_call(struct pickle *p, enum value_form form, uint32_t callable, uint32_t args,
                     uint32_t n)
{
    p->n_stack -= n;
    return vm_push(p,
                   callable == 0 || args == 0 ? 0 : value_new_call(p->graph, form, callable, args));
}

static int op_inst(struct pickle *p)
{
    const uint32_t *items = NULL;
    uint32_t n, callable;
    int code = read_global(p, &callable);
    if (code < 0 || (code = marked_values(p, &items, &n)) < 0)
        return code;
    return push_call(p, FORM_INST, callable, value_new_items(p->graph, VALUE_TUPLE, items, n), n);
}

static int op_obj(struct pickle *p)
{
    const uint32_t *items = NULL;
    uint32_t n;
    const int code = marked_values(p, &items, &n);
    if (code < 0)
        return code;
    if (n == 0)
        return vm_fail(p, "stack underflow");
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items + 1, n - 1);
    return push_call(p, FORM_INST, items[0], args, n);
}

/* REDUCE, NEWOBJ. */
static int op_call(struct pickle *p)
{
    const uint32_t *items = NULL;
    int code = last_values(p, 2, &items);
    if (code < 0)
        return code;
    code = push_call(p, p->opcode == 'R' ? FORM_REDUCE : FORM_NEWOBJ, items[0], items[1], 2);
    if (code == 0 && p->opcode != 'R')
        room_begin(&p->room, p->graph, p->stack[p->n_stack - 1]);
    return code;
}

static int op_newobj_ex(struct pickle *p)
{
    const uint32_t *items = NULL;
    const int code = last_values(p, 3, &items);
    if (code < 0)
        return code;
    const uint32_t args = value_new_items(p->graph, VALUE_TUPLE, items + 1, 2);
    return push_call(p, FORM_NEWOBJ_EX, items[0], args, 3);
}

static int op_build(struct pickle *p)
{
    const uint32_t *both = NULL;
    int code = last_values(p, 2, &both);
    if (code < 0)
        return code;
    const uint32_t target = both[0], state = both[1];
    p->n_stack -= 1;
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
static int op_extension(struct pickle *p)
{
    const uint32_t args =
        value_new_integer(p->graph, p->opcode == 0x84 ? (int32_t)p->number : (int64_t)p->number);
    p->job->notes |= PICKLE_EXTENSION;
    return vm_push(p, args == 0 ? 0 : value_new_call(p->graph, FORM_EXTENSION, 0, args));
}

static int op_binpersid(struct pickle *p)
{
    const uint32_t *inner = NULL;
    const int code = last_values(p, 1, &inner);
    if (code < 0)
        return code;
    const uint32_t id = value_new(p->graph, VALUE_PERSISTENT);
    if (id != 0)
        graph_at(p->graph, id)->id = *inner;
    p->n_stack -= 1;
    return vm_push(p, id);
}

static const struct pickle_opcode opcodes[256] = {
    ['('] = {op_mark},
    [')'] = {op_empty},
    ['.'] = {op_stop, ARGUMENT_STOP},
    ['0'] = {op_pop},
    ['1'] = {op_pop_mark},
    ['2'] = {op_dup},
    ['B'] = {op_bytes, ARGUMENT_LENGTH, 4},
    ['C'] = {op_bytes, ARGUMENT_LENGTH, 1},
    ['F'] = {op_float_line, ARGUMENT_LINE},
    ['G'] = {op_float, ARGUMENT_NUMBER, 8},
    ['I'] = {op_int_line, ARGUMENT_LINE},
    ['J'] = {op_fixed_int, ARGUMENT_NUMBER, 4},
    ['K'] = {op_fixed_int, ARGUMENT_NUMBER, 1},
    ['L'] = {op_long_line, ARGUMENT_LINE},
    ['M'] = {op_fixed_int, ARGUMENT_NUMBER, 2},
    ['N'] = {op_constant},
    ['P'] = {op_persid, ARGUMENT_LINE},
    ['Q'] = {op_binpersid},
    ['R'] = {op_call},
    ['S'] = {op_string_line, ARGUMENT_LINE},
    ['T'] = {op_string, ARGUMENT_LENGTH, 4},
    ['U'] = {op_string, ARGUMENT_LENGTH, 1},
    ['V'] = {op_unicode_line, ARGUMENT_LINE},
    ['X'] = {op_text, ARGUMENT_LENGTH, 4},
    [']'] = {op_empty},
    ['a'] = {op_append},
    ['b'] = {op_build},
    ['c'] = {op_global, ARGUMENT_LINES},
    ['d'] = {op_collect},
    ['e'] = {op_append},
    ['g'] = {op_get, ARGUMENT_BY_HAND},
    ['h'] = {op_get, ARGUMENT_GET, 1},
    ['i'] = {op_inst, ARGUMENT_LINES},
    ['j'] = {op_get, ARGUMENT_GET, 4},
    ['l'] = {op_collect},
    ['o'] = {op_obj},
    ['p'] = {op_put, ARGUMENT_BY_HAND},
    ['q'] = {op_put, ARGUMENT_BY_HAND, 1},
    ['r'] = {op_put, ARGUMENT_BY_HAND, 4},
    ['s'] = {op_setitem},
    ['t'] = {op_collect},
    ['u'] = {op_setitem},
    ['}'] = {op_empty},
    [0x80] = {op_proto, ARGUMENT_NUMBER, 1},
    [0x81] = {op_call},
    [0x82] = {op_extension, ARGUMENT_NUMBER, 1},
    [0x83] = {op_extension, ARGUMENT_NUMBER, 2},
    [0x84] = {op_extension, ARGUMENT_NUMBER, 4},
    [0x85] = {op_collect},
    [0x86] = {op_collect},
    [0x87] = {op_collect},
    [0x88] = {op_constant},
    [0x89] = {op_constant},
    [0x8a] = {op_long, ARGUMENT_LENGTH, 1},
    [0x8b] = {op_long, ARGUMENT_LENGTH, 4},
    [0x8c] = {op_text, ARGUMENT_LENGTH, 1},
    [0x8d] = {op_text, ARGUMENT_LENGTH, 8},
    [0x8e] = {op_bytes, ARGUMENT_LENGTH, 8},
    [0x8f] = {op_empty},
    [0x90] = {op_append},
    [0x91] = {op_collect},
    [0x92] = {op_newobj_ex},
    [0x93] = {op_stack_global},
    [0x94] = {op_memoize, ARGUMENT_MEMO},
    [0x95] = {op_nothing, ARGUMENT_NUMBER, 8},
    [0x96] = {op_bytes, ARGUMENT_LENGTH, 8},
    [0x97] = {op_next_buffer},
    [0x98] = {op_nothing},
};

/* Checks the budgets of the file and of the graph, after every opcode. */
static int check_budget(struct pickle *p, uint64_t start)
{
    const struct limits *limits = p->job->limits;
    struct pickle_budget *budget = p->job->budget;
    const uint64_t n_bytes = stream_offset(&p->input) - start - p->input.n_skipped;
    if (n_bytes > budget->n_bytes) {
        p->job->notes |= PICKLE_BUDGET;
        return wfs_fail(p->err, E2BIG, "the pickle is longer than %s (limit pickle)",
                        wfs_count(limits->pickle, "byte").text);
    }
    if (budget->n_opcodes-- == 0) {
        budget->n_opcodes = 0;
        p->job->notes |= PICKLE_BUDGET;
        return wfs_fail(p->err, E2BIG, "the pickle has more than %s (limit opcodes)",
                        wfs_count(limits->opcodes, "opcode").text);
    }
    if (p->graph->n_values > limits->values)
        return wfs_fail(p->err, E2BIG, "the pickle makes more than %s (limit values)",
                        wfs_count(limits->values, "value").text);
    return 0;
}

/* Reads the number or the line behind the opcode. */
static int read_argument(struct pickle *p, const struct pickle_opcode *opcode)
{
    const uint8_t *bytes;
    if (opcode->kind == ARGUMENT_LINE || (opcode->kind == ARGUMENT_BY_HAND && opcode->n_bytes == 0))
        return read_line(p);
    const int code = stream_take(&p->input, opcode->n_bytes, &bytes);
    if (code < 0)
        return vm_fail_input(p, code);
    p->number = pickle_number(bytes, opcode->n_bytes);
    return 0;
}

static int read_opcodes(struct pickle *p)
{
    const uint64_t start = p->job->offset;
    while (!p->is_done) {
        const uint8_t *at;
        int code = stream_take(&p->input, 1, &at);
        p->opcode_offset = stream_offset(&p->input) - start - (code == 0);
        if (code < 0)
            return vm_fail_input(p, code);
        p->opcode = *at;
        const struct pickle_opcode *opcode = &opcodes[p->opcode];
        if (opcode->apply == NULL)
            return vm_fail(p, "unknown opcode");
        if ((code = read_argument(p, opcode)) < 0 || (code = opcode->apply(p)) < 0 ||
            (code = check_budget(p, start)) < 0)
            return code;
    }
    p->job->budget->n_bytes -= stream_offset(&p->input) - start - p->input.n_skipped;
    p->job->offset = stream_offset(&p->input);
    return 0;
}

static int make_constants(struct pickle *p)
{
    p->none = value_new(p->graph, VALUE_NONE);
    p->truth[0] = value_new(p->graph, VALUE_BOOL);
    p->truth[1] = value_new(p->graph, VALUE_BOOL);
    p->empty = value_new(p->graph, VALUE_TUPLE);
    if (p->none == 0 || p->truth[0] == 0 || p->truth[1] == 0 || p->empty == 0)
        return wfs_fail_memory(p->err);
    graph_at(p->graph, p->truth[1])->integer = 1;
    return 0;
}

static void pickle_done(struct pickle *p)
{
    const int saved = errno;
    stream_done(&p->input);
    free(p->memo.near);
    free(p->memo.far);
    map_done(&p->memo.map);
    room_done(&p->room);
    free(p->stack);
    free(p->marks);
    errno = saved;
}

int pickle_load(struct pickle_job *job, uint32_t *ret_root, struct wfs_error *err)
{
    cleanup(pickle_done) struct pickle p = {.graph = job->graph, .job = job, .err = err};
    if (stream_init(&p.input, job->source, job->offset, job->end) < 0 ||
        (job->fold != NULL && room_scan(&p.room, job, opcodes) < 0))
        return wfs_fail_memory(err);
    int code = make_constants(&p);
    if (code < 0 || (code = read_opcodes(&p)) < 0)
        return code;
    *ret_root = p.stack[p.n_stack - 1];
    return 0;
}

struct pickle_budget pickle_budget_of(const struct limits *limits)
{
    return (struct pickle_budget){limits->pickle, limits->opcodes};
}

static void cleanup_source(struct source **source)
{
    source_free(*source);
}

bool pickle_probe(const void *head, size_t n_head, uint64_t n_bytes)
{
    cleanup(arena_done) struct arena arena = {0};
    cleanup(cleanup_source) struct source *source = NULL;
    struct graph graph = {.arena = &arena};
    struct limits limits;
    struct pickle_budget budget = {n_head, 64};
    const uint8_t *bytes = head;
    if (n_head >= 3 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 &&
        opcodes[bytes[2]].apply != NULL)
        return true;
    limits_init(&limits);
    if (n_head < 2)
        return false;
    /* Without memory the answer is yes, and loading reports the error. */
    if (source_new_memory("head", head, n_head, &source) < 0)
        return true;
    struct pickle_job job = {
        .graph = &graph, .limits = &limits, .budget = &budget, .source = source, .end = n_head};
    uint32_t root;
    /* The file may be longer than the head, and 64 valid opcodes in a row are not an accident. */
    const int code = pickle_load(&job, &root, NULL);
    return code == 0 || code == -ENOMEM || (job.notes & PICKLE_BUDGET) != 0 ||
           ((job.notes & PICKLE_SHORT) != 0 && n_head < n_bytes);
}
