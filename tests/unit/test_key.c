/* SPDX-License-Identifier: MIT */
/*
 * Keys and names: the rules one by one, then random keys there and back.
 */
#include "base/utf8.h"
#include "tree/node/key.h"

#include <stdlib.h>

#include "check.h"

static void check_name(const char *part, size_t n_bytes, const char *want)
{
    struct key_name name;
    char back[KEY_NAME_MAX];
    size_t n_back = 0;
    key_encode(part, n_bytes, 0, &name);
    check_str(name.text, want);
    check_uint(name.n_bytes, strlen(want));
    check(!name.is_cut);
    check(key_decode(name.text, name.n_bytes, back, &n_back) == KEY_IS_PART);
    check_uint(n_back, n_bytes);
    check_bytes(back, part, n_back < n_bytes ? n_back : n_bytes);
    check(key_is_plain(part, n_bytes) == (strcmp(part, want) == 0));
}

static void escapes(void)
{
    static const char *const pairs[][2] = {
        {"weight", "weight"},
        {"", "%"},
        {"%", "%25"},
        {"%self", "%25self"},
        {"%25", "%2525"},
        {"a%~0123456789abcdef", "a%25~0123456789abcdef"},
        {"a/b", "a%2Fb"},
        {"/", "%2F"},
        {"a\nb", "a%0Ab"},
        {"\x01\x1f\x7f", "%01%1F%7F"},
        {".", "%2E"},
        {"..", "%2E."},
        {".hidden", "%2Ehidden"},
        {"a.b", "a.b"},
        {"-rf", "-rf"},
        {"a b'\"$(id)*~#", "a b'\"$(id)*~#"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"cafe\xcc\x81", "cafe\xcc\x81"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xff", "%FF"},
        {"\xed\xa0\x80", "%ED%A0%80"},
        {"\xc3", "%C3"},
        {"\xc3/", "%C3%2F"},
        {"\xe2\x82", "%E2%82"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        check_name(pairs[i][0], strlen(pairs[i][0]), pairs[i][1]);
}

static void names_that_no_key_gives(void)
{
    static const char *const names[] = {
        "%41",
        "a%2fb",
        "%2",
        "%", /* the last is a name, of nothing */
        "a%",
        "%%",
        "%00",
        "%zz",
        "a%2E",
        "a\nb",
        "\x7f",
        "\xff",
        "%C3%A9",
        "a/b",
        "%selfish",
        "%SELF",
        "%~0123456789abcdef",
        "a%~0123456789ABCDEF",
        "a%~0123456789abcde",
        "%2Fa%~",
    };
    char part[KEY_NAME_MAX];
    size_t n;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const enum key_kind want = strcmp(names[i], "%") == 0 ? KEY_IS_PART : KEY_IS_INVALID;
        if (!check_int(key_decode(names[i], strlen(names[i]), part, &n), want))
            printf("# %s\n", names[i]);
    }
    check(key_decode("", 0, part, &n) == KEY_IS_INVALID);
    check(key_decode(KEY_SELF, 5, part, &n) == KEY_IS_SELF);
    check(key_decode(".weight.XXXXXX", 14, part, &n) == KEY_IS_SCRATCH);
    check(key_decode("a%~0123456789abcdef", 19, part, &n) == KEY_IS_CUT);
}

static void long_parts_are_cut_between_characters(void)
{
    char part[800];
    struct key_name name, again;
    for (size_t n = 231; n < 800; n += 2) {
        for (size_t i = 0; i + 1 < n; i += 2)
            memcpy(part + i, "\xc3\xa9", 2);
        part[n - 1] = 'x';
        key_encode(part, n, 0, &name);
        check(name.n_bytes <= KEY_NAME_MAX);
        check(strlen(name.text) == name.n_bytes);
        check(name.is_cut == (n > KEY_NAME_MAX));
        check(utf8_valid(name.text, name.n_bytes) == name.n_bytes);
        key_encode(part, n, strlen(KEY_NPY), &again);
        check(again.n_bytes + strlen(KEY_NPY) <= KEY_NAME_MAX);
        if (name.is_cut)
            check_str(again.text, name.text);
    }
    memset(part, '/', sizeof(part));
    key_encode(part, 85, 0, &name);
    check(!name.is_cut);
    key_encode(part, 86, 0, &name);
    check(name.is_cut);
    check_bytes(name.text + name.n_bytes - 18, "%~", 2);
    check((name.n_bytes - 18) % 3 == 0);
}

static void iteration_splits_at_dots(void)
{
    struct key_iter iter = {"a..b", KEY_DEPTH_MAX};
    struct key_part part = key_next(&iter);
    check(part.n_bytes == 1 && !part.is_last);
    part = key_next(&iter);
    check(part.n_bytes == 0 && !part.is_last);
    part = key_next(&iter);
    check(part.n_bytes == 1 && part.is_last);
    iter = (struct key_iter){"a.b.c", 2};
    part = key_next(&iter);
    part = key_next(&iter);
    check(part.is_last);
    check_str(part.bytes, "b.c");
    iter = (struct key_iter){"", KEY_DEPTH_MAX};
    part = key_next(&iter);
    check(part.n_bytes == 0 && part.is_last);
}

static uint64_t state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 11) % n;
}

static size_t random_key(char *key)
{
    static const char *const bits[] = {".",      "..", "%",     "/",  "%self",
                                       "%25",    "~",  "\n",    "é",  "\xf0\x9f\x98\x80",
                                       "weight", "0",  "layer", ".%", "%~0123456789abcdef",
                                       ".npy"};
    const size_t n_max = random_below(20) == 0 ? 2000 : random_below(60) + 1;
    size_t n = 0;
    while (n < n_max) {
        if (random_below(3) == 0) {
            key[n++] = (char)(random_below(255) + 1);
            continue;
        }
        const char *bit = bits[random_below(sizeof(bits) / sizeof(*bits))];
        memcpy(key + n, bit, strlen(bit));
        n += strlen(bit);
    }
    if (random_below(200) == 0)
        n = 0;
    key[n] = '\0';
    return n;
}

/* Names of the key's parts, decoded and joined: the key again. */
static bool comes_back(const char *key, unsigned depth, struct arena *arena)
{
    struct key_cuts cuts = {0};
    struct key_iter iter = {key, depth};
    char joined[2100] = "";
    size_t n_joined = 0;
    bool is_good = true;
    for (bool is_last = false; !is_last && is_good;) {
        const struct key_part part = key_next(&iter);
        struct key_name name;
        char back[KEY_NAME_MAX];
        size_t n_back = 0;
        key_encode(part.bytes, part.n_bytes, 0, &name);
        is_good = strlen(name.text) == name.n_bytes && name.n_bytes > 0 &&
                  name.n_bytes <= KEY_NAME_MAX && strchr(name.text, '/') == NULL &&
                  name.text[0] != '.' && strcmp(name.text, KEY_SELF) != 0 &&
                  utf8_valid(name.text, name.n_bytes) == name.n_bytes;
        const enum key_kind kind = key_decode(name.text, name.n_bytes, back, &n_back);
        is_good = is_good && kind == (name.is_cut ? KEY_IS_CUT : KEY_IS_PART);
        const char *bytes = back;
        if (name.is_cut) {
            is_good = is_good && key_cuts_add(&cuts, arena, &name, part.bytes, part.n_bytes) == 0;
            bytes = key_cuts_find(&cuts, name.text, name.n_bytes);
            n_back = part.n_bytes;
        }
        if (!is_good || bytes == NULL)
            break;
        memcpy(joined + n_joined, bytes, n_back);
        n_joined += n_back;
        if (!part.is_last)
            joined[n_joined++] = '.';
        is_last = part.is_last;
    }
    joined[n_joined] = '\0';
    key_cuts_done(&cuts);
    return is_good && strcmp(joined, key) == 0;
}

static void random_keys_come_back(void)
{
    static char key[2100];
    for (int i = 0; i < 100000; i++) {
        struct arena arena = {0};
        random_key(key);
        if (!check(comes_back(key, KEY_DEPTH_MAX, &arena)) || !check(comes_back(key, 1, &arena))) {
            printf("# key %d: %s\n", i, key);
            i = 100000;
        }
        arena_done(&arena);
    }
}

/* Each name that is accepted is the one that its part gives: no two names for one part. */
static void random_names_are_refused_or_come_back(void)
{
    static char name[2100];
    unsigned n_accepted = 0;
    for (int i = 0; i < 200000; i++) {
        char part[KEY_NAME_MAX];
        size_t n_part;
        const size_t n = random_key(name);
        if (key_decode(name, n, part, &n_part) != KEY_IS_PART)
            continue;
        struct key_name again;
        n_accepted++;
        key_encode(part, n_part, 0, &again);
        check(again.n_bytes == n && memcmp(again.text, name, n) == 0);
    }
    check(n_accepted > 1000);
}

int main(void)
{
    check_run(escapes);
    check_run(names_that_no_key_gives);
    check_run(long_parts_are_cut_between_characters);
    check_run(iteration_splits_at_dots);
    check_run(random_keys_come_back);
    check_run(random_names_are_refused_or_come_back);
    return check_done();
}
