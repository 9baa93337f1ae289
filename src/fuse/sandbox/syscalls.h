/* SPDX-License-Identifier: MIT */
/*
 * The system calls that a confined process may make.
 */
#ifndef WFS_SYSCALLS_H
#define WFS_SYSCALLS_H

/*
 * Ends the process with SIGSYS, from now on and in all threads, at any call that serving a mount
 * does not need. Sets no_new_privs. -EOPNOTSUPP when this build or the kernel cannot.
 */
int syscalls_restrict(void);

#endif
