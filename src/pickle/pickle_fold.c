/* SPDX-License-Identifier: MIT */
/*
 * Objects that become records while they are read. An object of the graph is looked at when it got
 * its state. Most are read past the graph: millions of small ones describe the chunks of a
 * distributed checkpoint. For these there is a smaller machine beside the large one: it knows the
 * opcodes of which such objects are made, works on what is in the window of the input, and makes no
 * values. What it does not know it leaves to the large one, which begins at the same place; so it
 * has no errors of its own. An object that begins inside of another one stops it, which bounds what
 * is read twice.
 *
 *   class  ) NEWOBJ  [MEMOIZE]  } [MEMOIZE]  (  name value  name value ...  SETITEMS BUILD
 */
#include <weightfs/cleanup.h>
#include "base/utf8.h"
#include "pickle/pickle_vm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void record_done(struct pickle_record *record)
{
    const int saved = errno;
    free(record->numbers);
    record->numbers = NULL;
    errno = saved;
}

/* Reads a tuple, if it is one of integers. -ENOMEM. */
static int look_at_tuple(struct pickle_record *record, const struct value *tuple,
                         struct record_field *ret)
{
    if (tuple->kind != VALUE_TUPLE || tuple->n > record->n_most)
        return 0;
    int64_t *numbers = realloc(record->numbers, ((size_t)tuple->n + 1) * sizeof(*numbers));
    if (numbers == NULL)
        return -ENOMEM;
    record->numbers = numbers;
    for (uint32_t i = 0; i < tuple->n; i++) {
        const struct value *item = graph_at(record->graph, value_items(tuple)[i]);
        if (item->kind != VALUE_INT)
            return 0;
        numbers[i] = item->integer;
    }
    ret->kind = RECORD_NUMBERS;
    ret->n = tuple->n;
    ret->numbers = numbers;
    return 0;
}

int record_look(struct pickle_record *record, uint32_t id, struct record_field *ret)
{
    const struct graph *graph = record->graph;
    const struct value *value = graph_at(graph, id);
    *ret = (struct record_field){.kind = RECORD_OTHER};
    switch (value->kind) {
    case VALUE_NONE:
        ret->kind = RECORD_NONE;
        return 0;
    case VALUE_INT:
        ret->kind = RECORD_INTEGER;
        ret->integer = value->integer;
        return 0;
    case VALUE_TEXT:
        ret->kind = RECORD_TEXT;
        ret->text = value->text;
        ret->n = value->n;
        return 0;
    case VALUE_GLOBAL:
        ret->callable = id;
        return 0;
    case VALUE_CALL:
        ret->callable = value->call.callable;
        value = graph_at(graph, value->call.args);
        if (value->kind != VALUE_TUPLE || value->n == 0)
            return 0;
        value = graph_at(graph, value_items(value)[0]);
        break;
    default:
        break;
    }
    return look_at_tuple(record, value, ret);
}

int record_find(struct pickle_record *record, const char *name, struct record_field *ret)
{
    if (record->object != 0) {
        const struct graph *graph = record->graph;
        const uint32_t states = value_part(graph, graph_at(graph, record->object), PART_STATES);
        const struct value *list = states == 0 ? NULL : graph_at(graph, states);
        if (list == NULL || list->n == 0)
            return 0;
        const uint32_t state = value_items(list)[list->n - 1]; /* the last one counts */
        if (graph_at(graph, state)->kind != VALUE_DICT)
            return 0;
        const uint32_t id = value_get(graph, state, name);
        const int code = id == 0 ? 0 : record_look(record, id, ret);
        return code < 0 ? code : id != 0;
    }
    const size_t n = strlen(name);
    for (uint32_t i = record->n_pairs; i-- > 0;) {
        const struct record_field *key = &record->pairs[2 * i];
        if (key->n == n && memcmp(key->text, name, n) == 0) {
            *ret = key[1];
            return 1;
        }
    }
    return 0;
}

enum {
    MAX_SLOTS = 64,
    MAX_NUMBERS = 128,
    MAX_ARGUMENT = 16, /* bytes of an opcode with its argument, but for those of a text */
    MAX_OBJECT = 8192, /* bytes that are in the window */
    NO_MARK = MAX_SLOTS + 1,
    ARGUMENTS = RECORD_OTHER + 1, /* a slot: a tuple of one tuple */
};

struct skim {
    struct pickle *p;
    const uint8_t *at, *stop;
    uint32_t n_memo; /* numbers given so far */
    uint64_t n_opcodes;
    uint32_t n_slots, mark;
    uint32_t n_numbers;
    struct record_field slots[MAX_SLOTS];
    int64_t numbers[MAX_NUMBERS];
};

/* There is room: read. Members are set one by one: to copy a struct that was just made costs more
 * than all else here. */
static struct record_field *push_slot(struct skim *s, enum record_kind kind)
{
    struct record_field *slot = &s->slots[s->n_slots++];
    slot->kind = kind;
    return slot;
}

static bool push_integer(struct skim *s, int64_t integer)
{
    push_slot(s, RECORD_INTEGER)->integer = integer;
    return true;
}

/* Takes the argument of an opcode, which is in the window. */
static uint64_t take_argument(struct skim *s, size_t n_bytes)
{
    s->at += n_bytes;
    return pickle_number(s->at - n_bytes, n_bytes);
}

static bool push_text(struct skim *s, const char *text, uint32_t n)
{
    struct record_field *slot = push_slot(s, RECORD_TEXT);
    slot->text = text;
    slot->n = n;
    return true;
}

/* LONG1 of up to 8 bytes. */
static bool push_long(struct skim *s)
{
    const uint32_t n = *s->at++;
    if (n == 0 || n > 8)
        return false;
    const uint64_t sign = (uint64_t)1 << (8 * n - 1);
    return push_integer(s, (int64_t)((take_argument(s, n) ^ sign) - sign));
}

static bool read_text(struct skim *s, uint64_t n)
{
    const char *text = (const char *)s->at;
    if (n > (size_t)(s->stop - s->at) || n > s->p->job->limits->text || utf8_valid(text, n) != n)
        return false;
    s->at += n;
    return push_text(s, text, (uint32_t)n);
}

static bool push_memo(struct skim *s, uint64_t index)
{
    const uint32_t id = memo_get(&s->p->memo, (uint32_t)index);
    const struct value *value = id == 0 ? NULL : graph_at(s->p->graph, id);
    if (value == NULL)
        return false;
    if (value->kind == VALUE_TEXT)
        return push_text(s, value->text, value->n);
    if (value->kind != VALUE_GLOBAL)
        return false;
    push_slot(s, RECORD_OTHER)->callable = id;
    return true;
}

/* Replaces the last n slots by a tuple: of integers, or of one tuple. */
static bool make_tuple(struct skim *s, uint32_t n)
{
    if (n > s->n_slots || n > MAX_NUMBERS - s->n_numbers)
        return false;
    struct record_field *items = &s->slots[s->n_slots - n];
    if (n == 1 && items->kind == RECORD_NUMBERS && items->callable == 0) {
        items->kind = (enum record_kind)ARGUMENTS;
        return true;
    }
    int64_t *numbers = &s->numbers[s->n_numbers];
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind != RECORD_INTEGER)
            return false;
        numbers[i] = items[i].integer;
    }
    s->n_numbers += n;
    s->n_slots -= n;
    struct record_field *tuple = push_slot(s, RECORD_NUMBERS);
    tuple->n = n;
    tuple->callable = 0;
    tuple->numbers = numbers;
    return true;
}

static bool make_marked_tuple(struct skim *s)
{
    const uint32_t mark = s->mark;
    s->mark = NO_MARK;
    return mark <= s->n_slots && make_tuple(s, s->n_slots - mark);
}

/* REDUCE: a global is called with one tuple. */
static bool call_global(struct skim *s)
{
    if (s->n_slots < 2)
        return false;
    struct record_field *callable = &s->slots[s->n_slots - 2], *args = callable + 1;
    if (callable->kind != RECORD_OTHER || args->kind != (enum record_kind)ARGUMENTS)
        return false;
    callable->kind = RECORD_NUMBERS;
    callable->n = args->n;
    callable->numbers = args->numbers;
    s->n_slots--;
    return true;
}

static bool skip_memo(struct skim *s)
{
    return !room_is_fetched(&s->p->room, s->p->room.n_memo + s->n_memo++);
}

/* Does what an opcode does; false: it is not one of those that are known here. */
static bool skim_opcode(struct skim *s, uint8_t opcode)
{
    switch (opcode) {
    case 0x94:
        return skip_memo(s);
    case 'h':
        return push_memo(s, take_argument(s, 1));
    case 'j':
        return push_memo(s, take_argument(s, 4));
    case 'K':
        return push_integer(s, (int64_t)take_argument(s, 1));
    case 'M':
        return push_integer(s, (int64_t)take_argument(s, 2));
    case 'J':
        return push_integer(s, (int32_t)take_argument(s, 4));
    case 0x8a:
        return push_long(s);
    case 0x8c:
        return read_text(s, take_argument(s, 1));
    case 'X':
        return read_text(s, take_argument(s, 4));
    case 'N':
        push_slot(s, RECORD_NONE);
        return true;
    case ')':
        return make_tuple(s, 0);
    case 0x85:
    case 0x86:
    case 0x87:
        return make_tuple(s, opcode - 0x84u);
    case '(':
        s->mark = s->mark == NO_MARK ? s->n_slots : NO_MARK;
        return s->mark != NO_MARK;
    case 't':
        return make_marked_tuple(s);
    case 'R':
        return call_global(s);
    case 0x95:
        (void)take_argument(s, 8);
        return true;
    default:
        return false;
    }
}

static bool is_next(struct skim *s, uint8_t opcode)
{
    s->n_opcodes++;
    return s->at < s->stop && *s->at++ == opcode;
}

static bool skip_memoize(struct skim *s)
{
    return s->at < s->stop && *s->at == 0x94 ? s->at++, s->n_opcodes++, skip_memo(s) : true;
}

/* Reads the object up to BUILD. */
static bool read_object(struct skim *s)
{
    if (!is_next(s, ')') || !is_next(s, 0x81) || !skip_memoize(s) || !is_next(s, '}') ||
        !skip_memoize(s) || !is_next(s, '('))
        return false;
    for (;; s->n_opcodes++) {
        if (s->n_slots == MAX_SLOTS || s->stop - s->at < MAX_ARGUMENT)
            return false;
        const uint8_t opcode = *s->at++;
        if (opcode == 'u')
            break;
        if (!skim_opcode(s, opcode))
            return false;
    }
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].kind > RECORD_OTHER || (i % 2 == 0 && s->slots[i].kind != RECORD_TEXT))
            return false;
    }
    return s->mark == NO_MARK && s->n_slots % 2 == 0 && is_next(s, 'b');
}

/* Gives an object to the fold of the job. 1: *ret is its number; 0: it stays; an error that was
 * reported. */
static int ask_fold(struct pickle *p, struct pickle_record *record, uint32_t *ret)
{
    const int code = p->job->fold(p->job->fold_ctx, p->graph, record, ret);
    if (code == -E2BIG)
        return wfs_fail(p->err, E2BIG,
                        "the pickle describes more than the limits tensors, chunks and "
                        "index_memory allow");
    return code < 0 ? wfs_fail_memory(p->err) : code;
}

int fold_object(struct pickle *p, uint32_t id)
{
    cleanup(record_done) struct pickle_record record = {
        .graph = p->graph, .object = id, .n_most = p->job->limits->rank};
    uint32_t number;
    const int code = ask_fold(p, &record, &number);
    if (code < 0)
        return code;
    if (code > 0)
        *graph_at(p->graph, id) = (struct value){.kind = VALUE_RECORD, .id = number};
    room_end(&p->room, p->graph, id, code > 0);
    return 0;
}

int fold_ahead(struct pickle *p)
{
    struct skim s; /* its arrays are written before they are read */
    if (stream_fill(&p->input, MAX_OBJECT) < 0)
        return 0; /* the large machine reads on, and reports it */
    s.p = p;
    s.at = p->input.at;
    s.stop = p->input.stop;
    s.n_memo = s.n_slots = s.n_numbers = 0;
    s.n_opcodes = 0;
    s.mark = NO_MARK;
    if (!read_object(&s) || s.n_opcodes > p->job->budget->n_opcodes)
        return 0;
    struct pickle_record record = {.graph = p->graph,
                                   .callable = p->stack[p->n_stack - 1],
                                   .pairs = s.slots,
                                   .n_pairs = s.n_slots / 2};
    uint32_t number;
    const int code = ask_fold(p, &record, &number);
    if (code != 1)
        return code;
    const uint32_t id = value_new(p->graph, VALUE_RECORD);
    if (id == 0)
        return wfs_fail_memory(p->err);
    graph_at(p->graph, id)->id = number;
    p->stack[p->n_stack - 1] = id;
    p->input.at = s.at;
    p->room.n_memo += s.n_memo;
    p->job->budget->n_opcodes -= s.n_opcodes;
    return 0;
}
