/* SPDX-License-Identifier: MIT */
/*
 * A commit keeps changes out from beginning to end and readers only for the moments in which the
 * tree itself is changed.
 */
#include "fuse/commit.h"

#include "fuse/account.h"
#include "fuse/log.h"
#include "fuse/sandbox/paths.h"
#include "fuse/planned.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct commit {
    struct driver *driver;
    struct commit_waiter *waiter;
    struct wfs_error *err;
    struct wfs_save_report report;
    struct wfs_status status;
    struct wfs_report_commit account;
    char *told; /* its one line */
    uint64_t generation;
    int64_t shown_at; /* when progress was last shown, in ms */
};

static bool is_output_there(const struct target *target)
{
    struct stat st;
    return (target->is_source || target->is_published) && stat(target->path, &st) == 0;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int show_progress(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct commit *commit = ctx;
    if (commit->waiter != NULL)
        commit->waiter->poll(commit->waiter);
    const int64_t now = now_ms();
    if (now - commit->shown_at < 200)
        return 0;
    commit->shown_at = now;
    commit->status.n_done = n_done;
    commit->status.n_total = n_total;
    driver_set_status(commit->driver, &commit->status);
    return 0;
}

static int check_sources(const struct commit *commit)
{
    size_t i = 0;
    const struct wfs_catalog *catalog = commit->driver->catalog;
    if (wfs_catalog_check_sources(catalog, &i) == 0)
        return 0;
    return wfs_fail(commit->err, EIO, "source '%s' has changed since it was mounted",
                    wfs_quote(wfs_catalog_source_path(catalog, i)).text);
}

static int fail_journal(const struct commit *commit, int code)
{
    return code == 0
               ? 0
               : wfs_fail(commit->err, -code, "the journal cannot be written: %s", strerror(-code));
}

static int sync_edits(struct commit *commit)
{
    struct driver *driver = commit->driver;
    driver_begin_read(driver);
    commit->generation = wfs_tree_generation(driver->tree);
    const int rc = wfs_tree_sync(driver->tree, commit->err);
    driver_end_read(driver);
    if (rc < 0)
        driver_rescue(driver);
    return rc;
}

/* The files that the index names: those of the sources which are in its directory. What an earlier
 * commit removed was kept then. */
static int keep_shards(const struct driver *driver)
{
    autofree char *directory = path_directory(driver->target->path);
    int rc = directory == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < wfs_catalog_n_sources(driver->catalog); i++) {
        autofree char *path = path_resolve_parent(wfs_catalog_source_path(driver->catalog, i));
        autofree char *own = path == NULL ? NULL : path_directory(path);
        if (own != NULL && strcmp(own, directory) == 0)
            rc = wfs_tree_keep_source(driver->tree, path);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

/* Where the source is what is replaced, edits that follow need it under another name. */
static void keep_source(const struct commit *commit)
{
    const struct target *target = commit->driver->target;
    if (!target->is_source)
        return;
    int rc = wfs_tree_keep_source(commit->driver->tree, target->path);
    if (rc == 0 && target->is_set)
        rc = keep_shards(commit->driver);
    if (rc < 0)
        log_warning("edits that follow this commit will not survive a crash: the old source cannot "
                    "be kept in '%s': %s",
                    wfs_quote(target->stage_path).text, strerror(-rc));
}

/* The tree is held shared. */
static int begin(const struct commit *commit)
{
    const struct target *target = commit->driver->target;
    char temporary[WFS_OUTPUT_NAME_MAX];
    wfs_output_temporary(target->path, temporary);
    keep_source(commit);
    return fail_journal(commit,
                        wfs_tree_commit_begin(commit->driver->tree, target->path, temporary));
}

static int note_complete(void *ctx, const struct wfs_identity *identity, uint64_t digest,
                         struct wfs_error *err)
{
    const struct commit *commit = ctx;
    (void)err; /* the commit's own */
    return fail_journal(commit, wfs_tree_commit_complete(commit->driver->tree, identity, digest));
}

/* The mode of a new output: the sources', as far as the umask lets it. */
static uint32_t output_mode(const struct driver *driver)
{
    struct stat st;
    mode_t mode = 0666;
    if (stat(mount_options_source(driver->options), &st) == 0)
        mode = st.st_mode & 0666;
    return (mode & ~driver->options->process_umask) | 0400;
}

/* What is going to be written. */
static void count(struct commit *commit, const struct planned *planned)
{
    struct wfs_report_commit *account = &commit->account;
    const bool is_set = planned->shards != NULL;
    account->n_tensors = wfs_catalog_n_tensors(planned->catalog);
    account->n_files = is_set ? wfs_shards_n_files(planned->shards) : 1;
    account->n_bytes =
        is_set ? wfs_shards_n_bytes(planned->shards) : wfs_layout_n_bytes(planned->layout);
}

/* The tree is held shared. */
static int save(struct commit *commit, struct planned *planned)
{
    struct driver *driver = commit->driver;
    const struct target *target = driver->target;
    commit->report.step = "check";
    int rc = target->is_set ? planned_make_set(driver, planned, commit->err)
                            : planned_make(driver, target->format, planned, commit->err);
    if (rc == 0)
        rc = begin(commit);
    if (rc < 0)
        return rc;
    count(commit, planned);
    const struct wfs_save_options options = {.replace = target->replace,
                                             .known = target->known,
                                             .mode = output_mode(driver),
                                             .progress = show_progress,
                                             .complete = note_complete,
                                             .ctx = commit};
    return target->is_set
               ? wfs_shards_save(planned->shards, target->path, &options, &commit->report,
                                 commit->err)
               : wfs_save(planned->layout, target->path, &options, &commit->report, commit->err);
}

static void conclude(struct commit *commit, const struct planned *planned)
{
    struct driver *driver = commit->driver;
    commit->account.at = time(NULL);
    account_tell(&commit->account, &planned->fit, commit->told);
    pthread_rwlock_wrlock(&driver->lock);
    account_report(driver, &commit->account, &planned->fit);
    const int rc = wfs_tree_committed(driver->tree, commit->generation);
    pthread_rwlock_unlock(&driver->lock);
    if (rc < 0)
        log_warning("the journal cannot be written: %s", strerror(-rc));
}

static int publish(struct commit *commit)
{
    struct driver *driver = commit->driver;
    struct planned planned = {0};
    commit->report.step = "check";
    int rc = check_sources(commit);
    if (rc == 0 && strstr(driver->sandbox, "landlock") != NULL)
        rc = target_check_directory(driver->target, commit->err);
    if (rc < 0)
        return rc;
    commit->report.step = "sync";
    rc = sync_edits(commit);
    if (rc < 0)
        return rc;
    driver_begin_read(driver);
    rc = save(commit, &planned);
    driver_end_read(driver);
    if (commit->report.published.inode != 0)
        target_published(driver->target, &commit->report.published);
    if (rc == 0)
        conclude(commit, &planned);
    planned_done(&planned);
    return rc;
}

static void tell_failure(struct commit *commit)
{
    const struct driver *driver = commit->driver;
    const bool is_published = commit->report.published.inode != 0;
    const struct wfs_quoted path = wfs_quote(driver->target->path);
    const char *text = driver->options->redact ? strerror(commit->err->code) : commit->err->text;
    if (is_published)
        log_error("committed to '%s', but that may not survive a loss of power: %s", path.text,
                  text);
    else
        log_error("cannot commit to '%s': %s; the edits are kept in '%s'", path.text, text,
                  wfs_quote(driver->target->stage_path).text);
    commit->status.state = is_published ? "published-unsynced" : "failed";
    commit->status.error = commit->err->code;
    commit->status.text = commit->err->text;
}

static void tell_success(struct commit *commit)
{
    log_note("committed to '%s': %s", wfs_quote(commit->driver->target->path).text, commit->told);
    commit->status.state = "published";
    commit->status.written = commit->told;
    commit->status.committed_at = commit->account.at;
    commit->status.n_done = commit->status.n_total = commit->account.n_bytes;
}

/* `change` is held. */
static int run(struct commit *commit)
{
    struct driver *driver = commit->driver;
    commit->account.output = driver->target->path;
    commit->account.n_edits = wfs_tree_n_edits(driver->tree);
    const int64_t committed_at = driver->status.committed_at;
    commit->status = (struct wfs_status){.state = "committing", .committed_at = committed_at};
    driver_set_status(driver, &commit->status);
    const int rc = publish(commit);
    commit->status.step = commit->report.step;
    if (rc < 0) {
        wfs_fail(commit->err, -rc, "%s", strerror(-rc));
        tell_failure(commit);
    } else {
        tell_success(commit);
    }
    driver_set_status(driver, &commit->status);
    return rc;
}

int commit_run(struct driver *driver, bool is_asked, struct commit_waiter *waiter,
               char told[COMMIT_TEXT_MAX], struct wfs_error *err)
{
    struct commit commit = {.driver = driver, .waiter = waiter, .told = told, .err = err};
    int rc = 0;
    told[0] = '\0';
    pthread_mutex_lock(&driver->change);
    if (wfs_tree_has_pending(driver->tree) || (is_asked && !is_output_there(driver->target)))
        rc = run(&commit);
    pthread_mutex_unlock(&driver->change);
    return rc;
}
