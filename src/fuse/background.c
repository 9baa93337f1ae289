/* SPDX-License-Identifier: MIT */
/*
 * Until the mount answers, the child is an ordinary child: it prints to the user's terminal and an
 * interrupt from there ends it.
 */
#include "fuse/background.h"

#include "program/print.h"
#include "fuse/log.h"

#include <weightfs/cleanup.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void close_range_between(int first, int last)
{
    if (first <= last)
        (void)close_range((unsigned)first, (unsigned)last, 0);
}

/* Closes all descriptors above the standard ones but these two. */
static void close_inherited(int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    close_range_between(STDERR_FILENO + 1, low - 1);
    close_range_between(low > STDERR_FILENO ? low + 1 : STDERR_FILENO + 1, high - 1);
    close_range_between(high > STDERR_FILENO ? high + 1 : STDERR_FILENO + 1, INT_MAX);
}

static int wait_for_report(int report, pid_t child)
{
    char byte;
    ssize_t n;
    do
        n = read(report, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        return EXIT_DONE;
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return EXIT_MOUNT;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int background_start(int kept, int *ret_report)
{
    int ends[2];
    *ret_report = -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return log_failure(EXIT_MOUNT, "cannot start the driver: %s", strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        const int code = errno;
        close(ends[0]);
        close(ends[1]);
        return log_failure(EXIT_MOUNT, "cannot start the driver: %s", strerror(code));
    }
    if (pid == 0) {
        close(ends[0]);
        close_inherited(kept, ends[1]);
        *ret_report = ends[1];
        return EXIT_DONE;
    }
    close(ends[1]);
    const int exit_code = wait_for_report(ends[0], pid);
    close(ends[0]);
    return exit_code;
}

void background_detach(void)
{
    log_to_syslog();
    setsid();
    if (chdir("/") < 0)
        log_note("cannot leave the directory: %s", strerror(errno));
    autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
}

bool background_leave(int report)
{
    background_detach();
    const bool is_told = write(report, "", 1) == 1;
    close(report);
    return is_told;
}
