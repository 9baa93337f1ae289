/* SPDX-License-Identifier: MIT */
/*
 * Each group of callbacks adds its own.
 */
#include "fuse/ops.h"

#include "fuse/driver.h"
#include "fuse/ops_commit.h"
#include "fuse/ops_content.h"
#include "fuse/ops_names.h"

static void want(struct fuse_conn_info *connection, unsigned flags)
{
    connection->want |= flags & connection->capable;
}

/*
 * Without FUSE_CAP_ATOMIC_O_TRUNC, truncation is a request of its own, which a mount without opens
 * needs. "Auto" readdirplus gives up in large directories.
 */
static void op_init(void *userdata, struct fuse_conn_info *connection)
{
    want(connection, FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_IOCTL_DIR);
    connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ATOMIC_O_TRUNC);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    /* No file here can be setuid; without this the kernel sends a request before every write. */
    want(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    connection->max_write = DRIVER_TRANSFER_MAX;
}

struct fuse_lowlevel_ops ops_table(bool is_writable)
{
    struct fuse_lowlevel_ops ops = {.init = op_init};
    ops_names_add(&ops, is_writable);
    ops_content_add(&ops, is_writable);
    ops_commit_add(&ops, is_writable);
    return ops;
}
