/* SPDX-License-Identifier: MIT */
/*
 * Which calls into the kernel a process may still make.
 */
#ifndef WFS_SYSCALLS_H
#define WFS_SYSCALLS_H

/*
 * From now on, for this process and its threads, everything that serving a mount does not need ends
 * the process with SIGSYS. Sets no_new_privs. 0; -EOPNOTSUPP when this build or the kernel cannot.
 */
int syscalls_restrict(void);

#endif
