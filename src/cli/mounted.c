/* SPDX-License-Identifier: MIT */
/*
 * A commit is one call that may take minutes; its progress is read from status.json.
 */
#include "cli/mounted.h"

#include "program/print.h"
#include "cli/progress.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/tree.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
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

char *mounted_status_text(int directory, const char *name)
{
    autoclose int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : read_all(fd);
}

struct wfs_status *mounted_status(int directory, const char *name)
{
    struct wfs_status *status;
    autofree char *text = mounted_status_text(directory, name);
    if (text == NULL)
        return NULL;
    const int code = wfs_status_parse(text, strlen(text), &status);
    errno = -code;
    return code < 0 ? NULL : status;
}

/* ---- commit ---- */

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

/* Before and after a commit, the numbers are those of the last one. */
static void draw(struct progress *progress, int fd)
{
    autofree struct wfs_status *status = mounted_status(fd, MOUNTED_STATUS);
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

/* ---- both ---- */

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
        draw(&progress, call->fd);
    }
    pthread_join(thread, NULL);
    progress_end(&progress);
}

enum exit_code mounted_commit(struct mounted *mounted, struct wfs_control_reply *reply)
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
    for (char *line = trial->text, *end; *line != '\0'; line = end, n++) {
        end = line + strcspn(line, "\n");
        end += *end != '\0' ? (*end = '\0', 1) : 0;
        print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s", line);
    }
    if (n < trial->n_problems)
        print_error(EXIT_OUTPUT, mounted->path, "cannot commit: %s",
                    wfs_count(trial->n_problems - n, "more problem").text);
}

enum exit_code mounted_try(const struct mounted *mounted, bool prints_summary)
{
    struct wfs_control_trial trial = {0};
    if (ioctl(mounted->fd, WFS_IOC_TRY, &trial) < 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot try to commit: %s", strerror(errno));
    trial.text[sizeof(trial.text) - 1] = '\0';
    if (trial.error != 0) {
        print_problems(mounted, &trial);
        return EXIT_OUTPUT;
    }
    if (prints_summary)
        print_line(stdout, trial.text[0] != '\0' ? trial.text : "nothing to commit");
    return EXIT_DONE;
}

enum exit_code mounted_discard(struct mounted *mounted, struct wfs_control_reply *reply)
{
    if (ioctl(mounted->fd, WFS_IOC_DISCARD, reply) < 0)
        return print_error(EXIT_OUTPUT, mounted->path, "cannot discard the edits: %s",
                           strerror(errno));
    reply->text[sizeof(reply->text) - 1] = '\0';
    return reply->error == 0 ? EXIT_DONE
                             : print_error(EXIT_OUTPUT, mounted->path,
                                           "cannot discard the edits: %s", reply->text);
}
