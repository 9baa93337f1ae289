/* SPDX-License-Identifier: MIT */
/*
 * weightfs convert: a checkpoint written anew, in any format that can be written.
 */
#include "cli/verbs.h"

#include "cli/auto.h"
#include "cli/input.h"
#include "cli/print.h"
#include "cli/progress.h"

#include <weightfs/value.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const struct args_option options[] = {
    {"format", "NAME", "format of TARGET; else its extension tells"},
    {"overwrite", NULL, "replace TARGET where it is there"},
    {"large", NULL, "TARGET may be more than 16 times larger than SOURCE"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "convert",
    .operands = "SOURCE TARGET",
    .text = "Writes all tensors and metadata of SOURCE to TARGET, complete or not at all.\n"
            "TARGET may be SOURCE itself, with --overwrite. Says what TARGET has no room for.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .options = options,
};

enum { N_NAMED = 3 }; /* of what is left out */

struct conversion {
    const char *source, *target;
    const struct wfs_format *format;
    bool can_overwrite, allows_large;
    struct wfs_save_options save;
};

static enum exit_code choose_format(struct conversion *conversion, const char *name)
{
    const struct wfs_quoted target = wfs_quote(conversion->target);
    conversion->format =
        name != NULL ? wfs_format_by_name(name) : wfs_format_by_path(conversion->target);
    if (conversion->format != NULL)
        return EXIT_DONE;
    if (name != NULL)
        return print_error(EXIT_USAGE, NULL, "no format is called '%s'", wfs_quote(name).text);
    return print_error(EXIT_USAGE, NULL,
                       "the name '%s' does not tell a format; say one with --format", target.text);
}

static mode_t new_mode(const char *source)
{
    struct stat st;
    const mode_t mask = umask(0);
    umask(mask);
    return (stat(source, &st) == 0 ? st.st_mode & 0666 : 0666) & ~mask;
}

/* What may be replaced is the file that is at the target now, and no other. */
static enum exit_code choose_replacement(struct conversion *conversion)
{
    struct stat target, source;
    conversion->save.mode = new_mode(conversion->source);
    conversion->save.replace = WFS_REPLACE_NONE;
    if (stat(conversion->target, &target) < 0)
        return EXIT_DONE;
    const bool is_same = stat(conversion->source, &source) == 0 && source.st_dev == target.st_dev &&
                         source.st_ino == target.st_ino;
    if (!conversion->can_overwrite)
        return print_error(EXIT_OUTPUT, conversion->target,
                           is_same ? "is the source itself; --overwrite replaces it"
                                   : "is there already; --overwrite replaces it");
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

static enum exit_code save(struct conversion *conversion, const struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    struct progress progress;
    auto_layout struct wfs_layout *layout = NULL;
    if (wfs_layout_new(conversion->format, catalog, &layout, &err) < 0)
        return save_error(conversion, catalog, &err);
    if (!conversion->allows_large && wfs_layout_is_large(layout))
        return print_error(EXIT_OUTPUT, conversion->target,
                           "would be more than 16 times larger than the source; --large allows it");
    progress_start(&progress, "writing");
    progress_hold_signals(&progress);
    conversion->save.progress = progress_step;
    conversion->save.ctx = &progress;
    const int result = wfs_save(layout, conversion->target, &conversion->save, NULL, &err);
    progress_end(&progress);
    return result < 0 ? save_error(conversion, catalog, &err) : EXIT_DONE;
}

/* The next name of a list of things that are left out; the first ones are enough. */
static void tell_name(size_t i, const char *name)
{
    if (i < N_NAMED)
        printf("%s'%s'", i > 0 ? ", " : "", wfs_quote(name).text);
}

static void tell_rest(size_t n)
{
    if (n > N_NAMED)
        printf(" and %zu more", n - N_NAMED);
    putchar('\n');
}

/* What the target has no room for is said, not dropped in silence. */
static void tell_left_out(const struct conversion *conversion, const struct wfs_catalog *catalog)
{
    const char *format = wfs_format_name(conversion->format);
    const bool holds_values = strcmp(format, "pytorch") == 0;
    const size_t n = wfs_catalog_n_values(catalog);
    if (strcmp(format, wfs_catalog_format(catalog)) == 0)
        return;
    if (n > 0 && !holds_values) {
        printf("left out, because %s holds only tensors and texts: ", format);
        for (size_t i = 0; i < n; i++)
            tell_name(i, wfs_catalog_value_name(catalog, i));
        tell_rest(n);
    }
    if (wfs_catalog_meta(catalog) != NULL && holds_values) {
        size_t n_texts = 0;
        printf("left out, because %s has no room for metadata: ", format);
        for (const struct wfs_text *text = wfs_catalog_meta(catalog); text != NULL;
             text = text->next)
            tell_name(n_texts++, text->name);
        tell_rest(n_texts);
    }
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
        .allows_large = args_has(&args, "large"),
    };
    exit_code = choose_format(&conversion, args_value(&args, "format"));
    if (exit_code == EXIT_DONE)
        exit_code = choose_replacement(&conversion);
    if (exit_code == EXIT_DONE)
        exit_code = input_load_report(&args, conversion.source, &catalog, &report);
    if (exit_code == EXIT_DONE)
        exit_code = save(&conversion, catalog);
    if (exit_code == EXIT_DONE) {
        tell_notice(report);
        tell_left_out(&conversion, catalog);
    }
    return exit_code;
}
