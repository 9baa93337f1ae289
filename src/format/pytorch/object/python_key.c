/* SPDX-License-Identifier: MIT */
/*
 * Keys of dicts as Python prints them, and byte strings, which old protocols write as a call that
 * encodes a text.
 */
#include "format/pytorch/object/python_key.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "format/pytorch/object/torch_args.h"
#include "value/value_leaf.h"

/* A tuple can be in a tuple many times over. */
enum { MAX_KEY_DEPTH = 2, MAX_KEY_ITEMS = 16, MAX_KEY_BYTES = 4096, MAX_BYTES = 1 << 20 };

static bool is_encode(const struct graph *graph, const struct value *call)
{
    if (call->kind != VALUE_CALL || call->call.callable == 0)
        return false;
    const struct value *callable = graph_at(graph, call->call.callable);
    return callable->kind == VALUE_GLOBAL && strcmp(callable->global->module, "_codecs") == 0 &&
           strcmp(callable->global->name, "encode") == 0;
}

/* Decodes the characters of a text that are all below 256; false when one is not. */
static bool decode(const struct value *text, uint8_t *bytes, size_t *ret_n)
{
    size_t n = 0;
    for (uint32_t i = 0; i < text->n; i++) {
        const uint8_t c = (uint8_t)text->text[i];
        if (c >= 0x80 && ((c != 0xc2 && c != 0xc3) || i + 1 == text->n))
            return false;
        bytes[n++] = c < 0x80 ? c : (uint8_t)(c << 6 | ((uint8_t)text->text[++i] & 0x3f));
    }
    *ret_n = n;
    return true;
}

/* Copies the bytes that _codecs.encode(text, 'latin1') makes. */
static int copy_encoded(const struct graph *graph, const struct value *call, uint8_t **ret,
                        size_t *ret_n)
{
    const uint32_t first = torch_arg(graph, call->call.args, 0);
    const uint32_t codec = torch_arg(graph, call->call.args, 1);
    const struct value *text = first == 0 ? NULL : graph_at(graph, first);
    if (text == NULL || text->kind != VALUE_TEXT || text->n > 2 * MAX_BYTES ||
        (!value_is_text(graph, codec, "latin1") && !value_is_text(graph, codec, "latin-1")))
        return 0;
    autofree uint8_t *bytes = malloc((size_t)text->n + 1);
    if (bytes == NULL)
        return -ENOMEM;
    if (!decode(text, bytes, ret_n))
        return 0;
    *ret = steal(&bytes);
    return 1;
}

int python_copy_bytes(const struct graph *graph, uint32_t id, uint8_t **ret, size_t *ret_n)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_BYTES)
        return value_copy_range(value->bytes, ret, ret_n);
    return is_encode(graph, value) ? copy_encoded(graph, value, ret, ret_n) : 0;
}

/* 'text' or b'bytes' as Python shows it, close enough to be distinct. */
static void add_quoted(struct strbuf *text, const char *bytes, size_t n, bool is_bytes)
{
    const char quote = memchr(bytes, '\'', n) != NULL && memchr(bytes, '"', n) == NULL ? '"' : '\'';
    strbuf_add(text, &quote, 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)bytes[i];
        if (c == (uint8_t)quote || c == '\\')
            strbuf_printf(text, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            strbuf_printf(text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && is_bytes))
            strbuf_printf(text, "\\x%02x", c);
        else
            strbuf_add(text, bytes + i, 1);
    }
    strbuf_add(text, &quote, 1);
}

/* Returns false when the bytes are too many for a key, without copying them. */
static bool has_short_bytes(const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_BYTES)
        return value->bytes->n_bytes <= MAX_KEY_BYTES;
    const uint32_t text = is_encode(graph, value) ? torch_arg(graph, value->call.args, 0) : 0;
    return text == 0 || graph_at(graph, text)->n <= 2 * MAX_KEY_BYTES;
}

static bool add_bytes(struct strbuf *text, const struct graph *graph, uint32_t id)
{
    uint8_t *bytes;
    size_t n;
    if (graph_at(graph, id)->form == FORM_BYTEARRAY)
        return false;
    const int code = has_short_bytes(graph, id) ? python_copy_bytes(graph, id, &bytes, &n) : 0;
    if (code == -ENOMEM)
        strbuf_fail(text);
    if (code <= 0)
        return code == -ENOMEM;
    const bool is_short = n <= MAX_KEY_BYTES;
    strbuf_add(text, "b", is_short ? 1 : 0);
    if (is_short)
        add_quoted(text, (const char *)bytes, n, true);
    free(bytes);
    return is_short;
}

static bool add_repr(struct strbuf *text, const struct graph *graph, uint32_t id, unsigned depth);

static bool add_tuple(struct strbuf *text, const struct graph *graph, const struct value *value,
                      unsigned depth)
{
    if (depth >= MAX_KEY_DEPTH || value->n > MAX_KEY_ITEMS)
        return false;
    strbuf_add(text, "(", 1);
    for (uint32_t i = 0; i < value->n; i++) {
        strbuf_add(text, ", ", i == 0 ? 0 : 2);
        if (!add_repr(text, graph, value_items(value)[i], depth + 1))
            return false;
    }
    strbuf_add(text, ",)", value->n == 1 ? 2 : 0);
    strbuf_add(text, ")", value->n == 1 ? 0 : 1);
    return true;
}

static bool add_repr(struct strbuf *text, const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    char number[VALUE_FLOAT_MAX];
    char *digits;
    switch (value->kind) {
    case VALUE_NONE:
        strbuf_add(text, "None", 4);
        return true;
    case VALUE_BOOL:
        strbuf_printf(text, "%s", value->integer != 0 ? "True" : "False");
        return true;
    case VALUE_INT:
    case VALUE_BIG:
        digits = value_print_integer(value);
        if (digits == NULL)
            strbuf_fail(text);
        else
            strbuf_add(text, digits, strlen(digits));
        free(digits);
        return true;
    case VALUE_FLOAT:
        strbuf_add(text, number, value_print_float(value->real, number));
        return true;
    case VALUE_TEXT:
        if (value->n > MAX_KEY_BYTES)
            return false;
        add_quoted(text, value->text, value->n, false);
        return true;
    case VALUE_BYTES:
    case VALUE_CALL:
        return add_bytes(text, graph, id);
    case VALUE_TUPLE:
        return add_tuple(text, graph, value, depth);
    default:
        return false;
    }
}

bool python_add_key(struct strbuf *text, const struct graph *graph, uint32_t id)
{
    return add_repr(text, graph, id, 0);
}

/* ---- digests ---- */

/* What is looked at of a key, so that shared parts of many keys cannot blow up. */
enum { MAX_DIGEST_DEPTH = 16, MAX_DIGEST_VALUES = 256 };

struct digest {
    const struct graph *graph;
    unsigned depth, n_left;
    uint64_t sum;
};

static void add_to_digest(struct digest *digest, const void *bytes, size_t n)
{
    digest->sum = hash_bytes(bytes, n < MAX_KEY_BYTES ? n : MAX_KEY_BYTES, digest->sum + n + 1);
}

/* Returns the list of a call frozenset([...]), which a set is in old protocols, or 0. */
static uint32_t items_of_set(const struct graph *graph, const struct value *value)
{
    const struct value *callable = value->kind != VALUE_CALL || value->call.callable == 0
                                       ? NULL
                                       : graph_at(graph, value->call.callable);
    return callable != NULL && callable->kind == VALUE_GLOBAL &&
                   strcmp(callable->global->name, "frozenset") == 0
               ? torch_arg(graph, value->call.args, 0)
               : 0;
}

/* Adds a number, a text, or bytes in any of their spellings. Returns false for all others. */
static bool add_leaf_to_digest(struct digest *digest, uint32_t id)
{
    const struct value *value = graph_at(digest->graph, id);
    uint8_t *bytes;
    size_t n;
    if (value->kind <= VALUE_FLOAT && value->kind != VALUE_BIG) {
        add_to_digest(digest, &value->integer, value->kind == VALUE_NONE ? 0 : 8);
    } else if (value->kind == VALUE_BIG || value->kind == VALUE_TEXT) {
        add_to_digest(digest, value->text, value->n);
    } else if (value->kind == VALUE_GLOBAL) {
        add_to_digest(digest, value->global->name, value->global->n_name);
    } else if (value->kind == VALUE_BYTES && value->bytes->n_bytes > MAX_KEY_BYTES) {
        add_to_digest(digest, &value->bytes->n_bytes, sizeof(value->bytes->n_bytes));
    } else if (!has_short_bytes(digest->graph, id)) {
        return false; /* the text that is encoded is looked at, without a copy */
    } else if (python_copy_bytes(digest->graph, id, &bytes, &n) == 1) {
        add_to_digest(digest, bytes, n);
        free(bytes);
    } else {
        return false;
    }
    return true;
}

static void digest_key(struct digest *digest, uint32_t id)
{
    const struct value *value = graph_at(digest->graph, id);
    const bool is_cut = digest->n_left == 0 || digest->depth == MAX_DIGEST_DEPTH ||
                        (value->marks & MARK_TENSOR) != 0 || value->kind == VALUE_PERSISTENT;
    uint32_t child;
    add_to_digest(digest, "", 0);
    if (is_cut)
        return;
    digest->n_left--;
    if (add_leaf_to_digest(digest, id))
        return;
    const uint32_t items = items_of_set(digest->graph, value);
    id = items != 0 ? items : id;
    digest->depth++;
    for (uint32_t i = 0; digest->n_left > 0 && (child = value_child(digest->graph, id, i)) != 0;
         i++)
        digest_key(digest, child);
    digest->depth--;
}

uint32_t python_key_digest(const struct graph *graph, uint32_t id)
{
    struct digest digest = {.graph = graph, .n_left = MAX_DIGEST_VALUES};
    digest_key(&digest, id);
    return (uint32_t)digest.sum;
}
