/* SPDX-License-Identifier: MIT */
/*
 * The memo, and errors with their place.
 */
#include "pickle/pickle_vm.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static bool is_index(const void *ctx, uint32_t i)
{
    const struct far_slot *const *wanted = ctx;
    return wanted[1][i].index == wanted[0]->index;
}

static uint64_t hash_of(uint32_t index)
{
    return hash_bytes(&index, sizeof(index), hash_seed());
}

static struct far_slot *find_far(const struct memo *memo, uint32_t index)
{
    const struct far_slot wanted = {.index = index};
    const struct far_slot *ctx[2] = {&wanted, memo->far};
    uint32_t i;
    return map_find(&memo->map, hash_of(index), is_index, ctx, &i) ? &memo->far[i] : NULL;
}

static int add_far(struct memo *memo, uint32_t index, uint32_t id)
{
    if (array_reserve(&memo->far, sizeof(*memo->far), memo->n_far, 1, &memo->n_far_room) < 0)
        return -ENOMEM;
    if (map_add(&memo->map, hash_of(index), memo->n_far) < 0)
        return -ENOMEM;
    memo->far[memo->n_far++] = (struct far_slot){index, id};
    memo->n_used++;
    return 0;
}

static int grow_near(struct memo *memo, uint32_t index)
{
    const size_t n_before = memo->n_room;
    if (array_reserve(&memo->near, sizeof(*memo->near), index, 1, &memo->n_room) < 0)
        return -ENOMEM;
    memset(memo->near + n_before, 0, (memo->n_room - n_before) * sizeof(*memo->near));
    return 0;
}

int memo_put(struct memo *memo, uint32_t index, uint32_t id)
{
    struct far_slot *slot = memo->n_far == 0 ? NULL : find_far(memo, index);
    if (slot != NULL) {
        slot->id = id;
        memo->recent[index % MEMO_RECENT] = *slot;
        return 0;
    }
    if (index >= memo->n_room) {
        if (index >= 2 * (uint64_t)memo->n_used + 1024)
            return add_far(memo, index, id);
        if (grow_near(memo, index) < 0)
            return -ENOMEM;
    }
    memo->n_used += memo->near[index] == 0;
    memo->near[index] = id;
    return 0;
}

uint32_t memo_get(struct memo *memo, uint32_t index)
{
    if (index < memo->n_room && memo->near[index] != 0)
        return memo->near[index];
    if (memo->n_far == 0)
        return 0;
    struct far_slot *recent = &memo->recent[index % MEMO_RECENT];
    if (recent->id == 0 || recent->index != index) {
        const struct far_slot *slot = find_far(memo, index);
        if (slot == NULL)
            return 0;
        *recent = *slot;
    }
    return recent->id;
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

int vm_push(struct pickle *p, uint32_t id)
{
    if (id == 0 || array_reserve(&p->stack, sizeof(*p->stack), p->n_stack, 1, &p->n_stack_room) < 0)
        return wfs_fail_memory(p->err);
    p->stack[p->n_stack++] = id;
    return 0;
}
