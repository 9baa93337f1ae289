/* SPDX-License-Identifier: MIT */
/*
 * Names are decoded by undoing the escapes and accepted when encoding the result gives the same
 * name again, so there is one rule, in one place.
 */
#include "tree/node/key.h"

#include <weightfs/array.h>
#include <weightfs/percent.h>
#include "base/arena.h"
#include "base/text_index.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_MARK = 18,                         /* bytes of "%~" and the hash */
    N_FRONT = KEY_NAME_MAX - N_MARK - 5, /* of a cut part; room for the mark and ".json" */
};

struct key_part key_next(struct key_iter *iter)
{
    const char *at = iter->at;
    const char *dot = iter->n_left <= 1 ? NULL : strchr(at, '.');
    if (dot == NULL)
        return (struct key_part){at, strlen(at), true};
    iter->at = dot + 1;
    iter->n_left--;
    return (struct key_part){at, (size_t)(dot - at), false};
}

/* Returns the size of the first character if it stands for itself; 0: one byte must be escaped. */
static size_t literal(const char *bytes, size_t n_bytes, bool is_first)
{
    const unsigned char c = (unsigned char)bytes[0];
    if (c < 0x80)
        return c > 0x1f && c != 0x7f && c != '%' && c != '/' && !(c == '.' && is_first);
    const size_t n_char = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    return n_char <= n_bytes && utf8_valid(bytes, n_char) == n_char ? n_char : 0;
}

bool key_is_plain(const char *part, size_t n_bytes)
{
    if (n_bytes == 0 || n_bytes > KEY_NAME_MAX)
        return false;
    bool is_ascii = true;
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)part[i];
        if (c <= 0x1f || c == 0x7f || c == '%' || c == '/')
            return false;
        is_ascii &= c < 0x80;
    }
    return part[0] != '.' && (is_ascii || utf8_valid(part, n_bytes) == n_bytes);
}

static void cut(const char *part, size_t n_bytes, size_t n_front, struct key_name *ret)
{
    snprintf(ret->text + n_front, N_MARK + 1, "%%~%016llx",
             (unsigned long long)hash_bytes(part, n_bytes, 0));
    ret->n_bytes = n_front + N_MARK;
    ret->is_cut = true;
}

void key_encode(const char *part, size_t n_bytes, size_t n_suffix, struct key_name *ret)
{
    size_t n_out = 0, n_front = 0;
    ret->is_cut = false;
    if (n_bytes == 0)
        ret->text[n_out++] = '%';
    for (size_t i = 0; i < n_bytes;) {
        const size_t n_char = literal(part + i, n_bytes - i, i == 0);
        const size_t n_need = n_char > 0 ? n_char : 3;
        if (n_out + n_need + n_suffix > KEY_NAME_MAX) {
            cut(part, n_bytes, n_front, ret);
            return;
        }
        if (n_char > 0)
            memcpy(ret->text + n_out, part + i, n_char);
        else
            percent_encode((unsigned char)part[i], ret->text + n_out);
        n_out += n_need;
        n_front = n_out <= N_FRONT ? n_out : n_front;
        i += n_char > 0 ? n_char : 1;
    }
    ret->text[n_out] = '\0';
    ret->n_bytes = n_out;
}

static bool undo_escapes(const char *name, size_t n_bytes, char *part, size_t *ret_n_bytes)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (name[i] != '%') {
            part[n_out++] = name[i];
            continue;
        }
        if (!percent_decode(name + i, n_bytes - i, &part[n_out++]))
            return false;
        i += PERCENT_N - 1;
    }
    *ret_n_bytes = n_out;
    return true;
}

static bool is_canonical(const char *name, size_t n_bytes, char *part, size_t *ret_n_bytes)
{
    if (n_bytes == 1 && name[0] == '%') {
        *ret_n_bytes = 0;
        return true;
    }
    struct key_name again;
    if (n_bytes == 0 || !undo_escapes(name, n_bytes, part, ret_n_bytes))
        return false;
    key_encode(part, *ret_n_bytes, 0, &again);
    return again.n_bytes == n_bytes && memcmp(again.text, name, n_bytes) == 0;
}

static bool has_mark(const char *name, size_t n_bytes)
{
    if (n_bytes <= N_MARK || memcmp(name + n_bytes - N_MARK, "%~", 2) != 0)
        return false;
    return strspn(name + n_bytes - N_MARK + 2, "0123456789abcdef") >= N_MARK - 2;
}

enum key_kind key_decode(const char *name, size_t n_bytes, char *part, size_t *ret_n_bytes)
{
    if (n_bytes == 0 || n_bytes > KEY_NAME_MAX)
        return KEY_IS_INVALID;
    if (name[0] == '.')
        return KEY_IS_SCRATCH;
    if (n_bytes == strlen(KEY_SELF) && memcmp(name, KEY_SELF, n_bytes) == 0)
        return KEY_IS_SELF;
    if (has_mark(name, n_bytes))
        return is_canonical(name, n_bytes - N_MARK, part, ret_n_bytes) ? KEY_IS_CUT
                                                                       : KEY_IS_INVALID;
    return is_canonical(name, n_bytes, part, ret_n_bytes) ? KEY_IS_PART : KEY_IS_INVALID;
}

const char *key_cuts_find(const struct key_cuts *cuts, const char *name, size_t n_bytes)
{
    const uint32_t number = text_index_find(&cuts->names, name, n_bytes);
    return number == TEXT_INDEX_NONE ? NULL : cuts->parts[number];
}

int key_cuts_add(struct key_cuts *cuts, struct arena *arena, const struct key_name *name,
                 const char *part, size_t n_bytes)
{
    const char *known = key_cuts_find(cuts, name->text, name->n_bytes);
    if (known != NULL)
        return strlen(known) == n_bytes && memcmp(known, part, n_bytes) == 0 ? 0 : -EEXIST;
    uint32_t number;
    const char *copy = arena_copy(arena, name->text, name->n_bytes);
    const char *of_part = arena_copy(arena, part, n_bytes);
    if (copy == NULL || of_part == NULL ||
        array_reserve(&cuts->parts, sizeof(*cuts->parts), cuts->names.n_texts, 1, &cuts->n_room) <
            0 ||
        text_index_add(&cuts->names, copy, name->n_bytes, &number) < 0)
        return -ENOMEM;
    cuts->parts[number] = of_part;
    return 0;
}

void key_cuts_done(struct key_cuts *cuts)
{
    text_index_done(&cuts->names);
    free(cuts->parts);
    *cuts = (struct key_cuts){0};
}
