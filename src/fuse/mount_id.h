/* SPDX-License-Identifier: MIT */
/*
 * The number of a mount, which no other one gets (Linux 6.8; the numbers of before, and those of
 * devices, go to the next mount). It tells whether the mount stands without touching what is at its
 * place by then: who unmounts that would find it busy.
 */
#ifndef WFS_MOUNT_ID_H
#define WFS_MOUNT_ID_H

#include <stdint.h>

enum mount_state { MOUNT_UNKNOWN, MOUNT_GONE, MOUNT_STANDS };

/* Of what is mounted at the path; asks nothing of its driver. 0: the kernel has no such numbers. */
uint64_t mount_id_at(const char *path);

/* In this mount namespace. */
enum mount_state mount_id_state(uint64_t id);

#endif
