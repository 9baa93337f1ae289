/* SPDX-License-Identifier: MIT */
/*
 * Drives the HTTP engine as it is told: opens an object, prints the facts to standard error, and
 * writes ranges of it to standard output. A line for each failure; exit code 1 for one.
 *
 * fetch [--retries=N] [--timeout=N] [--endpoint=URL] [--head=N] [--pause=FILE] NAME [OFFSET+N...]
 *
 * Ranges are fetched at the same time and written in their order. --pause waits, before the ranges,
 * until the file exists.
 */
#include "fetch/http.h"

#include <getopt.h>
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
};

static void die(const char *text)
{
    fprintf(stderr, "fetch: %s\n", text);
    exit(2);
}

static void range_opened(void *ctx, const struct http_facts *facts)
{
    static const char *const kinds[] = {"etag", "date", "size"};
    struct range *range = ctx;
    const uint64_t n_head =
        facts->is_whole || range->n_bytes > facts->n_bytes ? facts->n_bytes : range->n_bytes;
    fprintf(stderr, "opened %s: %" PRIu64 " bytes, %s %s%s\n", facts->name, facts->n_bytes,
            kinds[facts->kind], facts->validator, facts->is_whole ? ", whole" : "");
    range->n_bytes = n_head;
    range->bytes = realloc(range->bytes, (size_t)n_head + 1);
}

static void range_received(void *ctx, uint64_t offset, const void *bytes, size_t n_bytes)
{
    struct range *range = ctx;
    if (offset != range->start + range->n_got || n_bytes > range->n_bytes - range->n_got)
        die("bytes out of order");
    memcpy(range->bytes + range->n_got, bytes, n_bytes);
    range->n_got += n_bytes;
}

static void range_done(void *ctx, const struct wfs_error *err)
{
    struct range *range = ctx;
    range->is_done = true;
    range->code = err == NULL ? 0 : err->code;
    if (err != NULL)
        fprintf(stderr, "failed: %s: %s\n", strerrorname_np(err->code), err->text);
    else if (range->n_got != range->n_bytes)
        die("done without all bytes");
}

static const struct http_calls calls = {range_opened, range_received, range_done};

static void wait_for(struct http *http, const struct range *ranges, int n_ranges)
{
    for (int i = 0; i < n_ranges;) {
        if (ranges[i].is_done)
            i++;
        else if (http_wait(http, NULL, 0, -1) < 0)
            die("http_wait failed");
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"retries", required_argument, NULL, 'r'},  {"timeout", required_argument, NULL, 't'},
        {"endpoint", required_argument, NULL, 'e'}, {"head", required_argument, NULL, 'h'},
        {"pause", required_argument, NULL, 'p'},    {0},
    };
    struct http_settings settings = {.retries = 5, .timeout_s = 60};
    uint64_t n_head = 65536;
    const char *pause_file = NULL;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'r')
            settings.retries = (unsigned)atoi(optarg);
        else if (c == 't')
            settings.timeout_s = (unsigned)atoi(optarg);
        else if (c == 'e')
            settings.endpoint = optarg;
        else if (c == 'h')
            n_head = strtoull(optarg, NULL, 10);
        else if (c == 'p')
            pause_file = optarg;
        else
            return 2;
    }
    if (optind >= argc)
        die("no name");
    struct wfs_error err = {0};
    struct http *http;
    struct http_object *object;
    const int n_ranges = argc - optind;
    struct range *ranges = calloc((size_t)n_ranges, sizeof(*ranges));
    ranges[0] = (struct range){.n_bytes = n_head};
    if (http_new(&http, &settings, &err) < 0 ||
        http_object_open(http, argv[optind], n_head, &calls, ranges, &object, &err) < 0) {
        fprintf(stderr, "failed: %s: %s\n", strerrorname_np(err.code), err.text);
        return 1;
    }
    wait_for(http, ranges, 1);
    while (pause_file != NULL && access(pause_file, F_OK) != 0)
        http_wait(http, NULL, 0, 10);
    for (int i = 1; i < n_ranges && ranges[0].code == 0; i++) {
        struct http_transfer *transfer;
        char *plus;
        ranges[i].start = strtoull(argv[optind + i], &plus, 10);
        ranges[i].n_bytes = strtoull(plus, NULL, 10);
        ranges[i].bytes = malloc((size_t)ranges[i].n_bytes + 1);
        if (http_get(object, ranges[i].start, ranges[i].n_bytes, &calls, ranges + i, &transfer) < 0)
            die("http_get failed");
    }
    if (ranges[0].code == 0)
        wait_for(http, ranges, n_ranges);
    int n_failed = 0;
    for (int i = 0; i < n_ranges; i++) {
        n_failed += ranges[i].code != 0;
        if (i > 0 || n_ranges == 1)
            fwrite(ranges[i].bytes, 1, (size_t)ranges[i].n_got, stdout);
        free(ranges[i].bytes);
    }
    free(ranges);
    http_object_free(object);
    http_free(http);
    return n_failed > 0;
}
