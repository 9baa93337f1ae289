/* SPDX-License-Identifier: MIT */
/*
 * Up to three processes return from mount_main, each with its exit code: the command that was
 * typed, the supervisor and the worker. A recovery is a driver without a mount.
 */
#include "fuse/mount.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/strbuf.h>
#include "fuse/log.h"
#include "fuse/process.h"
#include "fuse/publication.h"
#include "program/place.h"
#include "program/print.h"

#include <fuse_lowlevel.h>

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* ---- remounting ---- */

/*
 * mount(8) runs the program with all options of the mount and of fstab: only the access was asked
 * for. The driver goes on as it is.
 */

/* Returns the flags of mount(2) for what statvfs shows. */
static unsigned long flags_of(unsigned long shown)
{
    static const struct {
        unsigned long shown, flag;
    } flags[] = {
        {ST_RDONLY, MS_RDONLY},
        {ST_NOSUID, MS_NOSUID},
        {ST_NODEV, MS_NODEV},
        {ST_NOEXEC, MS_NOEXEC},
        {ST_NOATIME, MS_NOATIME},
        {ST_NODIRATIME, MS_NODIRATIME},
        {ST_SYNCHRONOUS, MS_SYNCHRONOUS},
        {ST_RELATIME, MS_RELATIME},
    };
    unsigned long result = 0;
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        result |= (shown & flags[i].shown) != 0 ? flags[i].flag : 0;
    return result;
}

static int fail_remount(const char *path, const char *reason)
{
    return log_failure(EXIT_MOUNT, "cannot remount '%s': %s", wfs_quote(path).text, reason);
}

/*
 * Remounts what is at the mount point with the access of the options, and as it is otherwise.
 * Returns the exit code; not 0: a line was printed.
 */
static int remount(const struct mount_options *options)
{
    struct statvfs st;
    struct wfs_control_reply hello = {0};
    const char *path = options->mountpoint;
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_remount(path, strerror(errno));
    if (ioctl(fd, WFS_IOC_HELLO, &hello) < 0 || fstatvfs(fd, &st) < 0)
        return fail_remount(path, "not a weightfs mount point");
    const bool is_writable = hello.text[0] != '\0';
    if (options->access == MOUNT_ACCESS_RW && !is_writable)
        return fail_remount(
            path, "it was mounted without an output; unmount it and mount it with output=");
    unsigned long flags = flags_of(st.f_flag);
    if (options->access != MOUNT_ACCESS_UNSAID)
        flags &= ~(unsigned long)MS_RDONLY;
    if (options->access == MOUNT_ACCESS_RO)
        flags |= MS_RDONLY;
    if (mount(NULL, path, NULL, MS_REMOUNT | flags, NULL) == 0)
        return EXIT_DONE;
    return fail_remount(path,
                        errno == EBUSY ? "files in it are open for writing" : strerror(errno));
}

/* ---- mounting ---- */

/* Returns N of "/dev/fd/N", 0 for "-", or -1: the inherited descriptor that stays open. */
static int source_descriptor(const struct mount_options *options)
{
    int fd, n_read = 0;
    const char *source = options->source;
    if (strcmp(source, "-") == 0)
        return STDIN_FILENO;
    return sscanf(source, "/dev/fd/%d%n", &fd, &n_read) == 1 && source[n_read] == '\0' ? fd : -1;
}

static int run(const struct mount_options *options)
{
    signal(SIGPIPE, SIG_IGN);
    log_start(options->source, options->is_debug || options->is_verbose ? LOG_INFO
                               : options->is_foreground                 ? LOG_NOTICE
                                                                        : LOG_WARNING);
    if (options->is_remount)
        return remount(options);
    if (options->is_foreground)
        return supervisor_run(options, -1);
    int report;
    const int exit_code = process_to_background(source_descriptor(options), &report);
    return report < 0 ? exit_code : supervisor_run(options, report);
}

int mount_main(int argc, char **argv)
{
    struct mount_options options;
    const int exit_code = mount_options_parse(&options, argc, argv) ? run(&options) : EXIT_USAGE;
    mount_options_done(&options);
    return exit_code;
}

/* ---- what an earlier mount left ---- */

/* Returns the argument of -o, malloc'ed: the options of the user, then the output, whose commas and
 * backslashes are escaped. NULL: out of memory. */
static char *make_list(const struct mount_recovery *recovery)
{
    autostrbuf struct strbuf list = {0};
    strbuf_printf(&list, "%s%soutput=", recovery->options, *recovery->options != '\0' ? "," : "");
    for (const char *at = recovery->output; *at != '\0'; at++) {
        if (*at == ',' || *at == '\\')
            strbuf_puts(&list, "\\");
        strbuf_add(&list, at, 1);
    }
    return list.has_failed ? NULL : steal(&list.bytes);
}

/*
 * Allows replacing any file with force. Otherwise `overwrite` allows only what was at the path when
 * the mount began, and what it has published since according to its journal (resume.c).
 */
static void allow_output(const struct mount_recovery *recovery, const struct mount_options *options,
                         struct target *target)
{
    uint64_t inode = 0, n_bytes = 0;
    int64_t mtime_ns = 0;
    target->allows_replacing = "--force";
    if (recovery->is_forced) {
        target->output.replace = WFS_REPLACE_ANY;
        target->output.is_taken = false;
        return;
    }
    if (!options->settings.overwrite) {
        target->allows_replacing = "--options=overwrite";
        return;
    }
    if (!target->place.is_there)
        return;
    autofree char *known = predecessor_base_value(recovery->base, "#replaces", 0);
    if (known != NULL)
        sscanf(known, "%" SCNu64 " %" SCNu64 " %" SCNd64, &inode, &n_bytes, &mtime_ns);
    const bool is_known = inode == target->output.known.inode &&
                          n_bytes == target->output.known.n_bytes &&
                          mtime_ns == target->output.known.mtime_ns;
    target->output.replace =
        is_known || target->output.is_source ? WFS_REPLACE_KNOWN : WFS_REPLACE_NONE;
    target->output.is_taken = !is_known && !target->output.is_source;
}

/* Fails when the format that was chosen for the output then is not the one that it has now. */
static int check_format(const struct mount_recovery *recovery, const struct target *target)
{
    autofree char *then = predecessor_base_value(recovery->base, "#option format", 0);
    if (then == NULL || target->output.format == NULL ||
        wfs_format_by_name(then) == target->output.format)
        return 0;
    return log_failure(EXIT_OUTPUT,
                       "the mount was to write '%s', and '%s' would be %s: name the output of the "
                       "mount, or give its format with --options=format=NAME",
                       wfs_quote(then).text, wfs_quote(target->path).text,
                       target->output.format->name);
}

static int check_replayed(const struct mount_recovery *recovery, const struct driver *driver)
{
    struct wfs_replayed replayed;
    wfs_tree_replayed(driver->tree, &replayed);
    if (replayed.n_doubtful == 0 || recovery->is_forced)
        return 0;
    return log_failure(
        EXIT_OUTPUT,
        "%s not synced before a restart and may be torn; --force publishes them as they are",
        wfs_count_as(replayed.n_doubtful, "edit was", "edits were").text);
}

struct recovery_task {
    const struct mount_recovery *recovery;
    const struct mount_options *options;
    struct target *target;
};

static void report(const struct recovery_task *task, const struct driver *driver, uint64_t n_edits,
                   const char *summary)
{
    const struct wfs_status *status = &driver->status;
    struct receipt *receipt = task->recovery->receipt;
    if (!receipt->is_json) {
        printf("committed to '%s': %s\n", wfs_quote(task->target->path).text,
               summary[0] != '\0' ? summary : "nothing");
        return;
    }
    receipt_text(receipt, "stage", task->recovery->stage);
    receipt_count(receipt, "n_edits", n_edits);
    receipt_text(receipt, "text", summary[0] != '\0' ? summary : NULL);
    receipt_output(receipt, task->target->path, status->n_tensors, status->n_files,
                   status->n_total);
}

/* In a process of its own, which confines itself. */
static int commit(void *ctx, int keeper)
{
    const struct recovery_task *task = ctx;
    struct driver driver = {0};
    struct wfs_error err = {0};
    char summary[COMMIT_TEXT_MAX] = "";
    int rc = loading_run(&driver, task->options, task->target);
    driver.keeper = keeper;
    const uint64_t n_edits = rc == 0 ? wfs_tree_n_edits(driver.tree) : 0;
    if (rc == 0)
        rc = check_replayed(task->recovery, &driver);
    if (rc == 0)
        rc = publication_run(&driver, false, NULL, summary, &err);
    if (rc == 0)
        report(task, &driver, n_edits, summary);
    driver_done(&driver);
    return receipt_end(task->recovery->receipt, rc == 0 ? EXIT_DONE : EXIT_OUTPUT);
}

static int publish(const struct mount_recovery *recovery, const struct mount_options *options,
                   struct target *target)
{
    struct recovery_task task = {recovery, options, target};
    int rc = target_init(target, options);
    if (rc != 0)
        return rc;
    if (target->path == NULL)
        return log_failure(
            EXIT_OUTPUT,
            "the source does not exist; use --onto=SOURCE to publish onto another one");
    rc = options->settings.format == NULL ? check_format(recovery, target) : 0;
    if (rc != 0)
        return rc;
    free(target->stage_path);
    target->stage_path = strdup(recovery->stage);
    target->is_forced = recovery->is_forced;
    target->is_moved = recovery->is_onto;
    allow_output(recovery, options, target);
    return target->stage_path == NULL ? log_failure(EXIT_OUTPUT, "out of memory")
                                      : process_run_child(options, target, commit, &task);
}

int mount_recover(const struct mount_recovery *recovery)
{
    struct mount_options options;
    char program[] = "weightfs", place[] = "/", flag[] = "-o";
    autofree char *list = make_list(recovery);
    autofree char *source = strdup(recovery->source);
    if (list == NULL || source == NULL)
        return log_failure(EXIT_OUTPUT, "out of memory");
    char *argv[] = {program, flag, list, source, place, NULL};
    int exit_code = EXIT_OUTPUT;
    if (mount_options_parse(&options, 5, argv)) {
        struct target target;
        log_start(options.source, LOG_WARNING);
        exit_code = publish(recovery, &options, &target);
        target_done(&target);
    }
    mount_options_done(&options);
    return exit_code == 0 || exit_code > 128 ? exit_code : EXIT_OUTPUT; /* that of a signal stays */
}

const char *mount_library_version(void)
{
    return fuse_pkgversion();
}
