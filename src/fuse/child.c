/* SPDX-License-Identifier: MIT */
#include "fuse/child.h"

#include "fuse/confine.h"
#include "fuse/keeper.h"
#include "fuse/log.h"
#include "program/print.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return log_failure(EXIT_OUTPUT, "cannot wait for the commit: %s", strerror(errno));
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return log_failure(128 + WTERMSIG(status), "the commit was killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
}

int child_run(const struct mount_options *options, const struct target *target, child_task *task,
              void *ctx)
{
    struct keeper keeper;
    int rc = keeper_init(&keeper, target->place.directory);
    fflush(NULL);
    const pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0) {
        const int channel = keeper_attach(&keeper);
        rc = confine_prepare(options);
        if (rc == 0)
            rc = task(ctx, channel);
        fflush(NULL);
        _exit(rc);
    }
    if (pid < 0)
        rc =
            log_failure(EXIT_OUTPUT, "cannot start the commit: %s", strerror(rc < 0 ? -rc : errno));
    else if (keeper_start(&keeper) < 0)
        log_warning("cannot set owner and mode of '%s': out of memory",
                    wfs_quote(target->path).text);
    if (pid > 0)
        rc = wait_for(pid);
    keeper_done(&keeper);
    return rc;
}
