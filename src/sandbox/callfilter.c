/* SPDX-License-Identifier: MIT */
/*
 * libseccomp makes the program for the kernel.
 */
#include "sandbox/callfilter.h"

#include <errno.h>
#include <stdint.h>

static int number_of(const char *name)
{
    return seccomp_syscall_resolve_name(name);
}

static int allow(scmp_filter_ctx context, const char *name)
{
    const int number = number_of(name);
    return number < 0 ? 0 : seccomp_rule_add(context, SCMP_ACT_ALLOW, number, 0);
}

static int allow_if(scmp_filter_ctx context, const struct filter_condition *condition)
{
    const int number = number_of(condition->name);
    return number < 0
               ? 0
               : seccomp_rule_add_array(context, SCMP_ACT_ALLOW, number, 1, &condition->argument);
}

static int refuse(scmp_filter_ctx context, const struct filter_refusal *refusal)
{
    const int number = number_of(refusal->name);
    return number < 0
               ? 0
               : seccomp_rule_add(context, SCMP_ACT_ERRNO((uint32_t)refusal->code), number, 0);
}

static int fill(scmp_filter_ctx context, const struct filter *filter)
{
    int rc = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; rc == 0 && filter->allowed[i] != NULL; i++)
        rc = allow(context, filter->allowed[i]);
    for (size_t i = 0; rc == 0 && i < filter->n_refused; i++)
        rc = refuse(context, &filter->refused[i]);
    for (size_t i = 0; rc == 0 && i < filter->n_conditions; i++)
        rc = allow_if(context, &filter->conditions[i]);
    if (rc == 0)
        (void)seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, where it can */
    return rc;
}

int filter_enter(const struct filter *filter)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (context == NULL)
        return -ENOMEM;
    int rc = fill(context, filter);
    if (rc == 0)
        rc = seccomp_load(context);
    seccomp_release(context);
    return rc == 0 ? 0 : -EOPNOTSUPP;
}
