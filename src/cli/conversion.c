/* SPDX-License-Identifier: MIT */
/*
 * What may be replaced is decided before the source is read; what cannot be stored before the
 * target is written.
 */
#include "cli/conversion.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/strbuf.h>
#include <weightfs/view.h>

#include "cli/input.h"
#include "cli/progress.h"
#include "cli/args.h"
#include "program/commit.h"
#include "program/destination.h"
#include "program/print.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct conversion {
    const char *source;
    const char *target;    /* the file, or the index of several */
    const char *directory; /* of the set, to be created where it is missing; NULL: none */
    struct destination destination;
    struct commit commit;
    struct wfs_save_options save;
    struct progress progress;
    struct strbuf dangers; /* a line for each */
    bool keeps_format;     /* it is that of the source, once that is loaded */
};

/* ---- where it goes ---- */

/* Finds what is at the target, and whether it is what the source is loaded from. Returns NULL where
 * nothing is. */
static const struct stat *look_at(struct conversion *conversion, const char *path, struct stat *st)
{
    struct stat own;
    autofree char *source = wfs_source_file(conversion->source, false);
    if (stat(path, st) < 0)
        return NULL;
    conversion->destination.is_source = source != NULL && stat(source, &own) == 0 &&
                                        own.st_dev == st->st_dev && own.st_ino == st->st_ino;
    return st;
}

/* An edited file that replaces itself keeps its format, whatever its name is. */
static enum exit_code choose_format(struct conversion *conversion, struct wfs_error *err)
{
    struct stat st;
    struct destination *destination = &conversion->destination;
    const char *source = strcmp(conversion->source, "-") == 0 ? "" : conversion->source;
    enum exit_code exit_code = destination_find(destination, source, err);
    if (exit_code != EXIT_DONE)
        return exit_code;
    conversion->keeps_format =
        conversion->keeps_format && destination->index == NULL && destination->format == NULL &&
        look_at(conversion, destination->typed, &st) != NULL && destination->is_source;
    if (conversion->keeps_format)
        return EXIT_DONE;
    exit_code = destination_choose_format(destination, false, err);
    if (exit_code == EXIT_DONE)
        exit_code = destination_check_version(destination, err);
    return exit_code;
}

/* What goes wrong before the source is read. */
static enum exit_code choose_target(struct conversion *conversion, struct wfs_error *err)
{
    struct stat st;
    struct destination *destination = &conversion->destination;
    enum exit_code exit_code = choose_format(conversion, err);
    if (exit_code == EXIT_DONE)
        exit_code = destination_check_size(destination, err);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (destination->index != NULL) {
        conversion->target = destination->index;
        if (wfs_output_is_directory(destination->typed, destination->format))
            conversion->directory = destination->typed;
    }
    exit_code = destination_check_links(destination, conversion->target, err);
    return exit_code != EXIT_DONE
               ? exit_code
               : destination_choose_replacement(destination,
                                                look_at(conversion, conversion->target, &st), err);
}

/* ---- writing ---- */

/* Reports a failure of the source with another exit code than one of the target. */
static enum exit_code save_error(const struct conversion *conversion,
                                 const struct wfs_catalog *catalog, const struct wfs_error *err)
{
    size_t changed;
    if (err->code == EIO && wfs_catalog_check_sources(catalog, &changed) < 0)
        return print_error(EXIT_DAMAGED, wfs_catalog_source_path(catalog, changed), "%s",
                           err->text);
    return print_error(EXIT_OUTPUT, conversion->target, "%s", err->text);
}

static int step(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct conversion *conversion = ctx;
    return progress_step(&conversion->progress, n_done, n_total);
}

static void note_danger(void *ctx, const char *text)
{
    struct conversion *conversion = ctx;
    strbuf_printf(&conversion->dangers, "weightfs: %s: %s\n", wfs_quote(conversion->target).text,
                  text);
}

static int write_target(struct conversion *conversion, const struct wfs_catalog *catalog,
                        struct wfs_error *err)
{
    conversion->save.progress = step;
    conversion->save.danger = note_danger;
    conversion->save.abandon = progress_abandon;
    conversion->save.ctx = conversion;
    return commit_save(&conversion->commit, conversion->target, &conversion->save, NULL, err);
}

/*
 * Creates the directory of a set where its name ends with a slash. One that stays empty goes again,
 * also when a signal ends the program.
 */
static enum exit_code save(struct conversion *conversion, const struct wfs_catalog *catalog,
                           struct wfs_catalog *written)
{
    struct wfs_error err = {0};
    const char *directory = conversion->directory;
    conversion->commit.catalog = written;
    conversion->commit.fit_options.is_set = conversion->destination.index != NULL;
    if (commit_plan(&conversion->commit, &err) < 0)
        return save_error(conversion, catalog, &err);
    progress_start(&conversion->progress, "writing", 0);
    progress_hold_signals(&conversion->progress);
    const bool is_new = directory != NULL && mkdir(directory, 0777) == 0;
    const int made = directory == NULL || is_new || errno == EEXIST ? 0 : -errno;
    const int code = made < 0 ? made : write_target(conversion, catalog, &err);
    if (is_new && code < 0)
        rmdir(directory);
    progress_end(&conversion->progress);
    if (made < 0)
        return print_error(EXIT_OUTPUT, directory, "cannot create the directory: %s",
                           strerror(-made));
    return code < 0 ? save_error(conversion, catalog, &err) : EXIT_DONE;
}

static void print_notice(const struct wfs_report *report)
{
    const char *notice = report != NULL ? wfs_report_notice(report) : NULL;
    if (notice != NULL)
        printf("%s; 'weightfs plan' with the same options lists them\n", notice);
}

/* Loads the source, and has it changed where the verb does that. */
static enum exit_code load(const struct conversion_request *request, struct wfs_catalog **loaded,
                           struct wfs_report **report, struct wfs_catalog **changed)
{
    const enum exit_code exit_code =
        input_load_report(request->args, request->source, loaded, report);
    return exit_code != EXIT_DONE || request->change == NULL
               ? exit_code
               : request->change(request->ctx, *loaded, changed);
}

/* What goes wrong once the source is known. No file that is read may be replaced by the backup. */
static enum exit_code check_source(struct conversion *conversion,
                                   const struct conversion_request *request,
                                   const struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_format *format = wfs_catalog_format(catalog);
    if (conversion->keeps_format && !wfs_format_can_write(format)) {
        wfs_fail(err, EINVAL, "%s is only read: use --format and another name", format->title);
        return EXIT_OUTPUT;
    }
    if (conversion->keeps_format)
        conversion->destination.format = format;
    const enum exit_code exit_code =
        destination_check_backup(&conversion->destination, conversion->target, catalog, err);
    return exit_code != EXIT_DONE || request->file == NULL
               ? exit_code
               : destination_check_backup(&conversion->destination, conversion->target,
                                          request->file, err);
}

static void conversion_done(struct conversion *conversion)
{
    strbuf_done(&conversion->dangers);
    commit_done(&conversion->commit);
    destination_done(&conversion->destination);
}

/* A mistake about the file is printed behind its path. */
static enum exit_code refuse(const struct conversion *conversion, enum exit_code exit_code,
                             const struct wfs_error *err)
{
    return print_error(exit_code, exit_code == EXIT_OUTPUT ? conversion->target : NULL, "%s",
                       err->text);
}

enum exit_code conversion_run(const struct conversion_request *request)
{
    const struct settings *settings = &request->args->settings;
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    auto_catalog struct wfs_catalog *changed = NULL;
    struct wfs_error err = {0};
    cleanup(conversion_done) struct conversion conversion = {
        .source = request->source,
        .target = request->target,
        .destination = {.typed = request->target, .settings = settings},
        .keeps_format = request->change != NULL,
        .commit = {.max_shard = settings->max_shard,
                   .fit_options = settings->fit,
                   .large_option = settings->allows_large ? NULL : "--large"},
    };
    enum exit_code exit_code = choose_target(&conversion, &err);
    if (exit_code != EXIT_DONE)
        return refuse(&conversion, exit_code, &err);
    exit_code = load(request, &catalog, &report, &changed);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = check_source(&conversion, request, catalog, &err);
    if (exit_code != EXIT_DONE)
        return refuse(&conversion, exit_code, &err);
    conversion.commit.format = conversion.destination.format;
    conversion.save = destination_save_options(&conversion.destination);
    conversion.save.access = wfs_catalog_access(catalog);
    if (request->access != NULL)
        wfs_access_merge(&conversion.save.access, request->access);
    exit_code = save(&conversion, catalog, changed != NULL ? changed : catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    print_notice(report);
    commit_print_fit(&conversion.commit);
    fputs(conversion.dangers.bytes != NULL ? conversion.dangers.bytes : "", stderr);
    return EXIT_DONE;
}

/* ---- convert ---- */

static enum exit_code run_convert(const struct args *args)
{
    const struct conversion_request request = {
        .args = args, .source = args->operands[0], .target = args->operands[1]};
    return conversion_run(&request);
}

const struct verb verb_convert = {
    .name = "convert",
    .operands = "SOURCE TARGET",
    .text = "Write the tensors and metadata of SOURCE to TARGET, atomically. Reports anything\n"
            "the target format cannot store. The format is inferred from the extension of\n"
            "TARGET. If TARGET is a directory or NAME.index.json, writes shards and an index;\n"
            "a missing directory is created if the name ends with a slash. With --format=dcp,\n"
            "TARGET is a directory: a distributed checkpoint of one rank.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .has_output = true,
    .run = run_convert,
};
