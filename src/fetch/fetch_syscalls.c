/* SPDX-License-Identifier: MIT */
/*
 * What libcurl, OpenSSL and the resolver of glibc call. Files are only opened for reading, and
 * which ones is left to Landlock. The cache file is open already.
 */
#include "fetch/fetch_syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/callfilter.h"

static const char *const allowed[] = {
    /* connections */
    "connect", "bind", "getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown",
    "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "socketpair",
    /* bytes */
    "read", "readv", "pread64", "write", "writev", "pwrite64", "lseek", "ftruncate", "fallocate",
    "flock", "close", "dup", "pipe", "pipe2", "eventfd2",
    /* names */
    "fstat", "newfstatat", "stat", "lstat", "statx", "access", "faccessat", "faccessat2",
    "readlink", "readlinkat", "getcwd",
    /* memory */
    "brk", "munmap", "mremap", "madvise",
    /* waiting */
    "poll", "ppoll", "select", "pselect6", "epoll_create1", "epoll_ctl", "epoll_wait",
    "epoll_pwait",
    /* threads and time */
    "futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "membarrier",
    "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time",
    "restart_syscall", "exit", "exit_group",
    /* signals */
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
    /* identity and properties */
    "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getrandom", "sysinfo",
    "uname", NULL};

static const struct filter_refusal refused[] = {
    {"clone3", ENOSYS},  /* its flags are out of sight; clone is tried next */
    {"openat2", ENOSYS}, /* so is its mode */
    {"open", ENOSYS},
};

int fetch_syscalls_restrict(void)
{
    enum { SET_VMA = 0x53564d41 }; /* PR_SET_VMA, of newer headers */
    const uint64_t changes = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
    const uint64_t self = (uint64_t)getpid();
    const struct filter_condition conditions[] = {
        {"openat", SCMP_A2(SCMP_CMP_MASKED_EQ, changes, O_RDONLY)},
        {"socket", SCMP_A0(SCMP_CMP_EQ, AF_INET)},
        {"socket", SCMP_A0(SCMP_CMP_EQ, AF_INET6)},
        {"socket", SCMP_A0(SCMP_CMP_EQ, AF_NETLINK)}, /* which addresses this machine has */
        {"socket", SCMP_A0(SCMP_CMP_EQ, AF_UNIX)},    /* resolvers of systemd and nscd */
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_DUPFD_CLOEXEC)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_GETFD)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETFD)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_GETFL)},
        {"fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETFL)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)FIONBIO)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)FIONREAD)},
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)SIOCOUTQ)},
        {"ioctl",
         SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)SIOCGIFINDEX)}, /* fe80::1%eth0 */
        {"ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)TCGETS)},
        {"clone", SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)},
        {"mmap", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {"mprotect", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)},
        {"tgkill", SCMP_A0(SCMP_CMP_EQ, self)},
        {"prctl", SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)},
        {"prctl", SCMP_A0(SCMP_CMP_EQ, SET_VMA)},
        {"prlimit64", SCMP_A2(SCMP_CMP_EQ, 0)}, /* asks only */
    };
    const struct filter filter = {.allowed = allowed,
                                  .refused = refused,
                                  .n_refused = sizeof(refused) / sizeof(*refused),
                                  .conditions = conditions,
                                  .n_conditions = sizeof(conditions) / sizeof(*conditions)};
    return filter_enter(&filter);
}
