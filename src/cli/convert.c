/* SPDX-License-Identifier: MIT */
/*
 * weightfs convert: a checkpoint written anew, in any format that can be written.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "program/print.h"
#include "cli/progress.h"
#include "program/commit.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct args_option options[] = {
    {"format", "NAME", "safetensors, pytorch or burnpack"},
    {"large", NULL, "allow a TARGET over 16 times larger than SOURCE"},
    {"max-shard-size", "SIZE", "start a new shard at SIZE, such as 5GB or 500MiB"},
    {"overwrite", NULL, "replace TARGET if it exists, or is SOURCE"},
    {"ties", "copy|drop", "store tied tensors once per name, or only once"},
    {"values", "drop|metadata", "leave non-tensor values out, or store as metadata"},
    {NULL, NULL, NULL},
};

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
    .options = options,
};

struct conversion {
    const char *source, *target;
    char *index; /* malloc'ed: the target where it is several files; NULL: it is one */
    bool can_overwrite;
    struct commit commit;
    struct wfs_save_options save;
};

static enum exit_code choose_format(struct conversion *conversion, const struct args *args)
{
    const struct wfs_quoted target = wfs_quote(conversion->target);
    const char *source = strcmp(conversion->source, "-") == 0 ? "" : conversion->source;
    const enum exit_code exit_code = input_format(args, &conversion->commit.format);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (wfs_output_index(conversion->target, source, &conversion->commit.format,
                         &conversion->index) < 0)
        return print_error(EXIT_UNSUPPORTED, NULL, "out of memory");
    if (conversion->index == NULL && conversion->commit.format == NULL)
        conversion->commit.format = wfs_format_by_path(conversion->target);
    if (conversion->commit.format != NULL)
        return EXIT_DONE;
    return print_error(
        EXIT_USAGE, NULL,
        "the name '%s' does not tell a format; say one with --format (a directory that "
        "is to be made ends with a slash)",
        target.text);
}

static mode_t new_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static enum exit_code choose_size(struct conversion *conversion, const char *size)
{
    if (size == NULL)
        return EXIT_DONE;
    if (!wfs_size_parse(size, &conversion->commit.max_shard))
        return print_error(EXIT_USAGE, NULL, "'%s' is no size like 5GB or 500MiB",
                           wfs_quote(size).text);
    if (conversion->index == NULL)
        return print_error(EXIT_USAGE, NULL,
                           "--max-shard-size wants a directory or NAME.index.json as TARGET");
    return EXIT_DONE;
}

/* Where the set goes, and from then on the target. */
static enum exit_code make_directory(struct conversion *conversion)
{
    const char *target = conversion->target;
    if (conversion->index == NULL)
        return EXIT_DONE;
    if (target[strlen(target) - 1] == '/' && mkdir(target, 0777) < 0 && errno != EEXIST)
        return print_error(EXIT_OUTPUT, target, "cannot make the directory: %s", strerror(errno));
    conversion->target = conversion->index;
    return EXIT_DONE;
}

/* What may be replaced is the file that is at the target now, and no other. */
static enum exit_code choose_replacement(struct conversion *conversion)
{
    struct stat target, source;
    conversion->save.mode = new_mode();
    conversion->save.replace = WFS_REPLACE_NONE;
    if (stat(conversion->target, &target) < 0)
        return EXIT_DONE;
    autofree char *file = wfs_source_file(conversion->source, false);
    const bool is_same = file != NULL && stat(file, &source) == 0 &&
                         source.st_dev == target.st_dev && source.st_ino == target.st_ino;
    if (!conversion->can_overwrite)
        return print_error(EXIT_OUTPUT, conversion->target,
                           is_same ? "is the source itself; --overwrite replaces it"
                                   : "is there already; --overwrite replaces it");
    conversion->save.narrows_replaced = is_same;
    conversion->save.replace = WFS_REPLACE_KNOWN;
    conversion->save.known = wfs_identity_of(&target);
    return EXIT_DONE;
}

/* A source that failed is told apart from a target that did. */
static enum exit_code save_error(const struct conversion *conversion,
                                 const struct wfs_catalog *catalog, const struct wfs_error *err)
{
    size_t changed;
    if (err->code == EIO && wfs_catalog_check_sources(catalog, &changed) < 0)
        return print_error(EXIT_DAMAGED, wfs_catalog_source_path(catalog, changed), "%s",
                           err->text);
    return print_error(EXIT_OUTPUT, conversion->target, "%s", err->text);
}

static enum exit_code save(struct conversion *conversion, struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    struct progress progress;
    conversion->commit.catalog = catalog;
    conversion->commit.fit_options.is_set = conversion->index != NULL;
    if (commit_plan(&conversion->commit, &err) < 0)
        return save_error(conversion, catalog, &err);
    progress_start(&progress, "writing");
    progress_hold_signals(&progress);
    conversion->save.access = wfs_catalog_access(catalog);
    conversion->save.progress = progress_step;
    conversion->save.ctx = &progress;
    const int code =
        commit_save(&conversion->commit, conversion->target, &conversion->save, NULL, &err);
    progress_end(&progress);
    return code < 0 ? save_error(conversion, catalog, &err) : EXIT_DONE;
}

/* One of two words, the first of which is the usual one. */
static enum exit_code choose(const struct args *args, const char *name, const char *const words[2],
                             bool *ret)
{
    const char *value = args_value(args, name);
    *ret = value != NULL && strcmp(value, words[1]) == 0;
    if (value == NULL || *ret || strcmp(value, words[0]) == 0)
        return EXIT_DONE;
    return print_error(EXIT_USAGE, NULL, "--%s is '%s' or '%s'", name, words[0], words[1]);
}

static enum exit_code choose_fit(struct conversion *conversion, const struct args *args)
{
    static const char *const ties[] = {"copy", "drop"}, *const values[] = {"drop", "metadata"};
    const enum exit_code exit_code =
        choose(args, "ties", ties, &conversion->commit.fit_options.drops_ties);
    return exit_code != EXIT_DONE
               ? exit_code
               : choose(args, "values", values, &conversion->commit.fit_options.values_in_metadata);
}

static void tell_notice(const struct wfs_report *report)
{
    const char *notice = report != NULL ? wfs_report_notice(report) : NULL;
    if (notice != NULL)
        puts(notice);
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
        .can_overwrite = args_has(&args, "overwrite"),
        .commit.large_option = args_has(&args, "large") ? NULL : "--large",
    };
    exit_code = choose_format(&conversion, &args);
    autofree char *index = conversion.index;
    if (exit_code == EXIT_DONE)
        exit_code = choose_size(&conversion, args_value(&args, "max-shard-size"));
    if (exit_code == EXIT_DONE)
        exit_code = make_directory(&conversion);
    if (exit_code == EXIT_DONE)
        exit_code = choose_fit(&conversion, &args);
    if (exit_code == EXIT_DONE)
        exit_code = choose_replacement(&conversion);
    if (exit_code == EXIT_DONE)
        exit_code = input_load_report(&args, conversion.source, &catalog, &report);
    if (exit_code == EXIT_DONE)
        exit_code = save(&conversion, catalog);
    if (exit_code == EXIT_DONE) {
        tell_notice(report);
        commit_print_fit(&conversion.commit);
    }
    commit_done(&conversion.commit);
    return exit_code;
}
