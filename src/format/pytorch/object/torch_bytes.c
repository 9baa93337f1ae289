/* SPDX-License-Identifier: MIT */
/*
 * Byte strings of all protocols: old ones have no opcode for them and write a text, or a call that
 * encodes one.
 */
#include "format/pytorch/object/torch_bytes.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/derived.h"
#include "format/pytorch/object/torch_args.h"
#include "format/pytorch/object/torch_cache.h"
#include "format/pytorch/object/torch_global.h"

/* Decodes UTF-8 whose characters are all below 256 to these bytes. Returns -1 for other texts. */
static int64_t decode_latin1(const char *text, size_t n, uint8_t *buf)
{
    size_t n_buf = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)text[i];
        if (c < 0x80) {
            buf[n_buf++] = c;
        } else if ((c == 0xc2 || c == 0xc3) && i + 1 < n && ((uint8_t)text[i + 1] & 0xc0) == 0x80) {
            buf[n_buf++] = (uint8_t)(c << 6 | ((uint8_t)text[++i] & 0x3f));
        } else {
            return -1;
        }
    }
    return (int64_t)n_buf;
}

/* Decodes a text that stands for bytes: of Python 2 unchanged, of Python 3 by its characters. */
static int decode_text(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    const struct value *text = graph_at(torch->graph, id);
    struct source *derived = NULL;
    if (text->kind != VALUE_TEXT)
        return 0;
    autofree uint8_t *buf = malloc((size_t)text->n + 1);
    if (buf == NULL)
        return wfs_fail_memory(torch->err);
    int64_t n = text->n;
    if (text->form == FORM_BYTE_TEXT || text->form == FORM_BYTE_DATA)
        memcpy(buf, text->text, text->n);
    else
        n = decode_latin1(text->text, text->n, buf);
    if (n < 0)
        return 0;
    int code = torch_derived(torch, &derived);
    if (code < 0)
        return code;
    code = derived_add_memory(derived, steal(&buf), (size_t)n, &ret->offset);
    if (code < 0)
        return torch_fail_derived(torch->err, code);
    ret->source = derived;
    ret->n_bytes = (uint64_t)n;
    return 1;
}

/* Makes what the value stands for, once. */
static int make_once(struct torch *torch, uint32_t id, struct value_bytes *ret,
                     int (*make)(struct torch *torch, uint32_t id, struct value_bytes *ret))
{
    struct torch_cache_entry *entry = torch_cache_find(torch, id);
    if (entry != NULL) {
        *ret = entry->bytes;
        return entry->is_good;
    }
    const int code = make(torch, id, ret);
    if (code < 0)
        return code;
    if ((entry = torch_cache_add(torch, id)) == NULL)
        return wfs_fail_memory(torch->err);
    entry->is_good = code == 1;
    entry->bytes = *ret;
    return code;
}

/*
 * Decodes a text for a call. A long one is decoded once, however many calls take it. Python has one
 * object for equal texts of a character, and what is made of them is not the same.
 */
static int text_bytes(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    enum { LONG = 1024 };
    return graph_at(torch->graph, id)->n >= LONG ? make_once(torch, id, ret, decode_text)
                                                 : decode_text(torch, id, ret);
}

static bool is_latin1(const struct graph *graph, uint32_t id)
{
    return id == 0 || value_is_text(graph, id, "latin1") || value_is_text(graph, id, "latin-1") ||
           value_is_text(graph, id, "iso-8859-1");
}

static int bytes_of_call(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    const struct graph *graph = torch->graph;
    const struct value *call = graph_at(graph, id);
    const uint32_t first = torch_arg(graph, call->call.args, 0);
    const enum torch_what what = torch_what_of(graph, call);
    if ((what == WHAT_BYTES || what == WHAT_BYTEARRAY) && first == 0) {
        *ret = (struct value_bytes){torch->source, 0, 0};
        return 1;
    }
    if (first == 0 || !is_latin1(graph, torch_arg(graph, call->call.args, 1)))
        return 0;
    if (what == WHAT_ENCODE)
        return text_bytes(torch, first, ret);
    if (what != WHAT_BYTES && what != WHAT_BYTEARRAY)
        return 0;
    if (graph_at(graph, first)->kind == VALUE_TEXT)
        return text_bytes(torch, first, ret);
    /* bytearray(_codecs.encode(text, 'latin1')) is one level deeper; more levels are not
     * followed. */
    const struct value *inner = graph_at(graph, first);
    if (inner->kind == VALUE_CALL && torch_what_of(graph, inner) != WHAT_ENCODE)
        return 0;
    return torch_bytes_of(torch, first, ret);
}

int torch_bytes_of(struct torch *torch, uint32_t id, struct value_bytes *ret)
{
    if (id == 0)
        return 0;
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_BYTES) {
        *ret = *value->bytes;
        return 1;
    }
    if (value->kind == VALUE_TEXT)
        return make_once(torch, id, ret, decode_text);
    return value->kind == VALUE_CALL ? make_once(torch, id, ret, bytes_of_call) : 0;
}
