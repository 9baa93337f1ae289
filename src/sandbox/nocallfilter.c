/* SPDX-License-Identifier: MIT */
/*
 * In a build without libseccomp.
 */
#include "sandbox/confinement.h"

#include <errno.h>

int filter_enter(const struct filter *filter)
{
    return -EOPNOTSUPP;
}
