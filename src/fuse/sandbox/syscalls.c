/* SPDX-License-Identifier: MIT */
/*
 * The list is what the worker, libfuse and glibc call while they serve, commit and end. The tests
 * of mounts run with it, so a missing call shows as a death by SIGSYS. Files are left to Landlock:
 * a filter cannot examine a name. Nothing sets a mode or an owner: a call that may do it to an
 * output may do it to a source that is open.
 */
#include "fuse/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Names, because a libseccomp or an architecture may not know one. */
static const char *const allowed[] = {
    /* content */
    "read",
    "readv",
    "pread64",
    "preadv",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "lseek",
    "copy_file_range",
    "splice",
    "vmsplice",
    "pipe2",
    "fadvise64",
    "sync_file_range",
    /* files */
    "close",
    "fstat",
    "fgetxattr",
    "newfstatat",
    "stat",
    "lstat",
    "statx",
    "statfs",
    "fstatfs",
    "flock",
    "dup",
    "dup2",
    "dup3",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    /* names */
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "getcwd",
    "chdir",
    "getdents64",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "linkat",
    /* memory */
    "brk",
    "munmap",
    "mremap",
    "madvise",
    /* threads and time */
    "futex",
    "sched_yield",
    "sched_getaffinity",
    "set_robust_list",
    "rseq",
    "membarrier",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "gettimeofday",
    "time",
    "restart_syscall",
    "exit",
    "exit_group",
    /* signals */
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "pause",
    "poll",
    "ppoll",
    /* identity and properties */
    "getpid",
    "gettid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getrandom",
    "sysinfo",
    "uname",
    "setsid",
    "recvmsg",
};

/* Refused with an error: glibc asks for these and goes on without. */
static const struct {
    const char *name;
    int code;
} refused[] = {
    {"clone3", ENOSYS},  /* its flags are out of sight; clone is tried next */
    {"openat2", ENOSYS}, /* so is its mode; openat is tried next */
    {"socket", EACCES},  /* a new connection to syslog */
    {"connect", EACCES},
};

/* An argument that decides. */
struct condition {
    const char *name;
    struct scmp_arg_cmp argument;
};

static int number_of(const char *name)
{
    return seccomp_syscall_resolve_name(name);
}

static int allow(scmp_filter_ctx filter, const char *name)
{
    const int number = number_of(name);
    return number < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
}

static int allow_if(scmp_filter_ctx filter, const struct condition *condition)
{
    const int number = number_of(condition->name);
    return number < 0
               ? 0
               : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, number, 1, &condition->argument);
}

static int add_conditions(scmp_filter_ctx filter)
{
    enum { SET_VMA = 0x53564d41 }; /* PR_SET_VMA, of newer headers */
    enum { SET_ID = 07000 };       /* of a mode: setuid, setgid, sticky */
    const uint64_t self = (uint64_t)getpid();
    const struct condition conditions[] = {
        {"openat", SCMP_A2(SCMP_CMP_MASKED_EQ, O_CREAT | (O_TMPFILE & ~O_DIRECTORY), 0)},
        {"openat", SCMP_A3(SCMP_CMP_MASKED_EQ, SET_ID, 0)}, /* makes a file */
        {"mkdir", SCMP_A1(SCMP_CMP_MASKED_EQ, SET_ID, 0)},
        {"mkdirat", SCMP_A2(SCMP_CMP_MASKED_EQ, SET_ID, 0)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_DUPFD)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_DUPFD_CLOEXEC)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_GETFD)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETFD)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_GETFL)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETPIPE_SZ)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETLEASE)},
        {"clone", SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)},
        {"mmap", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {"mprotect", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)FICLONE)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)FICLONERANGE)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)FUSE_DEV_IOC_CLONE)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)TCGETS)},
        {"kill", SCMP_A0(SCMP_CMP_EQ, self)},
        {"tgkill", SCMP_A0(SCMP_CMP_EQ, self)},
        {"prctl", SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)},
        {"prctl", SCMP_A0(SCMP_CMP_EQ, SET_VMA)},
        {"prlimit64", SCMP_A2(SCMP_CMP_EQ, 0)}, /* asks only */
        {"sendto", SCMP_A4(SCMP_CMP_EQ, 0)},    /* to who is connected already */
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(conditions) / sizeof(conditions[0]); i++)
        rc = allow_if(filter, &conditions[i]);
    return rc;
}

static int fill(scmp_filter_ctx filter)
{
    int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; rc == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++)
        rc = allow(filter, allowed[i]);
    for (size_t i = 0; rc == 0 && i < sizeof(refused) / sizeof(refused[0]); i++) {
        const int number = number_of(refused[i].name);
        if (number >= 0)
            rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)refused[i].code), number, 0);
    }
    if (rc == 0)
        rc = add_conditions(filter);
    if (rc == 0)
        (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, where it can */
    return rc;
}

int syscalls_restrict(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (filter == NULL)
        return -ENOMEM;
    int rc = fill(filter);
    if (rc == 0)
        rc = seccomp_load(filter);
    seccomp_release(filter);
    return rc == 0 ? 0 : -EOPNOTSUPP;
}
