/* SPDX-License-Identifier: MIT */
/*
 * weightfs cache: what the cache of URLs, or the directory of the option `cache`, holds.
 */
#include "cli/args.h"
#include "cli/table.h"
#include "program/print.h"
#include "program/settings.h"

#include <weightfs/cachestore.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

static enum exit_code fail(const char *path, int code)
{
    return print_error(exit_of_errno(-code), path, "cannot read the cache: %s", strerror(-code));
}

/* ---- list ---- */

static const struct table_column columns[] = {
    {.heading = "URL", .member = "file", .is_key = true},
    {.heading = "size", .member = "bytes", .is_right = true, .stays = true},
    {.heading = "present", .member = "cached", .is_right = true},
    {.heading = "opened"},
    {.member = "opened_at"},
};

static void put_time(struct table *table, uint64_t ms)
{
    const time_t seconds = (time_t)(ms / 1000);
    char text[32] = "";
    struct tm local;
    if (localtime_r(&seconds, &local) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
    table_text(table, COLOUR_NONE, text);
}

static enum exit_code list(const struct args *args, const char *path, int fd)
{
    enum { N_COLUMNS = sizeof(columns) / sizeof(*columns) };
    auto_table struct table table;
    char url[CACHESTORE_TEXT];
    struct cachefile cache;
    uint64_t opened;
    struct json_out *json = receipt_json(args->receipt);
    if (json != NULL)
        table_start_json(&table, columns, N_COLUMNS, json);
    else
        table_start(&table, columns, N_COLUMNS - 1, args);
    for (unsigned i = 0; i < CACHESTORE_ENTRIES; i++) {
        const int code = cachestore_entry(fd, i, &cache, &opened, url);
        if (code < 0)
            return fail(path, code);
        if (code == 0)
            continue;
        table_name(&table, COLOUR_NONE, url);
        table_bytes(&table, cache.n_bytes);
        table_bytes(&table, cachefile_count(&cache));
        put_time(&table, opened);
        if (json != NULL)
            table_exact(&table, &(uint64_t){opened / 1000});
    }
    const int code = table_print(&table);
    table_print_dropped(&table);
    return code < 0 ? print_memory(NULL) : EXIT_DONE;
}

/* ---- verify ---- */

/* Exit code 1 when something was removed. */
static enum exit_code verify(const struct args *args, const char *path, int fd)
{
    struct json_out *json = receipt_json(args->receipt);
    char url[CACHESTORE_TEXT];
    struct cachefile cache;
    uint64_t opened, n_present = 0;
    int64_t n_damaged = 0;
    for (unsigned i = 0; i < CACHESTORE_ENTRIES; i++) {
        int64_t code = cachestore_entry(fd, i, &cache, &opened, url);
        if (code == 1)
            code = cachefile_verify(&cache, 0, cache.n_bytes);
        else if (code == 0)
            continue;
        if (code < 0)
            return fail(path, (int)code);
        if (json != NULL) {
            json_out_open_object(json, NULL);
            json_out_text(json, "file", url);
            json_out_u64(json, "bytes", cache.n_bytes);
            json_out_u64(json, "cached", cachefile_count(&cache));
            json_out_i64(json, "n_damaged", code);
            json_out_close(json);
        } else if (code > 0) {
            print_text(stdout, url);
            printf(": %" PRId64 " damaged pieces of 4 KiB removed\n", code);
        }
        n_damaged += code;
        n_present += cachefile_count(&cache);
    }
    if (json == NULL)
        printf("verified: %s\n", amount_of_bytes(n_present).text);
    return n_damaged > 0 ? EXIT_FOUND : EXIT_DONE;
}

/* ---- the verb ---- */

static enum exit_code run_cache(const struct args *args)
{
    struct wfs_error err = {0};
    autofree char *usual = args->n_operands > 1 ? NULL : settings_usual_cache();
    const char *what = args->operands[0], *path = args->n_operands > 1 ? args->operands[1] : usual;
    const bool lists = strcmp(what, "list") == 0, verifies = strcmp(what, "verify") == 0;
    if (!lists && !verifies && strcmp(what, "clear") != 0)
        return print_error(EXIT_USAGE, NULL,
                           "expected list, verify or clear in place of '%s', as in 'weightfs cache "
                           "list'",
                           wfs_quote(what).text);
    autoclose int fd = -1;
    if (path == NULL)
        return print_error(EXIT_USAGE, NULL, "no cache is in use: name its DIR");
    const int code = lists || verifies ? cachestore_open(path, false, &fd, NULL, &err)
                                       : cachestore_remove(path, &err);
    const bool is_none = code == -ENOENT && usual != NULL; /* nothing was fetched yet */
    if (code < 0 && !is_none)
        return print_error(exit_of_errno(err.code), NULL, "%s", err.text);
    receipt_text(args->receipt, "cache", path);
    if (args->receipt->is_json && (lists || verifies))
        json_out_open_array(receipt_json(args->receipt), "files");
    return is_none    ? EXIT_DONE
           : lists    ? list(args, path, fd)
           : verifies ? verify(args, path, fd)
                      : EXIT_DONE;
}

const struct verb verb_cache = {
    .operands = "list|verify|clear [DIR]",
    .text = "weightfs cache list [DIR]\n"
            "weightfs cache verify [DIR]\n"
            "weightfs cache clear [DIR]\n"
            "\n"
            "List the objects that are kept in the cache of URLs, ~/.cache/weightfs, or in\n"
            "the directory of the option --cache, with their size, how much of it is\n"
            "present, and when they were opened last; compare all that is present with its\n"
            "checksums, and remove what is damaged; or remove everything. Mounts that use\n"
            "the cache go on.",
    .options = {{"json", NULL, "print JSON"}},
    .run = run_cache,
};
