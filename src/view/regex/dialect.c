/* SPDX-License-Identifier: MIT */
/*
 * One pass over the pattern: escapes, groups, classes and repetitions are translated, everything
 * else is copied. The start of the last atom is kept, because in the crate `a++` repeats a
 * repetition, and in PCRE2 it is a possessive one. Running out of memory is sticky in the output,
 * so a pattern that lost a piece is never compiled.
 */
#include "view/regex/dialect.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "view/regex/dialect_class.h"

enum { MAX_GROUPS = 200, MAX_WRAPPED = 64 };

struct translation {
    const char *at;
    struct strbuf out;
    size_t atom;               /* where the last atom starts in the output */
    size_t groups[MAX_GROUPS]; /* where the open ones start */
    unsigned n_groups, n_wrapped;
    bool after_repetition; /* the last thing was * + ? or {n} */
};

static void copy(struct translation *t, size_t n_bytes)
{
    strbuf_add(&t->out, t->at, n_bytes);
    t->at += n_bytes;
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
        return "unsupported kind of group";
    strbuf_puts(&t->out, "(?");
    for (size_t i = 0; i < n_flags; i++) {
        if (at[i] == 'u' && i > n_on)
            return "Unicode cannot be turned off";
        if (at[i] != 'u')
            strbuf_add(&t->out, &at[i], 1);
        if (at[i] == 'x' && i < n_on)
            strbuf_puts(&t->out, "x"); /* in classes too */
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
        return "nothing to repeat";
    t->groups[t->n_groups++] = t->out.n_bytes;
    if (t->at[1] == '?')
        return open_special_group(t);
    copy(t, 1);
    return NULL;
}

static const char *close_group(struct translation *t)
{
    if (t->n_groups == 0)
        return "unmatched ')'";
    t->atom = t->groups[--t->n_groups];
    copy(t, 1);
    return NULL;
}

/* Puts the last atom and its repetition into a group. */
static const char *wrap(struct translation *t)
{
    if (++t->n_wrapped > MAX_WRAPPED)
        return "too many repetitions of repetitions";
    t->after_repetition = false;
    autofree char *atom =
        t->out.has_failed ? NULL : strndup(t->out.bytes + t->atom, t->out.n_bytes - t->atom);
    if (atom == NULL) {
        t->out.has_failed = true;
        return NULL;
    }
    t->out.n_bytes = t->atom;
    strbuf_printf(&t->out, "(?:%s)", atom);
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
            return "expected numbers between braces (the character is \\{)";
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
    t->atom = t->out.n_bytes;
    if (c == '[')
        return dialect_class(&t->at, &t->out);
    if (c == '\\' && (t->at[1] == '<' || t->at[1] == '>')) {
        strbuf_puts(&t->out, t->at[1] == '<' ? "\\b(?=\\w)" : "\\b(?<=\\w)");
        t->at += 2;
        return NULL;
    }
    if (c == '\\')
        return dialect_escape(&t->at, &t->out);
    copy(t, 1);
    while (((unsigned char)*t->at & 0xc0) == 0x80)
        copy(t, 1);
    return NULL;
}

int dialect_translate(const char *pattern, char **ret, const char **ret_problem)
{
    struct translation t = {.at = pattern};
    const char *problem = NULL;
    while (problem == NULL && *t.at != '\0') {
        const bool is_repetition = strchr("*+?{", *t.at) != NULL;
        problem = is_repetition ? read_repetition(&t) : read_atom(&t);
        t.after_repetition = t.after_repetition && is_repetition;
    }
    strbuf_add(&t.out, "", 0); /* the empty pattern is a text, too */
    *ret_problem = problem;
    if (problem == NULL && !t.out.has_failed)
        *ret = steal(&t.out.bytes);
    const int code = t.out.has_failed ? -ENOMEM : problem != NULL ? -EINVAL : 0;
    strbuf_done(&t.out);
    return code;
}
