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
#include "program/place.h"
#include "program/print.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct conversion {
    const char *source, *target;
    char *index; /* malloc'ed: path of the index of a target in several files; NULL: the target is
                    one file */
    const char *directory; /* of the set, to be created where it is missing; NULL: none */
    const struct settings *settings;
    struct commit commit;
    struct wfs_save_options save;
    struct progress progress;
    struct strbuf dangers;  /* a line for each */
    struct wfs_access more; /* of other files that the target is made of */
    bool keeps_format;      /* it is that of the source, once that is loaded */
};

/* Returns whether a file is the one that the source is loaded from. */
static bool is_source(const struct conversion *conversion, const struct stat *file)
{
    struct stat st;
    autofree char *path = wfs_source_file(conversion->source, false);
    return path != NULL && stat(path, &st) == 0 && st.st_dev == file->st_dev &&
           st.st_ino == file->st_ino;
}

static enum exit_code choose_format(struct conversion *conversion)
{
    const struct wfs_quoted target = wfs_quote(conversion->target);
    struct stat st;
    const char *source = strcmp(conversion->source, "-") == 0 ? "" : conversion->source;
    if (wfs_output_index(conversion->target, source, &conversion->commit.format,
                         &conversion->index) < 0)
        return print_memory(NULL);
    conversion->keeps_format = conversion->keeps_format && conversion->index == NULL &&
                               conversion->commit.format == NULL &&
                               stat(conversion->target, &st) == 0 && is_source(conversion, &st);
    if (conversion->keeps_format)
        return EXIT_DONE;
    if (conversion->index == NULL && conversion->commit.format == NULL)
        conversion->commit.format = wfs_format_by_path(conversion->target);
    if (conversion->commit.format != NULL)
        return conversion->settings->fit.burn_version == NULL ||
                       conversion->commit.format->has_fillers
                   ? EXIT_DONE
                   : print_error(EXIT_USAGE, NULL, "--burn-version applies to .mpk files only");
    if (conversion->index != NULL)
        return print_error(EXIT_USAGE, NULL,
                           "cannot infer the format of '%s' from the name of its source: use "
                           "--format with safetensors, pytorch, burnpack or dcp",
                           target.text);
    return print_error(
        EXIT_USAGE, NULL,
        "cannot infer the format from the name '%s': use --format, or 'NAME/' for a directory of "
        "shards; known are .safetensors, .bpk, .pth, .pt, .bin, .ckpt and .mpk",
        target.text);
}

static mode_t new_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static enum exit_code check_size(const struct conversion *conversion)
{
    return conversion->index != NULL || conversion->settings->max_shard == 0
               ? EXIT_DONE
               : print_error(EXIT_USAGE, NULL,
                             "--max-shard-size needs a directory or NAME.index.json as TARGET");
}

/* Only the file that is at the target now may be replaced, and no other. */
static enum exit_code choose_replacement(struct conversion *conversion)
{
    struct stat target;
    conversion->save.mode = new_mode();
    conversion->save.replace = WFS_REPLACE_NONE;
    if (path_check_links(conversion->target) == -EACCES)
        return print_error(EXIT_OUTPUT, conversion->target, "cannot be used: " PLACE_PLANTED);
    if (stat(conversion->target, &target) < 0)
        return EXIT_DONE;
    const bool is_same = is_source(conversion, &target);
    if (!conversion->settings->overwrite)
        return print_error(EXIT_OUTPUT, conversion->target,
                           is_same ? "would overwrite the source (use --overwrite to do that)"
                                   : "already exists (use --overwrite to replace it)");
    conversion->save.narrows_replaced = is_same;
    conversion->save.backup = conversion->settings->backup;
    conversion->save.replace = WFS_REPLACE_KNOWN;
    conversion->save.known = wfs_identity_of(&target);
    return EXIT_DONE;
}

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
    conversion->save.access = wfs_catalog_access(catalog);
    wfs_access_merge(&conversion->save.access, &conversion->more);
    conversion->save.progress = step;
    conversion->save.danger = note_danger;
    conversion->save.abandon = progress_abandon;
    conversion->save.ctx = conversion;
    return commit_save(&conversion->commit, conversion->target, &conversion->save, NULL, err);
}

/* No file that is read may be replaced by the backup. */
static enum exit_code check_backup(const struct conversion *conversion,
                                   const struct wfs_catalog *read)
{
    struct wfs_error err = {0};
    return read == NULL || wfs_catalog_check_backup(read, conversion->target,
                                                    &conversion->save.backup, &err) == 0
               ? EXIT_DONE
               : print_error(EXIT_OUTPUT, conversion->target, "%s", err.text);
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
    conversion->commit.fit_options.is_set = conversion->index != NULL;
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

/* An edited file that replaces itself has the same format, whatever its name is. */
static enum exit_code keep_format(struct conversion *conversion, const struct wfs_catalog *catalog)
{
    const struct wfs_format *format = wfs_catalog_format(catalog);
    if (!conversion->keeps_format)
        return EXIT_DONE;
    if (!wfs_format_can_write(format))
        return print_error(EXIT_OUTPUT, conversion->target,
                           "%s is only read: use --format and another name", format->title);
    conversion->commit.format = format;
    return EXIT_DONE;
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

enum exit_code conversion_run(const struct conversion_request *request)
{
    const struct settings *settings = &request->args->settings;
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    auto_catalog struct wfs_catalog *changed = NULL;
    struct conversion conversion = {
        .source = request->source,
        .target = request->target,
        .settings = settings,
        .keeps_format = request->change != NULL,
        .commit = {.format = settings->format,
                   .max_shard = settings->max_shard,
                   .fit_options = settings->fit,
                   .large_option = settings->allows_large ? NULL : "--large"},
    };
    enum exit_code exit_code = choose_format(&conversion);
    autofree char *index = conversion.index;
    if (exit_code == EXIT_DONE)
        exit_code = check_size(&conversion);
    if (conversion.index != NULL) {
        const char *typed = conversion.target;
        if (wfs_output_is_directory(typed, conversion.commit.format))
            conversion.directory = typed;
        conversion.target = conversion.index;
    }
    if (exit_code == EXIT_DONE)
        exit_code = choose_replacement(&conversion);
    if (exit_code == EXIT_DONE)
        exit_code = load(request, &catalog, &report, &changed);
    if (exit_code == EXIT_DONE)
        exit_code = keep_format(&conversion, catalog);
    if (exit_code == EXIT_DONE)
        exit_code = check_backup(&conversion, catalog);
    if (exit_code == EXIT_DONE)
        exit_code = check_backup(&conversion, request->file);
    if (exit_code == EXIT_DONE && request->access != NULL)
        conversion.more = *request->access;
    if (exit_code == EXIT_DONE)
        exit_code = save(&conversion, catalog, changed != NULL ? changed : catalog);
    if (exit_code == EXIT_DONE) {
        print_notice(report);
        commit_print_fit(&conversion.commit);
        if (conversion.dangers.bytes != NULL)
            fputs(conversion.dangers.bytes, stderr);
    }
    strbuf_done(&conversion.dangers);
    commit_done(&conversion.commit);
    return exit_code;
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
