/* SPDX-License-Identifier: MIT */
/*
 * A smaller machine beside the large one: it knows the opcodes of which such objects are made,
 * works on what is in the window of the input, and makes no values. What it does not know it leaves
 * to the large one, which begins at the same place; so it has no errors of its own. An object that
 * begins inside of another one stops it, which bounds what is read twice.
 *
 *   class  ) NEWOBJ  [MEMOIZE]  } [MEMOIZE]  (  name value  name value ...  SETITEMS BUILD
 */
#include "pickle/pickle_skim.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "pickle/pickle_record.h"

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
static struct record_field *push(struct skim *s, enum record_kind kind)
{
    struct record_field *slot = &s->slots[s->n_slots++];
    slot->kind = kind;
    return slot;
}

static bool push_integer(struct skim *s, int64_t integer)
{
    push(s, RECORD_INTEGER)->integer = integer;
    return true;
}

static bool push_text(struct skim *s, const char *text, uint32_t n)
{
    struct record_field *slot = push(s, RECORD_TEXT);
    slot->text = text;
    slot->n = n;
    return true;
}

/* LONG1 of up to 8 bytes. */
static bool push_long(struct skim *s)
{
    const uint32_t n = *s->at++;
    uint64_t bits = 0;
    if (n == 0 || n > 8)
        return false;
    for (uint32_t i = n; i-- > 0;)
        bits = bits << 8 | s->at[i];
    const uint64_t sign = (uint64_t)1 << (8 * n - 1);
    s->at += n;
    return push_integer(s, (int64_t)((bits ^ sign) - sign));
}

static bool read_text(struct skim *s, uint32_t n)
{
    const char *text = (const char *)s->at;
    if (n > (size_t)(s->stop - s->at) || n > s->p->job->limits->text || utf8_valid(text, n) != n)
        return false;
    s->at += n;
    return push_text(s, text, n);
}

static bool push_memo(struct skim *s, uint32_t index)
{
    const uint32_t id = memo_get(&s->p->memo, index);
    const struct value *value = id == 0 ? NULL : graph_at(s->p->graph, id);
    if (value == NULL)
        return false;
    if (value->kind == VALUE_TEXT)
        return push_text(s, value->text, value->n);
    if (value->kind != VALUE_GLOBAL)
        return false;
    push(s, RECORD_OTHER)->callable = id;
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
    struct record_field *tuple = push(s, RECORD_NUMBERS);
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
static bool call(struct skim *s)
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

static bool memoize(struct skim *s)
{
    return !room_is_fetched(&s->p->room, s->p->room.n_memo + s->n_memo++);
}

/* Does what an opcode does; false: it is not one of those that are known here. */
static bool step(struct skim *s, uint8_t opcode)
{
    const uint8_t *at = s->at;
    switch (opcode) {
    case 0x94:
        return memoize(s);
    case 'h':
        s->at += 1;
        return push_memo(s, *at);
    case 'j':
        s->at += 4;
        return push_memo(s, load_le32(at));
    case 'K':
        s->at += 1;
        return push_integer(s, *at);
    case 'M':
        s->at += 2;
        return push_integer(s, load_le16(at));
    case 'J':
        s->at += 4;
        return push_integer(s, (int32_t)load_le32(at));
    case 0x8a:
        return push_long(s);
    case 0x8c:
        s->at += 1;
        return read_text(s, *at);
    case 'X':
        s->at += 4;
        return read_text(s, load_le32(at));
    case 'N':
        push(s, RECORD_NONE);
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
        return call(s);
    case 0x95:
        s->at += 8;
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
    return s->at < s->stop && *s->at == 0x94 ? s->at++, s->n_opcodes++, memoize(s) : true;
}

/* Reads the object up to BUILD. */
static bool read(struct skim *s)
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
        if (!step(s, opcode))
            return false;
    }
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].kind > RECORD_OTHER || (i % 2 == 0 && s->slots[i].kind != RECORD_TEXT))
            return false;
    }
    return s->mark == NO_MARK && s->n_slots % 2 == 0 && is_next(s, 'b');
}

int skim_object(struct pickle *p)
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
    if (!read(&s) || s.n_opcodes > p->job->budget->n_opcodes)
        return 0;
    struct pickle_record record = {.graph = p->graph,
                                   .callable = p->stack[p->n_stack - 1],
                                   .pairs = s.slots,
                                   .n_pairs = s.n_slots / 2};
    uint32_t number;
    const int code = vm_fold(p, &record, &number);
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
