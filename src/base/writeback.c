/* SPDX-License-Identifier: MIT */
/*
 * Ranges are large enough for a disk to write them at full speed, and the next one is under way
 * while one is waited for.
 */
#include "base/written.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

enum {
    N_RANGE = 8 << 20,   /* bytes whose writing is started at once, at least */
    N_BEHIND = 64 << 20, /* bytes that the disk may be behind */
};

/* A kernel or a filesystem may lack the call; the fsync at the end does all then. */
static bool is_refusal(int code)
{
    return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP || code == ESPIPE;
}

static int sync_range(int fd, uint64_t from, uint64_t to, unsigned flags)
{
    const int status = sync_file_range(fd, (off_t)from, (off_t)(to - from), flags);
    return status < 0 && !is_refusal(errno) ? -errno : 0;
}

int writeback_advance(struct writeback *writeback, int fd, uint64_t n_bytes)
{
    if (n_bytes - writeback->n_started < N_RANGE)
        return 0;
    const int code = sync_range(fd, writeback->n_started, n_bytes, SYNC_FILE_RANGE_WRITE);
    if (code < 0)
        return code;
    writeback->n_started = n_bytes;
    if (n_bytes - writeback->n_settled <= N_BEHIND)
        return 0;
    const uint64_t from = writeback->n_settled;
    writeback->n_settled = n_bytes - N_BEHIND;
    return sync_range(fd, from, writeback->n_settled,
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                          SYNC_FILE_RANGE_WAIT_AFTER);
}
