/* SPDX-License-Identifier: MIT */
/*
 * weightfs patch: edits as a file, made of a mount or of two checkpoints, shown, and applied.
 */
#include "cli/args.h"

#include "cli/conversion.h"
#include "cli/input.h"
#include "cli/mounted.h"
#include "cli/progress.h"
#include "program/commit.h"
#include "program/checkpoint.h"
#include "program/destination.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/io.h>
#include <weightfs/patch.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDITS WFS_CONTROL_NAME "/" WFS_OUT_NAME "/edits.safetensors"

/* ---- reading a patch ---- */

struct opened {
    struct wfs_catalog *file; /* must live longer than the patch */
    struct wfs_patch *patch;
};

static void opened_done(struct opened *opened)
{
    wfs_patch_free(opened->patch);
    wfs_catalog_free(opened->file);
}

static enum exit_code open_patch(const struct args *args, const char *path, struct opened *opened)
{
    struct wfs_error err = {0};
    const struct wfs_load_options load = {.limits = args->settings.load.limits,
                                          .n_limits = args->settings.load.n_limits};
    memory_limit(&load);
    int code = wfs_load(path, &load, &opened->file, &err);
    if (code == 0)
        code = wfs_patch_parse(opened->file, &opened->patch, &err);
    return code < 0 ? print_error(exit_of_errno(err.code), path, "%s", err.text) : EXIT_DONE;
}

/* ---- making one ---- */

static enum exit_code print_made(const struct wfs_patch *patch, const char *path)
{
    struct wfs_patch_counts counts;
    wfs_patch_count(patch, &counts);
    printf("wrote '%s': %s", wfs_quote(path).text,
           wfs_count(wfs_patch_n_edits(patch), "edit").text);
    const struct {
        uint64_t n;
        const char *what;
    } kinds[] = {{counts.n_renamed, "renamed"},     {counts.n_removed, "removed"},
                 {counts.n_added, "added"},         {counts.n_replaced, "replaced"},
                 {counts.n_described, "changed"},   {counts.n_values, "of values"},
                 {counts.n_metadata, "of metadata"}};
    const char *before = ": ";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (kinds[i].n == 0)
            continue;
        printf("%s%" PRIu64 " %s", before, kinds[i].n, kinds[i].what);
        before = ", ";
    }
    putchar('\n');
    return EXIT_DONE;
}

static enum exit_code save_patch(const struct args *args, struct wfs_catalog *file,
                                 const char *path, const struct wfs_access *access)
{
    struct wfs_error err = {0};
    struct stat st;
    struct commit commit = {.catalog = file, .format = wfs_format_by_id(WFS_FORMAT_SAFETENSORS)};
    struct destination destination = {.typed = path, .settings = &args->settings};
    enum exit_code exit_code = destination_check_links(&destination, path, &err);
    if (exit_code == EXIT_DONE)
        exit_code =
            destination_choose_replacement(&destination, stat(path, &st) == 0 ? &st : NULL, &err);
    if (exit_code != EXIT_DONE)
        return print_error(exit_code, path, "%s", err.text);
    struct wfs_save_options save = destination_save_options(&destination);
    struct progress progress;
    save.access = *access;
    progress_start(&progress, "writing", 0);
    progress_hold_signals(&progress);
    save.progress = progress_step;
    save.abandon = progress_abandon;
    save.ctx = &progress;
    int code = commit_plan(&commit, &err);
    if (code == 0)
        code = commit_save(&commit, path, &save, NULL, &err);
    progress_end(&progress);
    commit_done(&commit);
    return code < 0 ? print_error(EXIT_OUTPUT, path, "%s", err.text) : EXIT_DONE;
}

/* The file is loaded and written again: the copy is whole, or there is none. */
static enum exit_code make_of_mount(const struct args *args, const char *mountpoint,
                                    const char *path)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    cleanup(opened_done) struct opened opened = {0};
    enum exit_code exit_code = mounted_open(&mounted, mountpoint);
    if (exit_code != EXIT_DONE)
        return exit_code;
    char *edits;
    if (asprintf(&edits, "%s/" EDITS, mountpoint) < 0)
        return print_memory(NULL);
    autofree char *owned = edits;
    const int fd = openat(mounted.fd, EDITS, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return print_error(EXIT_OUTPUT, mountpoint,
                           "cannot list the edits: %s; 'weightfs commit' reports which file is "
                           "the cause",
                           strerror(errno));
    autoclose int held = fd;
    exit_code = open_patch(args, owned, &opened);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct wfs_access access = {0};
    wfs_access_add(&access, mounted.fd); /* as the sources grant it; the control files do less */
    exit_code = save_patch(args, opened.file, path, &access);
    return exit_code == EXIT_DONE ? print_made(opened.patch, path) : exit_code;
}

static enum exit_code make_of_two(const struct args *args, const char *from, const char *to,
                                  const char *path)
{
    auto_catalog struct wfs_catalog *a = NULL;
    auto_catalog struct wfs_catalog *b = NULL;
    auto_patch struct wfs_patch *patch = NULL;
    auto_catalog struct wfs_catalog *file = NULL;
    struct wfs_error err = {0};
    enum exit_code exit_code = input_load(args, from, &a);
    if (exit_code == EXIT_DONE)
        exit_code = input_load(args, to, &b);
    if (exit_code != EXIT_DONE)
        return exit_code;
    int code = wfs_catalog_check_backup(a, path, &args->settings.backup, &err);
    if (code == 0)
        code = wfs_catalog_check_backup(b, path, &args->settings.backup, &err);
    if (code < 0)
        return print_error(EXIT_OUTPUT, path, "%s", err.text);
    code = wfs_patch_compare(a, b, args->settings.allows_large, &patch, &err);
    if (code == -EFBIG)
        return input_workload_error(from, &err, INPUT_CHOOSE_FEWER);
    if (code == 0)
        code = wfs_patch_file(patch, true, &file, &err);
    if (code < 0)
        return print_error(exit_of_errno(err.code), NULL, "%s", err.text);
    struct wfs_access access = wfs_catalog_access(a);
    const struct wfs_access more = wfs_catalog_access(b);
    wfs_access_merge(&access, &more);
    exit_code = save_patch(args, file, path, &access);
    return exit_code == EXIT_DONE ? print_made(patch, path) : exit_code;
}

/* ---- showing and applying ---- */

static int show_line(void *ctx, const char *line)
{
    (void)ctx;
    print_line(stdout, line);
    return ferror(stdout) ? -EIO : 0;
}

static enum exit_code show(const struct args *args, const char *path)
{
    cleanup(opened_done) struct opened opened = {0};
    const enum exit_code exit_code = open_patch(args, path, &opened);
    if (exit_code == EXIT_DONE && wfs_patch_each(opened.patch, show_line, NULL) == -ENOMEM)
        return print_memory(path);
    return exit_code;
}

struct application {
    const char *path; /* as typed */
    const struct wfs_patch *patch;
    bool is_forced;
    uint64_t n_refused;
};

static void print_refusal(void *ctx, const char *line)
{
    (void)ctx;
    fputs("does not fit: ", stdout);
    print_line(stdout, line);
}

static enum exit_code change(void *ctx, const struct wfs_catalog *loaded, struct wfs_catalog **out)
{
    struct application *application = ctx;
    struct wfs_error err = {0};
    const struct wfs_patch_options options = {
        .is_forced = application->is_forced, .refuse = print_refusal, .ctx = application};
    if (wfs_patch_apply(application->patch, loaded, &options, &application->n_refused, out, &err) ==
        0)
        return EXIT_DONE;
    const bool is_misfit = application->n_refused > 0 && err.code == EINVAL;
    return print_error(err.code == EINVAL ? EXIT_NO_MATCH : exit_of_errno(err.code),
                       application->path, "%s%s", err.text,
                       is_misfit ? "; --force applies the others" : "");
}

static enum exit_code apply(const struct args *args)
{
    cleanup(opened_done) struct opened opened = {0};
    enum exit_code exit_code = open_patch(args, args->operands[1], &opened);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct args source_args = *args;
    source_args.settings.load.force = false; /* is about edits here, not about damage */
    struct application application = {
        .path = args->operands[1], .patch = opened.patch, .is_forced = args->settings.load.force};
    const struct wfs_access access = wfs_catalog_access(opened.file);
    const struct conversion_request request = {.args = &source_args,
                                               .source = args->operands[2],
                                               .target = args->operands[3],
                                               .change = change,
                                               .ctx = &application,
                                               .file = opened.file,
                                               .access = &access};
    exit_code = conversion_run(&request);
    if (exit_code == EXIT_DONE && application.n_refused > 0)
        printf("left out: %s of %" PRIu64 "\n", wfs_count(application.n_refused, "edit").text,
               wfs_patch_n_edits(opened.patch));
    return exit_code;
}

/* ---- the verb ---- */

static enum exit_code run_patch(const struct args *args)
{
    const char *what = args->operands[0];
    const char **operands = args->operands;
    if (strcmp(what, "make") == 0 && args->n_operands == 3)
        return make_of_mount(args, operands[1], operands[2]);
    if (strcmp(what, "make") == 0 && args->n_operands == 4)
        return make_of_two(args, operands[1], operands[2], operands[3]);
    if (strcmp(what, "show") == 0 && args->n_operands == 2)
        return show(args, operands[1]);
    if (strcmp(what, "apply") == 0 && args->n_operands == 4)
        return apply(args);
    return print_error(EXIT_USAGE, NULL,
                       "expected 'weightfs patch %s'; see 'weightfs patch --help'",
                       strcmp(what, "make") == 0    ? "make MNT FILE' or 'make A B FILE"
                       : strcmp(what, "show") == 0  ? "show FILE"
                       : strcmp(what, "apply") == 0 ? "apply FILE SOURCE TARGET"
                                                    : "make|show|apply");
}

const struct verb verb_patch = {
    .name = "patch",
    .operands = "make|show|apply FILE...",
    .text = "weightfs patch make MNT FILE\n"
            "weightfs patch make A B FILE\n"
            "weightfs patch show FILE\n"
            "weightfs patch apply FILE SOURCE TARGET\n"
            "\n"
            "Make a patch FILE of the edits of a mount, or of those that lead from A to B;\n"
            "list its edits; or write SOURCE with these edits to TARGET, atomically. An edit\n"
            "that does not fit SOURCE is an error; with --force, the others are applied.\n"
            "The view options apply to A, B and SOURCE.",
    .n_min = 2,
    .n_max = 4,
    .has_source = true,
    .has_output = true,
    .run = run_patch,
};
