/* SPDX-License-Identifier: MIT */
/*
 * Matching and replacing with PCRE2. Substitution is done here, because the crate's syntax and its
 * rule for empty matches are not those of PCRE2.
 */
#include "view/regex/regex.h"

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "view/regex/dialect.h"

enum {
    MAX_PATTERN = 64 << 10, /* bytes */
    MAX_STEPS = 2000000,    /* of the matcher for one search, before it gives up */
    MAX_DEPTH_KIB = 65536,  /* memory of the matcher */
};

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
    const int code = dialect_translate(regex->pattern, &translated, &problem);
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
    size_t i = n > 1 && name[0] == '+';
    *ret = 0;
    for (; i < n; i++) {
        if (name[i] < '0' || name[i] > '9' || !checked_mul(*ret, 10u, ret) ||
            !checked_add(*ret, (uint64_t)(name[i] - '0'), ret))
            return false;
    }
    return n > 0;
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
