/* SPDX-License-Identifier: MIT */
/*
 * A list of the system calls that a process may make; any other one ends it with SIGSYS.
 */
#ifndef WFS_CALLFILTER_H
#define WFS_CALLFILTER_H

#include <stddef.h>

#include <seccomp.h>

/* One that is refused with an error. */
struct filter_refusal {
    const char *name;
    int code;
};

/* One that is allowed where an argument has a value. */
struct filter_condition {
    const char *name;
    struct scmp_arg_cmp argument;
};

/* Names, because a libseccomp or an architecture may not know one. */
struct filter {
    const char *const *allowed; /* up to NULL */
    const struct filter_refusal *refused;
    size_t n_refused;
    const struct filter_condition *conditions;
    size_t n_conditions;
};

/* Puts the filter on this process and all its threads, for good. Sets no_new_privs. -ENOMEM,
 * -EOPNOTSUPP when the kernel cannot. */
int filter_enter(const struct filter *filter);

#endif
