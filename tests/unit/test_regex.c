/* SPDX-License-Identifier: MIT */
/*
 * The dialect of regexes and replacements, and how many searches they take.
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "view/regex/regex.h"

static void check_replace(const char *pattern, const char *replacement, const char *in,
                          const char *want)
{
    struct regex *regex = NULL;
    struct arena arena = {0};
    struct wfs_error err = {0};
    const char *out = in;
    if (!check_int(regex_new(pattern, &regex, &err), 0)) {
        printf("# %s\n", err.text);
        return;
    }
    check(regex_replace(regex, in, replacement, &arena, &out, &err) >= 0);
    if (!check_str(out, want))
        printf("# pattern %s, replacement %s\n", pattern, replacement);
    regex_free(regex);
    arena_done(&arena);
}

static void test_replacement_syntax(void)
{
    static const char *const rows[][4] = {
        {"^transformer\\.h\\.(\\d+)\\.", "transformer.layer$1.", "transformer.h.0.attn.weight",
         "transformer.layer0.attn.weight"},
        {"norm(\\d+)", "norm_$1", "blk.norm1.weight", "blk.norm_1.weight"},
        {"norm(\\d+)", "$1_x", "norm7.w", ".w"},
        {"norm(\\d+)", "${1}_x", "norm7.w", "7_x.w"},
        {"norm(\\d+)", "$1x", "norm7.w", ".w"},
        {"norm(\\d+)", "$1-x", "norm7.w", "7-x.w"},
        {"norm(\\d+)", "$$1", "norm7.w", "$1.w"},
        {"norm(\\d+)", "a$", "norm7.w", "a$.w"},
        {"norm(\\d+)", "${1", "norm7.w", "${1.w"},
        {"norm(\\d+)", "$9", "norm7.w", ".w"},
        {"norm(\\d+)", "$01", "norm7.w", "7.w"},
        {"norm(\\d+)", "\\1", "norm7.w", "\\1.w"},
        {"norm(?P<n>\\d+)", "${n}z", "norm7.w", "7z.w"},
        {"a", "b", "banana", "bbnbnb"},
        {"(a)|(b)", "[$1|$2]", "ab", "[a|][|b]"},
        {"^", "m.", "x.y", "m.x.y"},
        {"$", ".x", "a.b", "a.b.x"},
        {"a*", "-", "baab", "-b-b-"},
        {"", "-", "\xc3\xa9x", "-\xc3\xa9-x-"},
        {"x", "y", "abc", "abc"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        check_replace(rows[i][0], rows[i][1], rows[i][2], rows[i][3]);
}

static void test_what_the_crate_has_not_is_refused(void)
{
    static const char *const patterns[] = {
        "a(?=b)",
        "(?<!a)b",
        "(a)\\1",
        "(?>a)",
        "(?R)",
        "\\Z",
        "\\h",
        "a{,3}",
        "(?y)a",
        "(",
        "[a",
        "a\\",
        "[a&&]",
        "[[:alfa:]]",
        "*a",
        "(?#c)",
        "\\Qa\\E",
        "(?-u)a",
        "(?P=n)",
        "\\K",
        "(*FAIL)",
        "\xff",
        "[\\b]",
        "[\\A]",
        "[\\w-z]",
        "^**?{",
        /* What it has, and would have another meaning here. */
        "(?i)\\p{Lu}",
        "\\P{Ll}(?i:a)",
        "(?i)[\\p{Uppercase_Letter}]",
        "(?i)\\p{gc=Lt}",
    };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        struct regex *regex = NULL;
        struct wfs_error err = {0};
        if (!check_int(regex_new(patterns[i], &regex, &err), -EINVAL))
            printf("# pattern %s\n", patterns[i]);
        check(strncmp(err.text, "bad regex '", 11) == 0);
        regex_free(regex);
    }
}

static void test_what_the_crate_has(void)
{
    /* Superscripts are no part of a word; marks, circled letters and joiners are. */
    check_replace("\\w", "X", "x\u00b2e\u0301\u24d0\u200d_\u0663.\u2167", "X\u00b2XXXXXX.X");
    check_replace("\\W|[\\W]", "X", "x\u00b2\u24d0.", "xX\u24d0X");
    check_replace("[^\\w.]", "X", "x\u00b2\u24d0.", "xX\u24d0.");
    check_replace("[\\W\\d]", "X", "x1\u00b2", "xXX");
    check_replace("\\b", "|", "x\u00b2 \u24d0b", "|x|\u00b2 |\u24d0b|");
    check_replace("\\B", "|", "\u24d0b\u00b2", "\u24d0|b\u00b2|");
    check_replace("\\<|\\>", "|", "a\u0301 b", "|a\u0301| |b|");
    check_replace("\\s", "X", "a\u180e\xc2\x85\u2003.", "a\u180eXX.");
    check_replace("\\S", "X", "\u180e\u2003", "X\u2003");
    check_replace("^*a", "X", "ba", "bX");
    check_replace("^+a", "X", "aa", "Xa");
    check_replace("a$*b", "X", "ab", "X");
    check_replace("\\A{2}a\\z?", "X", "aa", "Xa");
    check_replace("^??a|\\b+", "X", "a", "X");
    check_replace("\\p{Lu}", "X", "aA", "aX");
    check_replace("(?i)[[:upper:]]|\\p{L}{2}", "X", "a\u00e9\u00c9", "XX");
    check_replace("(?-i)\\p{Lu}\\\\p{1}", "X", "A\\p", "X");
    check_replace("\\<b", "X", "ab b.b", "ab X.X");
    check_replace("(?i)NORM", "n", "aNorM", "an");
    check_replace("[]a]", "-", "a]b", "--b");
    check_replace("[^]]", "-", "a]b", "-]-");
    check_replace("[[:digit:]]+?", "#", "a12", "a##");
    check_replace("[[a]b]x", "-", "ax bx cx", "- - cx");
    check_replace("[a-z--[b-y]]", "-", "abz", "-b-");
    check_replace("[^a[b]]", "-", "abc", "ab-");
    check_replace("[a-c~~b-d]", "-", "abcd", "-bc-");
    check_replace("a{2}{2}", "-", "aaaaa", "-a");
    check_replace("(ab|c)*+", "-", "abcx", "-x-");
    check_replace("\\d", "#", "a\xd9\xa3", "a#"); /* an Arabic digit */
    check_replace("a.c", "-", "a\nc abc", "a\nc -");
    check_replace("b$", "-", "b\n", "b\n");
}

/* Counts searches: the library's own function is found behind this one. */
static unsigned n_searches;

int pcre2_match_8(const void *code, const unsigned char *text, size_t n, size_t offset,
                  uint32_t options, void *match, void *context);

int pcre2_match_8(const void *code, const unsigned char *text, size_t n, size_t offset,
                  uint32_t options, void *match, void *context)
{
    static int (*real)(const void *, const unsigned char *, size_t, size_t, uint32_t, void *,
                       void *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pcre2_match_8");
    n_searches++;
    return real(code, text, n, offset, options, match, context);
}

static unsigned searches_of(const char *pattern, const char *text, const char *replacement)
{
    struct regex *regex = NULL;
    struct arena arena = {0};
    const char *out;
    check_int(regex_new(pattern, &regex, NULL), 0);
    n_searches = 0;
    if (replacement == NULL)
        check(regex_search(regex, text, NULL) >= 0);
    else
        check(regex_replace(regex, text, replacement, &arena, &out, NULL) >= 0);
    regex_free(regex);
    arena_done(&arena);
    return n_searches;
}

static void test_a_text_is_searched_once(void)
{
    check_int(searches_of("z", "abc", NULL), 1);
    check_int(searches_of("b", "abc", NULL), 1);
    check_int(searches_of("(a)(b)", "abc", NULL), 1);
    check_int(searches_of("z", "abc", "y"), 1);
    /* The match, and that there is no other. */
    check_int(searches_of("^a", "abc", "y"), 2);
    check_int(searches_of("(b)", "abc", "y"), 2);
}

static void test_a_glob_is_recognised(void)
{
    static const char *const rows[][2] = {
        {"*.weight", "bad regex '*.weight': quantifier does not follow a repeatable item (a regex "
                     "is expected, not a glob; try '\\.weight$')"},
        {"*", "bad regex '*': quantifier does not follow a repeatable item (a regex is expected, "
              "not a glob)"},
        {"+a", "bad regex '+a': quantifier does not follow a repeatable item"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct regex *regex = NULL;
        struct wfs_error err = {0};
        check_int(regex_new(rows[i][0], &regex, &err), -EINVAL);
        check_str(err.text, rows[i][1]);
    }
}

static void test_a_regex_that_takes_too_long_gives_up(void)
{
    struct regex *regex = NULL;
    struct wfs_error err = {0};
    check_int(regex_new("^(a|aa|b?a)+$", &regex, NULL), 0);
    check_int(regex_search(regex, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", &err),
              -E2BIG);
    regex_free(regex);
}

int main(void)
{
    check_run(test_replacement_syntax);
    check_run(test_what_the_crate_has_not_is_refused);
    check_run(test_what_the_crate_has);
    check_run(test_a_text_is_searched_once);
    check_run(test_a_glob_is_recognised);
    check_run(test_a_regex_that_takes_too_long_gives_up);
    return check_done();
}
