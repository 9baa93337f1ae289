/* SPDX-License-Identifier: MIT */
/*
 * The list is what the worker, libfuse and glibc call while they serve, commit and end. The tests
 * of mounts run with it, so a missing call shows as a death by SIGSYS. Files are left to Landlock:
 * a filter cannot examine a name. Nothing sets a mode or an owner: a call that may do it to an
 * output may do it to a source that is open.
 */
#include "fuse/sandbox/syscalls.h"

#include "sandbox/callfilter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

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
    NULL,
};

/* Refused with an error: glibc asks for these and goes on without. */
static const struct filter_refusal refused[] = {
    {"clone3", ENOSYS},  /* its flags are out of sight; clone is tried next */
    {"openat2", ENOSYS}, /* so is its mode; openat is tried next */
    {"socket", EACCES},  /* a new connection to syslog */
    {"connect", EACCES},
};

int syscalls_restrict(void)
{
    enum { SET_VMA = 0x53564d41 }; /* PR_SET_VMA, of newer headers */
    enum { SET_ID = 07000 };       /* of a mode: setuid, setgid, sticky */
    const uint64_t self = (uint64_t)getpid();
    const struct filter_condition conditions[] = {
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
    const struct filter filter = {.allowed = allowed,
                                  .refused = refused,
                                  .n_refused = sizeof(refused) / sizeof(refused[0]),
                                  .conditions = conditions,
                                  .n_conditions = sizeof(conditions) / sizeof(conditions[0])};
    return filter_enter(&filter);
}
