/* SPDX-License-Identifier: MIT */
/*
 * Nothing is drawn in the first half second, then the line is redrawn ten times a second. A signal
 * ends the program, and the line with it; or it is held back and polled, which needs no handler.
 */
#include "cli/progress.h"

#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/interruption.h>
#include <weightfs/remote.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { N_STOPS = sizeof(stops) / sizeof(stops[0]) };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the line ---- */

struct line {
    char percent[8], bytes[80], rate[40], left[48];
};

static void put_time(char *text, size_t n_room, double seconds, const char *after)
{
    const uint64_t n = seconds < 360000 ? (uint64_t)seconds : 359999;
    if (n >= 3600)
        snprintf(text, n_room, "  %" PRIu64 ":%02u:%02u%s", n / 3600, (unsigned)(n / 60 % 60),
                 (unsigned)(n % 60), after);
    else
        snprintf(text, n_room, "  %u:%02u%s", (unsigned)(n / 60), (unsigned)(n % 60), after);
}

static struct line line_of(uint64_t n_done, uint64_t n_total, double seconds)
{
    struct line line = {0};
    const double rate = (double)n_done / seconds;
    const struct amount done = amount_of_bytes(n_done), total = amount_of_bytes(n_total);
    if (n_done > 0)
        snprintf(line.rate, sizeof(line.rate), "  %s/s", amount_of_bytes((uint64_t)rate).text);
    if (n_total == 0) {
        if (n_done > 0)
            snprintf(line.bytes, sizeof(line.bytes), "  %s", done.text);
        put_time(line.left, sizeof(line.left), seconds, "");
        return line;
    }
    snprintf(line.percent, sizeof(line.percent), " %3u%%",
             (unsigned)((double)n_done / (double)n_total * 100));
    snprintf(line.bytes, sizeof(line.bytes), "  %s of %s", done.text, total.text);
    if (n_done > 0)
        put_time(line.left, sizeof(line.left), (double)(n_total - n_done) / rate, " left");
    return line;
}

/* Draws what there is room for: percent first, then bytes, time, rate and a bar. */
static void draw(const struct progress *progress, uint64_t n_done, uint64_t n_total, double seconds)
{
    enum { N_BAR_LEAST = 10, N_BAR_MOST = 40, N_FRAME = 3 };
    autostrbuf struct strbuf text = {0}, bar = {0};
    struct line line = line_of(n_done, n_total, seconds);
    const size_t width = screen_width(STDERR_FILENO) - 1; /* the last column would wrap */
    size_t n_free = width;
    char *const parts[] = {line.percent, line.bytes, line.left, line.rate};
    n_free -= strnlen(progress->what, n_free);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const size_t n = strlen(parts[i]);
        if (n > n_free)
            parts[i][0] = '\0';
        else
            n_free -= n;
    }
    if (n_total > 0 && n_free >= N_BAR_LEAST + N_FRAME) {
        const size_t n = n_free - N_FRAME < N_BAR_MOST ? n_free - N_FRAME : N_BAR_MOST;
        autostrbuf struct strbuf filled = {0};
        screen_bar(&filled, (double)n_done / (double)n_total, n);
        strbuf_printf(&bar, " [%-*s]", (int)n, filled.bytes != NULL ? filled.bytes : "");
    }
    strbuf_printf(&text, "%.*s%s%s%s%s%s", (int)width, progress->what, line.percent,
                  bar.bytes != NULL ? bar.bytes : "", line.bytes, line.rate, line.left);
    if (!text.has_failed)
        wrapping_draw(text.bytes);
}

/* ---- signals that end the program ---- */

static void end(int signum)
{
    wrapping_erase_for_good();
    raise(signum); /* is pending until this returns, and has its usual effect then */
}

static void set_handlers(void (*from)(int), void (*to)(int))
{
    for (size_t i = 0; i < N_STOPS; i++) {
        struct sigaction action;
        sigaction(stops[i], NULL, &action);
        if (action.sa_handler != from)
            continue;
        action = (struct sigaction){.sa_handler = to, .sa_flags = (int)SA_RESETHAND};
        sigaction(stops[i], &action, NULL);
    }
}

/* ---- the thread ---- */

static void tick(struct progress *progress)
{
    uint64_t n_done = progress->n_done + (wfs_n_read() - progress->n_read);
    uint64_t n_total = progress->n_total;
    if (progress->remote != NULL)
        wfs_remote_progress(progress->remote, &n_done, &n_total);
    if (n_total > 0 && n_done > n_total)
        n_done = n_total;
    if (n_done < progress->n_drawn)
        n_done = progress->n_drawn;
    progress->n_drawn = n_done;
    draw(progress, n_done, n_total, (double)(now_ns() - progress->started_at) / 1e9);
}

static void *run(void *ctx)
{
    enum { N_FIRST = 500000000, N_NEXT = 100000000 }; /* ns */
    struct progress *progress = ctx;
    int64_t at = progress->started_at + N_FIRST;
    pthread_mutex_lock(&progress->lock);
    while (!progress->is_over) {
        const struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        if (pthread_cond_timedwait(&progress->ended, &progress->lock, &until) != ETIMEDOUT)
            continue;
        tick(progress);
        at = now_ns() + N_NEXT;
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

/* The thread takes no signals: the others get them. */
static int start_thread(struct progress *progress)
{
    enum { N_STACK = 1 << 17 };
    pthread_attr_t attributes;
    pthread_condattr_t clock;
    sigset_t all, before;
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->ended, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, N_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&progress->thread, &attributes, run, progress);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

void progress_start(struct progress *progress, const char *what, uint64_t n_total)
{
    *progress = (struct progress){.what = what, .started_at = now_ns()};
    progress->n_total = n_total;
    progress->n_read = wfs_n_read();
    progress->is_shown = isatty(STDERR_FILENO) == 1 && start_thread(progress) == 0;
    if (progress->is_shown)
        set_handlers(SIG_DFL, end);
}

void progress_follow(struct progress *progress, const struct wfs_remote *remote)
{
    progress->remote = remote;
}

void progress_add(struct progress *progress, uint64_t n_bytes)
{
    progress->n_done += n_bytes;
    progress->n_read = wfs_n_read();
}

void progress_end(struct progress *progress)
{
    if (progress->is_shown) {
        pthread_mutex_lock(&progress->lock);
        progress->is_over = true;
        pthread_cond_signal(&progress->ended);
        pthread_mutex_unlock(&progress->lock);
        pthread_join(progress->thread, NULL);
        pthread_cond_destroy(&progress->ended);
        pthread_mutex_destroy(&progress->lock);
        wrapping_pause();
        wrapping_resume();
        set_handlers(end, SIG_DFL);
    }
    progress->is_shown = false;
    if (progress->has_hold)
        sigprocmask(SIG_SETMASK, &progress->before, NULL);
    progress->has_hold = false;
}

/* ---- signals ---- */

/* Signals that are ignored or already blocked do not end the program and are left alone. */
void progress_hold_signals(struct progress *progress)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigemptyset(&progress->held);
    for (size_t i = 0; i < N_STOPS; i++) {
        struct sigaction action;
        sigaction(stops[i], NULL, &action);
        if (action.sa_handler != SIG_IGN && sigismember(&mask, stops[i]) == 0)
            sigaddset(&progress->held, stops[i]);
    }
    sigprocmask(SIG_BLOCK, &progress->held, &progress->before);
    progress->has_hold = true;
}

static bool is_stop_wanted(const struct progress *progress)
{
    sigset_t pending;
    if (!progress->has_hold || sigpending(&pending) < 0)
        return false;
    for (size_t i = 0; i < N_STOPS; i++) {
        if (sigismember(&progress->held, stops[i]) == 1 && sigismember(&pending, stops[i]) == 1)
            return true;
    }
    return false;
}

int progress_step(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct progress *progress = ctx;
    if (is_stop_wanted(progress))
        return -EINTR;
    progress->n_total = n_total;
    progress->n_done = n_done;
    progress->n_read = wfs_n_read();
    return 0;
}

/*
 * The child has nothing else open, such as a pipe whose reader waits for its end. It waits until
 * the parent has ended: other changes of the filesystem may wait for the last close of the file.
 */
static void close_after_parent(int fd, int parent)
{
    enum { N_STANDARD = 3 }; /* numbers that a descriptor has if the program began without them */
    const int file = fcntl(fd, F_DUPFD, N_STANDARD), end = fcntl(parent, F_DUPFD, N_STANDARD);
    char byte;
    setsid();
    if (file < 0 || end < 0 || dup2(file, 0) < 0 || dup2(end, 1) < 0 || chdir("/") < 0 ||
        close_range(2, UINT_MAX, 0) < 0)
        _exit(1);
    while (read(1, &byte, 1) < 0 && errno == EINTR)
        ;
    close(0);
    _exit(0);
}

void progress_abandon(void *ctx, int fd)
{
    int ends[2];
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        close(fd);
        return;
    }
    if (fork() == 0)
        close_after_parent(fd, ends[0]);
    close(fd);
    close(ends[0]); /* the other end stays open until this process ends */
}
