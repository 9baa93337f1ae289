/* SPDX-License-Identifier: MIT */
/*
 * Reads permissions from open files: a path may lead to another file by now.
 */
#include <weightfs/output.h>

#include <stddef.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { GROUP_SHIFT = 3, CLASS_BITS = 07, ALL_BITS = 0777 };

/* The bits for the group are then the most that the list grants to anybody but owner and others. */
static bool has_access_list(int fd)
{
    return fgetxattr(fd, "system.posix_acl_access", NULL, 0) > 0;
}

/* Gives group and others what both have. */
static uint32_t level(uint32_t mode)
{
    const uint32_t both = (mode >> GROUP_SHIFT) & mode & CLASS_BITS;
    return (mode & ~(uint32_t)077) | both << GROUP_SHIFT | both;
}

void wfs_access_add(struct wfs_access *access, int fd)
{
    struct stat st;
    struct wfs_access file = {.is_known = true, .is_mixed = true};
    if (fstat(fd, &st) == 0) {
        file.mode = st.st_mode & ALL_BITS;
        if (S_ISDIR(st.st_mode))
            file.mode &= (file.mode & 0111) << 2 | ~(uint32_t)0444;
        file.group = st.st_gid;
        file.is_mixed = has_access_list(fd);
    }
    wfs_access_merge(access, &file);
}

void wfs_access_merge(struct wfs_access *access, const struct wfs_access *more)
{
    if (!more->is_known)
        return;
    const struct wfs_access before = *access;
    *access = *more;
    if (!before.is_known)
        return;
    access->mode &= before.mode;
    access->is_mixed |= before.is_mixed || before.group != more->group;
}

uint32_t wfs_access_mode(const struct wfs_access *access, uint32_t group)
{
    if (!access->is_known)
        return ALL_BITS;
    return access->is_mixed || access->group != group ? level(access->mode) : access->mode;
}
