/* SPDX-License-Identifier: MIT */
/*
 * System calls by number, with constants of our own: kernels offer more than the headers of a
 * distribution declare, and libcap would be another library for two calls.
 */
#include "sandbox/confinement.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- capabilities ---- */

uint64_t capability_permitted(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &header, data) < 0)
        return 0;
    return data[0].permitted | (uint64_t)data[1].permitted << 32;
}

int capability_set(uint64_t permitted, uint64_t effective)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct data[2] = {
        {.permitted = (uint32_t)permitted, .effective = (uint32_t)effective},
        {.permitted = (uint32_t)(permitted >> 32), .effective = (uint32_t)(effective >> 32)},
    };
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* ---- Landlock ---- */

enum { CALL_CREATE = 444, CALL_ADD = 445, CALL_RESTRICT = 446 };
enum { ASK_VERSION = 1 << 0, RULE_PATH_BENEATH = 1 };

enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_REMOVE_DIR = 1 << 4,
    FS_REMOVE_FILE = 1 << 5,
    FS_MAKE_DIR = 1 << 7,
    FS_MAKE_REG = 1 << 8,
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    FS_IOCTL_DEV = 1 << 15,
    FS_OF_FILES = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV,
    NET_BIND = 1 << 0,
    NET_CONNECT = 1 << 1,
    SCOPE_OURS = 3, /* no abstract sockets and no signals to processes outside */
};

struct ruleset {
    uint64_t fs, net, scope;
};

struct path_beneath {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));

/* Returns all rights that a version of Landlock can refuse. */
static uint64_t known_rights(int version)
{
    const int n_rights = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    return (1ull << n_rights) - 1;
}

void landlock_init(struct landlock *landlock, enum landlock_network network)
{
    struct ruleset ruleset = {0};
    landlock->fd = -1;
    landlock->version = (int)syscall(CALL_CREATE, NULL, 0, ASK_VERSION);
    if (landlock->version < 1)
        return;
    ruleset.fs = known_rights(landlock->version);
    if (landlock->version >= 4)
        ruleset.net = network == LANDLOCK_CONNECTS ? NET_BIND : NET_BIND | NET_CONNECT;
    ruleset.scope = landlock->version >= 6 ? SCOPE_OURS : 0;
    const size_t n_bytes = landlock->version >= 6   ? sizeof(ruleset)
                           : landlock->version >= 4 ? offsetof(struct ruleset, scope)
                                                    : offsetof(struct ruleset, net);
    landlock->fd = (int)syscall(CALL_CREATE, &ruleset, n_bytes, 0);
}

void landlock_done(struct landlock *landlock)
{
    if (landlock->fd >= 0)
        close(landlock->fd);
    landlock->fd = -1;
}

void landlock_allow(const struct landlock *landlock, int fd, enum landlock_access access)
{
    static const uint64_t rights[] = {
        FS_READ_DIR,
        FS_READ_FILE,
        FS_WRITE_FILE | FS_TRUNCATE,
        FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_REFER,
        FS_IOCTL_DEV,
    };
    struct path_beneath rule = {.fd = fd};
    struct stat st;
    if (landlock->fd < 0 || fstat(fd, &st) < 0)
        return;
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        rule.allowed |= (access & (1u << i)) != 0 ? rights[i] : 0;
    rule.allowed &= known_rights(landlock->version);
    rule.allowed &= S_ISDIR(st.st_mode) ? ~0ull : (uint64_t)FS_OF_FILES;
    if (rule.allowed != 0)
        (void)syscall(CALL_ADD, landlock->fd, RULE_PATH_BENEATH, &rule, 0);
}

int landlock_enter(const struct landlock *landlock)
{
    if (landlock->fd < 0)
        return -EOPNOTSUPP;
    return syscall(CALL_RESTRICT, landlock->fd, 0) == 0 ? 0 : -errno;
}
