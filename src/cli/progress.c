/* SPDX-License-Identifier: MIT */
/*
 * The bar is redrawn at most ten times a second. Signals are held back and polled, which needs no
 * handler.
 */
#include "cli/progress.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOPS = sizeof(stops) / sizeof(stops[0]) };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void progress_start(struct progress *progress, const char *what)
{
    *progress = (struct progress){.what = what, .is_shown = isatty(STDERR_FILENO) == 1};
}

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

static void draw(const struct progress *progress, uint64_t n_done, uint64_t n_total)
{
    enum { N_WIDTH = 40 };
    const double share = n_total > 0 ? (double)n_done / (double)n_total : 1;
    const int width = (int)(share * N_WIDTH);
    fprintf(stderr, "\r%s [%-*.*s] %3d%%", progress->what, N_WIDTH, width,
            "########################################", (int)(share * 100));
    fflush(stderr);
}

int progress_step(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct progress *progress = ctx;
    if (is_stop_wanted(progress))
        return -EINTR;
    const int64_t now = progress->is_shown ? now_ns() : 0;
    if (progress->is_shown && now - progress->drawn_at >= 100000000) {
        progress->drawn_at = now;
        draw(progress, n_done, n_total);
    }
    return 0;
}

void progress_end(struct progress *progress)
{
    if (progress->drawn_at != 0)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    if (progress->has_hold)
        sigprocmask(SIG_SETMASK, &progress->before, NULL);
    progress->has_hold = false;
}
