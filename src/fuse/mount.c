/* SPDX-License-Identifier: MIT */
/*
 * Up to three processes return from here, each with its exit code: the command that was typed, the
 * supervisor and the worker.
 */
#define FUSE_USE_VERSION 314

#include "fuse/mount.h"

#include "program/exit.h"
#include "fuse/background.h"
#include "fuse/log.h"
#include "fuse/mount_options.h"
#include "fuse/supervisor.h"

#include <fuse_lowlevel.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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
    log_start(options->source, options->is_debug != 0);
    if (options->is_foreground)
        return supervisor_run(options, -1);
    int report;
    const int exit_code = background_start(source_descriptor(options), &report);
    return report < 0 ? exit_code : supervisor_run(options, report);
}

int mount_main(int argc, char **argv)
{
    struct mount_options options;
    const int exit_code = mount_options_parse(&options, argc, argv) ? run(&options) : EXIT_USAGE;
    mount_options_done(&options);
    return exit_code;
}

const char *mount_library_version(void)
{
    return fuse_pkgversion();
}
