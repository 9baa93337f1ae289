/* SPDX-License-Identifier: MIT */
/*
 * A driver holds the lock of its staging directory until it ends, and removes the directory if
 * nothing is left in it.
 */
#include "cli/watch.h"

#include "cli/mounted.h"
#include "cli/progress.h"
#include "program/predecessor.h"
#include "program/print.h"
#include "program/unmount.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct watch {
    const char *operand;
    int stage; /* the directory */
    struct progress progress;
    bool is_committing;        /* the progress is that of a commit */
    struct wfs_status *status; /* the last that was read, or NULL */
};

static bool has_ended(const struct watch *watch)
{
    if (flock(watch->stage, LOCK_SH | LOCK_NB) < 0)
        return errno != EWOULDBLOCK && errno != EINTR;
    flock(watch->stage, LOCK_UN);
    return true;
}

/* The text is replaced as a whole: what cannot be read now can be the next time. */
static void read_status(struct watch *watch)
{
    struct wfs_status *status = mounted_status(watch->stage, "status.json");
    if (status == NULL)
        return;
    free(watch->status);
    watch->status = status;
    const bool is_committing = status->state == WFS_MOUNT_COMMITTING;
    if (is_committing != watch->is_committing) {
        progress_end(&watch->progress);
        progress_start(&watch->progress, is_committing ? "committing" : "waiting", 0);
        watch->is_committing = is_committing;
    }
    if (is_committing && status->n_total > 0)
        progress_step(&watch->progress, status->n_done, status->n_total);
    else
        progress_add(&watch->progress, 0); /* what was read of status.json is not progress */
}

static enum exit_code report(const struct watch *watch)
{
    const struct wfs_status *status = watch->status;
    struct stat st;
    const bool has_output = status != NULL && status->output != NULL;
    if (fstat(watch->stage, &st) == 0 && st.st_nlink > 0) {
        const char *reason = status != NULL ? status->text : NULL;
        return print_error(EXIT_OUTPUT, watch->operand,
                           "the mount has ended, but its last edits are not committed%s%s",
                           reason != NULL ? ": " : "", reason != NULL ? reason : "");
    }
    if (has_output &&
        (status->state == WFS_MOUNT_COMMITTING || status->state == WFS_MOUNT_PUBLISHED ||
         status->state == WFS_MOUNT_PUBLISHED_UNSYNCED))
        printf("the mount has ended; its edits are committed to '%s'\n",
               wfs_quote(status->output).text);
    else
        puts("the mount has ended; no edits are left");
    return EXIT_DONE;
}

static enum exit_code watch_stage(const char *operand, const char *path)
{
    static const struct timespec pause = {.tv_nsec = 100000000};
    struct watch watch = {.operand = operand};
    autoclose int stage = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage < 0 && errno != ENOENT)
        return print_error(EXIT_MOUNT, path, "cannot open: %s", strerror(errno));
    if (stage < 0) {
        puts("no mount saves edits there");
        return EXIT_DONE;
    }
    watch.stage = stage;
    progress_start(&watch.progress, "waiting", 0);
    read_status(&watch);
    while (!has_ended(&watch)) {
        nanosleep(&pause, NULL);
        read_status(&watch);
    }
    progress_end(&watch.progress);
    const enum exit_code exit_code = report(&watch);
    free(watch.status);
    return exit_code;
}

static enum exit_code watch_output(const char *operand)
{
    cleanup(predecessor_done) struct predecessor found;
    struct wfs_error err = {0};
    if (predecessor_find(operand, NULL, &found, &err) < 0)
        return print_error(EXIT_MOUNT, operand, "%s", err.text);
    if (found.stage != NULL)
        return watch_stage(operand, found.stage);
    return print_error(EXIT_MOUNT, operand,
                       "is neither a weightfs mount point nor the output of one");
}

enum exit_code watch_run(const char *operand)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    if (!unmount_is_root(operand))
        return watch_output(operand);
    const enum exit_code exit_code = mounted_open(&mounted, operand);
    if (exit_code != EXIT_DONE)
        return exit_code;
    mounted_close(&mounted);
    if (!mounted.is_writable)
        return print_error(EXIT_MOUNT, operand, "is read-only: it has no edits to save");
    if (strcmp(mounted.stage, WFS_HELLO_HIDDEN) == 0)
        return print_error(EXIT_MOUNT, operand, "only the user who mounted it can watch it");
    return watch_stage(operand, mounted.stage);
}
