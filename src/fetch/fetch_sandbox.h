/* SPDX-License-Identifier: MIT */
/*
 * The sandbox of the process that fetches: sockets, the files by which hosts are found and
 * certificates checked, and nothing else.
 */
#ifndef WFS_FETCH_SANDBOX_H
#define WFS_FETCH_SANDBOX_H

/* Loads what would be loaded at its first use, and confines this process for good. What the kernel
 * does not offer is not restricted. */
void fetch_sandbox_enter(void);

#endif
