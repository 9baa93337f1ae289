/* SPDX-License-Identifier: MIT */
/*
 * Drives the HTTP engine as it is told: opens an object, prints what it is to standard error, and
 * writes ranges of it to standard output. A line for each failure; exit code 1 for one.
 *
 * fetch RETRIES TIMEOUT HEAD NAME [OFFSET+N | FILE]...
 *
 * Ranges are fetched at the same time and written in their order; without any, the head is written.
 * One that ends with '!' is cancelled when its first bytes arrive, with '-' right away.
 * A FILE ends a group of ranges: it is created when they are complete, and removed by somebody else
 * before the next group begins.
 */
#include "fetch/http.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct range {
    uint64_t start, n_bytes, n_got;
    char *bytes;
    bool is_done;
    int code;
    struct http_transfer *transfer; /* to be cancelled; NULL: no */
};

static void die(const char *text)
{
    fprintf(stderr, "fetch: %s\n", text);
    exit(2);
}

static void cancel(struct range *range)
{
    http_cancel(range->transfer);
    range->is_done = true;
    range->n_got = 0;
}

static void range_opened(void *ctx, const char *name, const struct http_known *known)
{
    static const char *const kinds[] = {"etag", "date", "weak tag", "size"};
    struct range *range = ctx;
    /* The name of a URL is what was given, with secrets; others have none. */
    fprintf(stderr, "opened %s: %" PRIu64 ", %s%s%s\n",
            strncmp(name, "http", 4) == 0 ? "URL" : name, known->n_bytes, kinds[known->kind],
            known->is_weak && known->kind != HTTP_BY_SIZE ? ", weak" : "",
            known->is_whole ? ", whole" : "");
    if (known->is_whole || range->n_bytes > known->n_bytes)
        range->n_bytes = known->n_bytes;
    range->bytes = malloc((size_t)range->n_bytes + 1);
}

static void range_received(void *ctx, uint64_t offset, const void *bytes, size_t n_bytes)
{
    struct range *range = ctx;
    if (range->is_done || range->bytes == NULL || offset != range->start + range->n_got ||
        n_bytes > range->n_bytes - range->n_got)
        die("bytes out of order");
    memcpy(range->bytes + range->n_got, bytes, n_bytes);
    range->n_got += n_bytes;
    if (range->transfer != NULL)
        cancel(range);
}

static void range_done(void *ctx, const struct wfs_error *err)
{
    struct range *range = ctx;
    if (range->is_done)
        die("called after the end");
    range->is_done = true;
    range->code = err == NULL ? 0 : err->code;
    if (err != NULL)
        fprintf(stderr, "failed: %s: %s\n", strerrorname_np(err->code), err->text);
    else if (range->n_got != range->n_bytes)
        die("done without all bytes");
}

static const struct http_calls calls = {range_opened, range_received, range_done};

/* Waits for n ranges. Returns how many have failed. */
static int wait_for(struct http *http, const struct range *ranges, int n)
{
    int n_failed = 0;
    for (int i = 0; i < n;) {
        if (ranges[i].is_done)
            n_failed += ranges[i++].code != 0;
        else if (http_wait(http, NULL, 0, -1) < 0)
            die("http_wait failed");
    }
    return n_failed;
}

static void write_range(struct range *range)
{
    if (range->n_got > 0)
        fwrite(range->bytes, 1, (size_t)range->n_got, stdout);
    free(range->bytes);
    range->bytes = NULL;
}

/* A file that appears is a sign, and its end another one. */
static void show_sign(struct http *http, const char *path)
{
    close(open(path, O_WRONLY | O_CREAT, 0600));
    while (access(path, F_OK) == 0)
        http_wait(http, NULL, 0, 5);
}

/* Fetches groups of ranges. */
static int fetch_ranges(struct http *http, struct http_object *object, char **words, int n_words)
{
    struct range *ranges = calloc((size_t)n_words + 1, sizeof(*ranges));
    int n_failed = 0, n = 0;
    for (int i = 0; i <= n_words; i++) {
        char *plus = NULL;
        struct http_transfer *transfer;
        if (i == n_words || strchr(words[i], '+') == NULL) {
            n_failed += wait_for(http, ranges, n);
            for (int k = 0; k < n; k++)
                write_range(ranges + k);
            if (i < n_words)
                show_sign(http, words[i]);
            n = 0;
            continue;
        }
        ranges[n] = (struct range){.start = strtoull(words[i], &plus, 10)};
        ranges[n].n_bytes = strtoull(plus, &plus, 10);
        ranges[n].bytes = malloc((size_t)ranges[n].n_bytes + 1);
        if (http_get(object, ranges[n].start, ranges[n].n_bytes, &calls, ranges + n, &transfer) < 0)
            die("http_get failed");
        ranges[n].transfer = *plus == '!' || *plus == '-' ? transfer : NULL;
        if (*plus == '-')
            cancel(ranges + n);
        n++;
    }
    free(ranges);
    return n_failed;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        die("fetch RETRIES TIMEOUT HEAD NAME [OFFSET+N | FILE]...");
    const struct http_settings settings = {
        .retries = (unsigned)atoi(argv[1]), .timeout_s = (unsigned)atoi(argv[2]), .pause_ms = 2};
    struct wfs_error err = {0};
    struct http *http;
    struct http_object *object;
    struct range head = {.n_bytes = strtoull(argv[3], NULL, 10)};
    if (http_new(&http, &settings, &err) < 0)
        die("http_new failed");
    if (http_object_open(http, argv[4], head.n_bytes, &calls, &head, &object, &err) < 0) {
        fprintf(stderr, "failed: %s: %s\n", strerrorname_np(err.code), err.text);
        http_free(http);
        return 1;
    }
    int n_failed = wait_for(http, &head, 1);
    if (n_failed == 0 && argc > 5)
        n_failed += fetch_ranges(http, object, argv + 5, argc - 5);
    else
        write_range(&head);
    free(head.bytes);
    http_object_free(object);
    http_free(http);
    return n_failed > 0;
}
