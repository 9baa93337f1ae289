/* SPDX-License-Identifier: MIT */
/*
 * Opcodes for numbers, texts, bytes and names, as Python's pickler chooses them.
 */
#include "pickle/pickle_writer.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

static void put_code(struct pickle_writer *writer, uint8_t opcode)
{
    pickle_put(writer, &opcode, 1);
}

/* An opcode with a length of 1, 4 or 8 bytes behind it. */
static void put_length(struct pickle_writer *writer, uint8_t opcode, uint64_t n, size_t n_length)
{
    uint8_t bytes[9] = {opcode};
    store_le64(bytes + 1, n);
    pickle_put(writer, bytes, 1 + n_length);
}

void pickle_put_text(struct pickle_writer *writer, const char *text, size_t n_bytes)
{
    put_length(writer, 'X', n_bytes, 4);
    pickle_put(writer, text, n_bytes);
}

static void put_long(struct pickle_writer *writer, const void *twos, size_t n)
{
    if (n < 256)
        put_length(writer, 0x8a, n, 1);
    else
        put_length(writer, 0x8b, n, 4);
    pickle_put(writer, twos, n);
}

void pickle_put_integer(struct pickle_writer *writer, int64_t integer)
{
    uint8_t twos[8];
    size_t n = sizeof(twos);
    store_le64(twos, (uint64_t)integer);
    if (integer >= 0 && integer < 256) {
        put_length(writer, 'K', (uint64_t)integer, 1);
        return;
    }
    if (integer >= 0 && integer < 65536) {
        put_length(writer, 'M', (uint64_t)integer, 2);
        return;
    }
    if (integer >= INT32_MIN && integer <= INT32_MAX) {
        put_length(writer, 'J', (uint64_t)integer, 4);
        return;
    }
    while (n > 1 && ((twos[n - 1] == 0 && twos[n - 2] < 0x80) ||
                     (twos[n - 1] == 0xff && twos[n - 2] >= 0x80)))
        n--;
    put_long(writer, twos, n);
}

static void put_float(struct pickle_writer *writer, double real)
{
    uint64_t bits;
    uint8_t bytes[9] = {'G'};
    memcpy(&bits, &real, sizeof(bits));
    store_le64(bytes + 1, __builtin_bswap64(bits));
    pickle_put(writer, bytes, sizeof(bytes));
}

/* A str of Python 2. */
static void put_byte_text(struct pickle_writer *writer, const struct value *value)
{
    if (value->n < 256)
        put_length(writer, 'U', value->n, 1);
    else
        put_length(writer, 'T', value->n, 4);
    pickle_put(writer, value->text, value->n);
}

static int put_bytes(struct pickle_writer *writer, const struct value *value)
{
    const uint64_t n = value->bytes->n_bytes;
    writer->is_late = true;
    if (value->form == FORM_BYTEARRAY)
        put_length(writer, 0x96, n, 8);
    else if (n < 256)
        put_length(writer, 'C', n, 1);
    else if (n <= UINT32_MAX)
        put_length(writer, 'B', n, 4);
    else
        put_length(writer, 0x8e, n, 8);
    return pickle_put_range(writer, value->bytes);
}

/* Modules whose names are the same in both Pythons; others only mean what they say in the protocol
 * that they came from. */
static bool is_plain_module(const struct value_global *global)
{
    static const char *const modules[] = {"torch",       "collections", "builtins",
                                          "__builtin__", "_codecs",     "numpy"};
    for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++) {
        const size_t n = strlen(modules[i]);
        if (strncmp(global->module, modules[i], n) == 0 &&
            (global->module[n] == '\0' || global->module[n] == '.'))
            return true;
    }
    return false;
}

static void put_global(struct pickle_writer *writer, const struct value_global *global)
{
    const bool has_line = memchr(global->module, '\n', global->n_module) != NULL ||
                          memchr(global->name, '\n', global->n_name) != NULL;
    /* A name with dots is a path of attributes, in protocol 4 alone. */
    const bool is_path = memchr(global->name, '.', global->n_name) != NULL;
    writer->is_late = writer->is_late || has_line || is_path || !is_plain_module(global);
    if (has_line) {
        pickle_put_text(writer, global->module, global->n_module);
        pickle_put_text(writer, global->name, global->n_name);
        put_code(writer, 0x93);
        return;
    }
    put_code(writer, 'c');
    pickle_put(writer, global->module, global->n_module);
    put_code(writer, '\n');
    pickle_put(writer, global->name, global->n_name);
    put_code(writer, '\n');
}

/* An object of an extension registry, by its number. */
static void put_extension(struct pickle_writer *writer, int64_t number)
{
    if (number >= 0 && number < 256)
        put_length(writer, 0x82, (uint64_t)number, 1);
    else if (number >= 0 && number < 65536)
        put_length(writer, 0x83, (uint64_t)number, 2);
    else
        put_length(writer, 0x84, (uint64_t)number, 4);
}

static void put_plain(struct pickle_writer *writer, const struct value *value)
{
    if (value->kind == VALUE_NONE)
        put_code(writer, 'N');
    else if (value->kind == VALUE_BOOL)
        put_code(writer, value->integer != 0 ? 0x88 : 0x89);
    else if (value->kind == VALUE_INT)
        pickle_put_integer(writer, value->integer);
    else if (value->kind == VALUE_BIG)
        put_long(writer, value->text, value->n);
    else if (value->kind == VALUE_FLOAT)
        put_float(writer, value->real);
    else if (value->kind == VALUE_TUPLE)
        put_code(writer, ')');
    else if (value->form == FORM_BYTE_TEXT)
        put_byte_text(writer, value);
    else
        pickle_put_text(writer, value->text, value->n);
}

bool pickle_put_leaf(struct pickle_writer *writer, const struct value *value, int *ret_code)
{
    *ret_code = 0;
    if (value->kind <= VALUE_TEXT || (value->kind == VALUE_TUPLE && value->n == 0)) {
        put_plain(writer, value);
    } else if (value->kind == VALUE_BYTES) {
        *ret_code = put_bytes(writer, value);
    } else if (value->kind == VALUE_GLOBAL) {
        put_global(writer, value->global);
    } else if (value->kind == VALUE_CALL && value->form == FORM_EXTENSION) {
        put_extension(writer, graph_at(writer->graph, value->call.args)->integer);
    } else {
        return false;
    }
    return true;
}
