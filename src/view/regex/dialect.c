/* SPDX-License-Identifier: MIT */
/*
 * One pass over the pattern: escapes, groups, classes and repetitions are looked at, everything
 * else is copied. Where the last atom began is remembered, because a repetition of a repetition,
 * `a++`, is one of a group here and something else in PCRE2.
 */
#include "view/regex/dialect.h"

#include <weightfs/cleanup.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/regex/dialect_class.h"

enum { MAX_GROUPS = 200, MAX_WRAPPED = 64 };

struct translation {
    const char *at;
    char *text; /* of out */
    size_t n_text;
    FILE *out;
    size_t atom;               /* where the last atom starts in the output */
    size_t groups[MAX_GROUPS]; /* where the open ones start */
    unsigned n_groups, n_wrapped;
    bool after_repetition; /* the last thing was * + ? or {n} */
};

static size_t position(struct translation *t)
{
    fflush(t->out);
    return t->n_text;
}

static void copy(struct translation *t, size_t n)
{
    fwrite(t->at, 1, n, t->out);
    t->at += n;
}

/* After "(?": only names, flags and plain groups. */
static const char *open_special_group(struct translation *t)
{
    const char *at = t->at + 2;
    if ((at[0] == 'P' && at[1] == '<') || (at[0] == '<' && at[1] != '=' && at[1] != '!')) {
        copy(t, (size_t)(strcspn(at, ">") + 2));
        return NULL;
    }
    if (at[0] == '=' || at[0] == '!' || at[0] == '<')
        return "look-around is not supported";
    const size_t n_flags = strspn(at, "imsUux-"), n_on = strcspn(at, "-");
    if ((at[n_flags] != ')' && at[n_flags] != ':') || at[0] == ')')
        return "it has a kind of group that is not supported";
    fputs("(?", t->out);
    for (size_t i = 0; i < n_flags; i++) {
        if (at[i] == 'u' && i > n_on)
            return "Unicode cannot be turned off";
        if (at[i] != 'u')
            fputc(at[i], t->out);
        if (at[i] == 'x' && i < n_on)
            fputc('x', t->out); /* in classes too */
    }
    t->at = at + n_flags;
    if (*t->at == ')')
        t->n_groups--;
    copy(t, 1);
    return NULL;
}

static const char *open_group(struct translation *t)
{
    if (t->n_groups == MAX_GROUPS)
        return "groups are nested too deeply";
    if (t->at[1] == '*')
        return "a repetition has nothing to repeat";
    t->groups[t->n_groups++] = position(t);
    if (t->at[1] == '?')
        return open_special_group(t);
    copy(t, 1);
    return NULL;
}

static const char *close_group(struct translation *t)
{
    if (t->n_groups == 0)
        return "a group is closed that is not open";
    t->atom = t->groups[--t->n_groups];
    copy(t, 1);
    return NULL;
}

/* The last atom with its repetition, as a group. */
static const char *wrap(struct translation *t)
{
    if (++t->n_wrapped > MAX_WRAPPED)
        return "too many repetitions of repetitions";
    const size_t n = position(t);
    autofree char *atom = strndup(t->text + t->atom, n - t->atom);
    if (atom == NULL || fseeko(t->out, (off_t)t->atom, SEEK_SET) != 0)
        return "out of memory";
    fprintf(t->out, "(?:%s)", atom);
    t->after_repetition = false;
    return NULL;
}

static const char *read_repetition(struct translation *t)
{
    const char c = *t->at;
    const bool is_lazy = t->after_repetition && c == '?';
    size_t n = 1;
    if (c == '{') {
        n = strspn(t->at + 1, "0123456789,");
        if (t->at[1] == ',' || t->at[1 + n] != '}' || n == 0)
            return "a repetition wants numbers between braces; the character is \\{";
        n += 2;
    }
    const char *problem = t->after_repetition && !is_lazy ? wrap(t) : NULL;
    copy(t, n);
    t->after_repetition = true;
    return problem;
}

static const char *read_atom(struct translation *t)
{
    const char c = *t->at;
    if (c == '(')
        return open_group(t);
    if (c == ')')
        return close_group(t);
    t->atom = position(t);
    if (c == '[')
        return dialect_class(&t->at, t->out);
    if (c == '\\' && (t->at[1] == '<' || t->at[1] == '>')) {
        fputs(t->at[1] == '<' ? "\\b(?=\\w)" : "\\b(?<=\\w)", t->out);
        t->at += 2;
        return NULL;
    }
    if (c == '\\')
        return dialect_escape(&t->at, t->out);
    copy(t, 1);
    while (((unsigned char)*t->at & 0xc0) == 0x80)
        copy(t, 1);
    return NULL;
}

const char *dialect_translate(const char *pattern, char **ret)
{
    struct translation t = {.at = pattern};
    t.out = open_memstream(&t.text, &t.n_text);
    if (t.out == NULL)
        return "out of memory";
    const char *problem = NULL;
    while (problem == NULL && *t.at != '\0') {
        const bool is_repetition = strchr("*+?{", *t.at) != NULL;
        problem = is_repetition ? read_repetition(&t) : read_atom(&t);
        t.after_repetition = t.after_repetition && is_repetition;
    }
    fclose(t.out);
    if (problem == NULL)
        *ret = t.text;
    else
        free(t.text);
    return problem;
}
