/* SPDX-License-Identifier: MIT */
/*
 * Each group of callbacks adds its own.
 */
#include "fuse/ops.h"

#include "fuse/driver.h"
#include "fuse/ops_commit.h"
#include "fuse/ops_content.h"
#include "fuse/ops_names.h"

/* Reads of pages that the kernel passes on at a time, each of which may take long; while there are
 * more, it lets all readers wait, also those of other files. */
enum { N_BACKGROUND = 1024 };

static void want(struct fuse_conn_info *connection, unsigned flags)
{
    connection->want |= flags & connection->capable;
}

/*
 * Without FUSE_CAP_ATOMIC_O_TRUNC, truncation is a request of its own, which a mount without opens
 * needs. "Auto" readdirplus gives up in large directories.
 *
 * The kernel must not drop cached pages because mtime or size have changed: a page that is dropped
 * while a write to it is on its way is read again with its old bytes, and stays like that.
 */
static void op_init(void *userdata, struct fuse_conn_info *connection)
{
    const struct driver *driver = userdata;
    want(connection, FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_IOCTL_DIR |
                         FUSE_CAP_EXPORT_SUPPORT);
    connection->want &=
        ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA);
    /* Only a generated header changes a size without the kernel's knowledge. */
    if (driver->options->files != WFS_FILES_NPY)
        want(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
    /* A process that waits for such a read could not be killed. */
    if (driver->target->remote != NULL)
        connection->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    /* Changes take setuid away here; without this the kernel sends a request before every write. */
    want(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    connection->max_write = DRIVER_TRANSFER_MAX;
    connection->max_background = N_BACKGROUND;
}

struct fuse_lowlevel_ops ops_table(bool is_writable)
{
    struct fuse_lowlevel_ops ops = {.init = op_init};
    ops_names_add(&ops, is_writable);
    ops_content_add(&ops, is_writable);
    ops_commit_add(&ops, is_writable);
    return ops;
}
