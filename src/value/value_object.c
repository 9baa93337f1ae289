/* SPDX-License-Identifier: MIT */
/*
 * Objects as JSON: those of the standard library that are plain data get their own notation, all
 * others show the name of their class with what they were made of.
 */
#include <weightfs/cleanup.h>

#include <stdlib.h>
#include <string.h>

#include "value/value_json.h"

static void add(struct json_writer *writer, const char *text)
{
    text_add(&writer->text, text, strlen(text));
}

static void add_base64(struct json_writer *writer, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t bits = (uint32_t)bytes[i] << 16 | (i + 1 < n ? bytes[i + 1] << 8 : 0) |
                              (i + 2 < n ? bytes[i + 2] : 0);
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              i + 1 < n ? digits[bits >> 6 & 63] : '=',
                              i + 2 < n ? digits[bits & 63] : '='};
        text_add(&writer->text, four, sizeof(four));
    }
}

void json_write_memory(struct json_writer *writer, const char *name, const uint8_t *bytes,
                       size_t n_bytes)
{
    text_print(&writer->text, "{\"%s\": \"", name);
    add_base64(writer, bytes, n_bytes);
    add(writer, "\"}");
}

static uint32_t arg(const struct graph *graph, uint32_t args, uint32_t i)
{
    const struct value *value = args == 0 ? NULL : graph_at(graph, args);
    const bool is_sequence =
        value != NULL && (value->kind == VALUE_TUPLE || value->kind == VALUE_LIST);
    return is_sequence && i < value->n ? value_items(value)[i] : 0;
}

/* The class that a persistent id of old names, or the value itself. */
static uint32_t class_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_PERSISTENT)
        return id;
    const uint32_t first = arg(graph, value->id, 0), second = arg(graph, value->id, 1);
    const uint32_t class = value_is_text(graph, first, "module") ? second : first;
    return class != 0 && graph_at(graph, class)->kind == VALUE_GLOBAL ? class : id;
}

static const char *module_of(const struct value_global *global)
{
    return strcmp(global->module, "__builtin__") == 0 ? "builtins" : global->module;
}

/* Names of Python 2, which protocols below 3 keep using. */
static const char *present_name(const struct value_global *global)
{
    static const char *const names[][2] = {
        {"xrange", "range"}, {"unicode", "str"}, {"long", "int"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(global->module, "__builtin__") == 0 && strcmp(global->name, names[i][0]) == 0)
            return names[i][1];
    return global->name;
}

static void write_name(struct json_writer *writer, const struct value_global *global)
{
    cleanup(text_done) struct text full = {0};
    const char *module = module_of(global), *name = present_name(global);
    text_add(&full, module, module == global->module ? global->n_module : strlen(module));
    text_add(&full, ".", 1);
    text_add(&full, name, name == global->name ? global->n_name : strlen(name));
    if (full.is_cut)
        writer->text.is_cut = writer->text.has_failed = true;
    else
        json_write_string(writer, full.bytes, full.n);
}

static bool is_global(const struct graph *graph, uint32_t id, const char *module, const char *name)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    return value != NULL && value->kind == VALUE_GLOBAL && strcmp(value->global->name, name) == 0 &&
           strcmp(module_of(value->global), module) == 0;
}

void json_write_bytes(struct json_writer *writer, const char *name, const struct value_bytes *bytes)
{
    uint8_t *copy;
    size_t n;
    if (!value_copy_range(bytes, &copy, &n)) {
        text_print(&writer->text, "{\"%s\": null, \"$length\": %llu}", name,
                   (unsigned long long)bytes->n_bytes);
        return;
    }
    json_write_memory(writer, name, copy, n);
    free(copy);
}

/* bytes(), bytearray(b'..') and what stands for bytes in old protocols. */
static bool write_encoded(struct json_writer *writer, uint32_t id, const char *name)
{
    uint8_t *bytes;
    size_t n;
    if (!value_copy_bytes(writer->graph, id, &bytes, &n))
        return false;
    json_write_memory(writer, name, bytes, n);
    free(bytes);
    return true;
}

static bool write_builtin(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t callable = call->call.callable, first = arg(graph, call->call.args, 0);
    if (call->n != 0)
        return false;
    if (first == 0 && (is_global(graph, callable, "builtins", "bytes") ||
                       is_global(graph, callable, "builtins", "bytearray"))) {
        text_print(&writer->text, "{\"$%s\": \"\"}", graph_at(graph, callable)->global->name);
        return true;
    }
    if (first == 0)
        return false;
    if (is_global(graph, callable, "builtins", "bytearray"))
        return write_encoded(writer, first, "$bytearray");
    const bool is_set = is_global(graph, callable, "builtins", "set");
    if (is_set || is_global(graph, callable, "builtins", "frozenset")) {
        add(writer, is_set ? "{\"$set\": " : "{\"$frozenset\": ");
        json_write(writer, first);
        add(writer, "}");
        return true;
    }
    if (is_global(graph, callable, "builtins", "complex")) {
        add(writer, "{\"$complex\": ");
        json_write(writer, call->call.args);
        add(writer, "}");
        return true;
    }
    const struct value *name = graph_at(graph, callable);
    if (name->kind == VALUE_GLOBAL && strcmp(name->global->module, "torch.jit._pickle") == 0) {
        json_write(writer, first);
        return true;
    }
    return false;
}

/* Positions of the tensors in the catalog, by the value that they came from. */
static int by_value(const void *a, const void *b, void *ctx)
{
    const struct wfs_tensor *tensors = ctx;
    const uint32_t x = tensors[*(const uint32_t *)a].value, y = tensors[*(const uint32_t *)b].value;
    return (x > y) - (x < y);
}

static void sort_tensors(struct json_writer *writer)
{
    const struct wfs_catalog *catalog = writer->catalog;
    writer->tensors = calloc(catalog->n_tensors + 1, sizeof(*writer->tensors));
    if (writer->tensors == NULL) {
        writer->text.is_cut = writer->text.has_failed = true;
        return;
    }
    for (size_t i = 0; i < catalog->n_tensors; i++)
        writer->tensors[i] = (uint32_t)i;
    writer->n_tensors = catalog->n_tensors;
    qsort_r(writer->tensors, writer->n_tensors, sizeof(*writer->tensors), by_value,
            catalog->tensors);
}

/* {"$tensor": "key"} for what is listed as a tensor. */
static bool write_tensor(struct json_writer *writer, uint32_t id)
{
    if (writer->tensors == NULL)
        sort_tensors(writer);
    size_t low = 0, high = writer->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (writer->catalog->tensors[writer->tensors[middle]].value < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == writer->n_tensors)
        return false;
    const struct wfs_tensor *tensor = &writer->catalog->tensors[writer->tensors[low]];
    if (tensor->value != id)
        return false;
    add(writer, "{\"$tensor\": ");
    json_write_string(writer, tensor->key, strlen(tensor->key));
    add(writer, "}");
    return true;
}

static void write_member(struct json_writer *writer, const char *name, uint32_t id)
{
    json_write_member(writer, false, name);
    json_write(writer, id);
}

static void write_args(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    uint32_t args = call->call.args, kwargs = 0;
    if (call->form == FORM_EXTENSION)
        return;
    if (call->form == FORM_NEWOBJ_EX) {
        kwargs = arg(graph, args, 1);
        args = arg(graph, args, 0);
    }
    if (args != 0 && !(value_has_items(graph_at(graph, args)) && graph_at(graph, args)->n == 0))
        write_member(writer, "args", args);
    if (kwargs != 0)
        write_member(writer, "kwargs", kwargs);
}

static void write_parts(struct json_writer *writer, const struct value *call)
{
    const uint32_t states = value_part(writer->graph, call, PART_STATES);
    const uint32_t items = value_part(writer->graph, call, PART_ITEMS);
    const uint32_t elements = value_part(writer->graph, call, PART_ELEMENTS);
    if (items != 0)
        write_member(writer, "items", items);
    if (elements != 0)
        write_member(writer, "elements", elements);
    if (states != 0 && graph_at(writer->graph, states)->n == 1)
        write_member(writer, "state", value_items(graph_at(writer->graph, states))[0]);
    else if (states != 0)
        write_member(writer, "states", states);
}

/* What is called: a name where it is one. */
static void write_callable(struct json_writer *writer, const struct value *call)
{
    const uint32_t id = call->call.callable == 0 ? 0 : class_of(writer->graph, call->call.callable);
    if (call->form == FORM_EXTENSION)
        text_print(&writer->text, "\"extension %lld\"",
                   (long long)graph_at(writer->graph, call->call.args)->integer);
    else if (graph_at(writer->graph, id)->kind == VALUE_GLOBAL)
        write_name(writer, graph_at(writer->graph, id)->global);
    else
        json_write(writer, id);
}

static void write_call(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    const bool is_ordered = is_global(graph, call->call.callable, "collections", "OrderedDict") &&
                            arg(graph, call->call.args, 0) == 0;
    if (is_ordered && value_part(graph, call, PART_STATES) == 0 &&
        value_part(graph, call, PART_ELEMENTS) == 0) {
        if (items == 0)
            add(writer, "{}");
        else
            json_write(writer, items);
        return;
    }
    if (write_builtin(writer, call))
        return;
    add(writer, "{");
    writer->depth++;
    json_write_member(writer, true, "$python");
    write_callable(writer, call);
    write_args(writer, call);
    write_parts(writer, call);
    writer->depth--;
    json_write_line(writer);
    add(writer, "}");
}

void json_write_object(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    if ((value->marks & MARK_TENSOR) != 0 && write_tensor(writer, id))
        return;
    if (value->kind == VALUE_CALL) {
        if (!write_encoded(writer, id, "$bytes") && !json_write_numpy(writer, id))
            write_call(writer, value);
        return;
    }
    const uint32_t class = class_of(writer->graph, id);
    if (graph_at(writer->graph, class)->kind == VALUE_GLOBAL) {
        add(writer, "{\"$python\": ");
        write_name(writer, graph_at(writer->graph, class)->global);
        add(writer, "}");
    } else if (value->kind == VALUE_PERSISTENT) {
        add(writer, "{\"$persistent\": ");
        json_write(writer, value->id);
        add(writer, "}");
    } else {
        add(writer, "null");
    }
}
