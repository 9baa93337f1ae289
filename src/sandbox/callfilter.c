/* SPDX-License-Identifier: MIT */
/*
 * libseccomp makes the program for the kernel.
 */
#include "sandbox/confinement.h"

#include <seccomp.h>

#include <errno.h>

/* Adds a rule for a call; one that is not known here needs none. */
static int add(scmp_filter_ctx context, uint32_t action, const char *name,
               const struct scmp_arg_cmp *argument)
{
    const int number = seccomp_syscall_resolve_name(name);
    return number < 0 ? 0
                      : seccomp_rule_add_array(context, action, number, argument != NULL ? 1 : 0,
                                               argument);
}

static int fill(scmp_filter_ctx context, const struct filter *filter)
{
    int rc = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; rc == 0 && filter->allowed[i] != NULL; i++)
        rc = add(context, SCMP_ACT_ALLOW, filter->allowed[i], NULL);
    for (size_t i = 0; rc == 0 && filter->refused[i].name != NULL; i++)
        rc = add(context, SCMP_ACT_ERRNO((uint32_t)filter->refused[i].code),
                 filter->refused[i].name, NULL);
    for (size_t i = 0; rc == 0 && filter->conditions[i].name != NULL; i++) {
        const struct filter_condition *condition = &filter->conditions[i];
        const struct scmp_arg_cmp argument =
            SCMP_CMP64(condition->argument, SCMP_CMP_MASKED_EQ, condition->mask, condition->value);
        rc = add(context,
                 condition->code == 0 ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO((uint32_t)condition->code),
                 condition->name, &argument);
    }
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
