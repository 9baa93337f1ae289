/* SPDX-License-Identifier: MIT */
/*
 * src/format/json: what is JSON and what is not, to the letter of serde_json. Each text lies in
 * memory of just its size, so that a sanitizer sees a look beyond its end.
 */
#include <weightfs/cleanup.h>

#include "check.h"

#include <stdlib.h>

#include "text/json.h"

struct text {
    const char *bytes;
    size_t n_bytes;
};

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static char *copy_of(const char *bytes, size_t n_bytes)
{
    char *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, n_bytes);
    return copy;
}

/* NULL when the whole text is one value, else what is wrong. */
static const char *error_of(const char *bytes, size_t n_bytes, size_t *ret_offset)
{
    autofree char *copy = copy_of(bytes, n_bytes);
    struct json json = json_of(copy, n_bytes);
    const bool is_ok = json_skip(&json) && json_end(&json);
    check(is_ok == (json.error == NULL));
    check(json_offset(&json) <= n_bytes);
    *ret_offset = json_offset(&json);
    return json.error;
}

static void takes_what_is_json(void)
{
    static const struct text texts[] = {
        TEXT("{}"),
        TEXT("[]"),
        TEXT("null"),
        TEXT("true"),
        TEXT("false"),
        TEXT("\"\""),
        TEXT("0"),
        TEXT("-0"),
        TEXT(" \t\r\n1 \t\r\n"),
        TEXT("[ ]"),
        TEXT("{ }"),
        TEXT("[[],[[]],{}]"),
        TEXT("[1,2 , 3]"),
        TEXT("{\"a\":{\"b\":[null,true,{\"c\":\"d\"}]},\"a\":1}"),
        TEXT("{ \"a\" : 1 , \"b\" : 2 }"),
        TEXT("0.5"),
        TEXT("1e5"),
        TEXT("1E+5"),
        TEXT("1.25e-5"),
        TEXT("-1.0"),
        TEXT("18446744073709551616"),
        TEXT("-9223372036854775809"),
        TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uD83D\\ude00\\uFFFF\""),
        TEXT("\"\x7f\xc3\xa9\xe2\x80\xa8\xef\xbf\xbf\xf4\x8f\xbf\xbf\""),
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t offset;
        const char *error = error_of(texts[i].bytes, texts[i].n_bytes, &offset);
        if (!check(error == NULL))
            printf("# refused: %s: %s at %zu\n", texts[i].bytes, error, offset);
    }
}

static const struct {
    struct text text;
    size_t offset;
} malformed[] = {
    {TEXT(""), 0},
    {TEXT("  "), 2},
    {TEXT("{"), 1},
    {TEXT("["), 1},
    {TEXT("}"), 0},
    {TEXT("]"), 0},
    {TEXT("[}"), 1},
    {TEXT("{]"), 1},
    {TEXT("[1}"), 2},
    {TEXT("[1 2]"), 3},
    {TEXT("[1,]"), 3},
    {TEXT("[,]"), 1},
    {TEXT("[1,,2]"), 3},
    {TEXT("{,}"), 1},
    {TEXT("{\"a\"}"), 4},
    {TEXT("{\"a\" 1}"), 5},
    {TEXT("{\"a\":}"), 5},
    {TEXT("{\"a\":1,}"), 7},
    {TEXT("{a:1}"), 1},
    {TEXT("{'a':1}"), 1},
    {TEXT("{1:1}"), 1},
    {TEXT("{\"a\":1 \"b\":2}"), 7},
    {TEXT("1 1"), 2},
    {TEXT("{}{}"), 2},
    {TEXT("{},"), 2},
    {TEXT("{}\0"), 2},
    {TEXT("\xef\xbb\xbf{}"), 0},
    {TEXT("\v1"), 0},
    {TEXT("\f1"), 0},
    {TEXT("/*x*/1"), 0},
    {TEXT("True"), 0},
    {TEXT("tru"), 0},
    {TEXT("truE"), 0},
    {TEXT("nul"), 0},
    {TEXT("NaN"), 0},
    {TEXT("Infinity"), 0},
    {TEXT("-Infinity"), 1},
    {TEXT("+1"), 0},
    {TEXT(".5"), 0},
    {TEXT("1."), 2},
    {TEXT("1.e5"), 2},
    {TEXT("01"), 0},
    {TEXT("-01"), 1},
    {TEXT("00"), 0},
    {TEXT("0x1"), 1},
    {TEXT("-"), 1},
    {TEXT("1e"), 2},
    {TEXT("1e+"), 3},
    {TEXT("\"a"), 2},
    {TEXT("\""), 1},
    {TEXT("\"\\"), 2},
    {TEXT("\"\\\""), 3},
    {TEXT("\"a\nb\""), 2},
    {TEXT("\"a\0b\""), 2},
    {TEXT("\"abcdefgh\x1f\""), 9},
    {TEXT("\"\\x41\""), 2},
    {TEXT("\"\\\0\""), 2},
    {TEXT("\"\\u41\""), 5},
    {TEXT("\"\\u004"), 6},
    {TEXT("\"\\u00g0\""), 5},
    {TEXT("\"\\ud800\""), 1},
    {TEXT("\"\\udc00\""), 1},
    {TEXT("\"\\ud800\\ud800\""), 1},
    {TEXT("\"\\ud800x\""), 1},
    {TEXT("\"\\ud800\\u\""), 9},
    {TEXT("\"\\ud800\\n\""), 1},
};

static void refuses_what_is_not_and_says_where(void)
{
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        size_t offset;
        const char *error = error_of(malformed[i].text.bytes, malformed[i].text.n_bytes, &offset);
        if (!check(error != NULL && offset == malformed[i].offset))
            printf("# %s: %s at %zu\n", malformed[i].text.bytes, error ? error : "taken", offset);
    }
}

static void numbers_end_at_the_largest_double(void)
{
    static const struct {
        const char *text;
        bool is_ok;
    } cases[] = {
        {"1.7976931348623157e308", true},
        {"1.7976931348623158e308", true},
        {"1.7976931348623159e308", false},
        {"1.8e308", false},
        {"17.976931348623157e307", true},
        {"0.00017976931348623157e312", true},
        {"0.00017976931348623159e312", false},
        {"-1.8e308", false},
        {"9e307", true},
        {"1e308", true},
        {"1e309", false},
        {"1e999", false},
        {"1e99999999999999999999", false},
        {"0e99999999999999999999", true},
        {"0.000e999", true},
        {"1e-999", true},
        {"1e-99999999999999999999", true},
        {"-0e999", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t offset;
        const bool is_ok = error_of(cases[i].text, strlen(cases[i].text), &offset) == NULL;
        if (!check(is_ok == cases[i].is_ok))
            printf("# %s\n", cases[i].text);
    }
    char digits[400];
    size_t offset;
    memset(digits, '9', sizeof(digits));
    check(error_of(digits, 308, &offset) == NULL);
    check(error_of(digits, 309, &offset) != NULL);
    check(error_of(digits, 400, &offset) != NULL);
    memset(digits, '0', sizeof(digits));
    digits[1] = '.';
    memcpy(digits + 390, "9e690", 5);
    check(error_of(digits, 395, &offset) == NULL);
    memcpy(digits + 390, "9e698", 5);
    check(error_of(digits, 395, &offset) != NULL);
}

static void opens_127_containers_and_no_more(void)
{
    for (int is_object = 0; is_object < 2; is_object++) {
        for (size_t depth = 126; depth <= 129; depth++) {
            char text[1024];
            size_t n = 0, offset;
            for (size_t i = 0; i < depth; i++)
                n +=
                    (size_t)snprintf(text + n, sizeof(text) - n, "%s", is_object ? "{\"a\":" : "[");
            text[n++] = '1';
            for (size_t i = 0; i < depth; i++)
                text[n++] = is_object ? '}' : ']';
            check((error_of(text, n, &offset) == NULL) == (depth <= 127));
        }
    }
}

static void whole_numbers_are_digits_only(void)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0}, {" 7 ", 7}, {"10", 10}, {"18446744073709551615", UINT64_MAX}, {"42]", 42},
    };
    static const char *const bad[] = {"",
                                      "-1",
                                      "-0",
                                      "01",
                                      "00",
                                      "1.0",
                                      "1e0",
                                      "1E0",
                                      "18446744073709551616",
                                      "99999999999999999999",
                                      "\"1\"",
                                      "true",
                                      "null",
                                      "[1]",
                                      "x",
                                      "+1",
                                      "1."};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        autofree char *copy = copy_of(good[i].text, strlen(good[i].text));
        struct json json = json_of(copy, strlen(good[i].text));
        uint64_t value = 1;
        check(json_take_uint(&json, &value));
        check_uint(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        autofree char *copy = copy_of(bad[i], strlen(bad[i]));
        struct json json = json_of(copy, strlen(bad[i]));
        uint64_t value;
        if (!check(!json_take_uint(&json, &value) && json.error != NULL))
            printf("# %s\n", bad[i]);
    }
}

static void strings_are_unescaped_in_place(void)
{
    static const char text[] =
        "\"plain\" \"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\" \"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\" "
        "\"x\\u0000y\" "
        "\"a long one without escapes at first \\u0021 and then more of it\"";
    static const struct text want[] = {
        TEXT("plain"),
        TEXT("a\"\\/\b\f\n\r\tz"),
        TEXT("A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
        TEXT("x\0y"),
        TEXT("a long one without escapes at first ! and then more of it"),
    };
    autofree char *copy = copy_of(text, sizeof(text) - 1);
    struct json json = json_of(copy, sizeof(text) - 1);
    size_t offset = 0;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct json_text got;
        if (!check(json_take_string(&json, &got)))
            return;
        check_uint(got.offset, offset);
        check_uint(got.n_bytes, want[i].n_bytes);
        check_bytes(got.bytes, want[i].bytes, want[i].n_bytes + 1);
        offset = json_offset(&json) + 1;
    }
    check(json_end(&json));
}

/* Every place of a special character in every alignment of the eight bytes looked at together. */
static void strings_end_wherever_they_end(void)
{
    for (size_t n = 0; n < 40; n++) {
        char text[64] = "\"";
        size_t offset;
        memset(text + 1, n % 2 ? 'a' : '\xc3', n);
        for (size_t i = 1; n % 2 == 0 && i < n; i += 2)
            text[i + 1] = '\xa9';
        text[n + 1] = '"';
        check(error_of(text, n + 2, &offset) == NULL);
        check(error_of(text, n + 1, &offset) != NULL && offset == n + 1);
        text[n + 1] = '\x1f';
        check(error_of(text, n + 2, &offset) != NULL && offset == n + 1);
        text[n + 1] = '\x20';
        check(error_of(text, n + 2, &offset) != NULL && offset == n + 2);
    }
}

static void members_are_pulled_one_by_one(void)
{
    static const char text[] = "{\"a\":[],\"b\":[1,2],\"c\":{\"d\":null}} ";
    autofree char *copy = copy_of(text, sizeof(text) - 1);
    struct json json = json_of(copy, sizeof(text) - 1);
    struct json_text key;
    uint64_t sum = 0, value;
    unsigned n_keys = 0;
    check(json_open_object(&json));
    while (json_next_key(&json, &key)) {
        n_keys++;
        if (json_kind(&json) == JSON_KIND_ARRAY) {
            check(json_open_array(&json));
            while (json_next_item(&json) && json_take_uint(&json, &value))
                sum += value;
        } else {
            check(json_kind(&json) == JSON_KIND_OBJECT && json_skip(&json));
        }
    }
    check(json.error == NULL && json_end(&json));
    check_uint(n_keys, 3);
    check_uint(sum, 3);
    check_uint(json.depth, 0);
}

static void an_error_stays(void)
{
    char text[] = "[1,x,2]";
    struct json json = json_of(text, sizeof(text) - 1);
    uint64_t value;
    check(json_open_array(&json) && json_next_item(&json) && json_take_uint(&json, &value));
    check(json_next_item(&json) && !json_take_uint(&json, &value));
    const char *error = json.error;
    check_uint(json_offset(&json), 3);
    check(!json_next_item(&json) && !json_skip(&json) && !json_take_null(&json) &&
          !json_end(&json));
    check(!json_open_object(&json) && json_kind(&json) == JSON_KIND_NONE);
    check(!json_fail(&json, "another") && json.error == error);
    check_uint(json_offset(&json), 3);
}

int main(void)
{
    check_run(takes_what_is_json);
    check_run(refuses_what_is_not_and_says_where);
    check_run(numbers_end_at_the_largest_double);
    check_run(opens_127_containers_and_no_more);
    check_run(whole_numbers_are_digits_only);
    check_run(strings_are_unescaped_in_place);
    check_run(strings_end_wherever_they_end);
    check_run(members_are_pulled_one_by_one);
    check_run(an_error_stays);
    return check_done();
}
