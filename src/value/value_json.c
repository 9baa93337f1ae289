/* SPDX-License-Identifier: MIT */
/*
 * Plain values as JSON: numbers, text, lists, dicts. What JSON has no word for becomes an object
 * with one key that begins with "$"; a key of the file that begins so gets one more "$".
 */
#include "value/value_json.h"

#include <weightfs/array.h>
#include <weightfs/error.h>
#include <weightfs/json_out.h>
#include "value/value.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_MAX (UINT64_C(1) << 40)

enum {
    MAX_DEPTH = 256,
    MIN_TEXT = 1 << 20,
    MAX_TEXT = 64 << 20,
    MAX_INLINE = 16,
    SPARE_VALUES = 1024
};

/* ---- plain data ---- */

static void put_number(struct json_out *out, const struct value *value)
{
    char text[VALUE_FLOAT_MAX];
    if (value->kind == VALUE_FLOAT) {
        value_print_float(value->real, text);
        json_out_raw(out, NULL, isfinite(value->real) ? text : "null");
        return;
    }
    autofree char *digits = value_print_integer(value);
    if (digits == NULL)
        strbuf_fail(out->text);
    json_out_raw(out, NULL, digits == NULL ? "" : digits);
}

static void put_leaf(struct json_out *out, const struct value *value)
{
    if (value->kind == VALUE_BOOL)
        json_out_bool(out, NULL, value->integer != 0);
    else if (value->kind == VALUE_TEXT)
        json_out_text_n(out, NULL, value->text, value->n);
    else if (value->kind >= VALUE_INT && value->kind <= VALUE_FLOAT)
        put_number(out, value);
    else
        json_out_raw(out, NULL, "null");
}

void value_put_json(struct json_out *out, const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    const bool is_dict = value->kind == VALUE_DICT;
    if (!value_has_items(value)) {
        put_leaf(out, value);
        return;
    }
    json_out_open(out, NULL, is_dict ? '{' : '[', JSON_AUTO);
    for (uint32_t i = 0; i < value->n; i++) {
        const struct value *item = graph_at(graph, value_items(value)[i]);
        if (is_dict && i % 2 == 0)
            json_out_name(out, item->text, item->n);
        else
            value_put_json(out, graph, value_items(value)[i]);
    }
    json_out_close(out);
}

/* ---- all values ---- */

void json_writer_init(struct json_writer *writer, const struct graph *graph)
{
    /* Text that is used many times over must not make much more than there is. */
    const uint64_t n_max = MIN_TEXT + 8 * (graph->arena == NULL ? 0 : graph->arena->n_bytes);
    *writer = (struct json_writer){
        .graph = graph,
        /* What is nested deeper is not for people, and its spaces would be longer than the rest. */
        .out = {.text = &writer->text, .n_indent_max = 32, .is_part = true},
        .text.n_max = n_max < MAX_TEXT ? (size_t)n_max : MAX_TEXT,
        .n_left = 2 * (uint64_t)graph->n_values + SPARE_VALUES,
    };
}

void json_writer_done(struct json_writer *writer)
{
    strbuf_done(&writer->text);
}

void json_writer_fail(struct json_writer *writer, int code)
{
    if (code == -ENOMEM)
        strbuf_fail(&writer->text);
    else if (writer->error == 0)
        writer->error = code;
}

/* ---- leaves ---- */

void json_write_row(struct json_writer *writer, const char *name)
{
    json_out_open(&writer->out, NULL, '{', JSON_ROW);
    json_out_name(&writer->out, name, strlen(name));
}

/* An object of one text, which begins with "$". */
static void write_note(struct json_writer *writer, const char *name, const char *text)
{
    json_write_row(writer, name);
    json_out_text(&writer->out, NULL, text);
    json_out_close(&writer->out);
}

void json_write_memory(struct json_writer *writer, const char *name, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json_write_row(writer, name);
    json_out_raw(&writer->out, NULL, "\"");
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t bits = (uint32_t)bytes[i] << 16 | (i + 1 < n ? bytes[i + 1] << 8 : 0) |
                              (i + 2 < n ? bytes[i + 2] : 0);
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              i + 1 < n ? digits[bits >> 6 & 63] : '=',
                              i + 2 < n ? digits[bits & 63] : '='};
        strbuf_add(&writer->text, four, sizeof(four));
    }
    strbuf_puts(&writer->text, "\"");
    json_out_close(&writer->out);
}

/* In base64; of a range over a MiB, its length. */
static void write_bytes(struct json_writer *writer, const struct value *value)
{
    const char *name = value->form == FORM_BYTEARRAY ? "$bytearray" : "$bytes";
    autofree uint8_t *copy = NULL;
    size_t n;
    const int code = value_copy_range(value->bytes, &copy, &n);
    if (code < 0) {
        json_writer_fail(writer, code);
    } else if (code == 0) {
        json_write_row(writer, name);
        json_out_raw(&writer->out, NULL, "null");
        json_out_u64(&writer->out, "$length", value->bytes->n_bytes);
        json_out_close(&writer->out);
    } else {
        json_write_memory(writer, name, copy, n);
    }
}

void json_write_real(struct json_writer *writer, double real)
{
    char text[VALUE_FLOAT_MAX];
    value_print_float(real, text);
    if (isfinite(real))
        json_out_raw(&writer->out, NULL, text);
    else
        write_note(writer, "$float", text);
}

static void write_leaf(struct json_writer *writer, const struct value *value)
{
    if (value->kind == VALUE_BYTES)
        write_bytes(writer, value);
    else if (value->kind == VALUE_FLOAT)
        json_write_real(writer, value->real);
    else if (value->kind == VALUE_TEXT && !value_is_unicode(value))
        json_write_memory(writer, "$bytes", (const uint8_t *)value->text, value->n);
    else
        put_leaf(&writer->out, value);
}

/* ---- containers ---- */

/* Short lists of scalars stay on one line. */
static bool is_inline(const struct graph *graph, const struct value *value)
{
    for (uint32_t i = 0; i < value->n && value->n <= MAX_INLINE; i++)
        if (graph_at(graph, value_items(value)[i])->kind > VALUE_TEXT)
            return false;
    return value->n <= MAX_INLINE;
}

static void write_items(struct json_writer *writer, const struct value *value)
{
    json_out_open(&writer->out, NULL, '[', is_inline(writer->graph, value) ? JSON_ROW : JSON_LINES);
    for (uint32_t i = 0; i < value->n && !writer->text.is_cut; i++)
        json_write(writer, value_items(value)[i]);
    json_out_close(&writer->out);
}

/* Keys that are all text, or none of which is, cannot come out the same. */
static bool has_json_keys(const struct graph *graph, const struct value *dict)
{
    autostrbuf struct strbuf key = {0};
    bool is_good = true;
    const bool is_first_text =
        dict->n > 0 && graph_at(graph, value_items(dict)[0])->kind == VALUE_TEXT;
    for (uint32_t i = 0; i < dict->n && is_good; i += 2) {
        const uint32_t id = value_items(dict)[i];
        const bool is_key_text = graph_at(graph, id)->kind == VALUE_TEXT;
        key.n_bytes = 0;
        is_good =
            is_key_text == is_first_text &&
            (is_key_text ? value_is_unicode(graph_at(graph, id)) : value_add_key(&key, graph, id));
    }
    return is_good;
}

static void write_key(struct json_writer *writer, uint32_t id)
{
    autostrbuf struct strbuf key = {0};
    const struct value *value = graph_at(writer->graph, id);
    if (value->kind == VALUE_TEXT && value->n > 0 && value->text[0] == '$')
        strbuf_add(&key, "$", 1);
    if (!value_add_key(&key, writer->graph, id) || key.is_cut)
        strbuf_fail(&writer->text);
    json_out_name(&writer->out, key.bytes, key.n_bytes);
}

static void write_pairs(struct json_writer *writer, const struct value *dict)
{
    json_write_row(writer, "$dict");
    json_out_open(&writer->out, NULL, '[', JSON_LINES);
    for (uint32_t i = 0; i < dict->n && !writer->text.is_cut; i += 2) {
        json_out_open(&writer->out, NULL, '[', JSON_ROW);
        json_write(writer, value_items(dict)[i]);
        json_write(writer, value_items(dict)[i + 1]);
        json_out_close(&writer->out);
    }
    json_out_close(&writer->out);
    json_out_close(&writer->out);
}

static void write_dict(struct json_writer *writer, const struct value *dict)
{
    if (!has_json_keys(writer->graph, dict)) {
        write_pairs(writer, dict);
        return;
    }
    json_out_open(&writer->out, NULL, '{', JSON_LINES);
    for (uint32_t i = 0; i < dict->n && !writer->text.is_cut; i += 2) {
        write_key(writer, value_items(dict)[i]);
        json_write(writer, value_items(dict)[i + 1]);
    }
    json_out_close(&writer->out);
}

/* How many levels up the value is open; 0: it is not. */
static unsigned levels_up(const struct json_writer *writer, unsigned n_open, uint32_t id)
{
    for (unsigned i = n_open; i-- > 0;)
        if (writer->open[i] == id)
            return n_open - i;
    return 0;
}

static void write_object(struct json_writer *writer, uint32_t id)
{
    const bool may_be_tensor = (graph_at(writer->graph, id)->marks & MARK_TENSOR) != 0;
    const char *key =
        may_be_tensor && writer->tensor_key != NULL ? writer->tensor_key(writer, id) : NULL;
    if (key != NULL)
        write_note(writer, "$tensor", key);
    else if (writer->graph->notation != NULL)
        writer->graph->notation->write_object(writer, id);
    else
        json_out_raw(&writer->out, NULL, "null");
}

static void write_container(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    switch (value->kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        write_items(writer, value);
        break;
    case VALUE_SET:
        json_write_row(writer, value->form == FORM_FROZEN ? "$frozenset" : "$set");
        write_items(writer, value);
        json_out_close(&writer->out);
        break;
    case VALUE_DICT:
        write_dict(writer, value);
        break;
    default:
        write_object(writer, id);
    }
}

void json_write(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    if (writer->n_left == 0 || (value->marks & MARK_CUT) != 0) {
        write_note(writer, "$cut", "used many times over");
        return;
    }
    writer->n_left--;
    if (value->kind <= VALUE_BYTES) {
        write_leaf(writer, value);
        return;
    }
    const unsigned n_up = levels_up(writer, writer->n_open, id);
    if (n_up > 0) {
        json_write_row(writer, "$cycle");
        json_out_u64(&writer->out, NULL, n_up);
        json_out_close(&writer->out);
    } else if (writer->n_open >= MAX_DEPTH) {
        write_note(writer, "$cut", "nested too deeply");
    } else {
        writer->open[writer->n_open++] = id;
        write_container(writer, id);
        writer->n_open--;
    }
}

/*
 * ---- how long values are as text: a walk over the graph, each value once, with a stack of its
 * own. A value that is in itself has the largest weight: what its text is depends on where it
 * begins.
 */

enum { N_SMALLEST = 16 };

#define OPEN UINT64_MAX

struct weighing_step {
    uint32_t id, next;
    uint64_t sum;
};

/* Without what is in it. */
static uint64_t own_weight(const struct value *value)
{
    if (value->kind == VALUE_TEXT || value->kind == VALUE_BIG)
        return N_SMALLEST + (uint64_t)value->n;
    if (value->kind == VALUE_GLOBAL)
        return N_SMALLEST + (uint64_t)value->global->n_module + value->global->n_name;
    if (value->kind == VALUE_BYTES && value->bytes->n_bytes <= VALUE_COPIED_MAX)
        return N_SMALLEST + value->bytes->n_bytes * 4 / 3;
    return N_SMALLEST;
}

static uint64_t sum_weights(uint64_t a, uint64_t b)
{
    return a + b < WEIGHT_MAX ? a + b : WEIGHT_MAX;
}

static int enter(struct weighing *weighing, uint32_t id)
{
    if (array_reserve(&weighing->steps, sizeof(*weighing->steps), weighing->n_steps, 1,
                      &weighing->n_step_room) < 0)
        return -ENOMEM;
    weighing->weights[id] = OPEN;
    weighing->steps[weighing->n_steps++] =
        (struct weighing_step){id, 0, own_weight(graph_at(weighing->graph, id))};
    return 0;
}

static int walk(struct weighing *weighing)
{
    uint64_t *weights = weighing->weights;
    while (weighing->n_steps > 0) {
        struct weighing_step *step = &weighing->steps[weighing->n_steps - 1];
        const uint32_t child = value_child(weighing->graph, step->id, step->next);
        if (child == 0) {
            weights[step->id] = step->sum;
            weighing->n_steps--;
        } else if (weights[child] == 0) {
            if (enter(weighing, child) < 0)
                return -ENOMEM;
        } else {
            step->sum =
                sum_weights(step->sum, weights[child] == OPEN ? WEIGHT_MAX : weights[child]);
            step->next++;
        }
    }
    return 0;
}

int value_weigh(struct weighing *weighing, uint32_t id, uint64_t *ret)
{
    if (weighing->weights == NULL)
        weighing->weights =
            calloc((size_t)weighing->graph->n_values + 1, sizeof(*weighing->weights));
    if (weighing->weights == NULL)
        return -ENOMEM;
    if (weighing->weights[id] == 0 && (enter(weighing, id) < 0 || walk(weighing) < 0))
        return -ENOMEM;
    *ret = weighing->weights[id];
    return 0;
}

void weighing_done(struct weighing *weighing)
{
    free(weighing->weights);
    free(weighing->steps);
    *weighing = (struct weighing){0};
}
