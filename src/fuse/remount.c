/* SPDX-License-Identifier: MIT */
/*
 * mount(8) runs the program with all options of the mount and of fstab: only the access was asked
 * for. The driver goes on as it is.
 */
#include "fuse/remount.h"

#include "fuse/log.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

/* Returns the flags of mount(2) for what statvfs shows. */
static unsigned long flags_of(unsigned long shown)
{
    static const struct {
        unsigned long shown, flag;
    } flags[] = {
        {ST_RDONLY, MS_RDONLY},
        {ST_NOSUID, MS_NOSUID},
        {ST_NODEV, MS_NODEV},
        {ST_NOEXEC, MS_NOEXEC},
        {ST_NOATIME, MS_NOATIME},
        {ST_NODIRATIME, MS_NODIRATIME},
        {ST_SYNCHRONOUS, MS_SYNCHRONOUS},
        {ST_RELATIME, MS_RELATIME},
    };
    unsigned long result = 0;
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        result |= (shown & flags[i].shown) != 0 ? flags[i].flag : 0;
    return result;
}

static int fail(const char *path, const char *reason)
{
    return log_failure(EXIT_MOUNT, "cannot remount '%s': %s", wfs_quote(path).text, reason);
}

int remount_run(const struct mount_options *options)
{
    struct statvfs st;
    struct wfs_control_reply hello = {0};
    const char *path = options->mountpoint;
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(path, strerror(errno));
    if (ioctl(fd, WFS_IOC_HELLO, &hello) < 0 || fstatvfs(fd, &st) < 0)
        return fail(path, "not a weightfs mount point");
    const bool is_writable = hello.text[0] != '\0';
    if (options->access == MOUNT_ACCESS_RW && !is_writable)
        return fail(path, "it was mounted without an output; unmount it and mount it with output=");
    unsigned long flags = flags_of(st.f_flag);
    if (options->access != MOUNT_ACCESS_UNSAID)
        flags &= ~(unsigned long)MS_RDONLY;
    if (options->access == MOUNT_ACCESS_RO)
        flags |= MS_RDONLY;
    if (mount(NULL, path, NULL, MS_REMOUNT | flags, NULL) == 0)
        return EXIT_DONE;
    return fail(path, errno == EBUSY ? "files in it are open for writing" : strerror(errno));
}
