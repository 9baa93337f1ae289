/* SPDX-License-Identifier: MIT */
/*
 * The view is made first: a mistake in it is reported before a large source is read. The limits of
 * the loaders hold for what they keep; that of the process is for everything.
 */
#include "program/checkpoint.h"

#include "program/place.h"
#include "program/settings.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/hub.h>
#include <weightfs/remote.h>
#include <weightfs/url.h>

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- memory ---- */

enum { N_ROOM = 512 << 20 };

static rlim_t n_bytes_of(const struct wfs_load_options *load)
{
    static const char name[] = "index_memory=";
    uint64_t n_bytes = 2ull << 30;
    for (size_t i = 0; i < load->n_limits; i++) {
        if (strncmp(load->limits[i], name, strlen(name)) == 0)
            n_bytes = strtoull(load->limits[i] + strlen(name), NULL, 10);
    }
    return n_bytes < RLIM_INFINITY - N_ROOM ? n_bytes + N_ROOM : RLIM_INFINITY;
}

/*
 * All threads allocate from one arena: for another one, the C library takes 128 MiB of address
 * space for a moment and keeps 64 MiB, and whatever else needs some at that moment gets ENOMEM.
 */
void memory_limit(const struct wfs_load_options *load)
{
    struct rlimit limit;
    const rlim_t n_bytes = n_bytes_of(load);
    mallopt(M_ARENA_MAX, 1);
    if (WFS_INSTRUMENTED || getrlimit(RLIMIT_AS, &limit) < 0 || n_bytes >= limit.rlim_cur)
        return;
    limit.rlim_cur = n_bytes;
    setrlimit(RLIMIT_AS, &limit);
}

/* ---- loading ---- */

/* A refusal by the rules has an exit code of its own. */
static enum exit_code exit_of_view(const struct wfs_error *err)
{
    return err->code == EINVAL || err->code == E2BIG ? EXIT_NO_MATCH : exit_of_errno(err->code);
}

enum exit_code checkpoint_new_view(const char *const *texts, size_t n_texts, struct wfs_view **out,
                                   struct wfs_error *err)
{
    auto_view struct wfs_view *view = NULL;
    if (wfs_view_new(&view) < 0) {
        wfs_fail(err, ENOMEM, "out of memory");
        return EXIT_UNSUPPORTED;
    }
    for (size_t i = 0; i < n_texts; i++) {
        if (wfs_view_add(view, texts[i], err) < 0)
            return exit_of_view(err);
    }
    *out = view;
    view = NULL;
    return EXIT_DONE;
}

const char *checkpoint_named_option(const char *text)
{
    const struct wfs_view_option *option;
    const char *colon = strstr(text, ": ");
    for (size_t i = 0; colon != NULL && (option = wfs_view_option(i)) != NULL; i++)
        if (strlen(option->name) == (size_t)(colon - text) &&
            strncmp(option->name, text, (size_t)(colon - text)) == 0)
            return option->name;
    return NULL;
}

static const char *opened(const struct checkpoint_options *options, const char *name)
{
    return options->opened == NULL ? name : options->opened(name);
}

/* Returns NULL where there is none, or it was not looked for. */
static struct hub_copy *find_copy(const struct checkpoint_options *options, const char *source)
{
    size_t i = 0;
    const char *url = opened(options, source);
    const struct hub_copies *copies = options->copies;
    while (i < copies->n && strcmp(copies->list[i].url, url) != 0)
        i++;
    return i < copies->n ? &copies->list[i].copy : NULL;
}

/* Looks for a copy, and adds the URL, and that of a question, to those that may be opened. Returns
 * whether the network may be needed. */
static int add_url(const struct checkpoint_options *options, const char *url, const char **urls,
                   size_t *n)
{
    struct hub_copies *copies = options->copies;
    struct hub_copy found, *copy = find_copy(options, url);
    urls[(*n)++] = url;
    if (copy == NULL && hub_copy_find(url, &found) == 0 && found.path != NULL) {
        if (array_reserve(&copies->list, sizeof(*copies->list), copies->n, 1, &copies->n_room) < 0)
            return -ENOMEM;
        copy = &copies->list[copies->n].copy;
        copies->list[copies->n++] = (struct hub_found){strdup(url), found};
        if (copies->list[copies->n - 1].url == NULL)
            return -ENOMEM;
    }
    if (copy != NULL && copy->question != NULL)
        urls[(*n)++] = copy->question;
    return copy == NULL || !hub_is_offline();
}

const char *checkpoint_copy(const struct checkpoint_options *options, const char *source)
{
    const struct hub_copy *copy = find_copy(options, source);
    return copy == NULL ? source : copy->path;
}

const char *checkpoint_notice(const struct checkpoint_options *options, const char *source)
{
    const struct hub_copy *copy = find_copy(options, source);
    return copy != NULL && copy->is_unsure ? copy->notice : NULL;
}

enum exit_code checkpoint_connect(const char *source, const struct fetcher_settings *settings,
                                  const struct wfs_view *view, struct checkpoint_options *options,
                                  struct wfs_error *err)
{
    size_t n_most = 1; /* the source */
    while (wfs_view_other(view, n_most - 1) != NULL)
        n_most++;
    autofree const char **urls = calloc(2 * n_most, sizeof(*urls));
    if (urls == NULL)
        return exit_of_errno(-wfs_fail_memory(err));
    struct fetcher_settings own = *settings;
    autofree char *cache = own.cache == NULL ? settings_usual_cache() : NULL;
    own.is_usual_cache = cache != NULL;
    own.cache = cache != NULL                                                    ? cache
                : own.cache != NULL && strcmp(own.cache, SETTINGS_NO_CACHE) == 0 ? NULL
                                                                                 : own.cache;
    const char *path = source;
    bool is_needed = false;
    own.urls = urls;
    for (size_t i = 0; path != NULL; path = wfs_view_other(view, i++)) {
        const int code =
            url_is(path) ? add_url(options, opened(options, path), urls, &own.n_urls) : 0;
        if (code < 0)
            return exit_of_errno(-wfs_fail_memory(err));
        is_needed = is_needed || code > 0;
    }
    return is_needed && fetcher_load(&own, &options->load.remote, err) < 0
               ? exit_of_errno(err->code)
               : EXIT_DONE;
}

void checkpoint_disconnect(struct checkpoint_options *options)
{
    wfs_remote_free(options->load.remote);
    options->load.remote = NULL;
}

/* Loads a copy, or what the URL names where that is another one now or a part is missing. */
static int load_copy(const char *url, struct hub_copy *copy, const struct wfs_load_options *options,
                     struct wfs_catalog **out, struct wfs_error *err)
{
    struct wfs_error inner = {0};
    int code = -ENOENT;
    if (hub_copy_is_current(copy, options->remote)) {
        code = wfs_load(copy->path, options, out, &inner);
        if ((code == -ENOENT || code == -EISDIR) && options->remote != NULL)
            snprintf(copy->notice, sizeof(copy->notice),
                     "the cache of the Hub has a part of commit %s only", copy->commit);
        else if (code < 0)
            return wfs_fail(err, -code, "'%s': %s", wfs_quote(copy->path).text, inner.text);
    }
    if (code < 0)
        code = wfs_load(url, options, out, err);
    return code == 0 && wfs_remote_tell(*out, copy->notice) < 0 ? wfs_fail_memory(err) : code;
}

/* Names the repository of the Hub that may be meant by a path whose first folder does not exist. */
static void hint_hub(const char *path, struct wfs_error *err)
{
    struct hub_name name;
    autofree char *url = NULL, *owner = strndup(path, strcspn(path, "/"));
    const size_t n = strlen(err->text);
    if (owner == NULL || access(owner, F_OK) == 0 || asprintf(&url, "hf://%s", path) < 0)
        return;
    if (hub_name_parse(url, &name))
        snprintf(err->text + n, sizeof(err->text) - n, "; %s names a repository of the Hub", url);
}

/* Adds how the limit is raised that a message names. */
static void hint_limit(struct wfs_error *err)
{
    const char *found = strstr(err->text, "(limit ");
    const size_t n = strlen(err->text);
    const char *name = found == NULL ? "" : found + strlen("(limit ");
    const int n_name = (int)strcspn(name, ")");
    if (n_name > 0)
        snprintf(err->text + n, sizeof(err->text) - n,
                 "; --limit=%.*s=N, or -o limit.%.*s=N of a mount, raises it", n_name, name, n_name,
                 name);
}

static enum exit_code load(const char *path, const struct checkpoint_options *options,
                           struct wfs_catalog **out, struct wfs_error *err)
{
    struct place place = {0};
    struct hub_copy *copy = find_copy(options, path);
    const char *name = path_opened(opened(options, path));
    if (options->is_lasting && !url_is(path))
        (void)place_find(&place, path, PLACE_KEEP_LINK); /* what is missing fails to load */
    const int code = copy != NULL ? load_copy(name, copy, &options->load, out, err)
                                  : wfs_load(place.opened != NULL ? place.opened : name,
                                             &options->load, out, err);
    if (code == -ENOENT)
        hint_hub(name, err);
    if (code == -E2BIG)
        hint_limit(err);
    place_done(&place);
    return code < 0 ? exit_of_errno(err->code) : EXIT_DONE;
}

/* The other checkpoints of a view that is applied. */
struct others {
    const struct checkpoint_options *options;
    struct checkpoint_failure *failure;
    enum exit_code exit_code; /* of the last one */
};

static int load_other(void *ctx, const char *path, struct wfs_catalog **out, struct wfs_error *err)
{
    struct others *others = ctx;
    others->exit_code = load(path, others->options, out, err);
    others->failure->path = others->exit_code == EXIT_DONE ? NULL : path;
    return others->exit_code == EXIT_DONE ? 0 : -err->code;
}

enum exit_code checkpoint_load(const char *source, const struct checkpoint_options *options,
                               const struct wfs_view *view, struct wfs_catalog **out,
                               struct wfs_report **report, struct checkpoint_failure *failure)
{
    auto_report struct wfs_report *own = NULL;
    struct checkpoint_options of_source = *options;
    of_source.load.ranks = wfs_view_joins(view);
    *failure = (struct checkpoint_failure){0};
    const enum exit_code exit_code = load(source, &of_source, out, &failure->err);
    if (exit_code != EXIT_DONE || (report == NULL && wfs_view_is_empty(view)))
        return exit_code;
    struct others others = {options, failure, EXIT_DONE};
    const struct wfs_view_loader loader = {load_other, &others, options->load.remote};
    const int code =
        wfs_view_apply(view, *out, &loader, report != NULL ? report : &own, &failure->err);
    if (code == 0)
        return EXIT_DONE;
    return others.exit_code != EXIT_DONE ? others.exit_code : exit_of_view(&failure->err);
}

bool checkpoint_is_unknown_to_numpy(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    return wfs_dtype_kind(dtype) == WFS_KIND_FLOAT &&
           (dtype == WFS_BF16 || wfs_dtype_bits(dtype) < 16);
}
