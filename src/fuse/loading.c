/* SPDX-License-Identifier: MIT */
/*
 * From the options of a mount to its tree: the sandbox, what an earlier mount left in the staging
 * directory, the catalog and its view.
 *
 * A commit that was published is finished, whether or not its process survived to note it. Newer
 * edits are based on the same source as those before them. A read lease is refused while another
 * process has the file open for writing.
 */
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include "fuse/driver.h"
#include "fuse/log.h"
#include "fuse/process.h"
#include "program/checkpoint.h"
#include "program/place.h"
#include "program/print.h"
#include "program/urls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int fail_memory(void)
{
    return log_failure(EXIT_UNSUPPORTED, "out of memory");
}

/* ---- before loading: what an earlier mount left ---- */

/*
 * A commit was published: only newer edits are shown. The journal that says so may have been
 * written by somebody else, so it never allows replacing a file. It only adds the file that it
 * names to those that the user allows to replace with `overwrite`.
 */
static int finish_published(struct target *target, const struct mount_options *options,
                            struct wfs_stage *stage, const struct wfs_written *written)
{
    const struct wfs_leftover *leftover = wfs_stage_leftover(stage);
    const bool has_newer = leftover->n_changes > written->n_changes;
    int code = 0;
    if (written == &leftover->complete && leftover->commit == WFS_COMMIT_COMPLETE)
        code = wfs_stage_note_published(stage);
    if (code == 0 && !has_newer)
        code = wfs_stage_discard(stage);
    if (code < 0)
        return log_failure(EXIT_MOUNT, "cannot write to staging directory '%s': %s",
                           wfs_quote(target->stage_path).text, strerror(-code));
    if (!has_newer)
        return 0;
    struct stat st;
    if (target->output.is_taken && options->settings.overwrite && stat(target->path, &st) == 0) {
        target->output.is_taken = false;
        target->output.replace = WFS_REPLACE_KNOWN;
        target->output.known = wfs_identity_of(&st);
    }
    target->is_published = true;
    if (target->output.is_source && asprintf(&target->kept_source, "%s/source/%s",
                                             target->stage_path, path_name(target->path)) < 0) {
        target->kept_source = NULL;
        return fail_memory();
    }
    if (target->kept_source != NULL && access(target->kept_source, F_OK) < 0 && errno == ENOENT)
        free(steal(&target->kept_source)); /* edits of another source, which is reported later */
    return 0;
}

static int look(struct target *target, const struct mount_options *options, struct wfs_stage *stage)
{
    const struct wfs_leftover *leftover = wfs_stage_leftover(stage);
    if (leftover->bad_record != 0 && !target->is_forced)
        return log_failure(EXIT_MOUNT,
                           "the journal of an earlier mount in '%s' is damaged at record %" PRIu64
                           "; 'weightfs recover' lists the edits before it",
                           wfs_quote(target->stage_path).text, leftover->bad_record);
    const struct wfs_written *written = predecessor_written(
        leftover, target->path, options->settings.load.limits, options->settings.load.n_limits);
    if (written != NULL || leftover->commit != WFS_COMMIT_NONE)
        predecessor_remove_temporary(target->path);
    if (written != NULL)
        return finish_published(target, options, stage, written);
    wfs_stage_forget_published(stage);
    return 0;
}

/* Opens the staging directory, reports why the last commit failed, finishes one that was
 * interrupted after its rename, and chooses the source to load. */
static int open_stage(struct driver *driver)
{
    struct target *target = driver->target;
    struct wfs_error err = {0};
    const struct wfs_stage_options how = {.path = target->stage_path, .boot = target->boot};
    if (target->path == NULL)
        return 0;
    if (wfs_stage_open(&how, &driver->stage, &err) < 0) {
        const int exit_code = (int)exit_of_errno(err.code);
        return log_failure(exit_code == EXIT_SOURCE || exit_code == EXIT_DAMAGED ? EXIT_MOUNT
                                                                                 : exit_code,
                           "%s", err.text);
    }
    autofree char *failure = wfs_stage_failure(driver->stage);
    if (failure != NULL)
        log_warning("the last commit failed: %s", failure);
    const int rc = look(target, driver->options, driver->stage);
    if (rc != 0 || !target->output.is_taken)
        return rc;
    return log_failure(EXIT_MOUNT, "output '%s' already exists; use %s to replace it",
                       wfs_quote(target->path).text, target->allows_replacing);
}

/* ---- loading ---- */

/* Reports a failure, of a view with the name of the option as it was typed. */
static int fail(enum exit_code exit_code, const char *path, const char *text)
{
    const char *mark = checkpoint_named_option(text) != NULL ? "-o " : "";
    return path == NULL
               ? log_failure((int)exit_code, "%s%s", mark, text)
               : log_failure((int)exit_code, "'%s': %s%s", wfs_quote(path).text, mark, text);
}

/* The user wrote rules files, which need no sandbox. */
static int make_view(struct driver *driver)
{
    struct wfs_error err = {0};
    const struct mount_options *options = driver->options;
    const enum exit_code exit_code =
        checkpoint_new_view(options->views, options->n_views, &driver->view, &err);
    return exit_code == EXIT_DONE ? 0 : fail(exit_code, NULL, err.text);
}

static int confine(struct driver *driver)
{
    return process_confine(driver->options, driver->target, driver->view, &driver->sandbox);
}

static int load(struct driver *driver)
{
    const struct mount_options *options = driver->options;
    const struct target *target = driver->target;
    const char *source = target->kept_source != NULL ? target->kept_source : target->source.opened;
    struct checkpoint_failure failure;
    struct checkpoint_options checkpoint_options = urls_options();
    checkpoint_options.load = options->settings.load;
    checkpoint_options.is_lasting = true;
    checkpoint_options.load.remote = target->remote;
    if (target->remote != NULL)
        wfs_remote_set_gate(target->remote, driver_note_missing, driver);
    const enum exit_code exit_code = checkpoint_load(source, &checkpoint_options, driver->view,
                                                     &driver->catalog, &driver->report, &failure);
    if (exit_code == EXIT_DONE) {
        wfs_report_borrow(driver->report, driver->catalog);
        return 0;
    }
    if (failure.path == NULL && source == target->kept_source)
        failure.path = source;
    return fail(exit_code, failure.path, failure.err.text);
}

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

/* Tells a user at a terminal which dtypes numpy lacks. */
static void warn_of_numpy(const struct wfs_catalog *catalog)
{
    uint64_t n_unknown = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++)
        n_unknown += checkpoint_is_unknown_to_numpy(wfs_catalog_tensor(catalog, i));
    if (n_unknown > 0)
        log_warning("numpy cannot compute with the elements of %s ('<V2', '|V1'): "
                    "-o cast=f32 widens BF16, cast=REGEX:f32 all that it matches",
                    wfs_count(n_unknown, "file").text);
}

/* Warns of damage and of guesses; the report has the warnings that are not repeated here. */
static void warn(const char *source, const struct wfs_catalog *catalog,
                 const struct wfs_report *report)
{
    enum { N_MOST = 10 };
    const char *about, *text;
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(catalog, i);
        if (finding->severity == WFS_HIGH)
            log_warning("%s", finding->text);
    }
    for (size_t i = 0; i < N_MOST && (text = wfs_report_warning(report, i, &about)) != NULL; i++)
        log_warning("'%s': %s", wfs_quote(about).text, text);
    const char *notice = wfs_report_notice(report);
    const struct checkpoint_options urls = urls_options();
    if (notice != NULL)
        log_warning("%s, see plan.tsv", notice);
    if ((notice = checkpoint_notice(&urls, source)) != NULL)
        log_warning("%s", notice);
}

static int check(struct driver *driver)
{
    warn(driver->target->source.opened, driver->catalog, driver->report);
    if (driver->options->files == WFS_FILES_NPY && log_is_on_terminal())
        warn_of_numpy(driver->catalog);
    const int rc = check_writers(driver->catalog, driver->target);
    return rc != 0 ? rc : target_check(driver->target, driver->options, driver->catalog);
}

/* ---- the tree ---- */

/* Returns the next line that is compared, without its line feed; NULL at the end. */
static const char *next_line(const char **at, size_t *ret_n)
{
    while (**at != '\0') {
        const char *line = *at;
        *ret_n = strcspn(line, "\n");
        *at = line + *ret_n + (line[*ret_n] != '\0');
        if (line[0] != '#')
            return line;
    }
    return NULL;
}

static bool is_same_base(const char *a, const char *b)
{
    for (;;) {
        size_t n_a, n_b;
        const char *line_a = next_line(&a, &n_a), *line_b = next_line(&b, &n_b);
        if (line_a == NULL || line_b == NULL)
            return line_a == line_b;
        if (n_a != n_b || memcmp(line_a, line_b, n_a) != 0)
            return false;
    }
}

/* Checks that the edits of an earlier mount are based on the source that the text describes. */
static int check_base(const struct driver *driver, const char *base)
{
    const struct target *target = driver->target;
    const struct wfs_leftover *leftover = wfs_stage_leftover(driver->stage);
    if (leftover->n_changes == 0 || target->is_moved ||
        (leftover->base != NULL && is_same_base(leftover->base, base)))
        return 0;
    return log_failure(EXIT_MOUNT,
                       "staging directory '%s' holds edits of an earlier mount, but the source or "
                       "the view options have changed since; see 'weightfs recover'",
                       wfs_quote(target->stage_path).text);
}

/*
 * Whoever may not read a source may not read the tree either: if a source is closed to group or
 * others, directories are closed to them too.
 */
static mode_t shown_umask(const struct driver *driver)
{
    const struct wfs_access access = wfs_catalog_access(driver->catalog);
    const mode_t readable = wfs_access_mode(&access, driver->options->gid);
    mode_t mask = driver->options->umask;
    mask |= (readable & 040) != 0 ? 0 : 070;
    mask |= (readable & 04) != 0 ? 0 : 07;
    return mask;
}

static void warn_of_tmpfs(const char *stage_path)
{
    struct statfs fs;
    if (statfs(stage_path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
        log_warning("edits are kept in memory only, because '%s' is on a tmpfs; use -o stage=DIR "
                    "to keep them elsewhere",
                    wfs_quote(stage_path).text);
}

static int make_report_text(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_TEXT, ret, ret_n_bytes);
}

static int make_report_json(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_JSON, ret, ret_n_bytes);
}

static int make_plan(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_report_write(ctx, WFS_REPORT_TSV, ret, ret_n_bytes);
}

static int make_edits_text(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_tree_list_edits(((const struct driver *)ctx)->tree, false, ret, ret_n_bytes);
}

static int make_edits_json(const void *ctx, char **ret, size_t *ret_n_bytes)
{
    return wfs_tree_list_edits(((const struct driver *)ctx)->tree, true, ret, ret_n_bytes);
}

/* Offers what the view did, and what was edited since, as files of the control directory. */
static void describe(struct driver *driver)
{
    const struct wfs_report *report = driver->report;
    struct wfs_tree_text *texts = driver->texts;
    texts[0] = (struct wfs_tree_text){"report.txt", false, make_report_text, report};
    texts[1] = (struct wfs_tree_text){"report.json", false, make_report_json, report};
    texts[2] = (struct wfs_tree_text){"plan.tsv", false, make_plan, report};
    texts[3] = (struct wfs_tree_text){"edits.txt", true, make_edits_text, driver};
    texts[4] = (struct wfs_tree_text){"edits.json", true, make_edits_json, driver};
}

static int make_tree(struct driver *driver)
{
    const struct mount_options *options = driver->options;
    const struct target *target = driver->target;
    autofree char *base = NULL;
    if (target->path != NULL) {
        base = target_base_text(target, options, driver->catalog);
        const int rc = base == NULL ? fail_memory() : check_base(driver, base);
        if (rc != 0)
            return rc;
    }
    driver->draft.fit_options = options->settings.fit;
    driver->draft.large_option = options->settings.allows_large ? NULL : "-o large";
    if (generated_new(&driver->draft, wfs_catalog_format(driver->catalog), options->redact != 0,
                      &driver->generated) < 0)
        return fail_memory();
    describe(driver);
    struct wfs_tree_options tree_options = {
        .layout = (enum wfs_tree_layout)options->layout,
        .files = (enum wfs_tree_files)options->files,
        .stage = driver->stage,
        .base_text = base,
        .uid = options->uid,
        .gid = options->gid,
        .umask = shown_umask(driver),
        .control_umask = options->uid == driver->owner ? 077 : 0,
        .reserved_key = target->output.format != NULL ? target->output.format->reserved_key : NULL,
        .reserved_by = target->output.format != NULL ? target->output.format->title : NULL,
        .texts = driver->texts,
        .n_texts = DRIVER_N_TEXTS,
        .allows_large = options->settings.allows_large,
    };
    tree_options.made = generated_files(driver->generated, &tree_options.n_made);
    struct wfs_error err = {0};
    driver->stage = NULL; /* the tree owns it, even if this fails */
    if (wfs_tree_new(driver->catalog, &tree_options, &driver->tree, &err) < 0) {
        const int exit_code = (int)exit_of_errno(err.code);
        return log_failure(exit_code == EXIT_SOURCE ? EXIT_MOUNT : exit_code, "%s", err.text);
    }
    driver->draft.tree = driver->tree;
    generated_attach(driver->generated, driver->tree);
    if (target->stage_path != NULL)
        warn_of_tmpfs(target->stage_path);
    driver->generation = wfs_tree_generation(driver->tree);
    driver_set_status(driver, &(struct wfs_status){.state = WFS_MOUNT_CLEAN});
    return 0;
}

int loading_run(struct driver *driver, const struct mount_options *options, struct target *target)
{
    static int (*const steps[])(struct driver *) = {make_view, confine, open_stage,
                                                    load,      check,   make_tree};
    if (driver_init(driver, options, target) < 0)
        return fail_memory();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(steps) / sizeof(steps[0]); i++)
        rc = steps[i](driver);
    return rc;
}

void loading_tell(const struct wfs_tree *tree)
{
    struct wfs_replayed replayed;
    char more[128] = "";
    wfs_tree_replayed(tree, &replayed);
    if (replayed.n_doubtful > 0)
        snprintf(more, sizeof(more), "; %s not synced before a restart and may be torn",
                 wfs_count_as(replayed.n_doubtful, "of them was", "of them were").text);
    if (replayed.n_lost > 0)
        log_warning("the content of %s of an earlier mount is lost",
                    wfs_count(replayed.n_lost, "edit").text);
    if (replayed.n_edits > 0)
        log_warning("%s shown again%s",
                    wfs_count_as(replayed.n_edits, "edit of an earlier mount is",
                                 "edits of an earlier mount are")
                        .text,
                    more);
}
