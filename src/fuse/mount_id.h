/* SPDX-License-Identifier: MIT */
/*
 * The number of a mount, which is never used again (since Linux 6.8; older numbers, and those of
 * devices, are). It shows whether the mount still exists without touching the path, where another
 * mount may be by then that its user would find busy.
 */
#ifndef WFS_MOUNT_ID_H
#define WFS_MOUNT_ID_H

#include <stdint.h>

enum mount_state { MOUNT_UNKNOWN, MOUNT_GONE, MOUNT_EXISTS };

/* Returns the number of the mount at the path, without a request to its driver. 0: the kernel has
 * no such numbers. */
uint64_t mount_id_at(const char *path);

/* Returns the state of the mount in this mount namespace. */
enum mount_state mount_id_state(uint64_t id);

#endif
