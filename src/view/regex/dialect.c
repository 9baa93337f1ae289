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

enum { MAX_NESTED = 8, MAX_BYTES = 1 << 20, MAX_GROUPS = 200, MAX_WRAPPED = 64 };

/*
 * ---- escapes and classes ----
 *
 * Classes are nested and have set operations, which PCRE2 needs as look-ahead. A class becomes an
 * expression that matches one character: plain items stay a class, what is nested becomes
 * alternatives, `A&&B` is "next is B, take A". Escapes are the same inside and outside of one.
 */

/* ASCII, whatever the flags say. */
static const struct {
    const char *name, *items;
} posix_classes[] = {
    {"alnum", "0-9A-Za-z"},
    {"alpha", "A-Za-z"},
    {"ascii", "\\x00-\\x7f"},
    {"blank", "\\t "},
    {"cntrl", "\\x00-\\x1f\\x7f"},
    {"digit", "0-9"},
    {"graph", "!-~"},
    {"lower", "a-z"},
    {"print", " -~"},
    {"punct", "!-\\/:-@\\[-`{-~"},
    {"space", "\\t\\n\\x0b\\x0c\\r "},
    {"upper", "A-Z"},
    {"word", "0-9A-Za-z_"},
    {"xdigit", "0-9A-Fa-f"},
};

static void move(const char **at, size_t n, struct strbuf *out)
{
    strbuf_add(out, *at, n);
    *at += n;
}

/* \u{HEX}, \uHHHH and \UHHHHHHHH; \x is the same in both. */
static const char *translate_code_point(const char **at, struct strbuf *out)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    const size_t n_fixed = (*at)[1] == 'u' ? 4 : 8;
    const bool has_braces = (*at)[2] == '{';
    const char *digits = *at + (has_braces ? 3 : 2);
    const size_t n = strspn(digits, hex);
    if (has_braces ? digits[n] != '}' || n == 0 : n < n_fixed)
        return "a character escape needs hexadecimal digits";
    const size_t n_taken = has_braces ? n : n_fixed;
    strbuf_printf(out, "\\x{%.*s}", (int)n_taken, digits);
    *at = digits + n_taken + (has_braces ? 1 : 0);
    return NULL;
}

static const char *read_escape(const char **at, struct strbuf *out)
{
    const char c = (*at)[1];
    if (c == '\0')
        return "ends with a backslash";
    const char *brace = strchr("pPx", c) != NULL && (*at)[2] == '{' ? strchr(*at, '}') : NULL;
    if (c >= '0' && c <= '9')
        return "back references are not supported";
    if (c == 'b' && (*at)[2] == '{')
        return "\\b{...} is not supported";
    if (c == 'u' || c == 'U')
        return translate_code_point(at, out);
    if (c == 'v') {
        strbuf_puts(out, "\\x0b");
        *at += 2;
        return NULL;
    }
    const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (is_letter && strchr("aftnrxpPdDwWsSbBAz", c) == NULL)
        return "unknown escape";
    move(at, brace != NULL ? (size_t)(brace + 1 - *at) : 2, out);
    return NULL;
}

/* An expression for one character of a class. */
struct expression {
    struct strbuf text;
    bool is_plain; /* it is "[...]", and may be negated as such */
};

static const char *read_class(const char **at, unsigned depth, struct expression *ret);

static void cleanup_expression(struct expression *expression)
{
    strbuf_done(&expression->text);
}

#define auto_expression cleanup(cleanup_expression)

static void append(struct strbuf *to, const struct strbuf *text)
{
    to->has_failed = to->has_failed || text->has_failed;
    if (text->n_bytes > 0)
        strbuf_add(to, text->bytes, text->n_bytes);
}

static void replace(struct expression *expression, struct strbuf text)
{
    strbuf_done(&expression->text);
    expression->text = text;
    expression->is_plain = false;
}

static const char *read_posix(const char **at, struct strbuf *out)
{
    const char *end = strstr(*at, ":]");
    const bool is_negated = (*at)[2] == '^';
    const char *name = *at + (is_negated ? 3 : 2);
    for (size_t i = 0; end != NULL && i < sizeof(posix_classes) / sizeof(*posix_classes); i++) {
        const size_t n = strlen(posix_classes[i].name);
        if ((size_t)(end - name) != n || strncmp(name, posix_classes[i].name, n) != 0)
            continue;
        if (is_negated)
            return "negated POSIX classes are not supported";
        strbuf_puts(out, posix_classes[i].items);
        *at = end + 2;
        return NULL;
    }
    return "unknown POSIX class";
}

static bool is_operator(const char *at)
{
    return (at[0] == '&' || at[0] == '-' || at[0] == '~') && at[1] == at[0];
}

/* Reads the items of a union: those of a plain class, and alternatives to it, "|A|B". */
static const char *read_items(const char **at, unsigned depth, struct strbuf *items,
                              struct strbuf *others)
{
    const char *problem = NULL;
    while (problem == NULL && **at != ']' && !is_operator(*at)) {
        if (**at == '\0')
            return "unterminated character class";
        if (**at == '\\') {
            problem = read_escape(at, items);
        } else if (**at == '[' && (*at)[1] == ':') {
            problem = read_posix(at, items);
        } else if (**at == '[') {
            auto_expression struct expression nested = {0};
            problem = read_class(at, depth + 1, &nested);
            strbuf_puts(others, "|");
            append(others, &nested.text);
        } else {
            move(at, 1, items);
        }
    }
    return problem;
}

static const char *read_union(const char **at, unsigned depth, bool is_first,
                              struct expression *ret)
{
    autostrbuf struct strbuf items = {0};
    autostrbuf struct strbuf others = {0};
    if (is_first && **at == ']') {
        strbuf_puts(&items, "\\]");
        (*at)++;
    }
    const char *problem = read_items(at, depth, &items, &others);
    ret->is_plain = others.n_bytes == 0;
    ret->text.has_failed = items.has_failed || others.has_failed;
    if (problem != NULL || ret->text.has_failed)
        return problem;
    if (items.n_bytes + others.n_bytes == 0)
        return "empty character class";
    strbuf_puts(&ret->text, ret->is_plain ? "" : "(?:");
    if (items.n_bytes > 0)
        strbuf_printf(&ret->text, "[%s]", items.bytes);
    if (others.n_bytes > 0)
        strbuf_printf(&ret->text, "%s)", others.bytes + (items.n_bytes == 0 ? 1 : 0));
    return NULL;
}

/* Makes left into "left OP right". */
static const char *combine(char operation, struct expression *left, const struct expression *right)
{
    struct strbuf text = {0};
    if (left->text.n_bytes + right->text.n_bytes > MAX_BYTES)
        return "a character class is too long";
    strbuf_puts(&text, operation == '&' ? "(?:(?=" : "(?:(?!");
    append(&text, &right->text);
    strbuf_puts(&text, ")");
    append(&text, &left->text);
    if (operation == '~') {
        strbuf_puts(&text, "|(?!");
        append(&text, &left->text);
        strbuf_puts(&text, ")");
        append(&text, &right->text);
    }
    strbuf_puts(&text, ")");
    replace(left, text);
    return NULL;
}

static void negate(struct expression *expression)
{
    struct strbuf text = {0};
    strbuf_puts(&text, expression->is_plain ? "[^" : "(?:(?!");
    if (expression->is_plain && !expression->text.has_failed)
        strbuf_add(&text, expression->text.bytes + 1, expression->text.n_bytes - 1);
    else
        append(&text, &expression->text);
    strbuf_puts(&text, expression->is_plain ? "" : ")(?s:.))");
    text.has_failed = text.has_failed || expression->text.has_failed;
    replace(expression, text);
}

/* Reads a class from its "[" on. */
static const char *read_class(const char **at, unsigned depth, struct expression *ret)
{
    if (depth > MAX_NESTED)
        return "classes are nested too deeply";
    *at += 1;
    const bool is_negated = **at == '^';
    *at += is_negated;
    const char *problem = read_union(at, depth, true, ret);
    while (problem == NULL && **at != ']') {
        const char operation = **at;
        auto_expression struct expression right = {0};
        *at += 2;
        problem = read_union(at, depth, false, &right);
        problem = problem != NULL ? problem : combine(operation, ret, &right);
    }
    if (problem != NULL)
        return problem;
    if (is_negated)
        negate(ret);
    *at += 1;
    return NULL;
}

/* Reads a class at *at, which moves on, and appends it to out. Returns NULL, or what is wrong. */
static const char *read_outer_class(const char **at, struct strbuf *out)
{
    auto_expression struct expression expression = {0};
    const char *problem = read_class(at, 0, &expression);
    append(out, &expression.text);
    return problem;
}

/* ---- patterns ---- */

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
        return read_outer_class(&t->at, &t->out);
    if (c == '\\' && (t->at[1] == '<' || t->at[1] == '>')) {
        strbuf_puts(&t->out, t->at[1] == '<' ? "\\b(?=\\w)" : "\\b(?<=\\w)");
        t->at += 2;
        return NULL;
    }
    if (c == '\\')
        return read_escape(&t->at, &t->out);
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
