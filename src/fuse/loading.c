/* SPDX-License-Identifier: MIT */
/*
 * Rules that cannot be are told before a large source is read for nothing.
 */
#include "fuse/loading.h"

#include "program/exit.h"
#include "fuse/log.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <fcntl.h>
#include <string.h>

static int load(const struct mount_options *options, const char *path, struct wfs_catalog **out)
{
    const struct wfs_load_options load_options = {.force = options->force != 0,
                                                  .shards = options->shards != 0,
                                                  .limits = options->limits,
                                                  .n_limits = options->n_limits};
    struct wfs_error err = {0};
    if (wfs_load(path, &load_options, out, &err) == 0)
        return 0;
    if (strcmp(path, mount_options_source(options)) == 0)
        return log_failure((int)exit_of_errno(err.code), "%s", err.text);
    return log_failure((int)exit_of_errno(err.code), "'%s': %s", wfs_quote(path).text, err.text);
}

static void tell_findings(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(catalog, i);
        if (finding->severity == WFS_HIGH)
            log_warning("%s", finding->text);
    }
}

/* ---- the view ---- */

/* A refusal by the rules has an exit code of its own. */
static int fail_view(const struct wfs_error *err)
{
    const bool is_refusal = err->code == EINVAL || err->code == E2BIG;
    return log_failure(is_refusal ? EXIT_NO_MATCH : (int)exit_of_errno(err->code), "%s", err->text);
}

int loading_new_view(const struct mount_options *options, struct wfs_view **out)
{
    struct wfs_view *view = NULL;
    if (wfs_view_new(&view) < 0)
        return log_failure(EXIT_UNSUPPORTED, "out of memory");
    for (size_t i = 0; i < options->n_views; i++) {
        struct wfs_error err = {0};
        if (wfs_view_add(view, options->views[i], &err) < 0) {
            wfs_view_free(view);
            return fail_view(&err);
        }
    }
    *out = view;
    return 0;
}

static int apply(const struct mount_options *options, const struct wfs_view *view,
                 struct wfs_catalog *catalog, struct wfs_report **report)
{
    struct wfs_error err = {0};
    auto_catalog struct wfs_catalog *like = NULL;
    const char *like_path = wfs_view_like(view);
    const int rc = like_path != NULL ? load(options, like_path, &like) : 0;
    if (rc != 0)
        return rc;
    const int code = wfs_view_apply(view, catalog, like, report, &err);
    const char *notice = code == 0 ? wfs_report_notice(*report) : NULL;
    if (notice != NULL)
        log_warning("%s", notice);
    return code < 0 ? fail_view(&err) : 0;
}

static int lay_overlays(const struct mount_options *options, const struct wfs_view *view,
                        struct wfs_catalog *catalog)
{
    const char *path;
    for (size_t i = 0; (path = wfs_view_overlay(view, i)) != NULL; i++) {
        struct wfs_error err = {0};
        struct wfs_catalog *over = NULL;
        const int rc = load(options, path, &over);
        if (rc != 0)
            return rc;
        if (wfs_view_lay(view, i, catalog, over, &err) < 0)
            return fail_view(&err);
    }
    return 0;
}

static int load_with_view(const struct mount_options *options, const char *path,
                          const struct wfs_view *view, struct wfs_catalog **out,
                          struct wfs_report **report)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    int rc = load(options, path, &catalog);
    if (rc == 0)
        rc = lay_overlays(options, view, catalog);
    if (rc != 0)
        return rc;
    tell_findings(catalog);
    rc = apply(options, view, catalog, report);
    if (rc != 0) {
        wfs_report_free(*report); /* before what it borrows from */
        *report = NULL;
        return rc;
    }
    *out = catalog;
    catalog = NULL;
    return 0;
}

/* ---- writers ---- */

/* Somebody may still be writing a source: a read lease is refused while it is open for that. */
static int check_writers(const struct wfs_catalog *catalog, const struct target *target)
{
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++) {
        static const char text[] = "another program has it open for writing";
        const char *path = wfs_catalog_source_path(catalog, i);
        autoclose int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0)
            fcntl(fd, F_SETLEASE, F_UNLCK);
        else if (errno == EAGAIN && target->is_source)
            return log_failure(EXIT_MOUNT, "cannot replace the source: %s", text);
        else if (errno == EAGAIN)
            log_warning("%s; is it still being downloaded?", text);
    }
    return 0;
}

int loading_run(const struct mount_options *options, const struct target *target,
                const struct wfs_view *view, struct wfs_catalog **out, struct wfs_report **report)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const char *source =
        target->kept_source != NULL ? target->kept_source : mount_options_source(options);
    int rc = load_with_view(options, source, view, &catalog, report);
    if (catalog == NULL)
        return rc;
    rc = check_writers(catalog, target);
    *out = catalog;
    catalog = NULL;
    return rc;
}
