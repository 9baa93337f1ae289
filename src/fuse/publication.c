/* SPDX-License-Identifier: MIT */
/*
 * A commit excludes changes throughout, and readers only while the tree itself is updated.
 */
#include "fuse/publication.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/io.h>
#include "fuse/keeper.h"
#include "fuse/log.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct publication {
    struct driver *driver; /* has what follows */
    struct target *target;
    struct wfs_tree *tree;
    const struct publication_waiter *waiter;
    struct wfs_error *err;
    struct wfs_save_report report;
    struct wfs_status status;
    struct commit commit;
    char *summary; /* its one line */
    uint64_t generation;
    bool is_asked;    /* by somebody, who may stop it */
    int64_t shown_at; /* when progress was last shown, in ms */
};

static bool is_output_there(const struct target *target)
{
    struct stat st;
    return (target->output.is_source || target->is_published) && stat(target->path, &st) == 0;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int check_stop(const struct publication *publication)
{
    if (!publication->is_asked || !atomic_load(&publication->driver->is_stopped))
        return 0;
    return wfs_fail(publication->err, EINTR, "stopped by the user, and nothing was changed");
}

/* A waiter that is killed is answered, and the commit follows all the same. */
static bool ask_waiter(void *ctx)
{
    const struct publication *publication = ctx;
    if (publication->waiter != NULL)
        publication->waiter->poll(publication->waiter->ctx);
    return false;
}

static int show_progress(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct publication *publication = ctx;
    if (check_stop(publication) < 0)
        return -EINTR;
    (void)ask_waiter(publication);
    const int64_t now = now_ms();
    if (now - publication->shown_at < 200)
        return 0;
    publication->shown_at = now;
    publication->status.n_done = n_done;
    publication->status.n_total = n_total;
    driver_set_status(publication->driver, &publication->status);
    return 0;
}

/* Sources and the directory of the output are those of the mount. */
static int check_places(const struct publication *publication)
{
    size_t i = 0;
    const struct driver *driver = publication->driver;
    if (wfs_catalog_check_sources(driver->catalog, &i) < 0)
        return wfs_fail(publication->err, EIO, "source '%s' has changed since it was mounted",
                        wfs_quote(wfs_catalog_source_path(driver->catalog, i)).text);
    return sandbox_confines_files(driver->sandbox)
               ? target_check_directory(publication->target, publication->err)
               : 0;
}

static int fail_journal(const struct publication *publication, int code)
{
    return code == 0
               ? 0
               : wfs_fail(publication->err, -code, "cannot write the journal: %s", strerror(-code));
}

static int sync_edits(struct publication *publication)
{
    struct driver *driver = publication->driver;
    driver_begin_read(driver);
    publication->generation = wfs_tree_generation(publication->tree);
    const int rc = wfs_tree_sync(publication->tree, publication->err);
    driver_end_read(driver);
    if (rc < 0)
        driver_rescue(driver);
    return rc;
}

/*
 * Keeps the shards of the index: the sources in its directory. A shard that an earlier commit
 * removed was kept then.
 */
static int keep_shards(const struct driver *driver)
{
    autofree char *directory = path_directory(driver->target->path);
    int rc = directory == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < wfs_catalog_n_sources(driver->catalog); i++) {
        const char *path = wfs_catalog_source_path(driver->catalog, i);
        autofree char *own = path_directory(path);
        if (own == NULL)
            rc = -ENOMEM;
        else if (strcmp(own, directory) == 0)
            rc = wfs_tree_keep_source(driver->tree, path);
    }
    return rc;
}

/* If the commit replaces the source, later edits need it under another name. */
static void keep_source(const struct publication *publication)
{
    const struct target *target = publication->target;
    if (!target->output.is_source)
        return;
    int rc = wfs_tree_keep_source(publication->tree, target->path);
    if (rc == 0 && target->output.index != NULL)
        rc = keep_shards(publication->driver);
    if (rc < 0)
        log_warning("later edits will not survive a crash: cannot keep the old source in '%s': %s",
                    wfs_quote(target->stage_path).text, strerror(-rc));
}

static int note_complete(void *ctx, const struct wfs_identity *identity, uint64_t digest,
                         struct wfs_error *err)
{
    const struct publication *publication = ctx;
    (void)err; /* publication->err is used instead */
    return fail_journal(publication, wfs_tree_commit_complete(publication->tree, identity, digest));
}

/* The report of the mount is about its source; the output may lack a name or have one more. */
static void note_danger(void *ctx, const char *text)
{
    struct publication *publication = ctx;
    publication->commit.n_dangers++;
    log_warning("'%s': %s", wfs_quote(publication->target->path).text, text);
}

/* ---- what the keeper does for this process ---- */

static int note_keeper(const struct publication *publication, int code)
{
    if (code == -EPIPE)
        log_warning("cannot set owner and mode of '%s': the supervisor of the mount is gone",
                    wfs_quote(publication->target->path).text);
    return code;
}

static int set_mode(void *ctx, const char *name, uint32_t mode)
{
    const struct publication *publication = ctx;
    return note_keeper(publication, keeper_ask_mode(publication->driver->keeper, name, mode));
}

static int set_owner(void *ctx, const char *name)
{
    const struct publication *publication = ctx;
    return note_keeper(publication, keeper_ask_owner(publication->driver->keeper, name));
}

/* What the mount itself has published is not kept: the backup stays that of the file before it. */
static struct wfs_backup backup_of(const struct driver *driver)
{
    struct stat st;
    const struct target *target = driver->target;
    if (!target->is_published || stat(target->path, &st) < 0)
        return driver->options->settings.backup;
    const struct wfs_identity now = wfs_identity_of(&st);
    return wfs_identity_is_equal(&now, &target->output.known) ? (struct wfs_backup){0}
                                                              : driver->options->settings.backup;
}

static void abandon(void *ctx, int fd)
{
    io_close_removed(fd);
}

static struct wfs_save_options save_options(struct publication *publication)
{
    const struct driver *driver = publication->driver;
    const struct target *target = driver->target;
    return (struct wfs_save_options){.replace = target->output.replace,
                                     .known = target->output.known,
                                     .backup = backup_of(driver),
                                     .mode = 0666 & ~driver->options->process_umask,
                                     .access = wfs_catalog_access(driver->catalog),
                                     .narrows_replaced = target->output.is_source,
                                     .progress = show_progress,
                                     .complete = note_complete,
                                     .danger = note_danger,
                                     .set_mode = set_mode,
                                     .set_owner = set_owner,
                                     .abandon = abandon,
                                     .ctx = publication};
}

/* The tree is held shared. */
static int save(struct publication *publication)
{
    const char *path = publication->target->path;
    char temporary[WFS_OUTPUT_NAME_MAX];
    publication->report.step = "check";
    int rc = commit_plan(&publication->commit, publication->err);
    if (rc < 0)
        return rc;
    wfs_output_temporary(path, temporary);
    keep_source(publication);
    rc = fail_journal(publication, wfs_tree_commit_begin(publication->tree, path, temporary));
    if (rc < 0)
        return rc;
    const struct wfs_save_options options = save_options(publication);
    return commit_save(&publication->commit, path, &options, &publication->report,
                       publication->err);
}

static void conclude(struct publication *publication)
{
    struct driver *driver = publication->driver;
    const struct commit *commit = &publication->commit;
    commit_summary(commit, publication->summary);
    pthread_rwlock_wrlock(&driver->lock);
    const int reported = commit_report(commit, driver->report);
    const int noted = wfs_tree_committed(driver->tree, publication->generation);
    pthread_rwlock_unlock(&driver->lock);
    if (reported < 0)
        log_warning("the report of this commit is not complete: %s", strerror(-reported));
    if (noted < 0)
        log_warning("cannot write the journal: %s", strerror(-noted));
}

static int publish(struct publication *publication)
{
    struct driver *driver = publication->driver;
    publication->report.step = "check";
    int rc = check_places(publication);
    if (rc < 0)
        return rc;
    publication->report.step = "sync";
    rc = sync_edits(publication);
    if (rc == 0)
        rc = check_stop(publication);
    if (rc < 0)
        return rc;
    pthread_rwlock_rdlock(&driver->lock);
    rc = save(publication);
    pthread_rwlock_unlock(&driver->lock);
    if (publication->report.published.inode != 0)
        target_published(publication->target, &publication->report.published);
    if (rc == 0)
        conclude(publication);
    return rc;
}

static void report_failure(struct publication *publication, int rc)
{
    const bool is_published = publication->report.published.inode != 0;
    const struct wfs_quoted path = wfs_quote(publication->target->path);
    wfs_fail(publication->err, -rc, "%s", strerror(-rc));
    const char *text = publication->driver->options->redact ? strerror(publication->err->code)
                                                            : publication->err->text;
    if (is_published)
        log_error("committed to '%s', but that may not survive a loss of power: %s", path.text,
                  text);
    else
        log_error("cannot commit to '%s': %s; the edits are kept in '%s'", path.text, text,
                  wfs_quote(publication->target->stage_path).text);
    publication->status.state = is_published ? WFS_MOUNT_PUBLISHED_UNSYNCED : WFS_MOUNT_FAILED;
    publication->status.error = publication->err->code;
    publication->status.text = publication->err->text;
}

static void report_success(struct publication *publication)
{
    log_event("committed to '%s': %s", wfs_quote(publication->target->path).text,
              publication->summary);
    publication->status.state = WFS_MOUNT_PUBLISHED;
    publication->status.written = publication->summary;
    publication->status.n_tensors = publication->commit.account.n_tensors;
    publication->status.n_files = publication->commit.account.n_files;
    publication->status.committed_at = publication->commit.account.at;
    publication->status.n_done = publication->status.n_total = publication->commit.account.n_bytes;
}

static void begin_commit(struct publication *publication)
{
    const struct driver *driver = publication->driver;
    const struct target *target = driver->target;
    publication->commit = driver->draft;
    publication->commit.format = target->output.format;
    publication->commit.fit_options.is_set = target->output.index != NULL;
    publication->commit.max_shard = target->output.settings->max_shard;
    publication->commit.account.n_edits = wfs_tree_n_edits(driver->tree);
}

/* `change` is held. */
static int run(struct publication *publication)
{
    struct driver *driver = publication->driver;
    begin_commit(publication);
    publication->status = (struct wfs_status){.state = WFS_MOUNT_COMMITTING,
                                              .committed_at = driver->status.committed_at};
    driver_set_status(driver, &publication->status);
    const int rc = publish(publication);
    publication->status.step = publication->report.step;
    if (rc < 0)
        report_failure(publication, rc);
    else
        report_success(publication);
    driver_set_status(driver, &publication->status);
    commit_done(&publication->commit);
    return rc;
}

static struct publication publication_of(struct driver *driver, char summary[COMMIT_TEXT_MAX],
                                         struct wfs_error *err)
{
    summary[0] = '\0';
    return (struct publication){.driver = driver,
                                .target = driver->target,
                                .tree = driver->tree,
                                .summary = summary,
                                .err = err};
}

int publication_run(struct driver *driver, bool is_asked, const struct publication_waiter *waiter,
                    char summary[COMMIT_TEXT_MAX], struct wfs_error *err)
{
    struct publication publication = publication_of(driver, summary, err);
    int rc = 0;
    publication.waiter = waiter;
    publication.is_asked = is_asked;
    atomic_store(&driver->is_stopped, false);
    (void)driver_wait_for_change(driver, ask_waiter, &publication);
    if (wfs_tree_has_pending(driver->tree) || (is_asked && !is_output_there(driver->target)))
        rc = run(&publication);
    pthread_mutex_unlock(&driver->change);
    return rc;
}

/* ---- a trial ---- */

struct counted {
    const struct wfs_tree_problems *problems;
    size_t n;
};

static void count_problem(void *ctx, const char *text)
{
    struct counted *counted = ctx;
    counted->n++;
    counted->problems->visit(counted->problems->ctx, text);
}

/* Returns rc. */
static int note_problem(const struct publication *publication,
                        const struct wfs_tree_problems *problems, int rc)
{
    if (rc < 0)
        problems->visit(problems->ctx,
                        publication->err->code != 0 ? publication->err->text : strerror(-rc));
    *publication->err = (struct wfs_error){0};
    return rc;
}

/* `change` is held, and the tree shared. The first of several errors is that of the commit. */
static int try_all(struct publication *publication, const struct wfs_tree_problems *problems,
                   struct wfs_report_commit *ret_account)
{
    struct counted counted = {.problems = problems};
    const struct wfs_tree_problems counting = {count_problem, &counted};
    const struct wfs_save_options options = save_options(publication);
    const int places = note_problem(publication, problems, check_places(publication));
    begin_commit(publication);
    publication->commit.problems = &counting;
    int plan = commit_try(&publication->commit, publication->err);
    if (plan == 0 && counted.n > 0)
        plan = -EINVAL;
    *publication->err = (struct wfs_error){0};
    const int output =
        note_problem(publication, problems,
                     wfs_output_check(publication->target->path, &options,
                                      publication->commit.account.n_bytes, publication->err));
    const int first = places < 0 ? places : plan < 0 ? plan : output;
    if (first == 0)
        commit_summary(&publication->commit, publication->summary);
    *ret_account = publication->commit.account;
    commit_done(&publication->commit);
    return first;
}

int publication_try(struct driver *driver, const struct wfs_tree_problems *problems,
                    char summary[COMMIT_TEXT_MAX], struct wfs_report_commit *ret_account)
{
    struct wfs_error err = {0};
    struct publication publication = publication_of(driver, summary, &err);
    int rc = 0;
    (void)driver_wait_for_change(driver, ask_waiter, &publication);
    pthread_rwlock_rdlock(&driver->lock);
    if (wfs_tree_has_pending(driver->tree) || !is_output_there(driver->target))
        rc = try_all(&publication, problems, ret_account);
    pthread_rwlock_unlock(&driver->lock);
    pthread_mutex_unlock(&driver->change);
    return rc;
}
