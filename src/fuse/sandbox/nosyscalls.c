/* SPDX-License-Identifier: MIT */
/*
 * In a build without libseccomp.
 */
#include "fuse/sandbox/syscalls.h"

#include <errno.h>

int syscalls_restrict(void)
{
    return -EOPNOTSUPP;
}
