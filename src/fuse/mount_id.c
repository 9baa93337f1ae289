/* SPDX-License-Identifier: MIT */
/*
 * System calls by number, with constants of our own: kernels offer more than the headers of a
 * distribution declare.
 */
#include "fuse/mount_id.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALL_STATMOUNT = 457, ASK_UNIQUE_ID = 0x4000, ASK_BASICS = 1 };
enum { OFFSET_OF_ID = 0x90 }; /* stx_mnt_id, which older headers have no name for */

/* The first version of struct mnt_id_req. */
struct request {
    uint32_t n_bytes, unused;
    uint64_t id, wanted;
};

uint64_t mount_id_at(const char *path)
{
    struct statx st;
    uint64_t id;
    const int flags = AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC;
    if (statx(AT_FDCWD, path, flags, ASK_UNIQUE_ID, &st) < 0 || (st.stx_mask & ASK_UNIQUE_ID) == 0)
        return 0;
    memcpy(&id, (const char *)&st + OFFSET_OF_ID, sizeof(id));
    return id;
}

enum mount_state mount_id_state(uint64_t id)
{
    const struct request request = {.n_bytes = sizeof(request), .id = id, .wanted = ASK_BASICS};
    uint64_t answer[128];
    if (id == 0)
        return MOUNT_UNKNOWN;
    if (syscall(CALL_STATMOUNT, &request, answer, sizeof(answer), 0) == 0)
        return MOUNT_EXISTS;
    return errno == ENOENT ? MOUNT_GONE : MOUNT_UNKNOWN;
}
