/* SPDX-License-Identifier: MIT */
/*
 * weightfs commit, umount and discard: the verbs for a running mount. A commit is one call
 * that may take minutes; its progress is read from status.json. A driver holds the lock of its
 * staging directory until it ends, and removes the directory if nothing is left in it.
 */
#include "cli/mounted.h"
#include "cli/args.h"
#include "cli/progress.h"
#include "program/place.h"
#include "program/print.h"
#include "program/unmount.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/strbuf.h>
#include <weightfs/tree.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum exit_code mounted_open(struct mounted *mounted, const char *path)
{
    struct wfs_control_reply hello = {0}; /* another filesystem may fill in less */
    *mounted = (struct mounted){.path = path, .fd = -1};
    mounted->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_open = mounted->fd >= 0;
    if (!is_open || ioctl(mounted->fd, WFS_IOC_HELLO, &hello) < 0) {
        if (errno == ENOTCONN)
            return print_error(EXIT_MOUNT, path,
                               "the driver of this mount has died; use 'weightfs umount' to clear "
                               "it: edits are kept, mount again to see them");
        if (!is_open && errno == ENOENT)
            return print_error(EXIT_MOUNT, path, "no such directory");
        if (!is_open && errno != ENOTDIR)
            return print_error(EXIT_MOUNT, path, "cannot open: %s", strerror(errno));
        return print_error(EXIT_MOUNT, path, "is not a weightfs mount point");
    }
    hello.text[sizeof(hello.text) - 1] = '\0';
    mounted->is_writable = hello.text[0] != '\0';
    mounted->pid = hello.pid;
    mounted->n_edits = hello.n_edits;
    memcpy(mounted->stage, hello.text, sizeof(hello.text));
    return EXIT_DONE;
}

void mounted_close(struct mounted *mounted)
{
    if (mounted->fd >= 0)
        close(mounted->fd);
    mounted->fd = -1;
}

/* Reads to the end: the size of a file that is made while it is read is only a guess. */
static char *read_all(int fd)
{
    enum { N_FIRST = 1 << 18, N_MOST = 1 << 26 };
    autofree char *text = NULL;
    for (size_t n_room = N_FIRST, n_bytes = 0; n_room <= N_MOST; n_room *= 2) {
        char *more = realloc(text, n_room + 1);
        if (more == NULL)
            return NULL;
        text = more;
        const ssize_t n = io_read_at(fd, text + n_bytes, n_room - n_bytes, n_bytes);
        if (n < 0) {
            errno = (int)-n;
            return NULL;
        }
        n_bytes += (size_t)n;
        text[n_bytes] = '\0';
        if (n_bytes < n_room)
            return steal(&text);
    }
    errno = EFBIG;
    return NULL;
}

char *mounted_read(int directory, const char *name)
{
    autoclose int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : read_all(fd);
}

struct wfs_status *mounted_read_status(int directory, const char *name)
{
    struct wfs_status *status;
    autofree char *text = mounted_read(directory, name);
    if (text == NULL)
        return NULL;
    const int code = wfs_status_parse(text, strlen(text), &status);
    errno = -code;
    return code < 0 ? NULL : status;
}

/* ---- a commit ---- */

struct call {
    int fd;
    int code; /* errno of the call itself */
    struct wfs_control_reply reply;
    atomic_bool is_done;
};

static void *run_call(void *ctx)
{
    struct call *call = ctx;
    call->code = ioctl(call->fd, WFS_IOC_COMMIT, &call->reply) < 0 ? errno : 0;
    call->is_done = true;
    return NULL;
}

void mounted_draw(struct progress *progress, const struct wfs_status *status)
{
    if (status != NULL && status->state == WFS_MOUNT_COMMITTING && status->n_total > 0)
        progress_step(progress, status->n_done, status->n_total);
    else
        progress_add(progress, 0); /* what was read of status.json is not progress */
}

/* ---- Ctrl-C ---- */

/* The first one stops the commit, a second one ends this program. Held back in all threads. */
struct stopper {
    struct call *call;
    sigset_t held, before;
    pthread_t thread;
    bool is_running;
};

static bool wait_for_interrupt(const struct stopper *stopper)
{
    static const struct timespec pause = {.tv_nsec = 50000000};
    while (!stopper->call->is_done) {
        if (sigtimedwait(&stopper->held, NULL, &pause) == SIGINT)
            break;
    }
    return !stopper->call->is_done;
}

static void *stop_at_interrupt(void *ctx)
{
    const struct stopper *stopper = ctx;
    struct wfs_control_reply reply = {0};
    if (!wait_for_interrupt(stopper))
        return NULL;
    (void)ioctl(stopper->call->fd, WFS_IOC_STOP, &reply);
    if (!wait_for_interrupt(stopper))
        return NULL;
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &stopper->held, NULL);
    raise(SIGINT);
    return NULL;
}

static void stopper_start(struct stopper *stopper, struct call *call)
{
    struct sigaction action;
    *stopper = (struct stopper){.call = call};
    sigaction(SIGINT, NULL, &action);
    if (action.sa_handler == SIG_IGN)
        return;
    sigemptyset(&stopper->held);
    sigaddset(&stopper->held, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stopper->held, &stopper->before);
    stopper->is_running = pthread_create(&stopper->thread, NULL, stop_at_interrupt, stopper) == 0;
    if (!stopper->is_running)
        pthread_sigmask(SIG_SETMASK, &stopper->before, NULL);
}

static void stopper_end(struct stopper *stopper)
{
    if (!stopper->is_running)
        return;
    pthread_kill(stopper->thread, SIGINT); /* it need not wait longer */
    pthread_join(stopper->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &stopper->before, NULL);
}

/* ---- a commit that Ctrl-C stops ---- */

static void call_with_progress(struct call *call)
{
    static const struct timespec pause = {.tv_nsec = 100000000};
    struct progress progress;
    pthread_t thread;
    progress_start(&progress, "committing", 0);
    if (!progress.is_shown || pthread_create(&thread, NULL, run_call, call) != 0) {
        run_call(call);
        progress_end(&progress);
        return;
    }
    while (!call->is_done) {
        nanosleep(&pause, NULL);
        autofree struct wfs_status *status = mounted_read_status(call->fd, MOUNTED_STATUS);
        mounted_draw(&progress, status);
    }
    pthread_join(thread, NULL);
    progress_end(&progress);
}

/* Commits and waits, with a progress bar on a terminal. Unless EXIT_DONE, a line was printed. */
static enum exit_code commit(const struct mounted *mounted, struct wfs_control_reply *reply)
{
    struct call call = {.fd = mounted->fd};
    struct stopper stopper;
    stopper_start(&stopper, &call);
    call_with_progress(&call);
    stopper_end(&stopper);
    *reply = call.reply;
    reply->text[sizeof(reply->text) - 1] = '\0';
    if (call.code != 0) {
        reply->error = call.code;
        return print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s", strerror(call.code));
    }
    if (reply->error == 0)
        return EXIT_DONE;
    const char *text = reply->text[0] != '\0' ? reply->text : strerror(reply->error);
    if (mounted->n_edits == 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s", text);
    return print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s; the edits are kept in '%s'",
                       text, wfs_quote(mounted->stage).text);
}

static void print_problems(const struct mounted *mounted, struct wfs_control_trial *trial)
{
    uint32_t n = 0;
    char *rest = trial->text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0'; n++)
        print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s", line);
    if (n < trial->n_problems)
        print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s",
                    wfs_count(trial->n_problems - n, "more problem").text);
}

/*
 * Reports a commit of so many edits: one that was done, or the trial of one. An empty text: there
 * was nothing to do.
 */
static void give_receipt(const struct mounted *mounted, struct receipt *receipt, uint64_t n_edits,
                         const char *text, const struct wfs_control_trial *trial)
{
    const bool is_written = text[0] != '\0';
    if (!receipt->is_json) {
        print_line(stdout, is_written ? text : "nothing to commit");
        return;
    }
    autofree struct wfs_status *status = mounted_read_status(mounted->fd, MOUNTED_STATUS);
    receipt_text(receipt, "mountpoint", mounted->path);
    receipt_count(receipt, "n_edits", n_edits);
    receipt_text(receipt, "text", is_written ? text : NULL);
    if (!is_written || status == NULL)
        receipt_text(receipt, "output", NULL);
    else if (trial != NULL)
        receipt_output(receipt, status->output, trial->n_tensors, trial->n_files, trial->n_bytes);
    else
        receipt_output(receipt, status->output, status->n_tensors, status->n_files,
                       status->n_total);
}

enum exit_code mounted_try(const struct mounted *mounted, struct receipt *receipt)
{
    struct wfs_control_trial trial = {0};
    if (ioctl(mounted->fd, WFS_IOC_TRY, &trial) < 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot try to commit: %s",
                           errno == ENOTTY
                               ? "it was mounted by another version of weightfs: commit without a "
                                 "trial, or unmount it and mount it again"
                               : strerror(errno));
    trial.text[sizeof(trial.text) - 1] = '\0';
    if (trial.error != 0) {
        print_problems(mounted, &trial);
        return EXIT_OUTPUT;
    }
    if (receipt != NULL)
        give_receipt(mounted, receipt, trial.n_edits, trial.text, &trial);
    return EXIT_DONE;
}

/* ---- weightfs commit ---- */

static enum exit_code run_commit(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    struct wfs_control_reply reply;
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code == EXIT_DONE && args_has(args, "dry-run"))
        return mounted_try(&mounted, args->receipt);
    if (exit_code == EXIT_DONE)
        exit_code = commit(&mounted, &reply);
    if (exit_code == EXIT_DONE)
        give_receipt(&mounted, args->receipt, reply.n_edits, reply.text, NULL);
    return exit_code;
}

const struct verb verb_commit = {
    .operands = "MOUNTPOINT",
    .text = "Save the edits of a mount to its output, wait for the result, and print one line\n"
            "about it. The mount stays and can be edited further. Ctrl-C stops the commit; a\n"
            "second Ctrl-C does not wait for that.",
    .options = {{"dry-run", NULL, "write nothing; print the result, or what fails"},
                {"json", NULL, "print JSON: what was written"}},
    .run = run_commit,
};

/* ---- weightfs umount ---- */

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

/* What became of the edits. */
enum outcome { OUTCOME_NONE /* there can be none */, OUTCOME_SAVED, OUTCOME_DISCARDED };

static enum exit_code report_elsewhere(const struct mounted *mounted, enum outcome outcome,
                                       pid_t pid, const char *place)
{
    static const char *const ends[] = {[OUTCOME_NONE] = "",
                                       [OUTCOME_SAVED] = "; the edits are saved",
                                       [OUTCOME_DISCARDED] = "; the edits are discarded"};
    if (place == NULL)
        return print_error(EXIT_MOUNT, mounted->path,
                           "unmounted here, but it is still mounted in another namespace%s",
                           ends[outcome]);
    if (pid == getpid())
        return print_error(EXIT_MOUNT, mounted->path,
                           "unmounted here, but it is still mounted at '%s'%s",
                           wfs_quote(place).text, ends[outcome]);
    return print_error(EXIT_MOUNT, mounted->path,
                       "unmounted here, but it is still mounted at '%s' in the namespace of "
                       "process %d%s",
                       wfs_quote(place).text, (int)pid, ends[outcome]);
}

static enum exit_code report_busy(const struct mounted *mounted, enum outcome outcome)
{
    static const char *const texts[] = {
        [OUTCOME_NONE] = "cannot unmount: still in use; 'fuser -vm %s' shows by which process",
        [OUTCOME_SAVED] = "cannot unmount: the edits are saved, but it is still in use; 'fuser -vm "
                          "%s' shows by which process",
        [OUTCOME_DISCARDED] = "cannot unmount: the edits are discarded, but it is still in use; "
                              "'fuser -vm %s' shows by which process"};
    return print_error(EXIT_MOUNT, mounted->path, texts[outcome], wfs_quote(mounted->path).text);
}

/* Waits for the driver, which goes on as long as the filesystem is mounted anywhere else. */
static enum exit_code wait_for(const struct mounted *mounted, enum outcome outcome, int pidfd,
                               const struct unmount_others *others)
{
    enum { N_PAUSE = 500 }; /* milliseconds: a driver without edits ends sooner */
    struct pollfd wanted = {.fd = pidfd, .events = POLLIN};
    while (pidfd >= 0) {
        const int n = poll(&wanted, 1, N_PAUSE);
        if (n > 0 || (n < 0 && errno != EINTR))
            break;
        autofree char *place = NULL;
        pid_t pid;
        if (n == 0 && unmount_is_elsewhere(others, &pid, &place))
            return report_elsewhere(mounted, outcome, pid, place);
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
    autofree struct wfs_status *status = mounted_read_status(stage, "status.json");
    const char *reason = status != NULL ? status->text : NULL;
    return print_error(EXIT_OUTPUT, mounted->path,
                       "unmounted, but the last edits are not committed%s%s; they are kept in '%s'",
                       reason != NULL ? ": " : "", reason != NULL ? reason : "",
                       wfs_quote(mounted->stage).text);
}

/* Returns whether a mount whose edits could not be saved has none. */
static bool has_no_edits(const struct mounted *mounted)
{
    struct wfs_control_reply hello = {0};
    return ioctl(mounted->fd, WFS_IOC_HELLO, &hello) == 0 && hello.n_edits == 0;
}

static void report_discarded(const struct mounted *mounted, struct receipt *receipt,
                             uint64_t n_edits)
{
    receipt_text(receipt, "mountpoint", mounted->path);
    receipt_count(receipt, "n_edits", n_edits);
    if (!receipt->is_json)
        printf("discarded %s\n", wfs_count(n_edits, "edit").text);
}

static enum exit_code discard_all(const struct mounted *mounted, struct receipt *receipt)
{
    struct wfs_control_reply reply = {0};
    if (ioctl(mounted->fd, WFS_IOC_DISCARD, &reply) < 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot discard the edits: %s",
                           strerror(errno));
    reply.text[sizeof(reply.text) - 1] = '\0';
    if (reply.error != 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot discard the edits: %s", reply.text);
    report_discarded(mounted, receipt, reply.n_edits);
    return EXIT_DONE;
}

/* *ret_may_go: nothing could be saved, but nothing was edited either. */
static enum exit_code save_all(const struct mounted *mounted, struct receipt *receipt,
                               bool *ret_may_go)
{
    struct wfs_control_reply reply = {0};
    const enum exit_code exit_code = commit(mounted, &reply);
    *ret_may_go = exit_code == EXIT_DONE ||
                  (reply.error != EINTR && reply.error != EPERM && has_no_edits(mounted));
    if (exit_code == EXIT_DONE && (receipt->is_json || reply.text[0] != '\0'))
        give_receipt(mounted, receipt, reply.n_edits, reply.text, NULL);
    return exit_code;
}

static enum exit_code unmount(struct mounted *mounted, enum outcome outcome, const char *path)
{
    struct wfs_error err = {0};
    autoclose int pidfd = (int)syscall(SYS_pidfd_open, mounted->pid, 0);
    cleanup(unmount_others_done) struct unmount_others others;
    unmount_others_find(&others, mounted->fd);
    enum exit_code waited = EXIT_DONE;
    mounted_close(mounted);
    const int rc = unmount_path(path, false, &err);
    struct progress progress;
    progress_start(&progress, "unmounting", 0);
    if (rc == 0)
        waited = wait_for(mounted, outcome, pidfd, &others);
    progress_end(&progress);
    if (rc == -EBUSY)
        return report_busy(mounted, outcome);
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
    if (exit_code != EXIT_DONE)
        return exit_code;
    bool may_go = true;
    enum outcome outcome = OUTCOME_NONE;
    if (mounted.is_writable && args_has(args, "discard")) {
        exit_code = discard_all(&mounted, args->receipt);
        may_go = exit_code == EXIT_DONE;
        outcome = OUTCOME_DISCARDED;
    } else if (mounted.is_writable) {
        exit_code = save_all(&mounted, args->receipt, &may_go);
        outcome = exit_code == EXIT_DONE ? OUTCOME_SAVED : OUTCOME_NONE;
    } else {
        receipt_text(args->receipt, "mountpoint", typed);
        receipt_count(args->receipt, "n_edits", 0);
    }
    if (!may_go)
        return exit_code;
    if (path == NULL)
        return print_error(EXIT_MOUNT, typed, "cannot unmount: %s", strerror(errno));
    const enum exit_code unmounted = unmount(&mounted, outcome, path);
    if (unmounted == EXIT_DONE && exit_code != EXIT_DONE)
        receipt_notice(args->receipt, "unmounted; nothing was edited");
    return unmounted != EXIT_DONE ? unmounted : exit_code;
}

const struct verb verb_umount = {
    .operands = "MOUNTPOINT",
    .text = "Save the edits of a mount, unmount it, and wait for its driver to exit. If the\n"
            "edits cannot be saved, the mount stays. Ctrl-C stops the commit, and leaves the\n"
            "mount and its edits as they are.",
    .options = {{"discard", NULL, "drop the edits instead of saving them"},
                {"json", NULL, "print JSON: what was saved or discarded"}},
    .run = run_umount,
};

/* ---- weightfs discard ---- */

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

/* Joins the paths, with "//" between them; nothing: all. */
static enum exit_code join(const struct mounted *mounted, const struct args *args,
                           struct strbuf *paths)
{
    bool is_all = args->n_operands == 1;
    enum exit_code exit_code = EXIT_DONE;
    for (size_t i = 1; i < args->n_operands && exit_code == EXIT_DONE; i++)
        exit_code = add_path(mounted, args->operands[i], paths, &is_all);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (paths->has_failed)
        return print_memory(mounted->path);
    if (is_all)
        paths->n_bytes = 0;
    if (paths->n_bytes > WFS_REVERT_PATHS_MAX)
        return print_error(EXIT_USAGE, mounted->path,
                           "the PATHs take %s, and %d is the limit; name directories, or discard "
                           "in several calls",
                           wfs_count(paths->n_bytes, "byte").text, WFS_REVERT_PATHS_MAX);
    return EXIT_DONE;
}

/* Passes the paths to the driver in as many calls as they need; the last one has its answer. */
static int pass(const struct mounted *mounted, const struct strbuf *paths,
                struct wfs_control_revert *request)
{
    const bool takes_committed = request->takes_committed;
    size_t n_done = 0;
    do {
        const size_t n_left = paths->n_bytes - n_done;
        request->has_more = n_left >= sizeof(request->text);
        const size_t n = request->has_more ? sizeof(request->text) - 1 : n_left;
        request->takes_committed = takes_committed;
        if (n > 0)
            memcpy(request->text, paths->bytes + n_done, n);
        request->text[n] = '\0';
        n_done += n;
        const bool has_more = request->has_more;
        if (ioctl(mounted->fd, WFS_IOC_REVERT, request) < 0)
            return -errno;
        request->text[sizeof(request->text) - 1] = '\0';
        if (request->error != 0 || !has_more)
            return 0;
    } while (true);
}

static enum exit_code run_discard(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    autostrbuf struct strbuf paths = {0};
    struct wfs_control_revert request = {.takes_committed = args_has(args, "committed")};
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code == EXIT_DONE)
        exit_code = join(&mounted, args, &paths);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const int code = pass(&mounted, &paths, &request);
    if (code < 0)
        return print_error(EXIT_OUTPUT, mounted.path, "cannot discard: %s", strerror(-code));
    if (request.error != 0)
        return print_error(request.error == ENOENT ? EXIT_NO_MATCH : EXIT_OUTPUT, mounted.path,
                           "cannot discard: %s", request.text);
    /* Waits until the kernel shows no old name and no old byte. */
    static const struct timespec pause = {.tv_nsec = 5000000};
    struct wfs_control_reply hello = {0};
    while (ioctl(mounted.fd, WFS_IOC_HELLO, &hello) == 0 && hello.error == EAGAIN)
        nanosleep(&pause, NULL);
    report_discarded(&mounted, args->receipt, request.n_edits);
    return EXIT_DONE;
}

const struct verb verb_discard = {
    .operands = "MOUNTPOINT [PATH...]",
    .text = "Take back the edits of a mount, which then shows its source again and goes on.\n"
            "With PATHs, only those of the files and directories there and of all below. PATH\n"
            "is the name now or the one in the source, below MOUNTPOINT; a PATH that begins\n"
            "with MOUNTPOINT/ is taken as typed.",
    .options = {{"committed", NULL, "also take back edits that were committed"},
                {"json", NULL, "print JSON: what was taken back"}},
    .run = run_discard,
};
