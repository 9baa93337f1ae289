/* SPDX-License-Identifier: MIT */
/*
 * The line that is drawn over, at the end of a program: a thread draws while another one erases.
 */
#include "program/terminal.h"

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool has_drawn;

static void *draw(void *ctx)
{
    for (;; atomic_store(&has_drawn, true))
        wrapping_draw("reading  50 %");
    return ctx;
}

/* A program that ends at once when it has erased the line. */
static void live(int output, unsigned us)
{
    pthread_t thread;
    dup2(output, STDERR_FILENO);
    pthread_create(&thread, NULL, draw, NULL);
    while (!atomic_load(&has_drawn))
        usleep(100);
    usleep(us);
    wrapping_erase_for_good();
    usleep(100); /* what is drawn now stays */
    _exit(0);
}

static void the_line_is_erased_last(void)
{
    enum { N_RUNS = 300, N_END = 4 };
    unsigned n_left = 0;
    for (unsigned i = 0; i < N_RUNS; i++) {
        char bytes[1 << 16], end[N_END] = "";
        ssize_t n;
        int ends[2];
        check_int(pipe(ends), 0);
        const pid_t pid = fork();
        if (pid == 0)
            live(ends[1], i);
        close(ends[1]);
        while ((n = read(ends[0], bytes, sizeof(bytes))) > 0)
            memcpy(end, bytes + (n > N_END ? n - N_END : 0), N_END);
        close(ends[0]);
        waitpid(pid, NULL, 0);
        n_left += memcmp(end, "\r\033[K", N_END) != 0;
    }
    check_uint(n_left, 0);
}

int main(void)
{
    check_run(the_line_is_erased_last);
    return check_done();
}
