/* SPDX-License-Identifier: MIT */
/*
 * In a build without libseccomp.
 */
#include "fetch/fetch_syscalls.h"

#include <errno.h>

int fetch_syscalls_restrict(void)
{
    return -EOPNOTSUPP;
}
