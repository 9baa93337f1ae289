/* SPDX-License-Identifier: MIT */
/*
 * Objects of Python as JSON: those of the standard library that are plain data get a notation of
 * their own, all others show the name of their class with what they were made of.
 */
#include "format/pytorch/object/python_json.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/python_key.h"
#include "format/pytorch/object/python_scalar.h"
#include "format/pytorch/object/torch_args.h"
#include "value/value_json.h"

static void add(struct json_writer *writer, const char *text)
{
    strbuf_add(&writer->text, text, strlen(text));
}

/* The class that a persistent id of old names, or the value itself. */
static uint32_t class_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_PERSISTENT)
        return id;
    const uint32_t first = torch_arg(graph, value->id, 0), second = torch_arg(graph, value->id, 1);
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
    autostrbuf struct strbuf full = {0};
    const char *module = module_of(global), *name = present_name(global);
    strbuf_add(&full, module, module == global->module ? global->n_module : strlen(module));
    strbuf_add(&full, ".", 1);
    strbuf_add(&full, name, name == global->name ? global->n_name : strlen(name));
    if (full.is_cut)
        strbuf_fail(&writer->text);
    else
        strbuf_json_bytes(&writer->text, full.bytes, full.n_bytes);
}

static bool is_global(const struct graph *graph, uint32_t id, const char *module, const char *name)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    return value != NULL && value->kind == VALUE_GLOBAL && strcmp(value->global->name, name) == 0 &&
           strcmp(module_of(value->global), module) == 0;
}

/* bytes(), bytearray(b'..') and what stands for bytes in old protocols. */
static bool write_encoded(struct json_writer *writer, uint32_t id, const char *name)
{
    uint8_t *bytes;
    size_t n;
    const int code = python_copy_bytes(writer->graph, id, &bytes, &n);
    if (code < 0)
        json_writer_fail(writer, code);
    if (code <= 0)
        return code < 0;
    json_write_memory(writer, name, bytes, n);
    free(bytes);
    return true;
}

static bool write_builtin(struct json_writer *writer, const struct value *call)
{
    const struct graph *graph = writer->graph;
    const uint32_t callable = call->call.callable, first = torch_arg(graph, call->call.args, 0);
    if (call->n != 0)
        return false;
    if (first == 0 && (is_global(graph, callable, "builtins", "bytes") ||
                       is_global(graph, callable, "builtins", "bytearray"))) {
        strbuf_printf(&writer->text, "{\"$%s\": \"\"}", graph_at(graph, callable)->global->name);
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
        kwargs = torch_arg(graph, args, 1);
        args = torch_arg(graph, args, 0);
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
        strbuf_printf(&writer->text, "\"extension %lld\"",
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
                            torch_arg(graph, call->call.args, 0) == 0;
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

static void write_object(struct json_writer *writer, uint32_t id)
{
    const struct value *value = graph_at(writer->graph, id);
    if (value->kind == VALUE_CALL) {
        if (!write_encoded(writer, id, "$bytes") && !python_write_scalar(writer, id))
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

/* An OrderedDict is shown as the dict in it. */
static const struct value *dict_of(const struct graph *graph, const struct value *call)
{
    static const struct value empty = {.kind = VALUE_DICT};
    if (call->call.callable == 0)
        return NULL;
    const struct value *callable = graph_at(graph, call->call.callable);
    const uint32_t items = value_part(graph, call, PART_ITEMS);
    if (callable->kind != VALUE_GLOBAL || strcmp(callable->global->name, "OrderedDict") != 0)
        return NULL;
    return items == 0 ? &empty : graph_at(graph, items);
}

const struct value_notation python_notation = {python_add_key, write_object, dict_of};
