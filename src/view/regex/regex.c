/* SPDX-License-Identifier: MIT */
/*
 * The syntax of the crate is translated to that of PCRE2, which matches. Substitution is done here,
 * because the crate's syntax and its rule for empty matches are not those of PCRE2.
 */
#include "view/regex/regex.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/bytes.h"
#include "base/utf8.h"

enum {
    MAX_PATTERN = 64 << 10, /* bytes */
    MAX_CLASS = 1 << 20,    /* bytes of a translated class */
    MAX_NESTED = 8,         /* classes in each other */
    MAX_GROUPS = 200,
    MAX_WRAPPED = 64,      /* repetitions of repetitions */
    MAX_STEPS = 2000000,   /* of the matcher for one search, before it gives up */
    MAX_DEPTH_KIB = 65536, /* memory of the matcher */
};

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

/* What the crate takes for a part of a word, which is not what PCRE2 does. No range can begin at
 * its end, as none can after \w. */
#define WORD "\\p{Alphabetic}\\x{200c}\\x{200d}\\p{M}\\p{Nd}\\p{Pc}"
#define BEFORE "(?=[" WORD "])"
#define BEHIND "(?<=[" WORD "])"
#define NOT_BEFORE "(?![" WORD "])"
#define NOT_BEHIND "(?<![" WORD "])"

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
    static const struct {
        char letter;
        const char *text;
    } others[] = {{'v', "\\x0b"}, {'s', "\\p{White_Space}"}, {'S', "\\P{White_Space}"}};
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
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        if (c != others[i].letter)
            continue;
        strbuf_puts(out, others[i].text);
        *at += 2;
        return NULL;
    }
    const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (is_letter && strchr("aftnrxpPdDwWsSbBAz", c) == NULL)
        return "unknown escape";
    move(at, brace != NULL ? (size_t)(brace + 1 - *at) : 2, out);
    return NULL;
}

/* Reads what stands for a part of a word, or for the edge of one. Returns false: it is neither. */
static bool read_word(const char **at, struct strbuf *out)
{
    static const struct {
        char letter;
        const char *text;
    } words[] = {{'w', "[" WORD "]"},
                 {'W', "[^" WORD "]"},
                 {'<', "(?:" NOT_BEHIND BEFORE ")"},
                 {'>', "(?:" BEHIND NOT_BEFORE ")"},
                 {'b', "(?:" NOT_BEHIND BEFORE "|" BEHIND NOT_BEFORE ")"},
                 {'B', "(?:" NOT_BEHIND NOT_BEFORE "|" BEHIND BEFORE ")"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if ((*at)[1] != words[i].letter || (*at)[2] == '{')
            continue;
        strbuf_puts(out, words[i].text);
        *at += 2;
        return true;
    }
    return false;
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
        const char escaped = **at == '\\' ? (*at)[1] : '\0';
        if (escaped == 'w') {
            strbuf_puts(items, WORD);
            *at += 2;
        } else if (escaped == 'W') {
            strbuf_puts(others, "|");
            read_word(at, others);
        } else if (escaped != '\0' && strchr("AbBz", escaped) != NULL) {
            problem = "\\A, \\b, \\B and \\z do not stand for a character";
        } else if (**at == '\\') {
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
    if (left->text.n_bytes + right->text.n_bytes > MAX_CLASS)
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

/*
 * ---- patterns ----
 *
 * One pass over the pattern: escapes, groups, classes and repetitions are translated, everything
 * else is copied. The start of the last atom is kept, because in the crate `a++` repeats a
 * repetition, and in PCRE2 it is a possessive one. Running out of memory is sticky in the output,
 * so a pattern that lost a piece is never compiled.
 */

struct translation {
    const char *at;
    struct strbuf out;
    size_t atom;               /* where the last atom starts in the output */
    size_t groups[MAX_GROUPS]; /* where the open ones start */
    unsigned n_groups, n_wrapped;
    bool after_repetition; /* the last thing was * + ? or {n} */
    bool is_assertion;     /* the last atom matches no character */
    bool is_caseless;      /* the flag i was on */
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
        t->is_caseless = t->is_caseless || (at[i] == 'i' && i < n_on);
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
    const bool is_wrapped = t->is_assertion || (t->after_repetition && !is_lazy);
    const char *problem = is_wrapped ? wrap(t) : NULL;
    t->is_assertion = false;
    copy(t, n);
    t->after_repetition = true;
    return problem;
}

static const char *read_atom(struct translation *t)
{
    const char c = *t->at, escaped = c == '\\' ? t->at[1] : '\0';
    t->is_assertion = c == '^' || c == '$' || escaped == 'A' || escaped == 'z';
    if (c == '(')
        return open_group(t);
    if (c == ')')
        return close_group(t);
    t->atom = t->out.n_bytes;
    if (c == '[')
        return read_outer_class(&t->at, &t->out);
    if (c == '\\')
        return read_word(&t->at, &t->out) ? NULL : read_escape(&t->at, &t->out);
    copy(t, 1);
    while (((unsigned char)*t->at & 0xc0) == 0x80)
        copy(t, 1);
    return NULL;
}

/* Returns true if the pattern, whose escapes are valid, has a class of one case: with the flag i,
 * the crate takes the letters of the other case for it, too. */
static bool has_case(const char *pattern)
{
    static const char names[] = " lu ll lt uppercaseletter lowercaseletter titlecaseletter upper "
                                "lower uppercase lowercase ";
    const char *at = strchr(pattern, '\\');
    for (; at != NULL; at = strchr(at + 2, '\\')) {
        char name[32] = " ";
        size_t n = 1;
        if ((at[1] | 0x20) != 'p' || at[2] != '{')
            continue;
        const char *equals = strpbrk(at, "=:}"), *from = *equals == '}' ? at + 3 : equals + 1;
        for (; *from != '}' && n < sizeof(name) - 2; from++) {
            if (strchr("^ _-", *from) == NULL)
                name[n++] = (char)(*from | 0x20);
        }
        name[n] = ' ';
        if (n > 1 && strstr(names, name) != NULL)
            return true;
    }
    return false;
}

/*
 * Writes the pattern for PCRE2 to *ret, malloc'ed. -EINVAL when it has something that the crate
 * refuses or that is not supported, and *ret_problem says what (static text); -ENOMEM.
 */
static int translate(const char *pattern, char **ret, const char **ret_problem)
{
    struct translation t = {.at = pattern};
    const char *problem = NULL;
    while (problem == NULL && *t.at != '\0') {
        const bool is_repetition = strchr("*+?{", *t.at) != NULL;
        problem = is_repetition ? read_repetition(&t) : read_atom(&t);
        t.after_repetition = t.after_repetition && is_repetition;
    }
    if (problem == NULL && t.is_caseless && has_case(pattern))
        problem = "a class of one case is not supported together with the flag i";
    strbuf_add(&t.out, "", 0); /* the empty pattern is a text, too */
    *ret_problem = problem;
    if (problem == NULL && !t.out.has_failed)
        *ret = steal(&t.out.bytes);
    const int code = t.out.has_failed ? -ENOMEM : problem != NULL ? -EINVAL : 0;
    strbuf_done(&t.out);
    return code;
}

/* ---- compiling and searching ---- */

struct regex {
    char *pattern;
    pcre2_code *code;
    pcre2_match_context *context;
};

/* Suggests a regex where a glob was given, the most common mistake: "*.weight". */
static void suggest(const char *pattern, char *hint, size_t n_room)
{
    const char *rest = pattern + 1;
    const bool is_simple = *rest != '\0' && rest[strcspn(rest, "\\*+?{}[]()|^$")] == '\0';
    *hint = '\0';
    if (*pattern != '*')
        return;
    size_t n = (size_t)snprintf(hint, n_room, " (a regex is expected, not a glob");
    if (is_simple && strlen(rest) < 64) {
        n += (size_t)snprintf(hint + n, n_room - n, "; try '");
        for (; *rest != '\0'; rest++)
            n += (size_t)snprintf(hint + n, n_room - n, *rest == '.' ? "\\." : "%c", *rest);
        n += (size_t)snprintf(hint + n, n_room - n, "$'");
    }
    snprintf(hint + n, n_room - n, ")");
}

static int fail_pattern(const struct regex *regex, const char *problem, struct wfs_error *err)
{
    char hint[256];
    suggest(regex->pattern, hint, sizeof(hint));
    return wfs_fail(err, EINVAL, "bad regex '%s': %s%s", wfs_quote(regex->pattern).text, problem,
                    hint);
}

static int compile(struct regex *regex, const char *translated, struct wfs_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return wfs_fail_memory(err);
    int number;
    PCRE2_SIZE offset;
    PCRE2_UCHAR text[120];
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 250);
    regex->code =
        pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                      &number, &offset, context);
    pcre2_compile_context_free(context);
    if (regex->code != NULL)
        return 0;
    if (number == PCRE2_ERROR_HEAP_FAILED)
        return wfs_fail_memory(err);
    pcre2_get_error_message(number, text, sizeof(text));
    return fail_pattern(regex, (const char *)text, err);
}

static int prepare(struct regex *regex, struct wfs_error *err)
{
    const size_t n_bytes = strlen(regex->pattern);
    if (n_bytes > MAX_PATTERN)
        return fail_pattern(regex, "longer than 64 KiB", err);
    if (utf8_valid(regex->pattern, n_bytes) != n_bytes)
        return fail_pattern(regex, "not UTF-8", err);
    regex->context = pcre2_match_context_create(NULL);
    if (regex->context == NULL)
        return wfs_fail_memory(err);
    pcre2_set_match_limit(regex->context, MAX_STEPS);
    pcre2_set_heap_limit(regex->context, MAX_DEPTH_KIB);
    autofree char *translated = NULL;
    const char *problem = NULL;
    const int code = translate(regex->pattern, &translated, &problem);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return code < 0 ? fail_pattern(regex, problem, err) : compile(regex, translated, err);
}

int regex_new(const char *pattern, struct regex **out, struct wfs_error *err)
{
    struct regex *regex = calloc(1, sizeof(*regex));
    if (regex == NULL)
        return wfs_fail_memory(err);
    regex->pattern = strdup(pattern);
    const int code = regex->pattern == NULL ? wfs_fail_memory(err) : prepare(regex, err);
    if (code < 0) {
        regex_free(regex);
        return code;
    }
    *out = regex;
    return 0;
}

void regex_free(struct regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->context);
    free(regex->pattern);
    free(regex);
}

static void free_match(pcre2_match_data **match)
{
    pcre2_match_data_free(*match);
}

static int fail_steps(const struct regex *regex, const char *text, struct wfs_error *err)
{
    return wfs_fail(err, E2BIG, "the regex '%s' takes too many steps on the key '%s'",
                    wfs_quote(regex->pattern).text, wfs_quote(text).text);
}

/*
 * Searches from offset. Returns 1 or 0, or a negative errno. A key with lone surrogates is not
 * UTF-8 and matches nothing. More groups than the match data holds is a match, too: code 0.
 */
static int match_at(const struct regex *regex, const char *text, size_t n, size_t offset,
                    pcre2_match_data *match, struct wfs_error *err)
{
    /* The first search checks the whole text. */
    const uint32_t options = offset == 0 ? 0 : PCRE2_NO_UTF_CHECK;
    const int code =
        pcre2_match(regex->code, (PCRE2_SPTR)text, n, offset, options, match, regex->context);
    if (code >= 0)
        return 1;
    if (code == PCRE2_ERROR_NOMATCH ||
        (code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21))
        return 0;
    return code == PCRE2_ERROR_NOMEMORY ? wfs_fail_memory(err) : fail_steps(regex, text, err);
}

int regex_search(const struct regex *regex, const char *text, struct wfs_error *err)
{
    cleanup(free_match) pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (match == NULL)
        return wfs_fail_memory(err);
    return match_at(regex, text, strlen(text), 0, match, err);
}

/* ---- replacing ---- */

struct expansion {
    struct strbuf out;
    const struct regex *regex;
    const char *text;
    const PCRE2_SIZE *groups;
    uint32_t n_groups; /* with group 0 */
};

bool regex_parse_number(const char *name, size_t n, uint64_t *ret)
{
    const size_t n_plus = n > 1 && name[0] == '+';
    return digits_parse(name + n_plus, n - n_plus, ret);
}

/* What the group captured; nothing when there is no such group. */
static void put_group(struct expansion *e, const char *name, size_t n)
{
    uint64_t group;
    char text[64];
    if (!regex_parse_number(name, n, &group)) {
        if (n >= sizeof(text))
            return;
        memcpy(text, name, n);
        text[n] = '\0';
        const int number = pcre2_substring_number_from_name(e->regex->code, (PCRE2_SPTR)text);
        if (number < 0)
            return;
        group = (uint64_t)number;
    }
    if (group >= e->n_groups || e->groups[2 * group] == PCRE2_UNSET)
        return;
    strbuf_add(&e->out, e->text + e->groups[2 * group],
               e->groups[2 * group + 1] - e->groups[2 * group]);
}

static bool is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* The reference at `$`: its end, or the place behind `$` when it is a literal one. */
static const char *expand_reference(struct expansion *e, const char *at)
{
    if (at[1] == '$') {
        strbuf_puts(&e->out, "$");
        return at + 2;
    }
    const char *end = at[1] == '{' ? strchr(at, '}') : NULL;
    if (end != NULL) {
        put_group(e, at + 2, (size_t)(end - at - 2));
        return end + 1;
    }
    size_t n = 0;
    while (is_word(at[1 + n]))
        n++;
    if (n == 0)
        strbuf_puts(&e->out, "$");
    else
        put_group(e, at + 1, n);
    return at + 1 + n;
}

static void expand(struct expansion *e, const char *replacement)
{
    while (*replacement != '\0') {
        const size_t n = strcspn(replacement, "$");
        strbuf_add(&e->out, replacement, n);
        replacement += n;
        if (*replacement == '$')
            replacement = expand_reference(e, replacement);
    }
}

static size_t next_char(const char *text, size_t at, size_t n)
{
    at++;
    while (at < n && ((uint8_t)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Searches that are each within the limit can be as many as the text has characters. */
static bool is_too_slow(uint64_t since_ns, size_t n_bytes)
{
    enum { NS_FREE = 50000000, NS_PER_BYTE = 4000 };
    return processor_ns() - since_ns > NS_FREE + (uint64_t)n_bytes * NS_PER_BYTE;
}

/*
 * Replaces the match that was found, and all that follow. An empty match where the last match ended
 * is passed over, and the search goes on one character later.
 */
static int replace_all(struct expansion *e, const char *replacement, pcre2_match_data *match,
                       struct wfs_error *err)
{
    enum { N_UNTIMED = 16 };
    const size_t n = strlen(e->text);
    const uint64_t since_ns = processor_ns();
    size_t copied = 0, from, last_end = SIZE_MAX;
    int code = 1;
    e->groups = pcre2_get_ovector_pointer(match);
    e->n_groups = pcre2_get_ovector_count(match);
    for (unsigned i = 1; code > 0; i++) {
        if (i % N_UNTIMED == 0 && is_too_slow(since_ns, n))
            return fail_steps(e->regex, e->text, err);
        const size_t start = e->groups[0], end = e->groups[1];
        if (start == end && start == last_end) {
            from = next_char(e->text, start, n);
        } else {
            strbuf_add(&e->out, e->text + copied, start - copied);
            expand(e, replacement);
            copied = last_end = from = end;
        }
        if (e->out.n_bytes > REPLACED_MAX)
            return wfs_fail(err, E2BIG, "replacing '%s' makes the key '%s' longer than %d bytes",
                            wfs_quote(e->regex->pattern).text, wfs_quote(e->text).text,
                            REPLACED_MAX);
        code = from <= n ? match_at(e->regex, e->text, n, from, match, err) : 0;
    }
    strbuf_add(&e->out, e->text + copied, n - copied);
    return code;
}

int regex_replace(const struct regex *regex, const char *text, const char *replacement,
                  struct arena *arena, const char **ret, struct wfs_error *err)
{
    cleanup(free_match) pcre2_match_data *match =
        pcre2_match_data_create_from_pattern(regex->code, NULL);
    if (match == NULL)
        return wfs_fail_memory(err);
    int code = match_at(regex, text, strlen(text), 0, match, err);
    if (code <= 0)
        return code;
    struct expansion e = {.regex = regex, .text = text};
    code = replace_all(&e, replacement, match, err);
    if (code == 0 && !e.out.has_failed)
        *ret = arena_copy(arena, e.out.bytes, e.out.n_bytes);
    const bool is_full = code == 0 && (e.out.has_failed || *ret == NULL);
    strbuf_done(&e.out);
    return code < 0 ? code : is_full ? wfs_fail_memory(err) : 1;
}
