/* SPDX-License-Identifier: MIT */
/*
 * A class becomes an expression that matches one character: plain items stay a class, what is
 * nested becomes alternatives, `A&&B` is "next is B, take A".
 */
#include "view/regex/dialect_class.h"

#include <weightfs/cleanup.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTED = 8, MAX_BYTES = 1 << 20 };

static const char no_memory[] = "out of memory";

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

static void copy(const char **at, size_t n, FILE *out)
{
    fwrite(*at, 1, n, out);
    *at += n;
}

/* \u{HEX}, \uHHHH and \UHHHHHHHH; \x is the same in both. */
static const char *translate_code_point(const char **at, FILE *out)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    const size_t n_fixed = (*at)[1] == 'u' ? 4 : 8;
    const bool has_braces = (*at)[2] == '{';
    const char *digits = *at + (has_braces ? 3 : 2);
    const size_t n = strspn(digits, hex);
    if (has_braces ? digits[n] != '}' || n == 0 : n < n_fixed)
        return "a character escape has no hexadecimal number";
    const size_t n_taken = has_braces ? n : n_fixed;
    fprintf(out, "\\x{%.*s}", (int)n_taken, digits);
    *at = digits + n_taken + (has_braces ? 1 : 0);
    return NULL;
}

const char *dialect_escape(const char **at, FILE *out)
{
    const char c = (*at)[1];
    if (c == '\0')
        return "it ends with a backslash";
    const char *brace = strchr("pPx", c) != NULL && (*at)[2] == '{' ? strchr(*at, '}') : NULL;
    if (c >= '0' && c <= '9')
        return "back references are not supported";
    if (c == 'b' && (*at)[2] == '{')
        return "\\b{...} is not supported";
    if (c == 'u' || c == 'U')
        return translate_code_point(at, out);
    if (c == 'v') {
        fputs("\\x0b", out);
        *at += 2;
        return NULL;
    }
    const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (is_letter && strchr("aftnrxpPdDwWsSbBAz", c) == NULL)
        return "it has an escape that is not known";
    copy(at, brace != NULL ? (size_t)(brace + 1 - *at) : 2, out);
    return NULL;
}

/* A union that is being read: items of a plain class, and alternatives beside it. */
struct set {
    char *items, *others;
    size_t n_items, n_others;
    FILE *to_items, *to_others;
};

static const char *read_class(const char **at, unsigned depth, char **ret);

static const char *read_posix(const char **at, FILE *out)
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
        fputs(posix_classes[i].items, out);
        *at = end + 2;
        return NULL;
    }
    return "it has an unknown POSIX class";
}

static bool is_operator(const char *at)
{
    return (at[0] == '&' || at[0] == '-' || at[0] == '~') && at[1] == at[0];
}

static const char *read_items(const char **at, unsigned depth, struct set *set)
{
    while (**at != ']' && !is_operator(*at)) {
        const char *problem = NULL;
        autofree char *nested = NULL;
        if (**at == '\0')
            return "a character class has no end";
        if (**at == '\\') {
            problem = dialect_escape(at, set->to_items);
        } else if (**at == '[' && (*at)[1] == ':') {
            problem = read_posix(at, set->to_items);
        } else if (**at == '[') {
            problem = read_class(at, depth + 1, &nested);
            fprintf(set->to_others, "|%s", nested != NULL ? nested : "");
        } else {
            copy(at, 1, set->to_items);
        }
        if (problem != NULL)
            return problem;
    }
    return NULL;
}

/* An expression for the union; plain says that it is "[...]" and may be negated as such. */
static const char *read_union(const char **at, unsigned depth, bool is_first, char **ret,
                              bool *ret_plain)
{
    struct set set = {0};
    set.to_items = open_memstream(&set.items, &set.n_items);
    set.to_others = open_memstream(&set.others, &set.n_others);
    const char *problem = set.to_items == NULL || set.to_others == NULL ? no_memory : NULL;
    if (problem == NULL && is_first && **at == ']') {
        fputs("\\]", set.to_items);
        (*at)++;
    }
    problem = problem != NULL ? problem : read_items(at, depth, &set);
    if (set.to_items != NULL)
        fclose(set.to_items);
    if (set.to_others != NULL)
        fclose(set.to_others);
    *ret_plain = set.n_others == 0;
    int n = 0;
    if (problem == NULL && set.n_items + set.n_others == 0)
        problem = "a character class is empty";
    else if (problem == NULL && set.n_others == 0)
        n = asprintf(ret, "[%s]", set.items);
    else if (problem == NULL && set.n_items == 0)
        n = asprintf(ret, "(?:%s)", set.others + 1);
    else if (problem == NULL)
        n = asprintf(ret, "(?:[%s]%s)", set.items, set.others);
    free(set.items);
    free(set.others);
    if (n < 0)
        *ret = NULL;
    return n < 0 ? no_memory : problem;
}

/* left OP right, in place of left. */
static const char *combine(char operation, char **left, const char *right)
{
    char *result = NULL;
    int n;
    if (strlen(*left) + strlen(right) > MAX_BYTES)
        return "a character class is too long";
    if (operation == '~')
        n = asprintf(&result, "(?:(?!%s)%s|(?!%s)%s)", right, *left, *left, right);
    else
        n = asprintf(&result, "(?:(?%c%s)%s)", operation == '&' ? '=' : '!', right, *left);
    if (n < 0)
        return no_memory;
    free(*left);
    *left = result;
    return NULL;
}

static const char *negate(char **expression, bool is_plain)
{
    char *result = NULL;
    const int n = is_plain ? asprintf(&result, "[^%s", *expression + 1)
                           : asprintf(&result, "(?:(?!%s)(?s:.))", *expression);
    if (n < 0)
        return no_memory;
    free(*expression);
    *expression = result;
    return NULL;
}

/* At "[" of a class. */
static const char *read_class(const char **at, unsigned depth, char **ret)
{
    if (depth > MAX_NESTED)
        return "classes are nested too deeply";
    *at += 1;
    const bool is_negated = **at == '^';
    *at += is_negated;
    autofree char *left = NULL;
    bool is_plain = false;
    const char *problem = read_union(at, depth, true, &left, &is_plain);
    while (problem == NULL && **at != ']') {
        const char operation = **at;
        autofree char *right = NULL;
        bool is_right_plain;
        *at += 2;
        problem = read_union(at, depth, false, &right, &is_right_plain);
        problem = problem != NULL ? problem : combine(operation, &left, right);
        is_plain = false;
    }
    if (problem == NULL && is_negated)
        problem = negate(&left, is_plain);
    if (problem != NULL)
        return problem;
    *at += 1;
    *ret = steal(&left);
    return NULL;
}

const char *dialect_class(const char **at, FILE *out)
{
    autofree char *expression = NULL;
    const char *problem = read_class(at, 0, &expression);
    if (problem == NULL)
        fputs(expression, out);
    return problem;
}
