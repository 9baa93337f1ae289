/* SPDX-License-Identifier: MIT */
/*
 * A pickle of millions of small objects gives a number to each of them and fetches few. Values are
 * numbered in the order in which they are made, so that those of a folded object are the last ones:
 * the stack has none of them above the object, and without the memo nothing below it can have got
 * one.
 */
#include "pickle/pickle_room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/stream.h"

/* How the argument of an opcode is read. Those of a fixed length: the bytes of both. */
enum argument {
    NO_OPCODE,
    NONE = 1,
    BYTES_1 = 2,
    BYTES_2 = 3,
    BYTES_4 = 5,
    BYTES_8 = 9,
    LINE,
    LINES,
    LONG_1,
    LONG_4,
    LONG_8,
    GET_1,
    GET_4,
    MEMO,
    STOP,
    BY_HAND
};

static const uint8_t arguments[256] = {
    ['('] = NONE,     [')'] = NONE,     ['.'] = STOP,     ['0'] = NONE,     ['1'] = NONE,
    ['2'] = NONE,     ['B'] = LONG_4,   ['C'] = LONG_1,   ['F'] = LINE,     ['G'] = BYTES_8,
    ['I'] = LINE,     ['J'] = BYTES_4,  ['K'] = BYTES_1,  ['L'] = LINE,     ['M'] = BYTES_2,
    ['N'] = NONE,     ['P'] = LINE,     ['Q'] = NONE,     ['R'] = NONE,     ['S'] = LINE,
    ['T'] = LONG_4,   ['U'] = LONG_1,   ['V'] = LINE,     ['X'] = LONG_4,   [']'] = NONE,
    ['a'] = NONE,     ['b'] = NONE,     ['c'] = LINES,    ['d'] = NONE,     ['e'] = NONE,
    ['g'] = BY_HAND,  ['h'] = GET_1,    ['i'] = LINES,    ['j'] = GET_4,    ['l'] = NONE,
    ['o'] = NONE,     ['p'] = BY_HAND,  ['q'] = BY_HAND,  ['r'] = BY_HAND,  ['s'] = NONE,
    ['t'] = NONE,     ['u'] = NONE,     ['}'] = NONE,     [0x80] = BYTES_1, [0x81] = NONE,
    [0x82] = BYTES_1, [0x83] = BYTES_2, [0x84] = BYTES_4, [0x85] = NONE,    [0x86] = NONE,
    [0x87] = NONE,    [0x88] = NONE,    [0x89] = NONE,    [0x8a] = LONG_1,  [0x8b] = LONG_4,
    [0x8c] = LONG_1,  [0x8d] = LONG_8,  [0x8e] = LONG_8,  [0x8f] = NONE,    [0x90] = NONE,
    [0x91] = NONE,    [0x92] = NONE,    [0x93] = NONE,    [0x94] = MEMO,    [0x95] = BYTES_8,
    [0x96] = LONG_8,  [0x97] = NONE,    [0x98] = NONE,
};

struct scan {
    struct stream input;
    struct pickle_room *room;
    size_t n_room; /* bytes of the set */
    uint32_t n_memo;
};

static int skip(struct scan *s, size_t n_length)
{
    const uint8_t *at;
    uint64_t n = 0;
    const int code = stream_take(&s->input, n_length, &at);
    if (code < 0)
        return code;
    for (size_t i = n_length; i-- > 0;)
        n = n << 8 | at[i];
    return n > stream_left(&s->input) ? -ENODATA : stream_skip(&s->input, n);
}

static int skip_lines(struct scan *s, unsigned n_lines)
{
    enum { LINE_MAX_BYTES = 1 << 20 };
    const char *line;
    size_t n;
    int code = 0;
    for (unsigned i = 0; i < n_lines && code == 0; i++)
        code = stream_line(&s->input, LINE_MAX_BYTES, &line, &n);
    return code;
}

static bool set_used(struct scan *s, uint32_t i)
{
    if (i >= s->n_memo || i / 8 >= s->n_room)
        return false;
    s->room->used[i / 8] |= (uint8_t)(1u << i % 8);
    return true;
}

/* A number that was not given yet is an error, which the reader reports. */
static int get(struct scan *s, size_t n_bytes)
{
    const uint8_t *at;
    const int code = stream_take(&s->input, n_bytes, &at);
    if (code < 0)
        return code;
    const uint32_t i = n_bytes == 1 ? *at : load_le32(at);
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
        const uint8_t kind = arguments[*at];
        if (kind > NO_OPCODE && kind <= BYTES_8)
            at += kind;
        else if (kind == MEMO)
            at++, s->n_memo++;
        else if (kind == GET_1 && set_used(s, at[1]))
            at += 2;
        else if (kind == GET_4 && set_used(s, load_le32(at + 1)))
            at += 5;
        else if (kind == LONG_1 && at[1] <= stop - at - 2)
            at += 2 + at[1];
        else
            break;
    }
    s->input.at = at;
}

/* 1: go on; 0: the pickle ends here. */
static int step(struct scan *s)
{
    const uint8_t *opcode, *argument;
    int code = stream_take(&s->input, 1, &opcode);
    if (code < 0)
        return code;
    const uint8_t kind = arguments[*opcode];
    switch (kind) {
    case NO_OPCODE:
    case BY_HAND:
        return -EBADMSG;
    case STOP:
        return 0;
    case MEMO:
        s->n_memo++;
        break;
    case GET_1:
    case GET_4:
        code = get(s, kind == GET_1 ? 1 : 4);
        break;
    case LINE:
    case LINES:
        code = skip_lines(s, kind == LINE ? 1 : 2);
        break;
    case LONG_1:
    case LONG_4:
    case LONG_8:
        code = skip(s, kind == LONG_1 ? 1 : kind == LONG_4 ? 4 : 8);
        break;
    default:
        code = kind == NONE ? 0 : stream_take(&s->input, kind - 1u, &argument);
    }
    return code < 0 ? code : 1;
}

int room_scan(struct pickle_room *room, const struct pickle_job *job)
{
    struct scan s = {.room = room};
    int code = stream_init(&s.input, job->source, job->offset, job->end);
    if (code < 0)
        return code;
    /* So that there is a set, even if nothing is fetched. */
    room->used = calloc(1, 1);
    s.n_room = 1;
    code = room->used == NULL ? -ENOMEM : 1;
    while (code == 1) {
        skip_simple(&s);
        code = s.n_memo < UINT32_MAX - 1 ? step(&s) : -EBADMSG;
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
