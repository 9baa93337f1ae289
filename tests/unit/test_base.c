/* SPDX-License-Identifier: MIT */
/*
 * src/base without files: numbers out of bytes, UTF-8, the arena, the hash map, quoting of names.
 */
#include "base/utf8.h"
#include "check.h"

#include <stdlib.h>

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/error.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/text_index.h"

static void cursor_reads_little_endian(void)
{
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct cursor cursor = cursor_of(bytes, sizeof(bytes));
    uint8_t a = 0;
    uint16_t b = 0;
    uint32_t c = 0;
    uint64_t d = 0;
    check(cursor_u8(&cursor, &a) && a == 1);
    check(cursor_le16(&cursor, &b) && b == 0x0302);
    check(cursor_le32(&cursor, &c) && c == 0x07060504);
    check(cursor_le64(&cursor, &d) && d == 0x0f0e0d0c0b0a0908);
    check_uint(cursor.n_left, 0);
}

static void cursor_takes_nothing_when_too_little_is_left(void)
{
    const uint8_t bytes[7] = {1, 2, 3, 4, 5, 6, 7};
    struct cursor cursor = cursor_of(bytes, sizeof(bytes));
    const uint8_t *at = NULL;
    uint64_t value = 42;
    check(!cursor_le64(&cursor, &value));
    check(!cursor_take(&cursor, 8, &at));
    check(!cursor_take(&cursor, UINT64_MAX, &at));
    check(value == 42 && at == NULL && cursor.n_left == 7 && cursor.at == bytes);
    check(cursor_take(&cursor, 7, &at) && at == bytes);
    check(cursor_take(&cursor, 0, &at));
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    check(!cursor_u8(&cursor, &byte) && !cursor_le16(&cursor, &half) &&
          !cursor_le32(&cursor, &word));
}

static void stores_and_loads_agree(void)
{
    uint8_t bytes[9] = {0};
    store_le64(bytes + 1, 0x1122334455667788);
    check_uint(bytes[1], 0x88);
    check_uint(bytes[8], 0x11);
    check_uint(load_le64(bytes + 1), 0x1122334455667788);
    store_le32(bytes, 0xdeadbeef);
    check_uint(load_le32(bytes), 0xdeadbeef);
    store_le16(bytes + 3, 0xcafe);
    check_uint(load_le16(bytes + 3), 0xcafe);
}

static void checked_arithmetic_tells_overflow(void)
{
    uint64_t ret;
    check(checked_add(UINT64_MAX - 1, (uint64_t)1, &ret) && ret == UINT64_MAX);
    check(!checked_add(UINT64_MAX, (uint64_t)1, &ret));
    check(!checked_sub((uint64_t)1, (uint64_t)2, &ret));
    check(!checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &ret));
    check(checked_round_up(0, 64, &ret) && ret == 0);
    check(checked_round_up(65, 64, &ret) && ret == 128);
    check(!checked_round_up(UINT64_MAX, 64, &ret));
}

static void check_utf8(const char *bytes, size_t n_bytes, size_t n_valid)
{
    /* On the heap at its exact size, so that a sanitizer sees a read past the end. */
    autofree char *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    memcpy(copy, bytes, n_bytes);
    check_uint(utf8_valid(copy, n_bytes), n_valid);
}

static void utf8_is_strict(void)
{
    check_utf8("", 0, 0);
    check_utf8("abc\0def", 7, 7);
    check_utf8("\xc3\xa9", 2, 2);
    check_utf8("\xef\xbf\xbf\xf4\x8f\xbf\xbf", 7, 7);
    check_utf8("abcdefgh\xff", 9, 8);
    check_utf8("abc\xc3", 4, 3);
    check_utf8("ab\xe2\x82", 4, 2);
    check_utf8("\xf0\x9f\x98", 3, 0);
    check_utf8("\xc3\x28", 2, 0);
    check_utf8("\xc0\xaf", 2, 0);         /* overlong */
    check_utf8("\xe0\x80\x80", 3, 0);     /* overlong */
    check_utf8("\xf0\x8f\xbf\xbf", 4, 0); /* overlong */
    check_utf8("\xed\xa0\x80", 3, 0);     /* surrogate */
    check_utf8("\xed\x9f\xbf", 3, 3);
    check_utf8("\xf4\x90\x80\x80", 4, 0); /* past U+10FFFF */
    check_utf8("\xf5\x80\x80\x80", 4, 0);
    check_utf8("\x80", 1, 0);
}

static size_t encode(uint32_t code, uint8_t *ret)
{
    if (code < 0x80) {
        ret[0] = (uint8_t)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        ret[i] = (uint8_t)(0x80 | (code & 0x3f));
    ret[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | code);
    return n;
}

static void utf8_takes_every_character_but_surrogates(void)
{
    unsigned n_wrong = 0;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        uint8_t bytes[4];
        const size_t n = encode(code, bytes);
        const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
        n_wrong += utf8_valid(bytes, n) != (is_surrogate ? 0 : n);
    }
    check_uint(n_wrong, 0);
}

static void arena_aligns_and_keeps(void)
{
    struct arena arena = {0};
    uint8_t *pieces[300];
    for (size_t i = 0; i < 300; i++) {
        pieces[i] = arena_alloc(&arena, i * 7 + 1);
        check((uintptr_t)pieces[i] % _Alignof(max_align_t) == 0);
        memset(pieces[i], (int)i, i * 7 + 1);
        check_str(arena_copy(&arena, "odd", 3), "odd");
    }
    for (size_t i = 0; i < 300; i++)
        check(pieces[i][0] == (uint8_t)i && pieces[i][i * 7] == (uint8_t)i);
    const uint64_t *numbers = arena_calloc(&arena, 1000, sizeof(uint64_t));
    check((uintptr_t)numbers % 8 == 0 && numbers[0] == 0 && numbers[999] == 0);
    check_str(arena_print(&arena, "%s-%d", "x", 7), "x-7");
    arena_done(&arena);
    check(arena.block == NULL && arena.n_bytes == 0);
    arena_done(&arena);
}

static void arena_refuses_above_its_limit(void)
{
    struct arena arena = {.limit = 64 << 10};
    check(arena_alloc(&arena, 1000) != NULL);
    check(!arena.is_full);
    check(arena_alloc(&arena, 64 << 10) == NULL);
    check(arena.is_full);
    size_t n = 0;
    while (n < 1000 && arena_alloc(&arena, 1000) != NULL)
        n++;
    check(n < 65);
    check(arena.n_bytes <= arena.limit);
    arena_done(&arena);
}

static void arena_products_do_not_overflow(void)
{
    struct arena arena = {0};
    check(arena_calloc(&arena, SIZE_MAX / 2, 3) == NULL);
    check(arena_alloc(&arena, SIZE_MAX) == NULL);
    check(arena_copy(&arena, "x", SIZE_MAX) == NULL);
    arena_done(&arena);
}

static bool is_number(const void *ctx, uint32_t id)
{
    return *(const uint32_t *)ctx == id;
}

/* Few different homes, so that runs of full slots grow long. */
static uint64_t crowded_hash(uint32_t id)
{
    return (uint64_t)(id % 13) << 32 | id;
}

static bool map_has(const struct map *map, uint32_t id)
{
    uint32_t found = UINT32_MAX;
    return map_find(map, crowded_hash(id), is_number, &id, &found) && found == id;
}

static void map_finds_what_was_added_and_not_removed(void)
{
    enum { N = 2000 };
    struct map map = {0};
    check(!map_has(&map, 1));
    for (uint32_t id = 0; id < N; id++)
        check_int(map_add(&map, crowded_hash(id), id), 0);
    check_uint(map.n_used, N);
    for (uint32_t id = 0; id < N; id += 3)
        map_remove(&map, crowded_hash(id), id);
    map_remove(&map, crowded_hash(N), N); /* was never there */
    for (uint32_t id = 0; id < N; id++)
        check(map_has(&map, id) == (id % 3 != 0));
    check(!map_has(&map, N));
    check_uint(map.n_used, N - (N + 2) / 3);
    map_done(&map);
    check(!map_has(&map, 1));
}

static void map_room_that_is_reserved_is_enough(void)
{
    struct map map = {0};
    check_int(map_reserve(&map, 1000), 0);
    const struct map_slot *slots = map.slots;
    for (uint32_t id = 0; id < 1000; id++)
        map_add(&map, crowded_hash(id), id);
    check(map.slots == slots);
    map_done(&map);
}

static void pieces_hash_like_the_whole(void)
{
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 31);
    struct hasher *hasher = hasher_new();
    for (size_t at = 0, n = 1; at < sizeof(bytes); at += n, n = n * 2 + 1) {
        n = n < sizeof(bytes) - at ? n : sizeof(bytes) - at;
        hasher_update(hasher, bytes + at, n);
    }
    check_uint(hasher_digest(hasher), hash_bytes(bytes, sizeof(bytes), 0));
    hasher_free(hasher);
    check_uint(hash_bytes("", 0, 0), 0x2d06800538d394c2); /* XXH3 of nothing */
    check_uint(hash_seed(), hash_seed());
}

static void quoting_makes_names_safe(void)
{
    check_str(wfs_quote("encoder.layer.0").text, "encoder.layer.0");
    check_str(wfs_quote("a\nb\x1b[31m'\\").text, "a\\x0ab\\x1b[31m\\x27\\");
    check_str(wfs_quote("a\xd8\x9c\xe2\x80\xae\xc2\x9b").text,
              "a\\xd8\\x9c\\xe2\\x80\\xae\\xc2\\x9b");
    check_str(wfs_prose("near '\x1b[31m\\': 'a\xc2\x85'").text,
              "near '\\x1b[31m\\': 'a\\xc2\\x85'");
    check_str(wfs_quote("gr\xc3\xbc\xc3\x9f").text, "gr\xc3\xbc\xc3\x9f");
    check_str(wfs_quote("\xff\xc3").text, "\\xff\\xc3");
    check_str(wfs_quote("\xc2\x9b").text, "\\xc2\\x9b"); /* C1 control */
    check_str(wfs_quote("\xe2\x80\xae"
                        "x")
                  .text,
              "\\xe2\\x80\\xaex"); /* right-to-left override */
    check_str(wfs_quote_n("a\0b", 3).text, "a\\x00b");
}

static void quoting_cuts_long_names(void)
{
    char name[100000];
    memset(name, 'n', sizeof(name));
    const struct wfs_quoted quoted = wfs_quote_n(name, sizeof(name));
    check(strlen(quoted.text) < WFS_QUOTE_MAX);
    check(strstr(quoted.text, "... (100000 bytes)") != NULL);
    memset(name, '\x01', sizeof(name));
    check(strlen(wfs_quote_n(name, sizeof(name)).text) < WFS_QUOTE_MAX);
}

static void first_report_wins(void)
{
    struct wfs_error err = {0};
    check_int(wfs_fail(&err, 5, "first %d", 1), -5);
    check_int(wfs_fail(&err, 6, "second"), -6);
    check_int(err.code, 5);
    check_str(err.text, "first 1");
    check_int(wfs_fail(NULL, 7, "nobody listens"), -7);
}

static void long_reports_are_cut(void)
{
    struct wfs_error err = {0};
    char text[5000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    wfs_fail(&err, 5, "%s", text);
    check_uint(strlen(err.text), WFS_ERROR_TEXT_MAX - 1);
    check_str(err.text + WFS_ERROR_TEXT_MAX - 6, "xx...");
    for (size_t n = 0; n < 5; n++) { /* a character of four bytes at each place of the cut */
        err = (struct wfs_error){0};
        memset(text, 'x', n);
        for (size_t i = n; i + 4 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x90\x9f", 4);
        wfs_fail(&err, 5, "%s", text);
        const size_t n_text = strlen(err.text);
        check(n_text < WFS_ERROR_TEXT_MAX && n_text > WFS_ERROR_TEXT_MAX - 8);
        check_uint(utf8_valid(err.text, n_text), n_text);
        check_str(err.text + n_text - 3, "...");
    }
}

static void long_lines_are_cut(void)
{
    static const char text[] = "ab\xc3\xa9\x1b\xc3\xa9";
    static const char *const wanted[] = {"...",           "a...",          "ab...",        "ab...",
                                         "ab\xc3\xa9...", "ab\xc3\xa9...", "ab\xc3\xa9..."};
    char line[20];
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        wfs_escape_line(text, line, i + 4);
        check_str(line, wanted[i]);
    }
    wfs_escape_line(text, line, 11);
    check_str(line, "ab\xc3\xa9\\x1b\xc3\xa9");
    wfs_escape_line(text, line, 10);
    check_str(line, "ab\xc3\xa9...");
    wfs_escape_line("", line, 4);
    check_str(line, "");
}

static void array_keeps_what_is_in_it_while_it_grows(void)
{
    uint64_t *numbers = NULL;
    size_t n_room = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        check_int(array_reserve(&numbers, sizeof(*numbers), i, 1, &n_room), 0);
        check(n_room > i);
        numbers[i] = i;
    }
    check_int(array_reserve(&numbers, sizeof(*numbers), 1000, 4000, &n_room), 0);
    check(n_room >= 5000);
    for (uint64_t i = 0; i < 1000; i++)
        check(numbers[i] == i);
    free(numbers);
}

static void array_refuses_what_cannot_be_numbered(void)
{
    char *bytes = NULL;
    size_t n_room = 0;
    check_int(array_reserve(&bytes, 1, 0, SIZE_MAX, &n_room), -ENOMEM);
    check_int(array_reserve(&bytes, 1, UINT32_MAX, 1, &n_room), -ENOMEM);
    check_int(array_reserve(&bytes, SIZE_MAX / 2, 0, 3, &n_room), -ENOMEM);
    check(bytes == NULL && n_room == 0);
}

static void text_index_numbers_texts_in_order(void)
{
    static const char same[] = "a\0b";
    struct text_index index = {0};
    char texts[500][8];
    uint32_t number;
    check_int(text_index_find(&index, "", 0), TEXT_INDEX_NONE);
    for (uint32_t i = 0; i < 500; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%u", i);
        check_int(text_index_add(&index, texts[i], strlen(texts[i]), &number), 0);
        check_int(number, i);
    }
    check_int(text_index_add(&index, "77", 2, &number), 0);
    check_int(number, 77);
    check_int(text_index_add(&index, same, 3, &number), 0);
    check_int(number, 500);
    check_int(text_index_find(&index, same, 1), TEXT_INDEX_NONE);
    check_int(text_index_add(&index, NULL, 0, &number), 0);
    check_int(text_index_find(&index, "", 0), number);
    text_index_done(&index);
}

int main(void)
{
    check_run(cursor_reads_little_endian);
    check_run(cursor_takes_nothing_when_too_little_is_left);
    check_run(stores_and_loads_agree);
    check_run(checked_arithmetic_tells_overflow);
    check_run(utf8_is_strict);
    check_run(utf8_takes_every_character_but_surrogates);
    check_run(arena_aligns_and_keeps);
    check_run(arena_refuses_above_its_limit);
    check_run(arena_products_do_not_overflow);
    check_run(map_finds_what_was_added_and_not_removed);
    check_run(map_room_that_is_reserved_is_enough);
    check_run(array_keeps_what_is_in_it_while_it_grows);
    check_run(array_refuses_what_cannot_be_numbered);
    check_run(text_index_numbers_texts_in_order);
    check_run(pieces_hash_like_the_whole);
    check_run(quoting_makes_names_safe);
    check_run(quoting_cuts_long_names);
    check_run(first_report_wins);
    check_run(long_reports_are_cut);
    check_run(long_lines_are_cut);
    return check_done();
}
