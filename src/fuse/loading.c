/* SPDX-License-Identifier: MIT */
/*
 * A read lease is refused while another process has the file open for writing.
 */
#include "fuse/loading.h"

#include "program/checkpoint.h"
#include "fuse/log.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <fcntl.h>
#include <string.h>

static void warn_of_findings(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(catalog, i);
        if (finding->severity == WFS_HIGH)
            log_warning("%s", finding->text);
    }
}

int loading_new_view(const struct mount_options *options, struct wfs_view **out)
{
    struct wfs_error err = {0};
    const enum exit_code exit_code =
        checkpoint_new_view(options->views, options->n_views, out, &err);
    return exit_code == EXIT_DONE ? 0 : log_failure((int)exit_code, "%s", err.text);
}

static int load(const struct mount_options *options, const struct target *target,
                const struct wfs_view *view, struct wfs_catalog **out, struct wfs_report **report)
{
    const char *source = target->kept_source != NULL ? target->kept_source : target->source.opened;
    struct checkpoint_failure failure;
    struct checkpoint_options checkpoint_options = {.load = options->settings.load,
                                                    .is_lasting = true};
    checkpoint_options.load.remote = target->remote;
    const enum exit_code exit_code =
        checkpoint_load(source, &checkpoint_options, view, out, report, &failure);
    if (exit_code == EXIT_DONE)
        return 0;
    if (failure.path == NULL && source == target->kept_source)
        failure.path = source;
    return failure.path == NULL ? log_failure((int)exit_code, "%s", failure.err.text)
                                : log_failure((int)exit_code, "'%s': %s",
                                              wfs_quote(failure.path).text, failure.err.text);
}

/* ---- writers ---- */

/* Another program may still be writing a source. */
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
        else if (errno == EAGAIN && target->output.is_source)
            return log_failure(EXIT_MOUNT, "cannot replace the source: %s", text);
        else if (errno == EAGAIN)
            log_warning("%s; is it still being downloaded?", text);
    }
    return 0;
}

/* The report has those that are not said here. */
static void warn_of_rules(const struct wfs_report *report)
{
    enum { N_MOST = 10 };
    const char *about, *text;
    for (size_t i = 0; i < N_MOST && (text = wfs_report_warning(report, i, &about)) != NULL; i++)
        log_warning("'%s': %s", wfs_quote(about).text, text);
}

int loading_run(const struct mount_options *options, const struct target *target,
                const struct wfs_view *view, struct wfs_catalog **out, struct wfs_report **report)
{
    const int rc = load(options, target, view, out, report);
    if (rc != 0)
        return rc;
    warn_of_findings(*out);
    warn_of_rules(*report);
    const char *notice = wfs_report_notice(*report);
    if (notice != NULL)
        log_warning("%s, see plan.tsv", notice);
    return check_writers(*out, target);
}
