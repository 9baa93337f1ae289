/* SPDX-License-Identifier: MIT */
/*
 * The stack with its marks, and the input with its errors.
 */
#include "pickle/pickle_vm.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int vm_init(struct pickle *p)
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

void vm_done(struct pickle *p)
{
    const int saved = errno;
    stream_done(&p->input);
    memo_done(&p->memo);
    room_done(&p->room);
    free(p->stack);
    free(p->marks);
    errno = saved;
}

int vm_fail(struct pickle *p, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    return wfs_fail(p->err, EBADMSG, "pickle, byte %llu, opcode 0x%02x: %s",
                    (unsigned long long)p->opcode_offset, p->opcode, text);
}

int vm_fail_input(struct pickle *p, int code)
{
    switch (code) {
    case -ENODATA:
        p->job->notes |= PICKLE_SHORT;
        return vm_fail(p, "the file ends inside the pickle");
    case -EBADMSG:
        return wfs_fail(p->err, EBADMSG, "the compressed data of the pickle is damaged");
    case -E2BIG:
        return wfs_fail(p->err, E2BIG, "pickle, byte %llu: a line is longer than the limit",
                        (unsigned long long)p->opcode_offset);
    case -ENOMEM:
        return wfs_fail_memory(p->err);
    default:
        return wfs_fail(p->err, -code, "cannot read the pickle");
    }
}

int vm_fail_short(struct pickle *p, const char *what, uint64_t n)
{
    p->job->notes |= PICKLE_SHORT;
    return vm_fail(p, "%s of %s, but only %llu left", what, wfs_count(n, "byte").text,
                   (unsigned long long)stream_left(&p->input));
}

int vm_take(struct pickle *p, size_t n_bytes, const uint8_t **ret)
{
    const int code = stream_take(&p->input, n_bytes, ret);
    return code < 0 ? vm_fail_input(p, code) : 0;
}

int vm_line(struct pickle *p, const char **ret, size_t *ret_n)
{
    const int code = stream_line(&p->input, p->job->limits->text, ret, ret_n);
    return code < 0 ? vm_fail_input(p, code) : 0;
}

int vm_push(struct pickle *p, uint32_t id)
{
    if (id == 0)
        return wfs_fail_memory(p->err);
    if (array_reserve(&p->stack, sizeof(*p->stack), p->n_stack, 1, &p->n_stack_room) < 0)
        return wfs_fail_memory(p->err);
    p->stack[p->n_stack++] = id;
    return 0;
}

size_t vm_floor(const struct pickle *p)
{
    return p->n_marks == 0 ? 0 : p->marks[p->n_marks - 1];
}

int vm_top(struct pickle *p, uint32_t *ret)
{
    if (p->n_stack == vm_floor(p))
        return vm_fail(p, "stack underflow");
    *ret = p->stack[p->n_stack - 1];
    return 0;
}

int vm_pop(struct pickle *p, uint32_t *ret)
{
    const int code = vm_top(p, ret);
    if (code == 0)
        p->n_stack--;
    return code;
}

int vm_items(struct pickle *p, const uint32_t **ret, uint32_t *ret_n)
{
    if (p->n_marks == 0)
        return vm_fail(p, "no mark on the stack");
    const size_t floor = p->marks[--p->n_marks];
    if (p->n_stack - floor > UINT32_MAX / 2)
        return wfs_fail_memory(p->err);
    *ret = vm_from(p, floor);
    *ret_n = (uint32_t)(p->n_stack - floor);
    return 0;
}

void vm_drop(struct pickle *p, uint32_t n)
{
    p->n_stack -= n;
}

int vm_fold(struct pickle *p, struct pickle_record *record, uint32_t *ret)
{
    const int code = p->job->fold(p->job->fold_ctx, p->graph, record, ret);
    if (code == -E2BIG)
        return wfs_fail(p->err, E2BIG,
                        "the pickle describes more than the limits tensors, chunks and "
                        "index_memory allow");
    return code < 0 ? wfs_fail_memory(p->err) : code;
}

int vm_mark(struct pickle *p)
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
