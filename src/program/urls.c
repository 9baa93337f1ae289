/* SPDX-License-Identifier: MIT */
/*
 * The table of them lives as long as the process.
 */
#include "program/urls.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct pair {
        char *shown, *full;
    } * pairs;
    size_t n_pairs, n_room;
} known;

static const char *urls_full(const char *name)
{
    for (size_t i = 0; i < known.n_pairs; i++) {
        if (strcmp(known.pairs[i].shown, name) == 0)
            return known.pairs[i].full;
    }
    return name;
}

/* Returns what is shown of a URL. Another one that looks the same gets a number. */
static const char *remember(const char *url)
{
    autofree char *shown = url_shown(url);
    for (size_t i = 0; i < known.n_pairs; i++) {
        if (strcmp(known.pairs[i].full, url) == 0)
            return known.pairs[i].shown;
    }
    if (shown == NULL ||
        array_reserve(&known.pairs, sizeof(*known.pairs), known.n_pairs, 1, &known.n_room) < 0)
        return NULL;
    struct pair pair = {.full = strdup(url)};
    for (size_t i = 2; strcmp(urls_full(shown), shown) != 0; i++) {
        char *numbered;
        if (asprintf(&numbered, "%.*s#%zu", (int)strcspn(shown, "#"), shown, i) < 0)
            return NULL;
        free(shown);
        shown = numbered;
    }
    pair.shown = steal(&shown);
    if (pair.full == NULL)
        return NULL;
    known.pairs[known.n_pairs++] = pair;
    return pair.shown;
}

/* Returns how long the URL is; of a list, up to the next comma. */
static size_t length_of(const char *url, bool is_list)
{
    size_t n = 0;
    for (; url[n] != '\0' && !(is_list && url[n] == ','); n++)
        n += is_list && url[n] == '\\' && url[n + 1] != '\0';
    return n;
}

/* Returns a copy without the backslashes that escape in a list; malloc'ed, or NULL. */
static char *unescaped(const char *text, size_t n, bool is_list)
{
    char *copy = strndup(text, n), *out = copy;
    for (size_t i = 0; copy != NULL && i < n; i++) {
        i += is_list && text[i] == '\\' && i + 1 < n;
        *out++ = text[i];
    }
    if (copy != NULL)
        *out = '\0';
    return copy;
}

/* Returns the argument with the URLs replaced; malloc'ed, NULL: out of memory. */
static char *replace_urls(const char *argument, bool is_list)
{
    autostrbuf struct strbuf text = {0};
    const char *at = argument;
    for (const char *url; (url = url_find(at)) != NULL;) {
        const size_t n = length_of(url, is_list);
        autofree char *full = unescaped(url, n, is_list);
        const char *shown = full == NULL ? NULL : remember(full);
        if (shown == NULL)
            return NULL;
        strbuf_add(&text, at, (size_t)(url - at));
        for (; *shown != '\0'; shown++) {
            strbuf_puts(&text, is_list && strchr(",\\", *shown) != NULL ? "\\" : "");
            strbuf_add(&text, shown, 1);
        }
        at = url + n;
    }
    strbuf_puts(&text, at);
    return text.has_failed ? NULL : steal(&text.bytes);
}

int urls_take(int argc, char **argv, urls_kind_function *kind_of, const void *ctx)
{
    enum urls_kind next = URLS_WORD;
    for (int i = 1; i < argc; i++) {
        char *argument = argv[i];
        enum urls_kind kind = next;
        next = URLS_WORD;
        if (kind == URLS_WORD)
            kind = kind_of(ctx, argument, &next);
        if (kind == URLS_TEXT || url_find(argument) == NULL)
            continue;
        char *replaced = replace_urls(argument, kind == URLS_LIST);
        if (replaced == NULL)
            return -ENOMEM;
        argv[i] = replaced;
        const size_t n = strlen(argument), n_replaced = strlen(replaced);
        memset(argument, 0, n);
        memcpy(argument, replaced, n_replaced < n ? n_replaced : n);
    }
    return 0;
}

struct checkpoint_options urls_options(void)
{
    static struct hub_copies copies;
    return (struct checkpoint_options){.copies = &copies, .opened = urls_full};
}
