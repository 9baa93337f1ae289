/* SPDX-License-Identifier: MIT */
/*
 * The loop over opcodes, and those that change nothing but the stack, the memo or the input.
 */
#include <weightfs/cleanup.h>
#include "pickle/pickle.h"
#include "pickle/pickle_vm.h"

#include <errno.h>

static int op_pop(struct pickle *p)
{
    const uint32_t *last;
    if (p->n_marks > 0 && p->n_stack == vm_floor(p)) {
        p->n_marks--;
        return 0;
    }
    const int code = vm_last(p, 1, &last);
    if (code == 0)
        vm_drop(p, 1);
    return code;
}

static int op_pop_mark(struct pickle *p)
{
    const uint32_t *items;
    uint32_t n = 0;
    const int code = vm_items(p, &items, &n);
    if (code == 0)
        vm_drop(p, n);
    return code;
}

static int op_dup(struct pickle *p)
{
    const uint32_t *last;
    const int code = vm_last(p, 1, &last);
    return code < 0 ? code : vm_push(p, *last);
}

static int op_stop(struct pickle *p)
{
    if (p->n_marks > 0 || p->n_stack > 1)
        p->job->notes |= PICKLE_LEFTOVERS;
    p->is_done = p->n_stack > vm_floor(p);
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

static int put(struct pickle *p, uint32_t index)
{
    const uint32_t *id;
    const int code = vm_last(p, 1, &id);
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
    return code < 0 ? code : put(p, index);
}

/* What is never fetched gets a number and no place. */
static int op_memoize(struct pickle *p)
{
    const uint32_t *id;
    const uint32_t index = p->room.used == NULL ? p->memo.n_used : p->room.n_memo;
    return room_is_fetched(&p->room, p->room.n_memo++) ? put(p, index) : vm_last(p, 1, &id);
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

static const struct pickle_opcode opcodes[256] = {
    ['('] = {vm_mark},
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
        return vm_line(p);
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

int pickle_load(struct pickle_job *job, uint32_t *ret_root, struct wfs_error *err)
{
    cleanup(vm_done) struct pickle p = {.graph = job->graph, .job = job, .err = err};
    if (stream_init(&p.input, job->source, job->offset, job->end) < 0 ||
        (job->fold != NULL && room_scan(&p.room, job, opcodes) < 0))
        return wfs_fail_memory(err);
    int code = vm_init(&p);
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
