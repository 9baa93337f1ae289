/* SPDX-License-Identifier: MIT */
/*
 * Plain values as JSON: numbers, text, lists, dicts. What JSON has no word for becomes an object
 * with one key that begins with "$"; a key of the file that begins so gets one more "$".
 */
#include "value/value_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum {
    MAX_DEPTH = 256,
    MIN_TEXT = 1 << 20,
    MAX_TEXT = 64 << 20,
    MAX_INLINE = 16,
    SPARE_VALUES = 1024
};

void json_writer_init(struct json_writer *writer, const struct wfs_catalog *catalog)
{
    /* Text that is used many times over must not make much more than there is. */
    const uint64_t n_max = MIN_TEXT + 8 * catalog->arena.n_bytes;
    *writer = (struct json_writer){
        .catalog = catalog,
        .graph = &catalog->graph,
        .text.n_max = n_max < MAX_TEXT ? (size_t)n_max : MAX_TEXT,
        .n_left = 2 * (uint64_t)catalog->graph.n_values + SPARE_VALUES,
    };
}

void json_writer_done(struct json_writer *writer)
{
    text_done(&writer->text);
    free(writer->tensors);
}

static void add(struct json_writer *writer, const char *text)
{
    text_add(&writer->text, text, strlen(text));
}

void json_write_line(struct json_writer *writer)
{
    static const char indent[] = "\n                                ";
    /* What is nested deeper is not for people, and its spaces would be longer than the rest. */
    const size_t n = 1 + 2 * (size_t)writer->depth;
    text_add(&writer->text, indent, n < sizeof(indent) - 1 ? n : sizeof(indent) - 1);
}

void json_write_member(struct json_writer *writer, bool is_first, const char *key)
{
    if (!is_first)
        add(writer, ",");
    json_write_line(writer);
    if (key != NULL) {
        json_write_string(writer, key, strlen(key));
        add(writer, ": ");
    }
}

static bool is_surrogate(const uint8_t *bytes, size_t n)
{
    return n >= 3 && bytes[0] == 0xed && bytes[1] >= 0xa0 && bytes[1] <= 0xbf &&
           (bytes[2] & 0xc0) == 0x80;
}

/* One character of ASCII. */
static void add_ascii(struct json_writer *writer, char c)
{
    static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const char *letter = c == '\0' ? NULL : strchr(letters, c);
    if (letter != NULL)
        text_print(&writer->text, "\\%c", escapes[letter - letters]);
    else if ((uint8_t)c < 0x20 || c == 0x7f)
        text_print(&writer->text, "\\u%04x", (uint8_t)c);
    else
        text_add(&writer->text, &c, 1);
}

void json_write_string(struct json_writer *writer, const char *text, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)text;
    add(writer, "\"");
    for (size_t i = 0; i < n;) {
        if (bytes[i] < 0x80) {
            add_ascii(writer, text[i++]);
            continue;
        }
        size_t n_good = 2;
        while (n_good <= 4 && (n_good > n - i || utf8_valid(bytes + i, n_good) != n_good))
            n_good++;
        if (n_good <= 4) {
            text_add(&writer->text, text + i, n_good);
            i += n_good;
        } else if (is_surrogate(bytes + i, n - i)) {
            text_print(&writer->text, "\\ud%x%02x", (bytes[i + 1] & 0x3f) >> 2,
                       (bytes[i + 1] & 3) << 6 | (bytes[i + 2] & 0x3f));
            i += 3;
        } else {
            text_print(&writer->text, "\\u%04x", bytes[i++]);
        }
    }
    add(writer, "\"");
}

/* Python text is UTF-8 but for surrogates; a str of Python 2 may be anything. */
static bool is_text(const struct value *value)
{
    const uint8_t *bytes = (const uint8_t *)value->text;
    for (size_t i = 0; i < value->n;) {
        i += utf8_valid(bytes + i, value->n - i);
        if (i == value->n)
            break;
        if (!is_surrogate(bytes + i, value->n - i))
            return false;
        i += 3;
    }
    return true;
}

static void write_text(struct json_writer *writer, const struct value *value)
{
    if (is_text(value))
        json_write_string(writer, value->text, value->n);
    else
        json_write_memory(writer, "$bytes", (const uint8_t *)value->text, value->n);
}

static void write_number(struct json_writer *writer, const struct value *value)
{
    char text[VALUE_FLOAT_MAX];
    if (value->kind != VALUE_FLOAT) {
        char *digits = value_print_integer(value);
        if (digits == NULL)
            writer->text.is_cut = writer->text.has_failed = true;
        else
            add(writer, digits);
        free(digits);
        return;
    }
    value_print_float(value->real, text);
    if (isfinite(value->real))
        add(writer, text);
    else
        text_print(&writer->text, "{\"$float\": \"%s\"}", text);
}

static bool is_scalar(const struct graph *graph, uint32_t id)
{
    return graph_at(graph, id)->kind <= VALUE_TEXT;
}

/* Short lists of scalars stay on one line. */
static bool is_inline(const struct graph *graph, const struct value *value)
{
    for (uint32_t i = 0; i < value->n && value->n <= MAX_INLINE; i++)
        if (!is_scalar(graph, value_items(value)[i]))
            return false;
    return value->n <= MAX_INLINE;
}

static void write_items(struct json_writer *writer, const struct value *value)
{
    const bool is_short = is_inline(writer->graph, value);
    add(writer, "[");
    writer->depth++;
    for (uint32_t i = 0; i < value->n && !writer->text.is_cut; i++) {
        if (is_short)
            add(writer, i == 0 ? "" : ", ");
        else
            json_write_member(writer, i == 0, NULL);
        json_write(writer, value_items(value)[i]);
    }
    writer->depth--;
    if (!is_short)
        json_write_line(writer);
    add(writer, "]");
}

/* Keys that are all text, or none of which is, cannot come out the same. */
static bool has_json_keys(const struct graph *graph, const struct value *dict)
{
    struct text key = {0};
    bool is_good = true;
    const bool is_first_text =
        dict->n > 0 && graph_at(graph, value_items(dict)[0])->kind == VALUE_TEXT;
    for (uint32_t i = 0; i < dict->n && is_good; i += 2) {
        const uint32_t id = value_items(dict)[i];
        const bool is_key_text = graph_at(graph, id)->kind == VALUE_TEXT;
        key.n = 0;
        is_good = is_key_text == is_first_text &&
                  (is_key_text ? is_text(graph_at(graph, id)) : text_add_key(&key, graph, id));
    }
    text_done(&key);
    return is_good;
}

static void write_key(struct json_writer *writer, uint32_t id)
{
    struct text key = {0};
    const struct value *value = graph_at(writer->graph, id);
    if (value->kind == VALUE_TEXT && value->n > 0 && value->text[0] == '$')
        text_add(&key, "$", 1);
    if (!text_add_key(&key, writer->graph, id) || key.is_cut)
        writer->text.is_cut = writer->text.has_failed = true;
    else
        json_write_string(writer, key.bytes == NULL ? "" : key.bytes, key.n);
    add(writer, ": ");
    text_done(&key);
}

static void write_pairs(struct json_writer *writer, const struct value *dict)
{
    add(writer, "{\"$dict\": [");
    writer->depth++;
    for (uint32_t i = 0; i < dict->n && !writer->text.is_cut; i += 2) {
        json_write_member(writer, i == 0, NULL);
        add(writer, "[");
        json_write(writer, value_items(dict)[i]);
        add(writer, ", ");
        json_write(writer, value_items(dict)[i + 1]);
        add(writer, "]");
    }
    writer->depth--;
    json_write_line(writer);
    add(writer, "]}");
}

static void write_dict(struct json_writer *writer, const struct value *dict)
{
    if (dict->n == 0) {
        add(writer, "{}");
        return;
    }
    if (!has_json_keys(writer->graph, dict)) {
        write_pairs(writer, dict);
        return;
    }
    add(writer, "{");
    writer->depth++;
    for (uint32_t i = 0; i < dict->n && !writer->text.is_cut; i += 2) {
        json_write_member(writer, i == 0, NULL);
        write_key(writer, value_items(dict)[i]);
        json_write(writer, value_items(dict)[i + 1]);
    }
    writer->depth--;
    json_write_line(writer);
    add(writer, "}");
}

/* How many levels up the value is open; 0: it is not. */
static unsigned levels_up(const struct json_writer *writer, unsigned n_open, uint32_t id)
{
    for (unsigned i = n_open; i-- > 0;)
        if (writer->open[i] == id)
            return n_open - i;
    return 0;
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
        add(writer, value->form == FORM_FROZEN ? "{\"$frozenset\": " : "{\"$set\": ");
        write_items(writer, value);
        add(writer, "}");
        break;
    case VALUE_DICT:
        write_dict(writer, value);
        break;
    default:
        json_write_object(writer, id);
    }
}

void json_write(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    const unsigned n_open = writer->n_open;
    if (writer->n_left == 0) {
        add(writer, "{\"$cut\": \"used many times over\"}");
        return;
    }
    writer->n_left--;
    switch (value->kind) {
    case VALUE_NONE:
        add(writer, "null");
        return;
    case VALUE_BOOL:
        add(writer, value->integer != 0 ? "true" : "false");
        return;
    case VALUE_INT:
    case VALUE_BIG:
    case VALUE_FLOAT:
        write_number(writer, value);
        return;
    case VALUE_TEXT:
        write_text(writer, value);
        return;
    case VALUE_BYTES:
        json_write_bytes(writer, value->form == FORM_BYTEARRAY ? "$bytearray" : "$bytes",
                         value->bytes);
        return;
    default:
        break;
    }
    const unsigned n_up = levels_up(writer, n_open, id);
    if (n_up > 0) {
        text_print(&writer->text, "{\"$cycle\": %u}", n_up);
    } else if (n_open >= MAX_DEPTH) {
        add(writer, "{\"$cut\": \"nested too deeply\"}");
    } else {
        writer->open[writer->n_open++] = id;
        write_container(writer, id);
        writer->n_open = n_open;
    }
}
