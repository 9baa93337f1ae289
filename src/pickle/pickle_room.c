/* SPDX-License-Identifier: MIT */
/*
 * A pickle of millions of small objects gives a number to each of them and fetches few. Values are
 * numbered in the order in which they are made, so that those of a folded object are the last ones:
 * the stack has none of them above the object, and without the memo nothing below it can have got
 * one.
 */
#include "pickle/pickle_vm.h"

#include "base/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    struct stream input;
    const struct pickle_opcode *opcodes;
    struct pickle_room *room;
    size_t n_room; /* bytes of the set */
    uint32_t n_memo;
};

static bool set_used(struct scan *s, uint64_t i)
{
    if (i >= s->n_memo || i / 8 >= s->n_room)
        return false;
    s->room->used[i / 8] |= (uint8_t)(1u << i % 8);
    return true;
}

/* A number that was not given yet is an error, which the reader reports. */
static int note_fetched(struct scan *s, uint64_t i)
{
    if (i >= s->n_memo)
        return -EBADMSG;
    if (i / 8 >= s->n_room) {
        const size_t n_room = (size_t)s->n_memo / 8 * 2 + 4096;
        uint8_t *used = realloc(s->room->used, n_room);
        if (used == NULL)
            return -ENOMEM;
        memset(used + s->n_room, 0, n_room - s->n_room);
        s->room->used = used;
        s->n_room = n_room;
    }
    (void)set_used(s, i);
    return 0;
}

/* Reads opcodes of the window, up to one that needs a closer look. */
static void skip_simple(struct scan *s)
{
    enum { LONGEST = 9 };
    const uint8_t *at = s->input.at, *const stop = s->input.stop;
    while (stop - at >= LONGEST && s->n_memo < UINT32_MAX - 1) {
        const struct pickle_opcode opcode = s->opcodes[*at];
        if (opcode.kind == ARGUMENT_MEMO)
            s->n_memo++;
        else if (opcode.kind == ARGUMENT_LENGTH && opcode.n_bytes == 1 && at[1] <= stop - at - 2)
            at += at[1];
        else if (opcode.apply == NULL || (opcode.kind != ARGUMENT_NUMBER &&
                                          (opcode.kind != ARGUMENT_GET ||
                                           !set_used(s, pickle_number(at + 1, opcode.n_bytes)))))
            break;
        at += 1 + opcode.n_bytes;
    }
    s->input.at = at;
}

/* 1: go on; 0: the pickle ends here. */
static int scan_opcode(struct scan *s)
{
    enum { LINE_MAX_BYTES = 1 << 20 };
    const uint8_t *at;
    const char *line;
    size_t n_line;
    int code = stream_take(&s->input, 1, &at);
    if (code < 0)
        return code;
    const struct pickle_opcode opcode = s->opcodes[*at];
    if (opcode.apply == NULL || opcode.kind == ARGUMENT_BY_HAND)
        return -EBADMSG;
    if ((code = stream_take(&s->input, opcode.n_bytes, &at)) < 0)
        return code;
    const uint64_t number = pickle_number(at, opcode.n_bytes);
    switch (opcode.kind) {
    case ARGUMENT_STOP:
        return 0;
    case ARGUMENT_MEMO:
        s->n_memo++;
        break;
    case ARGUMENT_GET:
        code = note_fetched(s, number);
        break;
    case ARGUMENT_LENGTH:
        code = number > stream_left(&s->input) ? -ENODATA : stream_skip(&s->input, number);
        break;
    case ARGUMENT_LINE:
    case ARGUMENT_LINES:
        code = stream_line(&s->input, LINE_MAX_BYTES, &line, &n_line);
        if (code == 0 && opcode.kind == ARGUMENT_LINES)
            code = stream_line(&s->input, LINE_MAX_BYTES, &line, &n_line);
        break;
    }
    return code < 0 ? code : 1;
}

int room_scan(struct pickle_room *room, const struct pickle_job *job,
              const struct pickle_opcode *opcodes)
{
    struct scan s = {.room = room, .opcodes = opcodes};
    int code = stream_init(&s.input, job->source, job->offset, job->end);
    if (code < 0)
        return code;
    /* So that there is a set, even if nothing is fetched. */
    room->used = calloc(1, 1);
    s.n_room = 1;
    code = room->used == NULL ? -ENOMEM : 1;
    while (code == 1) {
        skip_simple(&s);
        code = s.n_memo < UINT32_MAX - 1 ? scan_opcode(&s) : -EBADMSG;
    }
    stream_done(&s.input);
    room->n_used = s.n_room > UINT32_MAX / 8 ? UINT32_MAX : (uint32_t)s.n_room * 8;
    if (code == 0)
        return 0;
    room_done(room);
    return code == -ENOMEM ? code : 0;
}

void room_done(struct pickle_room *room)
{
    const int saved = errno;
    free(room->used);
    *room = (struct pickle_room){0};
    errno = saved;
}

void room_begin(struct pickle_room *room, const struct graph *graph, uint32_t id)
{
    if (room->used == NULL)
        return;
    /* Objects that never get a state stay; old ones that are spoiled make room. */
    size_t n_kept = room->n_open;
    if (n_kept == ROOM_OPEN_MAX) {
        n_kept = 0;
        for (size_t i = 0; i < ROOM_OPEN_MAX; i++) {
            if (!room->open[i].is_spoiled)
                room->open[n_kept++] = room->open[i];
        }
    }
    room->n_open = n_kept;
    if (n_kept < ROOM_OPEN_MAX)
        room->open[room->n_open++] = (struct room_mark){id, false, graph->cells, graph->n_cells};
}

void room_end(struct pickle_room *room, struct graph *graph, uint32_t id, bool is_folded)
{
    while (room->n_open > 0 && room->open[room->n_open - 1].id > id)
        room->n_open--;
    if (room->n_open == 0 || room->open[room->n_open - 1].id != id)
        return;
    const struct room_mark mark = room->open[--room->n_open];
    if (!is_folded || mark.is_spoiled || room->held >= id)
        return;
    graph->n_values = id;
    /* The cells too, while they are of the same block. */
    const uintptr_t from = (uintptr_t)mark.cells, to = (uintptr_t)graph->cells;
    if (mark.cells != NULL && to >= from && to - from <= mark.n_cells * sizeof(uint32_t) &&
        graph->n_cells == mark.n_cells - (to - from) / sizeof(uint32_t)) {
        graph->cells = mark.cells;
        graph->n_cells = mark.n_cells;
    }
}
