/* SPDX-License-Identifier: MIT */
/*
 * The view is made first: a mistake in it is reported before a large source is read.
 */
#include "program/checkpoint.h"

#include "program/place.h"
#include "program/urls.h"

#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Lists the URLs among the source, the `like` and the overlays; returns how many there are. */
static size_t list_urls(const char *source, const struct wfs_view *view, const char **urls)
{
    const char *path = wfs_view_like(view);
    size_t n = 0;
    if (url_is(source))
        urls[n++] = urls_full(source);
    if (path != NULL && url_is(path))
        urls[n++] = urls_full(path);
    for (size_t i = 0; (path = wfs_view_overlay(view, i)) != NULL; i++) {
        if (url_is(path))
            urls[n++] = urls_full(path);
    }
    return n;
}

enum exit_code checkpoint_connect(const char *source, const struct fetcher_settings *settings,
                                  const struct wfs_view *view, struct checkpoint_options *options,
                                  struct wfs_error *err)
{
    size_t n_most = 2; /* the source and the `like` */
    while (wfs_view_overlay(view, n_most - 2) != NULL)
        n_most++;
    autofree const char **urls = calloc(n_most, sizeof(*urls));
    if (urls == NULL)
        return exit_of_errno(-wfs_fail_memory(err));
    struct fetcher_settings own = *settings;
    own.urls = urls;
    own.n_urls = list_urls(source, view, urls);
    return own.n_urls > 0 && fetcher_load(&own, &options->load.remote, err) < 0
               ? exit_of_errno(err->code)
               : EXIT_DONE;
}

void checkpoint_disconnect(struct checkpoint_options *options)
{
    wfs_remote_free(options->load.remote);
    options->load.remote = NULL;
}

static enum exit_code load(const char *path, const struct checkpoint_options *options,
                           struct wfs_catalog **out, struct wfs_error *err)
{
    struct place place = {0};
    const char *opened = strcmp(path, "-") == 0 ? "/dev/fd/0" : urls_full(path);
    if (options->is_lasting && !url_is(path))
        (void)place_find(&place, path, PLACE_KEEP_LINK); /* what is missing fails to load */
    const int code =
        wfs_load(place.opened != NULL ? place.opened : opened, &options->load, out, err);
    place_done(&place);
    return code < 0 ? exit_of_errno(err->code) : EXIT_DONE;
}

static enum exit_code lay_overlays(const struct checkpoint_options *options,
                                   const struct wfs_view *view, struct wfs_catalog *catalog,
                                   struct checkpoint_failure *failure)
{
    const char *path;
    for (size_t i = 0; (path = wfs_view_overlay(view, i)) != NULL; i++) {
        struct wfs_catalog *over = NULL;
        failure->path = path;
        const enum exit_code exit_code = load(path, options, &over, &failure->err);
        if (exit_code != EXIT_DONE)
            return exit_code;
        failure->path = NULL;
        if (wfs_view_lay(view, i, catalog, over, &failure->err) < 0)
            return exit_of_view(&failure->err);
    }
    return EXIT_DONE;
}

static enum exit_code apply(const struct checkpoint_options *options, const struct wfs_view *view,
                            struct wfs_catalog *catalog, struct wfs_report **report,
                            struct checkpoint_failure *failure)
{
    auto_catalog struct wfs_catalog *like = NULL;
    failure->path = wfs_view_like(view);
    const enum exit_code exit_code =
        failure->path != NULL ? load(failure->path, options, &like, &failure->err) : EXIT_DONE;
    if (exit_code != EXIT_DONE)
        return exit_code;
    failure->path = NULL;
    return wfs_view_apply(view, catalog, like, report, &failure->err) < 0
               ? exit_of_view(&failure->err)
               : EXIT_DONE;
}

enum exit_code checkpoint_load(const char *source, const struct checkpoint_options *options,
                               const struct wfs_view *view, struct wfs_catalog **out,
                               struct wfs_report **report, struct checkpoint_failure *failure)
{
    struct wfs_report *own = NULL;
    *failure = (struct checkpoint_failure){0};
    enum exit_code exit_code = load(source, options, out, &failure->err);
    if (exit_code != EXIT_DONE || (report == NULL && wfs_view_is_empty(view)))
        return exit_code;
    exit_code = lay_overlays(options, view, *out, failure);
    if (exit_code == EXIT_DONE)
        exit_code = apply(options, view, *out, report != NULL ? report : &own, failure);
    wfs_report_free(own);
    return exit_code;
}
