/* SPDX-License-Identifier: MIT */
/*
 * The mount half in a build without libfuse3: it says so.
 */
#include "fuse/mount.h"
#include "program/print.h"

#include <stddef.h>

int mount_main(int argc, char **argv)
{
    return print_error(EXIT_MOUNT, argv[1],
                       "this build has no libfuse3 and cannot mount; "
                       "ls, info, cat, show, check and convert work without");
}

int mount_recover(const struct mount_recovery *recovery)
{
    return print_error(EXIT_OUTPUT, recovery->stage,
                       "this build has no libfuse3 and cannot publish the edits of a mount");
}

const char *mount_library_version(void)
{
    return NULL;
}
