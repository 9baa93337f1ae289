/* SPDX-License-Identifier: MIT */
/*
 * weightfs convert: writes a checkpoint to a new file or set, in any format that can be written.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "program/place.h"
#include "program/print.h"
#include "cli/progress.h"
#include "program/commit.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/strbuf.h>
#include <weightfs/view.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct args_usage usage = {
    .verb = "convert",
    .operands = "SOURCE TARGET",
    .text = "Write the tensors and metadata of SOURCE to TARGET, atomically. Reports anything\n"
            "the target format cannot store. The format is inferred from the extension of\n"
            "TARGET. If TARGET is a directory or NAME.index.json, writes shards and an index;\n"
            "a missing directory is created if the name ends with a slash.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .has_output = true,
};

struct conversion {
    const char *source, *target;
    char *index; /* malloc'ed: path of the index of a target in several files; NULL: the target is
                    one file */
    const char *directory; /* of the set, to be created where it is missing; NULL: none */
    const struct settings *settings;
    struct commit commit;
    struct wfs_save_options save;
    struct progress progress;
    struct strbuf dangers; /* a line for each */
};

static enum exit_code choose_format(struct conversion *conversion)
{
    const struct wfs_quoted target = wfs_quote(conversion->target);
    const char *source = strcmp(conversion->source, "-") == 0 ? "" : conversion->source;
    if (wfs_output_index(conversion->target, source, &conversion->commit.format,
                         &conversion->index) < 0)
        return print_error(EXIT_UNSUPPORTED, NULL, "out of memory");
    if (conversion->index == NULL && conversion->commit.format == NULL)
        conversion->commit.format = wfs_format_by_path(conversion->target);
    if (conversion->commit.format != NULL)
        return conversion->settings->burn_version == NULL || conversion->commit.format->has_fillers
                   ? EXIT_DONE
                   : print_error(EXIT_USAGE, NULL, "--burn-version applies to .mpk files only");
    return print_error(
        EXIT_USAGE, NULL,
        "cannot infer the format from the name '%s': use --format, or 'NAME/' for a directory of "
        "shards",
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
    struct stat target, source;
    conversion->save.mode = new_mode();
    conversion->save.replace = WFS_REPLACE_NONE;
    if (path_check_links(conversion->target) == -EACCES)
        return print_error(EXIT_OUTPUT, conversion->target, "cannot be used: " PLACE_PLANTED);
    if (stat(conversion->target, &target) < 0)
        return EXIT_DONE;
    autofree char *file = wfs_source_file(conversion->source, false);
    const bool is_same = file != NULL && stat(file, &source) == 0 &&
                         source.st_dev == target.st_dev && source.st_ino == target.st_ino;
    if (!conversion->settings->overwrite)
        return print_error(EXIT_OUTPUT, conversion->target,
                           is_same ? "would overwrite the source (use --overwrite to do that)"
                                   : "already exists (use --overwrite to replace it)");
    conversion->save.narrows_replaced = is_same;
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

static enum exit_code write_target(struct conversion *conversion, struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    progress_start(&conversion->progress, "writing");
    progress_hold_signals(&conversion->progress);
    conversion->save.access = wfs_catalog_access(catalog);
    conversion->save.progress = step;
    conversion->save.danger = note_danger;
    conversion->save.ctx = conversion;
    const int code =
        commit_save(&conversion->commit, conversion->target, &conversion->save, NULL, &err);
    progress_end(&conversion->progress);
    return code < 0 ? save_error(conversion, catalog, &err) : EXIT_DONE;
}

/* Creates the directory of a set where its name ends with a slash. One that stays empty goes again.
 */
static enum exit_code save(struct conversion *conversion, struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    const char *directory = conversion->directory;
    conversion->commit.catalog = catalog;
    conversion->commit.fit_options.is_set = conversion->index != NULL;
    if (commit_plan(&conversion->commit, &err) < 0)
        return save_error(conversion, catalog, &err);
    const bool is_new = directory != NULL && mkdir(directory, 0777) == 0;
    if (directory != NULL && !is_new && errno != EEXIST)
        return print_error(EXIT_OUTPUT, directory, "cannot create the directory: %s",
                           strerror(errno));
    const enum exit_code exit_code = write_target(conversion, catalog);
    if (is_new && exit_code != EXIT_DONE)
        rmdir(directory);
    return exit_code;
}

static void print_notice(const struct wfs_report *report)
{
    const char *notice = report != NULL ? wfs_report_notice(report) : NULL;
    if (notice != NULL)
        printf("%s; 'weightfs plan' with the same options lists them\n", notice);
}

int verb_convert(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    struct conversion conversion = {
        .source = args.operands[0],
        .target = args.operands[1],
        .settings = &args.settings,
        .commit = {.format = args.settings.format,
                   .max_shard = args.settings.max_shard,
                   .fit_options = {.burn_version = args.settings.burn_version,
                                   .drops_ties = args.settings.drops_ties,
                                   .values_in_metadata = args.settings.values_in_metadata,
                                   .is_safe = args.settings.is_safe},
                   .large_option = args.settings.allows_large ? NULL : "--large"},
    };
    exit_code = choose_format(&conversion);
    autofree char *index = conversion.index;
    if (exit_code == EXIT_DONE)
        exit_code = check_size(&conversion);
    if (conversion.index != NULL) {
        const char *typed = conversion.target;
        conversion.directory = typed[strlen(typed) - 1] == '/' ? typed : NULL;
        conversion.target = conversion.index;
    }
    if (exit_code == EXIT_DONE)
        exit_code = choose_replacement(&conversion);
    if (exit_code == EXIT_DONE)
        exit_code = input_load_report(&args, conversion.source, &catalog, &report);
    if (exit_code == EXIT_DONE)
        exit_code = save(&conversion, catalog);
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
