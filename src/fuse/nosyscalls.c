/* SPDX-License-Identifier: MIT */
/*
 * In a build without libseccomp.
 */
#include "fuse/syscalls.h"

#include <errno.h>

int syscalls_restrict(void)
{
    return -EOPNOTSUPP;
}
