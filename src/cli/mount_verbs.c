/* SPDX-License-Identifier: MIT */
/*
 * weightfs commit, status, umount and discard: the verbs for a running mount.
 */
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>
#include <weightfs/tree.h>

#include "cli/args.h"
#include "cli/mounted.h"
#include "cli/progress.h"
#include "program/print.h"
#include "program/predecessor.h"
#include "program/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- waiting ---- */

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

/*
 * operand: a mount point, or the output of a mount or its staging directory, where it is unmounted
 * already. Prints what became of the edits. Unless EXIT_DONE, a line was printed on stderr.
 */
static enum exit_code watch_run(const char *operand)
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

/* ---- commit ---- */

static enum exit_code run_commit(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    struct wfs_control_reply reply;
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code == EXIT_DONE && args_has(args, "dry-run"))
        return mounted_try(&mounted, true);
    if (exit_code == EXIT_DONE)
        exit_code = mounted_commit(&mounted, &reply);
    if (exit_code != EXIT_DONE)
        return exit_code;
    print_line(stdout, reply.text[0] != '\0' ? reply.text : "nothing to commit");
    return exit_code;
}

static const struct args_option commit_options[] = {
    {"dry-run", NULL, "write nothing; print the result, or what fails"},
    {NULL, NULL, NULL},
};

const struct verb verb_commit = {
    .name = "commit",
    .operands = "MOUNTPOINT",
    .text = "Save the edits of a mount to its output, wait for the result, and print one line\n"
            "about it. The mount stays and can be edited further. Ctrl-C stops the commit; a\n"
            "second Ctrl-C does not wait for that.",
    .n_min = 1,
    .n_max = 1,
    .options = commit_options,
    .run = run_commit,
};

/* ---- status ---- */

static void print_field(const char *label, const char *text)
{
    if (text == NULL)
        return;
    printf("%-12s ", label);
    print_line(stdout, text);
}

static void print_time(int64_t seconds)
{
    const time_t time = (time_t)seconds;
    struct tm local;
    char text[64] = "never";
    if (time != 0 && localtime_r(&time, &local) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
    print_field("committed", text);
}

static void print_status(const struct wfs_status *status)
{
    print_field("state", wfs_mount_state_name(status->state));
    printf("%-12s %" PRIu64 "\n", "edits", status->n_edits);
    print_field("output", status->output);
    if (status->output != NULL)
        print_time(status->committed_at);
    if (status->n_needed > 0)
        printf("%-12s %s of %s\n", "fetched", amount_of_bytes(status->n_fetched).text,
               amount_of_bytes(status->n_needed).text);
    print_field("written", status->written);
    print_field("step", status->step);
    print_field("message", status->text);
}

/* Names in the text are escaped when they are printed, line by line. */
static enum exit_code list_edits(const struct mounted *mounted, bool is_json)
{
    autofree char *text = mounted_status_text(mounted->fd, is_json ? WFS_CONTROL_NAME "/edits.json"
                                                                   : WFS_CONTROL_NAME "/edits.txt");
    if (text == NULL)
        return print_error(EXIT_MOUNT, mounted->path, "cannot list the edits: %s", strerror(errno));
    if (is_json) {
        print_json(stdout, text, strlen(text));
        return EXIT_DONE;
    }
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        print_line(stdout, line);
    }
    if (*text == '\0')
        puts("no edits");
    return EXIT_DONE;
}

static enum exit_code run_status(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    if (args_has(args, "watch"))
        return watch_run(args->operands[0]);
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (args_has(args, "edits"))
        return list_edits(&mounted, args_has(args, "json"));
    autofree char *text = mounted_status_text(mounted.fd, MOUNTED_STATUS);
    if (text == NULL)
        return print_error(EXIT_MOUNT, mounted.path, "cannot read the status: %s", strerror(errno));
    if (args_has(args, "json")) {
        print_json(stdout, text, strlen(text));
        return EXIT_DONE;
    }
    autofree struct wfs_status *status = NULL;
    if (wfs_status_parse(text, strlen(text), &status) < 0)
        return print_error(EXIT_MOUNT, mounted.path, "cannot understand the status of this mount");
    print_status(status);
    return EXIT_DONE;
}

static const struct args_option status_options[] = {
    {"edits", NULL, "list what was renamed, removed, added, changed"},
    {"json", NULL, "print JSON"},
    {"watch", NULL, "wait until the mount is saved and gone"},
    {NULL, NULL, NULL},
};

const struct verb verb_status = {
    .name = "status",
    .operands = "MOUNTPOINT",
    .text = "Show how many edits of a mount are not committed, and the result of its last\n"
            "commit. With --edits, list in what the mount differs from its source, a line for\n"
            "each name and file; 'weightfs diff MOUNTPOINT' shows by how much. With --watch,\n"
            "show the progress of commits until the mount has ended; where it is unmounted\n"
            "already, name its output in place of MOUNTPOINT.",
    .n_min = 1,
    .n_max = 1,
    .options = status_options,
    .run = run_status,
};

/* ---- umount ---- */

/* Unmounts a mount whose driver has died: nothing can be committed any more. */
static enum exit_code clear_dead(const char *path)
{
    struct wfs_error err = {0};
    if (unmount_path(path, true, &err) < 0)
        return print_error(EXIT_MOUNT, path, "cannot unmount: %s", err.text);
    return print_error(
        EXIT_MOUNT, path,
        "unmounted, but the driver of this mount had died; uncommitted edits are kept "
        "in the staging directory: mount again to see them");
}

static enum exit_code report_elsewhere(const struct mounted *mounted, pid_t pid, const char *place)
{
    const char *end = mounted->outcome != NULL ? mounted->outcome : "";
    const char *edits = mounted->outcome != NULL ? "; the edits are " : "";
    if (place == NULL)
        return print_error(EXIT_MOUNT, mounted->path,
                           "unmounted here, but it is still mounted in another namespace%s%s",
                           edits, end);
    if (pid == getpid())
        return print_error(EXIT_MOUNT, mounted->path,
                           "unmounted here, but it is still mounted at '%s'%s%s",
                           wfs_quote(place).text, edits, end);
    return print_error(EXIT_MOUNT, mounted->path,
                       "unmounted here, but it is still mounted at '%s' in the namespace of "
                       "process %d%s%s",
                       wfs_quote(place).text, (int)pid, edits, end);
}

/* Waits for the driver, which goes on as long as the filesystem is mounted anywhere else. */
static enum exit_code wait_for(const struct mounted *mounted, int pidfd, dev_t device)
{
    enum { N_PAUSE = 500 }; /* milliseconds: a driver without edits ends sooner */
    struct pollfd wanted = {.fd = pidfd, .events = POLLIN};
    while (pidfd >= 0) {
        const int n = poll(&wanted, 1, N_PAUSE);
        if (n > 0 || (n < 0 && errno != EINTR))
            break;
        autofree char *place = NULL;
        pid_t pid;
        if (n == 0 && unmount_is_elsewhere(device, &pid, &place))
            return report_elsewhere(mounted, pid, place);
    }
    return EXIT_DONE;
}

/* If the staging directory still exists, the last commit of the driver failed. */
static enum exit_code report_end(const struct mounted *mounted)
{
    if (!mounted->is_writable)
        return EXIT_DONE;
    autoclose int stage = open(mounted->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (stage < 0)
        return EXIT_DONE;
    autofree struct wfs_status *status = mounted_status(stage, "status.json");
    const char *reason = status != NULL ? status->text : NULL;
    return print_error(EXIT_OUTPUT, mounted->path,
                       "unmounted, but the last edits are not committed%s%s; they are kept in '%s'",
                       reason != NULL ? ": " : "", reason != NULL ? reason : "",
                       wfs_quote(mounted->stage).text);
}

static bool has_edits(const struct mounted *mounted)
{
    struct wfs_control_reply hello = {0};
    return ioctl(mounted->fd, WFS_IOC_HELLO, &hello) < 0 || hello.n_edits > 0;
}

/* Saves the edits or drops them, and prints which. */
static enum exit_code settle(struct mounted *mounted, bool is_discarding)
{
    struct wfs_control_reply reply = {0};
    if (!mounted->is_writable)
        return EXIT_DONE;
    const enum exit_code exit_code =
        is_discarding ? mounted_discard(mounted, &reply) : mounted_commit(mounted, &reply);
    mounted->may_go = exit_code != EXIT_DONE && !is_discarding && reply.error != EINTR &&
                      reply.error != EPERM && !has_edits(mounted);
    if (exit_code != EXIT_DONE)
        return exit_code;
    mounted->outcome = is_discarding ? "discarded" : "saved";
    if (is_discarding)
        printf("discarded %s\n", wfs_count(reply.n_edits, "edit").text);
    else if (reply.text[0] != '\0')
        print_line(stdout, reply.text);
    return EXIT_DONE;
}

static enum exit_code unmount(struct mounted *mounted, const char *path)
{
    struct wfs_error err = {0};
    const int pidfd = (int)syscall(SYS_pidfd_open, mounted->pid, 0);
    struct stat st = {0};
    const bool is_known = fstat(mounted->fd, &st) == 0;
    enum exit_code waited = EXIT_DONE;
    mounted_close(mounted);
    const int rc = unmount_path(path, false, &err);
    struct progress progress;
    progress_start(&progress, "unmounting", 0);
    if (rc == 0 && is_known)
        waited = wait_for(mounted, pidfd, st.st_dev);
    progress_end(&progress);
    if (pidfd >= 0)
        close(pidfd);
    if (rc == -EBUSY)
        return print_error(EXIT_MOUNT, mounted->path,
                           "cannot unmount: %s%s%sstill in use; 'fuser -vm %s' shows by which "
                           "process",
                           mounted->outcome != NULL ? "the edits are " : "",
                           mounted->outcome != NULL ? mounted->outcome : "",
                           mounted->outcome != NULL ? ", but it is " : "",
                           wfs_quote(mounted->path).text);
    if (rc < 0)
        return print_error(EXIT_MOUNT, mounted->path, "cannot unmount: %s", err.text);
    return waited != EXIT_DONE ? waited : report_end(mounted);
}

static enum exit_code run_umount(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    const char *typed = args->operands[0];
    if (unmount_is_dead(typed))
        return clear_dead(typed);
    autofree char *path = realpath(typed, NULL);
    enum exit_code exit_code = mounted_open(&mounted, typed);
    if (exit_code == EXIT_DONE)
        exit_code = settle(&mounted, args_has(args, "discard"));
    if (exit_code != EXIT_DONE && !mounted.may_go)
        return exit_code;
    if (path == NULL)
        return print_error(EXIT_MOUNT, typed, "cannot unmount: %s", strerror(errno));
    const enum exit_code unmounted = unmount(&mounted, path);
    if (unmounted == EXIT_DONE && exit_code != EXIT_DONE)
        puts("unmounted; nothing was edited");
    return unmounted != EXIT_DONE ? unmounted : exit_code;
}

static const struct args_option umount_options[] = {
    {"discard", NULL, "drop the edits instead of saving them"},
    {NULL, NULL, NULL},
};

const struct verb verb_umount = {
    .name = "umount",
    .operands = "MOUNTPOINT",
    .text = "Save the edits of a mount, unmount it, and wait for its driver to exit. If the\n"
            "edits cannot be saved, the mount stays. Ctrl-C stops the commit, and leaves the\n"
            "mount and its edits as they are.",
    .n_min = 1,
    .n_max = 1,
    .options = umount_options,
    .run = run_umount,
};

/* ---- discard ---- */

/* Returns the part of a path that is below the mount point. */
static const char *below(const char *mountpoint, const char *path)
{
    size_t n = strlen(mountpoint);
    while (n > 1 && mountpoint[n - 1] == '/')
        n--;
    return strncmp(path, mountpoint, n) == 0 && (path[n] == '/' || path[n] == '\0') ? path + n
                                                                                    : path;
}

/* Adds a path in its shortest spelling. *is_all becomes true for the root. */
static enum exit_code add_path(const struct mounted *mounted, const char *typed,
                               struct strbuf *paths, bool *is_all)
{
    const char *path = below(mounted->path, typed);
    size_t n_names = 0;
    while (*path != '\0') {
        path += strspn(path, "/");
        const size_t n = strcspn(path, "/");
        if (n == 2 && strncmp(path, "..", 2) == 0)
            return print_error(EXIT_USAGE, mounted->path, "a PATH cannot contain '..': '%s'",
                               wfs_quote(typed).text);
        if (n > 0 && !(n == 1 && *path == '.')) {
            strbuf_puts(paths, n_names > 0 ? "/" : paths->n_bytes > 0 ? "//" : "");
            strbuf_add(paths, path, n);
            n_names++;
        }
        path += n;
    }
    *is_all |= n_names == 0;
    return EXIT_DONE;
}

static enum exit_code fill(const struct mounted *mounted, const struct args *args,
                           struct wfs_control_revert *request)
{
    autostrbuf struct strbuf paths = {0};
    bool is_all = args->n_operands == 1;
    enum exit_code exit_code = EXIT_DONE;
    for (size_t i = 1; i < args->n_operands && exit_code == EXIT_DONE; i++)
        exit_code = add_path(mounted, args->operands[i], &paths, &is_all);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (paths.has_failed)
        return print_memory(mounted->path);
    if (!is_all && paths.n_bytes >= sizeof(request->text))
        return print_error(
            EXIT_USAGE, mounted->path,
            "the PATHs take %s, and %zu is the limit; name directories, or discard in "
            "several calls",
            wfs_count(paths.n_bytes, "byte").text, sizeof(request->text) - 1);
    request->takes_committed = args_has(args, "committed");
    if (!is_all)
        memcpy(request->text, paths.bytes, paths.n_bytes + 1);
    return EXIT_DONE;
}

/* Waits until the kernel shows no old name and no old byte. */
static void wait_for_kernel(int fd)
{
    static const struct timespec pause = {.tv_nsec = 5000000};
    struct wfs_control_reply hello = {0};
    while (ioctl(fd, WFS_IOC_HELLO, &hello) == 0 && hello.error == EAGAIN)
        nanosleep(&pause, NULL);
}

static enum exit_code run_discard(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    struct wfs_control_revert request = {0};
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code == EXIT_DONE)
        exit_code = fill(&mounted, args, &request);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (ioctl(mounted.fd, WFS_IOC_REVERT, &request) < 0)
        return print_error(EXIT_OUTPUT, mounted.path, "cannot discard: %s", strerror(errno));
    request.text[sizeof(request.text) - 1] = '\0';
    if (request.error != 0)
        return print_error(request.error == ENOENT ? EXIT_NO_MATCH : EXIT_OUTPUT, mounted.path,
                           "cannot discard: %s", request.text);
    wait_for_kernel(mounted.fd);
    printf("discarded %s\n", wfs_count(request.n_edits, "edit").text);
    return EXIT_DONE;
}

static const struct args_option discard_options[] = {
    {"committed", NULL, "also take back edits that were committed"},
    {NULL, NULL, NULL},
};

const struct verb verb_discard = {
    .name = "discard",
    .operands = "MOUNTPOINT [PATH...]",
    .text = "Take back the edits of a mount, which then shows its source again and goes on.\n"
            "With PATHs, only those of the files and directories there and of all below. PATH\n"
            "is the name now or the one in the source, below MOUNTPOINT; a PATH that begins\n"
            "with MOUNTPOINT/ is taken as typed.",
    .n_min = 1,
    .n_max = SIZE_MAX,
    .options = discard_options,
    .run = run_discard,
};
