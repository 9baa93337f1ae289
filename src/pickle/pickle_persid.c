/* SPDX-License-Identifier: MIT */
/*
 * A parser for what repr() of a tuple prints.
 */
#include "pickle/pickle_persid.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pickle/pickle_escape.h"
#include "pickle/pickle_integer.h"

enum { MAX_DEPTH = 4, MAX_ITEMS = 16 };

struct repr {
    struct graph *graph;
    const struct limits *limits;
    const char *at, *end;
};

static bool skip(struct repr *r, const char *text)
{
    const size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Returns the end of a quoted string that starts here, or NULL. */
static const char *end_of_string(const struct repr *r)
{
    for (const char *at = r->at + 1; at < r->end; at++) {
        if (*at == *r->at)
            return at + 1;
        at += *at == '\\';
    }
    return NULL;
}

static int parse_string(struct repr *r, uint32_t *ret)
{
    const char *end = end_of_string(r);
    if (end == NULL)
        return 0;
    const size_t n = (size_t)(end - r->at) - 2;
    autofree char *text = malloc(n + 1);
    if (text == NULL)
        return -ENOMEM;
    const ssize_t n_text = escape_undo(r->at + 1, n, text);
    if (n_text < 0)
        return 0;
    r->at = end;
    *ret = value_new_text(r->graph, text, (size_t)n_text);
    return *ret == 0 ? -ENOMEM : 0;
}

/* <class 'module.Name'> */
static int parse_class(struct repr *r, uint32_t *ret)
{
    const char *end = memchr(r->at, '\'', (size_t)(r->end - r->at));
    const char *dot = end == NULL ? NULL : memrchr(r->at, '.', (size_t)(end - r->at));
    if (end == NULL)
        return 0;
    const char *name = dot == NULL ? r->at : dot + 1;
    *ret = value_new_global(r->graph, dot == NULL ? "builtins" : r->at,
                            dot == NULL ? 8 : (size_t)(dot - r->at), name, (size_t)(end - name));
    r->at = end + 1;
    if (*ret == 0)
        return -ENOMEM;
    if (!skip(r, ">"))
        *ret = 0;
    return 0;
}

static int parse_number(struct repr *r, uint32_t *ret)
{
    const char *start = r->at;
    while (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')))
        r->at++;
    const int code = integer_parse(r->graph, r->limits, start, (size_t)(r->at - start), ret);
    return code == -ENOMEM ? code : 0;
}

static int parse_tuple(struct repr *r, unsigned depth, uint32_t *ret);

/* Leaves *ret at 0 when the text is not an item of a tuple. */
static int parse_item(struct repr *r, unsigned depth, uint32_t *ret)
{
    if (r->at == r->end)
        return 0;
    if (skip(r, "None")) {
        *ret = value_new(r->graph, VALUE_NONE);
        return *ret == 0 ? -ENOMEM : 0;
    }
    if (skip(r, "<class '"))
        return parse_class(r, ret);
    if (*r->at == '\'' || *r->at == '"')
        return parse_string(r, ret);
    if (*r->at == '(')
        return depth < MAX_DEPTH ? parse_tuple(r, depth + 1, ret) : 0;
    return parse_number(r, ret);
}

static int parse_tuple(struct repr *r, unsigned depth, uint32_t *ret)
{
    uint32_t items[MAX_ITEMS], n = 0;
    r->at++;
    while (!skip(r, ")")) {
        uint32_t item = 0;
        const int code = n < MAX_ITEMS ? parse_item(r, depth, &item) : 0;
        if (code < 0 || item == 0)
            return code;
        items[n++] = item;
        if (!skip(r, ", ") && !skip(r, ",") && (r->at == r->end || *r->at != ')'))
            return 0;
    }
    *ret = value_new_items(r->graph, VALUE_TUPLE, items, n);
    return *ret == 0 ? -ENOMEM : 0;
}

int persid_parse(struct graph *graph, const struct limits *limits, const char *text, size_t n,
                 uint32_t *ret)
{
    struct repr r = {graph, limits, text, text + n};
    *ret = 0;
    if (n == 0 || *text != '(')
        return 0;
    const int code = parse_tuple(&r, 0, ret);
    if (r.at != r.end)
        *ret = 0;
    return code;
}
