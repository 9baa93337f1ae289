/* SPDX-License-Identifier: MIT */
/*
 * What lies between a reader and a server: URLs, messages, cache files, how far is read ahead.
 */
#include "check.h"

#include <weightfs/cachefile.h>
#include <weightfs/cleanup.h>
#include <weightfs/described.h>
#include <weightfs/fetching.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/remote_call.h"

enum { PIECE = CACHEFILE_PIECE, BLOCK = CACHEFILE_BLOCK };

static void a_url_is_shown_without_what_is_secret(void)
{
    static const char *const cases[][3] = {
        {"https://h/a/b.st", "https://h/a/b.st", "b.st"},
        {"https://u:p@h:1/a/b.st?sig=x/y#z", "https://h:1/a/b.st", "b.st"},
        {"http://u@h?x=/secret", "http://h", "download"},
        {"https://h/a@b/c%20d", "https://h/a@b/c%20d", "c d"},
        {"https://h/..", "https://h/..", "download"},
        {"https://h/a%2Fb", "https://h/a%2Fb", "download"},
        {"s3://bucket/a?b#c%20", "s3://bucket/a?b#c%20", "a?b#c%20"},
        {"s3://key:secret@bucket/a", "s3://bucket/a", "a"},
        {"hf://o/n@rev/f.st", "hf://o/n@rev/f.st", "f.st"},
        {"HTTPS://u:p@H/x", "HTTPS://H/x", "x"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        autofree char *shown = url_shown(cases[i][0]), *name = url_name(cases[i][0]);
        check(url_is(cases[i][0]));
        check_str(shown, cases[i][1]);
        check_str(name, cases[i][2]);
    }
    check(!url_is("ftp://h/a") && !url_is("/http://h/a") && !url_is("s3:/a") && !url_is(""));
}

static void a_sibling_is_in_the_folder_of_the_path(void)
{
    static const char *const cases[][3] = {
        {"https://u:p@h/a/i.json?x=1/2#f/g", "m.st", "https://u:p@h/a/m.st"},
        {"https://h/a/i.json", "a b%?#:é", "https://h/a/a%20b%25%3F%23%3A%C3%A9"},
        {"https://h", "m", "https://h/m"},
        {"s3://b/a?b/i.json", "m?.st", "s3://b/a?b/m?.st"},
        {"hf://o/n@r/i.json", "m.st", "hf://o/n@r/m.st"}};
    static const char *const away[] = {"", ".", "..", "a/b", "../a", "https:m.st", "s3:x", "//h/a"};
    char *url = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check_int(url_sibling(cases[i][0], cases[i][1], &url, NULL), 0);
        check_str(url, cases[i][2]);
        free(url);
    }
    for (size_t i = 0; i < sizeof(away) / sizeof(*away); i++)
        check_int(url_sibling("https://h/a/i.json", away[i], &url, NULL), -EINVAL);
}

static void a_path_below_is_made_of_names(void)
{
    static const char *const away[] = {"",     "/m",    "b/",   "b//m", "b/../m",
                                       "../m", "b/./m", "x:/m", "b/x:m"};
    char *url = NULL;
    check_int(url_below("https://u:p@h/a/i?x", "b c/d%2F/m", &url, NULL), 0);
    check_str(url, "https://u:p@h/a/b%20c/d%252F/m");
    free(url);
    check_int(url_below("s3://b/k/", "x y/m", &url, NULL), 0);
    check_str(url, "s3://b/k/x y/m");
    free(url);
    for (size_t i = 0; i < sizeof(away) / sizeof(*away); i++)
        check_int(url_below("https://h/a/i.json", away[i], &url, NULL), -EINVAL);
}

static void messages_arrive_as_they_were_sent(void)
{
    int ends[2], fd;
    static uint8_t buf[FETCHING_MAX];
    struct fetching got;
    const struct fetching sent = {.kind = FETCHING_OPENED,
                                  .request = 7,
                                  .object = UINT32_MAX,
                                  .code = 3,
                                  .offset = 1ull << 40,
                                  .n_bytes = 1ull << 41,
                                  .n_fetched = UINT64_MAX,
                                  .n_needed = 1,
                                  .digest = 1ull << 63,
                                  .text = "text",
                                  .n_text = 4};
    check_int(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    check_int(fetching_receive(ends[1], buf, &got, &fd), -EAGAIN);
    check_int(fetching_send(ends[0], &sent, ends[0]), 0);
    check_int(fetching_receive(ends[1], buf, &got, &fd), 0);
    check(fd >= 0);
    close(fd);
    check(got.kind == sent.kind && got.request == 7 && got.object == UINT32_MAX && got.code == 3);
    check(got.offset == sent.offset && got.n_bytes == sent.n_bytes && got.n_fetched == UINT64_MAX);
    check(got.n_needed == 1 && got.digest == sent.digest && got.n_text == 4);
    check(memcmp(got.text, "text", 4) == 0);
    check_int(send(ends[0], "short", 5, 0), 5);
    check_int(fetching_receive(ends[1], buf, &got, &fd), -EBADMSG);
    close(ends[0]);
    check_int(fetching_receive(ends[1], buf, &got, &fd), -EPIPE);
    check_int(fetching_send(ends[1], &sent, -1), -EPIPE);
    close(ends[1]);
}

static void check_path(const char *url, const char *other, const char *expected)
{
    char *path = url_path_below(url, other);
    const bool is_right =
        path == NULL ? expected == NULL : expected != NULL && strcmp(path, expected) == 0;
    if (!check(is_right))
        printf("# %s, %s: %s\n", url, other, path == NULL ? "none" : path);
    free(path);
}

static void what_is_below_is_recognised(void)
{
    static const char *const are[][3] = {{"https://u@h/a/i?x/y", "https://u@h/a/m%20", "m "},
                                         {"s3://b/k/i", "s3://b/k/m?x", "m?x"},
                                         {"hf://o/n@r/i", "hf://o/n@r/m", "m"},
                                         {"https://h/a/i", "https://h/a/b/m", "b/m"},
                                         {"https://h/a/", "https://h/a/b%2e/m", "b./m"},
                                         {"s3://b/k/", "s3://b/k/%2e%2e/m", "%2e%2e/m"}};
    static const char *const are_not[][2] = {{"https://h/a/i", "https://h/b/i"},
                                             {"https://h/a/i", "https://h/a/m?x"},
                                             {"https://h/a/i", "https://h/a//m"},
                                             {"https://h/a/i", "https://h/a/.."},
                                             {"https://h/a/i", "https://h/a/b/../../c"},
                                             {"https://h/a/i", "https://h/a/b/%2e%2E/c"},
                                             {"https://h/a/i", "https://h/a/b%2F..%2F..%2Fc"},
                                             {"https://h/a/i", "https://h/a/b?/c"},
                                             {"https://h/a/i", "https://h/a/b/"},
                                             {"s3://b/k/i", "s3://b/k/../m"},
                                             {"https://h/a/i", "https://evil/a/m"},
                                             {"https://h", "https://h.evil/m"},
                                             {"https://u@h/a/i", "https://h/a/m"},
                                             {"https://h/a/i", "https://h/a/"},
                                             {"https://h/a/i", "http://h/a/m"},
                                             {"https://h/a/i", "https://h/a"},
                                             {"https://h/a/i", "https://h/a/x:y"}};
    for (size_t i = 0; i < sizeof(are) / sizeof(*are); i++)
        check_path(are[i][0], are[i][1], are[i][2]);
    for (size_t i = 0; i < sizeof(are_not) / sizeof(*are_not); i++)
        check_path(are_not[i][0], are_not[i][1], NULL);
}

static bool is_described(const void *text, size_t n_bytes, const char *name)
{
    struct described described = {.text = malloc(n_bytes), .n_bytes = n_bytes};
    memcpy(described.text, text, n_bytes);
    const bool is_first = described_has(&described, name);
    check(described_has(&described, name) == is_first);
    free(described.text);
    return is_first;
}

static void what_a_description_names_is_found(void)
{
    static const char json[] =
        "{\"weight_map\": {\"a\": \"m-1\", \"b\": \"m-10\", \"c\": \"\\u00e9 \\ud83d\\ude00\", "
        "\"d\": \"x\\\"y\", \"e\": \"\\u00C9\", \"f\": \"\xc3\xa8\"}}";
    static const char *const are[] = {
        "m-1", "m-10", "\xc3\xa9 \xf0\x9f\x98\x80", "x\"y", "\xc3\x89", "\xc3\xa8", "weight_map"};
    static const char *const are_not[] = {"m", "-1", "m-1\", \"b", "x", "", "\xc3", "m-100", "}}"};
    static const char pickle[] = "\x80\x02X\x0c\0\0\0__0_0.distcpq\x05\x8c\x05s/y.d\x94Z";
    for (size_t i = 0; i < sizeof(are) / sizeof(*are); i++)
        check(is_described(json, sizeof(json) - 1, are[i]));
    for (size_t i = 0; i < sizeof(are_not) / sizeof(*are_not); i++)
        check(!is_described(json, sizeof(json) - 1, are_not[i]));
    check(is_described(pickle, sizeof(pickle) - 1, "__0_0.distcp"));
    check(is_described(pickle, sizeof(pickle) - 1, "s/y.d"));
    check(!is_described(pickle, sizeof(pickle) - 1, "_0_0.distcp"));
    check(!is_described(pickle, sizeof(pickle) - 1, "s/y.") && !is_described(pickle, 1, "Z"));
}

static void names_of_a_set_differ_in_the_number(void)
{
    static const char name[] = "state-of-the-00001-of-00003.gguf";
    static const char *const are_not[] = {"state-of-the-00002-of-00004.gguf",
                                          "state-of-the-00002-of-00003.bin",
                                          "state-of-the-2-of-00003.gguf",
                                          "state-of-the-0000a-of-00003.gguf",
                                          "stale-of-the-00002-of-00003.gguf",
                                          "/etc/passwd",
                                          ""};
    check(described_is_sibling(name, "state-of-the-00003-of-00003.gguf"));
    check(described_is_sibling("1-of-1", "2-of-1"));
    check(described_is_sibling("consolidated.00.pth", "consolidated.07.pth"));
    check(described_is_sibling("x-model_part-0.pt", "x-model_part-1.pt"));
    check(described_is_sibling(".metadata", "meta.pt"));
    check(!described_is_sibling("meta.pt", ".metadata"));
    check(!described_is_sibling(".metadata", "common.pt"));
    check(!described_is_sibling("consolidated.00.pth", "consolidated.00.pt"));
    check(!described_is_sibling("consolidated.00.pth", "consolidated.0x.pth"));
    check(!described_is_sibling("consolidated.pth", "consolidated.pth"));
    check(!described_is_sibling("model-of-x", "model-of-x") && !described_is_sibling("x", "x"));
    check(described_is_rank("s3://b/mp_rank_00/m.pt", "s3://b/mp_rank_07/m.pt"));
    check(!described_is_rank("s3://b/mp_rank_00/m.pt", "s3://b/mp_rank_00/../m.pt"));
    check(!described_is_rank("s3://b/mp_rank_00/m.pt", "s3://b/mp_rank_007/m.pt"));
    check(!described_is_rank("s3://b/mp_rank_00/m.pt", "s3://c/mp_rank_01/m.pt"));
    check(!described_is_rank("http://mp_rank_0/m.pt", "http://mp_rank_1/m.pt"));
    check(!described_is_rank("s3://b/x.pt", "s3://b/x.pt"));
    for (size_t i = 0; i < sizeof(are_not) / sizeof(*are_not); i++)
        check(!described_is_sibling(name, are_not[i]) && !described_is_sibling(are_not[i], name));
}

/* ---- cache files ---- */

static struct cachefile make_cache(uint64_t base, uint64_t n_bytes)
{
    struct cachefile cache = {.fd = -1};
    const int fd = memfd_create("cache", MFD_CLOEXEC);
    check_int(cachefile_init(&cache, fd, base, n_bytes, 7), 0);
    check_int(cachefile_make(&cache), 0);
    return cache;
}

static void only_what_was_marked_is_present(void)
{
    const uint64_t n_bytes = 3 * BLOCK + 5;
    struct cachefile cache = make_cache(8192, n_bytes);
    autofree char *bytes = malloc(n_bytes), *got = malloc(n_bytes);
    for (uint64_t i = 0; i < n_bytes; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    check_int(cachefile_read(&cache, 0, got, 1), 0);
    check_int(cachefile_write(&cache, 0, bytes, n_bytes), 0);
    check_int(cachefile_read(&cache, 0, got, 1), 0);
    check_int(cachefile_mark(&cache, PIECE - 1, 2 * PIECE, NULL, 0),
              0); /* one of them lies whole in it */
    check_uint(cachefile_count(&cache), PIECE);
    check_int(cachefile_read(&cache, PIECE, got, PIECE), 1);
    check_bytes(got, bytes + PIECE, PIECE);
    check_int(cachefile_read(&cache, PIECE - 1, got, 2), 0);
    check_int(cachefile_read(&cache, 2 * PIECE - 1, got, 2), 0);
    /* With some of it at hand, which begins in the middle of a piece. */
    const size_t n_tail = BLOCK + 1;
    check_int(cachefile_mark(&cache, 0, n_bytes, (uint8_t *)bytes + n_bytes - n_tail, n_tail), 0);
    check_int(cachefile_read(&cache, 0, got, n_bytes), 1);
    check_bytes(got, bytes, n_bytes);
    check_uint(cachefile_count(&cache), n_bytes);
    close(cache.fd);
}

static void missing_ranges_are_found(void)
{
    const uint64_t n_bytes = 2 * BLOCK + 5;
    struct cachefile cache = make_cache(0, n_bytes);
    uint64_t from = 10, end = n_bytes;
    check_int(cachefile_missing(&cache, &from, &end), 1);
    check(from == 0 && end == n_bytes);
    cachefile_mark(&cache, 0, BLOCK - PIECE, NULL, 0);
    cachefile_mark(&cache, BLOCK + PIECE, BLOCK - PIECE, NULL, 0);
    from = 0, end = n_bytes;
    check_int(cachefile_missing(&cache, &from, &end), 1);
    check(from == BLOCK - PIECE && end == BLOCK + PIECE);
    from = BLOCK + PIECE, end = 2 * BLOCK;
    check_int(cachefile_missing(&cache, &from, &end), 0);
    from = BLOCK + PIECE, end = n_bytes;
    check_int(cachefile_missing(&cache, &from, &end), 1);
    check(from == 2 * BLOCK && end == n_bytes);
    close(cache.fd);
}

static void a_removed_block_is_not_read(void)
{
    struct cachefile cache = make_cache(0, BLOCK);
    char byte;
    uint64_t time, block = 0;
    cachefile_mark(&cache, 0, BLOCK, NULL, 0);
    cachefile_use(&cache, 0, BLOCK, 5);
    check_int(cachefile_read(&cache, 0, &byte, 1), 1);
    check(cachefile_times(&cache, &block, 1, &time) == 1 && block == 0 && time == 5);
    check_int(cachefile_remove(&cache, 0), 0);
    check_int(cachefile_read(&cache, 0, &byte, 1), 0);
    check(cachefile_times(&cache, &block, 1, &time) == 1 && block == 0 && time == 0);
    cachefile_clear(&cache);
    check_uint(cachefile_count(&cache), 0);
    close(cache.fd);
}

static void a_damaged_piece_is_not_read(void)
{
    struct cachefile cache = make_cache(4096, BLOCK), other = cache;
    char bytes[2 * PIECE];
    cachefile_mark(&cache, 0, BLOCK, NULL, 0);
    other.seed++; /* what another object has there */
    check_int(cachefile_read(&other, 0, bytes, 1), 0);
    check_int(pwrite(cache.fd, "\1", 1, (off_t)(cache.base + 3 * PIECE + 5)), 1);
    check_int(cachefile_read(&cache, 3 * PIECE, bytes, 1), 0);
    check_int(cachefile_read(&cache, 2 * PIECE, bytes, 2 * PIECE), 0);
    check_int(cachefile_read(&cache, 4 * PIECE, bytes, 2 * PIECE), 1);
    check_int(cachefile_verify(&cache, 0, BLOCK), 1);
    check_int(cachefile_verify(&cache, 0, BLOCK), 0);
    check_uint(cachefile_count(&cache), BLOCK - PIECE);
    close(cache.fd);
}

static void an_object_can_be_too_large(void)
{
    struct cachefile cache;
    check_int(cachefile_init(&cache, 0, 0, INT64_MAX, 0), -EFBIG);
    check_int(cachefile_init(&cache, 0, INT64_MAX - 4095, 1, 0), -EFBIG);
    check_int(cachefile_init(&cache, 0, 1, 1, 0), -EFBIG);
    cache = make_cache(0, 0);
    check_uint(cachefile_end(&cache), 0);
    close(cache.fd);
}

/* ---- reading ahead ---- */

static void a_reader_that_goes_on_gets_a_window_that_doubles(void)
{
    struct forward forward = {0};
    uint64_t from, end, at = 0, asked = 0, n_asked = 0;
    const uint64_t n = 400u << 20, step = 128 << 10;
    for (; at < n; at += step) {
        if (!forward_note(&forward, at, step, n, &from, &end))
            continue;
        check(from >= asked && end > from && end <= n && end - at <= (65u << 20));
        asked = end;
        n_asked++;
    }
    check(asked == n && n_asked < 120);
}

static void a_window_that_is_large_moves_on_with_its_reader(void)
{
    struct forward forward = {0};
    uint64_t from, end, asked = 0;
    const uint64_t n = 1ull << 30, step = 1 << 20;
    for (uint64_t at = 0; at < n; at += step) {
        if (forward_note(&forward, at, step, n, &from, &end))
            asked = end;
        check(at < (200u << 20) || asked == n || asked >= at + (59u << 20));
    }
}

static void a_reader_of_one_thing_after_the_other_is_expected_to_go_on(void)
{
    struct forward forward = {0};
    uint64_t from, end, asked = 0;
    const uint64_t n_each = 4 << 20, step = 1 << 20;
    for (uint64_t at = 0; at < 32 * n_each; at += step) {
        const uint64_t own = at / n_each * n_each + n_each, next = at + step;
        if (forward_note(&forward, at, step, own, &from, &end))
            asked = end;
        check(at >= n_each || asked <= own);   /* one is no habit */
        check(asked <= own + (at + step) / 8); /* for less long than it was */
        check(next < 3 * n_each || asked > next);
    }
    check(asked == 36 * n_each);
    /* What has a gap before it is not the next thing. */
    forward = (struct forward){0};
    for (uint64_t at = 0; at < 1000u << 13; at += 8192)
        check(!forward_note(&forward, at, 4096, at + 4096, &from, &end));
}

static void scattered_readers_get_nothing_ahead(void)
{
    struct forward forward = {0};
    uint64_t from, end;
    for (uint64_t i = 0; i < 1000; i++)
        check(!forward_note(&forward, i * 48271 % 1000 * (64u << 20), 4096, 0, &from, &end));
    check(!forward_note(&forward, 5 << 20, 4096, (5 << 20) + 4096, &from, &end));
}

static void a_reader_whose_end_is_not_known_gets_little(void)
{
    struct forward forward = {0};
    uint64_t from, end;
    check(!forward_note(&forward, 0, 65536, 0, &from, &end));
    check(forward_note(&forward, 65536, 65536, 0, &from, &end));
    check(from == 131072 && end == 131072 + 65536);
    for (uint64_t at = 131072; at < (64u << 20); at += 65536) {
        if (forward_note(&forward, at, 65536, 0, &from, &end))
            check(end <= at + (5 << 20));
    }
}

int main(void)
{
    check_run(a_url_is_shown_without_what_is_secret);
    check_run(a_sibling_is_in_the_folder_of_the_path);
    check_run(a_path_below_is_made_of_names);
    check_run(what_is_below_is_recognised);
    check_run(what_a_description_names_is_found);
    check_run(names_of_a_set_differ_in_the_number);
    check_run(messages_arrive_as_they_were_sent);
    check_run(only_what_was_marked_is_present);
    check_run(missing_ranges_are_found);
    check_run(a_removed_block_is_not_read);
    check_run(a_damaged_piece_is_not_read);
    check_run(an_object_can_be_too_large);
    check_run(a_reader_that_goes_on_gets_a_window_that_doubles);
    check_run(a_window_that_is_large_moves_on_with_its_reader);
    check_run(a_reader_of_one_thing_after_the_other_is_expected_to_go_on);
    check_run(scattered_readers_get_nothing_ahead);
    check_run(a_reader_whose_end_is_not_known_gets_little);
    return check_done();
}
