/* SPDX-License-Identifier: MIT */
/*
 * The system calls that the process that fetches may make.
 */
#ifndef WFS_FETCH_SYSCALLS_H
#define WFS_FETCH_SYSCALLS_H

/* Ends the process with SIGSYS, from now on, at any call that fetching does not need. -EOPNOTSUPP
 * when this build or the kernel cannot. */
int fetch_syscalls_restrict(void);

#endif
