/* SPDX-License-Identifier: MIT */
/*
 * The walk of the pickle writer, with a stack of its own: one pass counts how often each value is
 * used, one writes. Lists, dicts and sets are created before their items and can contain
 * themselves; tuples and calls follow their items, as in Python.
 */
#include "pickle/pickle_output.h"

#include <weightfs/array.h>
#include "base/bytes.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

enum {
    PROTOCOL = 2,
    N_LEVELS_MARKED = 1000, /* above them, a single item is added without a mark */
};

#define EMITTED UINT32_C(0x80000000)
#define N_BYTES_MAX (UINT64_C(1) << 30)

/* Writes a PUT or GET of the memo. */
static void put_slot(struct pickle_writer *writer, uint32_t number, uint8_t small, uint8_t large)
{
    uint8_t bytes[5] = {number < 256 ? small : large};
    store_le32(bytes + 1, number);
    pickle_put(&writer->out, bytes, number < 256 ? 2 : 5);
}

static bool is_in_memo(const struct pickle_writer *writer, uint32_t id)
{
    return (writer->memo[id] & EMITTED) != 0;
}

static void put_fetch(struct pickle_writer *writer, uint32_t id)
{
    put_slot(writer, (writer->memo[id] & ~EMITTED) - 1, 'h', 'j');
}

/* Notes that a value has an entry in the tables. */
static void note_touched(struct pickle_writer *writer, uint32_t id)
{
    if (array_reserve(&writer->touched, sizeof(*writer->touched), writer->n_touched, 1,
                      &writer->n_touched_room) < 0)
        pickle_fail_memory(&writer->out);
    else
        writer->touched[writer->n_touched++] = id;
}

static void give_number(struct pickle_writer *writer, uint32_t id)
{
    note_touched(writer, id);
    writer->memo[id] = ++writer->n_memo;
}

static void put_in_memo(struct pickle_writer *writer, uint32_t id)
{
    if (writer->memo[id] == 0)
        give_number(writer, id);
    put_slot(writer, writer->memo[id] - 1, 'q', 'r');
    writer->memo[id] |= EMITTED;
}

/* Returns whether the value gets a slot of the memo: numbers are shorter than a GET. */
static bool is_kept(const struct pickle_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    if (writer->memo[id] != 0)
        return true;
    return writer->n_uses[id] > 1 && value->kind != VALUE_NONE && value->kind != VALUE_BOOL &&
           value->kind != VALUE_INT && value->kind != VALUE_FLOAT &&
           !(value->kind == VALUE_TUPLE && value->n == 0);
}

static void keep_if_used(struct pickle_writer *writer, uint32_t id)
{
    if (is_kept(writer, id))
        put_in_memo(writer, id);
}

void pickle_put_shared(struct pickle_writer *writer, uint32_t id)
{
    if (is_in_memo(writer, id))
        put_fetch(writer, id);
    else if (pickle_put_leaf(&writer->out, writer->graph, graph_at(writer->graph, id)))
        put_in_memo(writer, id);
}

static void open_mark(struct pickle_writer *writer)
{
    pickle_put_code(&writer->out, '(');
    if (++writer->n_marks > writer->n_marks_max)
        writer->n_marks_max = writer->n_marks;
}

/* Writes the opcode that takes all above the last mark. */
static void close_mark(struct pickle_writer *writer, uint8_t opcode)
{
    pickle_put_code(&writer->out, opcode);
    writer->n_marks--;
}

static void push_frame(struct pickle_writer *writer, uint32_t id)
{
    if (array_reserve(&writer->frames, sizeof(*writer->frames), writer->n_frames, 1,
                      &writer->n_frame_room) < 0)
        pickle_fail_memory(&writer->out);
    else
        writer->frames[writer->n_frames++] = (struct pickle_frame){.id = id};
}

static bool is_special(const struct pickle_writer *writer, uint32_t id)
{
    return writer->is_special != NULL && writer->is_special(writer->ctx, id);
}

static void count_uses(struct pickle_writer *writer, uint32_t root)
{
    push_frame(writer, root);
    note_touched(writer, root);
    writer->n_uses[root] = 1;
    while (writer->out.code == 0 && writer->n_frames > 0) {
        struct pickle_frame *frame = &writer->frames[writer->n_frames - 1];
        const uint32_t child =
            is_special(writer, frame->id) ? 0 : value_child(writer->graph, frame->id, frame->next);
        if (child == 0) {
            writer->n_frames--;
            continue;
        }
        frame->next++;
        if (writer->n_uses[child] >= 2 || ++writer->n_uses[child] == 2)
            continue;
        note_touched(writer, child);
        push_frame(writer, child);
    }
}

/* Writes a value, or begins to. */
static void write_value(struct pickle_writer *writer, uint32_t id)
{
    if (is_in_memo(writer, id)) {
        put_fetch(writer, id);
        return;
    }
    if (is_special(writer, id)) {
        const int code = writer->put_special(writer, id);
        writer->out.code = writer->out.code == 0 ? code : writer->out.code;
    } else if (!pickle_put_leaf(&writer->out, writer->graph, graph_at(writer->graph, id))) {
        push_frame(writer, id);
        return;
    }
    keep_if_used(writer, id);
}

/* The opcodes of a container that can grow: an empty one, what adds all above a mark, and what adds
 * one item; 0: none does. */
struct container_codes {
    uint8_t empty, add, add_one;
};

static const struct container_codes list_codes = {']', 'e', 'a'}, dict_codes = {'}', 'u', 's'},
                                    set_codes = {0x8f, 0x90, 0}, pairs_codes = {']', 'e', 0};

static const struct container_codes *codes_of(const struct value *value)
{
    if (value->kind == VALUE_DICT)
        return value->form == FORM_PAIRS ? &pairs_codes : &dict_codes;
    return value->kind == VALUE_LIST ? &list_codes : &set_codes;
}

/* Returns whether the items are added above a mark. Deeply nested ones must not need a mark for
 * each level: readers bound them. */
static bool needs_mark(const struct pickle_writer *writer, const struct container_codes *codes,
                       uint32_t n)
{
    return codes->add_one == 0 || n != (codes->add_one == 's' ? 2u : 1u) ||
           writer->n_frames <= N_LEVELS_MARKED;
}

/* Writes what adds the n items that have been written. */
static void add_items(struct pickle_writer *writer, const struct container_codes *codes, uint32_t n)
{
    if (needs_mark(writer, codes, n))
        close_mark(writer, codes->add);
    else
        pickle_put_code(&writer->out, codes->add_one);
}

/* Writes the next part of a list, dict or set that can grow. */
static void step_container(struct pickle_writer *writer, struct pickle_frame *frame,
                           const struct value *value)
{
    const struct container_codes *codes = codes_of(value);
    const bool is_pairs = value->kind == VALUE_DICT && value->form == FORM_PAIRS;
    const uint32_t i = frame->next++;
    writer->out.is_late = writer->out.is_late || value->kind == VALUE_SET;
    if (i == 0) {
        pickle_put_code(&writer->out, codes->empty);
        keep_if_used(writer, frame->id);
        if (value->n > 0 && needs_mark(writer, codes, value->n))
            open_mark(writer);
    }
    if (is_pairs && i % 2 == 0 && i > 0)
        close_mark(writer, 'e');
    if (is_pairs && i % 2 == 0 && i < value->n) {
        pickle_put_code(&writer->out, ']');
        open_mark(writer);
    }
    if (i < value->n) {
        write_value(writer, value_items(value)[i]);
        return;
    }
    if (value->n > 0)
        add_items(writer, codes, value->n);
    writer->n_frames--;
}

/*
 * A tuple or call whose items contain it: it is in the memo already when its n items (or all above
 * a mark) are on the stack. They are dropped, and the one in the memo is fetched.
 */
static bool has_met_itself(struct pickle_writer *writer, uint32_t id, uint32_t n, bool is_marked)
{
    if (!is_in_memo(writer, id))
        return false;
    for (uint32_t i = 0; i < n && !is_marked; i++)
        pickle_put_code(&writer->out, '0');
    if (is_marked)
        close_mark(writer, '1');
    writer->out.is_late = true;
    put_fetch(writer, id);
    writer->n_frames--;
    return true;
}

static void step_tuple(struct pickle_writer *writer, struct pickle_frame *frame,
                       const struct value *value)
{
    const bool is_frozen = value->kind == VALUE_SET, is_marked = is_frozen || value->n > 3;
    const uint32_t i = frame->next++;
    if (i == 0 && is_marked)
        open_mark(writer);
    if (i < value->n) {
        write_value(writer, value_items(value)[i]);
        return;
    }
    if (has_met_itself(writer, frame->id, value->n, is_marked))
        return;
    if (is_marked)
        close_mark(writer, is_frozen ? 0x91 : 't');
    else
        pickle_put_code(&writer->out, (uint8_t)(0x84 + value->n));
    writer->out.is_late = writer->out.is_late || is_frozen;
    keep_if_used(writer, frame->id);
    writer->n_frames--;
}

static void step_persistent(struct pickle_writer *writer, struct pickle_frame *frame,
                            const struct value *value)
{
    if (frame->next++ == 0) {
        write_value(writer, value->id);
        return;
    }
    pickle_put_code(&writer->out, 'Q');
    keep_if_used(writer, frame->id);
    writer->n_frames--;
}

/* Returns the i-th operand of a call: the function, then its arguments as a tuple, or one by one
 * where the opcode takes them so. */
static uint32_t call_child(const struct graph *graph, const struct value *call, uint32_t i)
{
    if (i == 0)
        return call->call.callable;
    if (call->form == FORM_INST || call->form == FORM_NEWOBJ_EX)
        return value_child(graph, call->call.args, i - 1);
    return i == 1 ? call->call.args : 0;
}

static uint32_t n_children(const struct graph *graph, const struct value *call)
{
    if (call->form == FORM_INST || call->form == FORM_NEWOBJ_EX)
        return 1 + graph_at(graph, call->call.args)->n;
    return 2;
}

/* Writes the opcode that makes the object, unless the object is in the memo already. */
static void close_call(struct pickle_writer *writer, uint32_t id, const struct value *call,
                       uint32_t n)
{
    static const uint8_t opcodes[] = {
        [FORM_REDUCE] = 'R', [FORM_NEWOBJ] = 0x81, [FORM_NEWOBJ_EX] = 0x92, [FORM_INST] = 'o'};
    if (has_met_itself(writer, id, n, call->form == FORM_INST))
        return;
    if (call->form == FORM_INST)
        close_mark(writer, opcodes[call->form]);
    else
        pickle_put_code(&writer->out, opcodes[call->form]);
    writer->out.is_late = writer->out.is_late || call->form == FORM_NEWOBJ_EX;
    keep_if_used(writer, id);
}

/* Writes the i-th step of adding all items of a container at once. Returns false when the steps are
 * done, with their number subtracted from *i. */
static bool step_added(struct pickle_writer *writer, uint32_t container, uint32_t *i,
                       const struct container_codes *codes)
{
    const struct value *value = container == 0 ? NULL : graph_at(writer->graph, container);
    if (value == NULL || value->n == 0)
        return false;
    if (*i > value->n) {
        *i -= value->n + 1;
        return false;
    }
    if (*i == 0 && needs_mark(writer, codes, value->n))
        open_mark(writer);
    if (*i < value->n)
        write_value(writer, value_items(value)[*i]);
    else
        add_items(writer, codes, value->n);
    return true;
}

static void step_states(struct pickle_writer *writer, uint32_t states, uint32_t i)
{
    if (states == 0 || i / 2 >= graph_at(writer->graph, states)->n)
        writer->n_frames--;
    else if (i % 2 == 0)
        write_value(writer, value_items(graph_at(writer->graph, states))[i / 2]);
    else
        pickle_put_code(&writer->out, 'b');
}

static void step_call(struct pickle_writer *writer, struct pickle_frame *frame,
                      const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t n = n_children(graph, call);
    uint32_t i = frame->next++;
    if (i == 0 && call->form == FORM_INST)
        open_mark(writer);
    if (i < n) {
        write_value(writer, call_child(graph, call, i));
        return;
    }
    if (i == n) {
        close_call(writer, frame->id, call, n);
        return;
    }
    i -= n + 1;
    if (!step_added(writer, value_part(graph, call, PART_ELEMENTS), &i, &list_codes) &&
        !step_added(writer, value_part(graph, call, PART_ITEMS), &i, &dict_codes))
        step_states(writer, value_part(graph, call, PART_STATES), i);
}

static void step_frame(struct pickle_writer *writer)
{
    struct pickle_frame *frame = &writer->frames[writer->n_frames - 1];
    const struct value *value = graph_at(writer->graph, frame->id);
    const bool is_frozen = value->kind == VALUE_SET && value->form == FORM_FROZEN;
    if (value->kind == VALUE_TUPLE || is_frozen)
        step_tuple(writer, frame, value);
    else if (value_has_items(value))
        step_container(writer, frame, value);
    else if (value->kind == VALUE_PERSISTENT)
        step_persistent(writer, frame, value);
    else
        step_call(writer, frame, value);
}

static void write_all(struct pickle_writer *writer, uint32_t root)
{
    static const uint8_t start[] = {0x80, PROTOCOL};
    struct pickle_output *out = &writer->out;
    pickle_put(out, start, sizeof(start));
    if (out->code < 0)
        return;
    writer->version = out->block - 1;
    write_value(writer, root);
    while (out->code == 0 && writer->n_frames > 0) {
        if (out->n_bytes > N_BYTES_MAX || writer->n_frames > writer->graph->n_values + 64)
            out->code = wfs_fail(out->err, E2BIG,
                                 "the values contain each other in a way that no pickle can hold");
        else
            step_frame(writer);
    }
    pickle_put_code(out, '.');
    if (out->is_late && writer->graph->protocol > PROTOCOL && out->code == 0)
        *writer->version = writer->graph->protocol;
}

/* Refuses to write what the reader would refuse. */
static int check_marks(const struct pickle_writer *writer)
{
    struct limits limits;
    limits_init(&limits);
    const uint64_t n_max =
        writer->graph->n_marks > limits.marks ? writer->graph->n_marks : limits.marks;
    if (writer->n_marks_max < n_max)
        return 0;
    return wfs_fail(writer->out.err, E2BIG,
                    "the values are nested so deeply that the pickle would have %s, which is above "
                    "the limit of %llu (limit marks)",
                    wfs_count(writer->n_marks_max, "open mark").text, (unsigned long long)n_max);
}

int pickle_write(struct pickle_writer *writer, uint32_t root, const uint32_t *first,
                 uint32_t n_first)
{
    const size_t n = (size_t)writer->graph->n_values + 1;
    if (writer->memo == NULL)
        writer->memo = calloc(n, sizeof(*writer->memo));
    if (writer->n_uses == NULL)
        writer->n_uses = calloc(n, sizeof(*writer->n_uses));
    if (writer->memo == NULL || writer->n_uses == NULL)
        return wfs_fail_memory(writer->out.err);
    for (uint32_t i = 0; i < n_first; i++)
        give_number(writer, first[i]);
    count_uses(writer, root);
    if (writer->out.code == 0)
        write_all(writer, root);
    return writer->out.code < 0 ? writer->out.code : check_marks(writer);
}

void pickle_writer_clear(struct pickle_writer *writer)
{
    for (size_t i = 0; i < writer->n_touched; i++) {
        writer->memo[writer->touched[i]] = 0;
        writer->n_uses[writer->touched[i]] = 0;
    }
    writer->n_touched = 0;
    writer->n_memo = writer->n_marks = writer->n_marks_max = writer->n_frames = 0;
    pickle_output_done(&writer->out);
    writer->out = (struct pickle_output){.arena = writer->out.arena, .err = writer->out.err};
}

void pickle_writer_done(struct pickle_writer *writer)
{
    const int saved = errno;
    pickle_output_done(&writer->out);
    free(writer->touched);
    free(writer->memo);
    free(writer->n_uses);
    free(writer->frames);
    *writer = (struct pickle_writer){0};
    errno = saved;
}
