/* SPDX-License-Identifier: MIT */
/*
 * An argument is a URL, or has one behind a '=' of an option or of one in a list of mount options,
 * where a comma that no backslash precedes ends it, or behind a regex and a ':' or "=>".
 */
#include "program/urls.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lives as long as the process. */
static struct {
    struct pair {
        char *shown, *full;
    } * pairs;
    size_t n_pairs, n_room;
} known;

const char *urls_full(const char *name)
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

/* Returns where a URL begins in what is left of an argument, or NULL. */
static const char *find(const char *text, bool is_start)
{
    for (; *text != '\0'; text++) {
        if (is_start && url_is_any(text))
            return text;
        is_start = strchr("=:>", *text) != NULL;
    }
    return NULL;
}

/* Returns how long the URL is; of a list, up to the next comma. */
static size_t length_of(const char *url, bool is_list)
{
    size_t n = 0;
    for (; url[n] != '\0' && !(is_list && url[n] == ','); n++)
        n += is_list && url[n] == '\\' && url[n + 1] != '\0';
    return n;
}

/* Writes the text with the commas and backslashes of a list escaped, or takes these escapes away.
 */
static void put(FILE *out, const char *text, size_t n, bool is_list)
{
    for (size_t i = 0; i < n; i++) {
        if (is_list && (text[i] == ',' || text[i] == '\\'))
            putc('\\', out);
        putc(text[i], out);
    }
}

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
static char *replace(const char *argument, bool is_list)
{
    char *text = NULL;
    size_t n_text;
    FILE *out = open_memstream(&text, &n_text);
    const char *at = argument;
    bool is_good = out != NULL;
    for (const char *url; is_good && (url = find(at, at == argument)) != NULL;) {
        const size_t n = length_of(url, is_list);
        autofree char *full = unescaped(url, n, is_list);
        const char *shown = full == NULL ? NULL : remember(full);
        is_good = shown != NULL;
        if (is_good) {
            fwrite(at, 1, (size_t)(url - at), out);
            put(out, shown, strlen(shown), is_list);
        }
        at = url + n;
    }
    if (is_good)
        fputs(at, out);
    if (out == NULL || fclose(out) != 0 || !is_good) {
        free(text);
        return NULL;
    }
    return text;
}

/* Returns true for options like --set-metadata, whose texts are written as they are. */
static bool is_text(const char *option)
{
    return strncmp(option, "--set", strlen("--set")) == 0;
}

int urls_take(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *argument = argv[i];
        const bool is_option = strncmp(argument, "-o", 2) == 0;
        const bool is_list = is_option || strcmp(argv[i - 1], "-o") == 0;
        if (is_text(argument) || (is_text(argv[i - 1]) && strchr(argv[i - 1], '=') == NULL) ||
            find(argument + (is_option ? 2 : 0), true) == NULL)
            continue;
        char *replaced = replace(argument, is_list);
        if (replaced == NULL)
            return -ENOMEM;
        argv[i] = replaced;
        const size_t n = strlen(argument), n_replaced = strlen(replaced);
        memset(argument, 0, n);
        memcpy(argument, replaced, n_replaced < n ? n_replaced : n);
    }
    return 0;
}
