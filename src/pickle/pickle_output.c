/* SPDX-License-Identifier: MIT */
/*
 * Bytes are appended to blocks of the arena; a contiguous run in one block is a piece.
 */
#include "pickle/pickle_output.h"

#include <weightfs/array.h>
#include <weightfs/strbuf.h>
#include "base/bytes.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N_BLOCK = 65536, N_COPIED = 4096 };

void pickle_fail_memory(struct pickle_output *output)
{
    if (output->code == 0)
        output->code = wfs_fail_memory(output->err);
}

/* Returns a zeroed piece at the end; NULL when out of memory. */
static struct pickle_piece *add_piece(struct pickle_output *output)
{
    if (array_reserve(&output->pieces, sizeof(*output->pieces), output->n_pieces, 1,
                      &output->n_piece_room) < 0) {
        pickle_fail_memory(output);
        return NULL;
    }
    struct pickle_piece *piece = &output->pieces[output->n_pieces++];
    *piece = (struct pickle_piece){0};
    return piece;
}

/* Makes room for n_bytes (at most a block) at the end. NULL when out of memory. */
static uint8_t *make_room(struct pickle_output *output, size_t n_bytes)
{
    if (n_bytes > output->n_left) {
        output->block = arena_alloc(output->arena, N_BLOCK);
        output->n_left = output->block == NULL ? 0 : N_BLOCK;
    }
    if (output->block == NULL) {
        pickle_fail_memory(output);
        return NULL;
    }
    const struct pickle_piece *last =
        output->n_pieces == 0 ? NULL : &output->pieces[output->n_pieces - 1];
    if (last == NULL || last->bytes == NULL || last->bytes + last->n_bytes != output->block) {
        struct pickle_piece *piece = add_piece(output);
        if (piece == NULL)
            return NULL;
        piece->bytes = output->block;
    }
    uint8_t *at = output->block;
    output->block += n_bytes;
    output->n_left -= n_bytes;
    output->pieces[output->n_pieces - 1].n_bytes += n_bytes;
    output->n_bytes += n_bytes;
    return at;
}

void pickle_put(struct pickle_output *output, const void *bytes, size_t n_bytes)
{
    while (n_bytes > 0 && output->code == 0) {
        const size_t n = n_bytes < N_BLOCK ? n_bytes : N_BLOCK;
        uint8_t *at = make_room(output, n);
        if (at == NULL)
            return;
        memcpy(at, bytes, n);
        bytes = (const char *)bytes + n;
        n_bytes -= n;
    }
}

/* Puts bytes of a source: a copy of a few, a range for many. */
static void put_range(struct pickle_output *output, const struct value_bytes *bytes)
{
    if (bytes->n_bytes > N_COPIED) {
        struct pickle_piece *piece = add_piece(output);
        if (piece != NULL)
            *piece = (struct pickle_piece){NULL, bytes->source, bytes->offset, bytes->n_bytes};
        return;
    }
    uint8_t *at = bytes->n_bytes == 0 ? NULL : make_room(output, (size_t)bytes->n_bytes);
    const int code =
        at == NULL ? 0 : source_read(bytes->source, bytes->offset, at, (size_t)bytes->n_bytes);
    if (code < 0)
        output->code =
            wfs_fail(output->err, -code, "cannot read %s of a value in %s",
                     wfs_count(bytes->n_bytes, "byte").text, wfs_quote(bytes->source->path).text);
}

void pickle_put_code(struct pickle_output *output, uint8_t opcode)
{
    pickle_put(output, &opcode, 1);
}

void pickle_put_length(struct pickle_output *output, uint8_t opcode, uint64_t n, size_t n_length)
{
    uint8_t bytes[9] = {opcode};
    store_le64(bytes + 1, n);
    pickle_put(output, bytes, 1 + n_length);
}

void pickle_output_done(struct pickle_output *output)
{
    const int saved = errno;
    free(output->pieces);
    output->pieces = NULL;
    errno = saved;
}

void pickle_put_text(struct pickle_output *output, const char *text, size_t n_bytes)
{
    pickle_put_length(output, 'X', n_bytes, 4);
    pickle_put(output, text, n_bytes);
}

static void put_long(struct pickle_output *output, const void *twos, size_t n)
{
    if (n < 256)
        pickle_put_length(output, 0x8a, n, 1);
    else
        pickle_put_length(output, 0x8b, n, 4);
    pickle_put(output, twos, n);
}

void pickle_put_integer(struct pickle_output *output, int64_t integer)
{
    uint8_t twos[8];
    size_t n = sizeof(twos);
    store_le64(twos, (uint64_t)integer);
    if (integer >= 0 && integer < 256) {
        pickle_put_length(output, 'K', (uint64_t)integer, 1);
        return;
    }
    if (integer >= 0 && integer < 65536) {
        pickle_put_length(output, 'M', (uint64_t)integer, 2);
        return;
    }
    if (integer >= INT32_MIN && integer <= INT32_MAX) {
        pickle_put_length(output, 'J', (uint64_t)integer, 4);
        return;
    }
    while (n > 1 && ((twos[n - 1] == 0 && twos[n - 2] < 0x80) ||
                     (twos[n - 1] == 0xff && twos[n - 2] >= 0x80)))
        n--;
    put_long(output, twos, n);
}

static void put_float(struct pickle_output *output, double real)
{
    uint64_t bits;
    uint8_t bytes[9] = {'G'};
    memcpy(&bits, &real, sizeof(bits));
    store_le64(bytes + 1, __builtin_bswap64(bits));
    pickle_put(output, bytes, sizeof(bytes));
}

/* Writes a str of Python 2. PyTorch reads a short one as UTF-8; one that is not UTF-8 becomes the
 * text that the encoding latin1 makes of it. */
static void put_byte_text(struct pickle_output *output, const struct value *value)
{
    autostrbuf struct strbuf text = {0};
    if (value_is_latin1(value)) {
        value_add_latin1(&text, value);
        pickle_put_text(output, text.bytes, text.n_bytes);
    } else if (value->n < 256) {
        pickle_put_length(output, 'U', value->n, 1);
        pickle_put(output, value->text, value->n);
    } else {
        pickle_put_text(output, value->text, value->n);
    }
    if (text.is_cut)
        pickle_fail_memory(output);
}

static void put_bytes(struct pickle_output *output, const struct value *value)
{
    const uint64_t n = value->bytes->n_bytes;
    output->is_late = true;
    if (value->form == FORM_BYTEARRAY)
        pickle_put_length(output, 0x96, n, 8);
    else if (n < 256)
        pickle_put_length(output, 'C', n, 1);
    else if (n <= UINT32_MAX)
        pickle_put_length(output, 'B', n, 4);
    else
        pickle_put_length(output, 0x8e, n, 8);
    put_range(output, value->bytes);
}

/* Returns whether Python 2 and 3 use the same name for the module. Python 3 translates other
 * names in protocols up to 2. */
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

static void put_global(struct pickle_output *output, const struct value_global *global)
{
    const bool has_line = memchr(global->module, '\n', global->n_module) != NULL ||
                          memchr(global->name, '\n', global->n_name) != NULL;
    /* Only protocol 4 reads a name with dots as a path of attributes. */
    const bool is_path = memchr(global->name, '.', global->n_name) != NULL;
    output->is_late = output->is_late || has_line || is_path || !is_plain_module(global);
    if (has_line) {
        pickle_put_text(output, global->module, global->n_module);
        pickle_put_text(output, global->name, global->n_name);
        pickle_put_code(output, 0x93);
        return;
    }
    pickle_put_code(output, 'c');
    pickle_put(output, global->module, global->n_module);
    pickle_put_code(output, '\n');
    pickle_put(output, global->name, global->n_name);
    pickle_put_code(output, '\n');
}

/* Writes an object of an extension registry, by its number. */
static void put_extension(struct pickle_output *output, int64_t number)
{
    if (number >= 0 && number < 256)
        pickle_put_length(output, 0x82, (uint64_t)number, 1);
    else if (number >= 0 && number < 65536)
        pickle_put_length(output, 0x83, (uint64_t)number, 2);
    else
        pickle_put_length(output, 0x84, (uint64_t)number, 4);
}

static void put_plain(struct pickle_output *output, const struct value *value)
{
    if (value->kind == VALUE_NONE)
        pickle_put_code(output, 'N');
    else if (value->kind == VALUE_BOOL)
        pickle_put_code(output, value->integer != 0 ? 0x88 : 0x89);
    else if (value->kind == VALUE_INT)
        pickle_put_integer(output, value->integer);
    else if (value->kind == VALUE_BIG)
        put_long(output, value->text, value->n);
    else if (value->kind == VALUE_FLOAT)
        put_float(output, value->real);
    else if (value->kind == VALUE_TUPLE)
        pickle_put_code(output, ')');
    else if (value->form == FORM_BYTE_TEXT || value->form == FORM_BYTE_DATA)
        put_byte_text(output, value);
    else
        pickle_put_text(output, value->text, value->n);
}

bool pickle_put_leaf(struct pickle_output *output, const struct graph *graph,
                     const struct value *value)
{
    if (value->kind <= VALUE_TEXT || (value->kind == VALUE_TUPLE && value->n == 0))
        put_plain(output, value);
    else if (value->kind == VALUE_BYTES)
        put_bytes(output, value);
    else if (value->kind == VALUE_GLOBAL)
        put_global(output, value->global);
    else if (value->kind == VALUE_CALL && value->form == FORM_EXTENSION)
        put_extension(output, graph_at(graph, value->call.args)->integer);
    else
        return false;
    return true;
}
