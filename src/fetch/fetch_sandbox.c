/* SPDX-License-Identifier: MIT */
/*
 * Sanitizers and measurements of coverage do more than the sandbox allows: such a build has none.
 */
#include "fetch/fetch_sandbox.h"

#include <weightfs/cleanup.h>
#include "sandbox/confinement.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* ---- files ---- */

/* glibc loads a module for each way to look up a host at the first search, by this name. */
static void load_modules(void)
{
    char line[1024], path[128];
    FILE *file = fopen("/etc/nsswitch.conf", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *rest, *word = strtok_r(line, " \t\n", &rest);
        if (word == NULL || strcmp(word, "hosts:") != 0)
            continue;
        while ((word = strtok_r(NULL, " \t\n", &rest)) != NULL) {
            if (word[0] == '[' || strchr(word, '/') != NULL)
                continue;
            snprintf(path, sizeof(path), "libnss_%s.so.2", word);
            (void)dlopen(path, RTLD_NOW);
        }
    }
    if (file != NULL)
        fclose(file);
    (void)dlopen("libgcc_s.so.1", RTLD_NOW); /* for the end of a thread */
}

static void allow(const struct landlock *landlock, const char *path)
{
    autoclose int fd = path == NULL || *path == '\0' ? -1 : open(path, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        landlock_allow(landlock, fd, LANDLOCK_READ);
}

static void allow_files(const struct landlock *landlock)
{
    static const char *const paths[] = {
        /* how hosts are found */
        "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
        "/etc/services", "/etc/protocols", "/etc/localtime",
        /* certificates of authorities */
        "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf",
        "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/pki/tls/certs",
        "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted"};
    static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        allow(landlock, paths[i]);
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        allow(landlock, getenv(variables[i]));
}

/* ---- system calls ---- */

/* What libcurl, OpenSSL and the resolver of glibc make. Files are only opened for reading, and
 * which ones is left to Landlock. The cache file is open already. */
static const char *const allowed[] = {
    /* connections */
    "connect", "bind", "getsockname", "getpeername", "getsockopt", "setsockopt", "shutdown",
    "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg",
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
    {NULL, 0},
};

static int restrict_calls(void)
{
    enum { SET_VMA = 0x53564d41 }; /* PR_SET_VMA, of newer headers */
    const uint64_t changes = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
    const uint64_t self = (uint64_t)getpid();
    const struct filter_condition conditions[] = {
        {"openat", 2, changes, O_RDONLY},
        {"socket", 0, FILTER_WHOLE, AF_INET},
        {"socket", 0, FILTER_WHOLE, AF_INET6},
        {"socket", 0, FILTER_WHOLE, AF_NETLINK}, /* which addresses this machine has */
        /* Behind these are other programs of the user. The resolvers among them, of systemd and
         * nscd, are done without: DNS is asked. */
        {"socket", 0, FILTER_WHOLE, AF_UNIX, EACCES},
        {"socketpair", 1, ~(uint64_t)(SOCK_CLOEXEC | SOCK_NONBLOCK), SOCK_STREAM},
        {"fcntl", 1, FILTER_WHOLE, F_DUPFD_CLOEXEC},
        {"fcntl", 1, FILTER_WHOLE, F_GETFD},
        {"fcntl", 1, FILTER_WHOLE, F_SETFD},
        {"fcntl", 1, FILTER_WHOLE, F_GETFL},
        {"fcntl", 1, FILTER_WHOLE, F_SETFL},
        {"ioctl", 1, UINT32_MAX, (uint32_t)FIONBIO},
        {"ioctl", 1, UINT32_MAX, (uint32_t)FIONREAD},
        {"ioctl", 1, UINT32_MAX, (uint32_t)SIOCOUTQ},
        {"ioctl", 1, UINT32_MAX, (uint32_t)SIOCGIFINDEX}, /* fe80::1%eth0 */
        {"ioctl", 1, UINT32_MAX, (uint32_t)TCGETS},
        {"clone", 0, CLONE_THREAD, CLONE_THREAD},
        {"mmap", 2, PROT_EXEC, 0},
        {"mprotect", 2, PROT_EXEC, 0},
        {"tgkill", 0, FILTER_WHOLE, self},
        {"prctl", 0, FILTER_WHOLE, PR_SET_NAME},
        {"prctl", 0, FILTER_WHOLE, SET_VMA},
        {"prlimit64", 2, FILTER_WHOLE, 0}, /* asks only */
        {NULL, 0, 0, 0},
    };
    const struct filter filter = {allowed, refused, conditions};
    return filter_enter(&filter);
}

void fetch_sandbox_enter(void)
{
    struct landlock landlock;
    if (WFS_INSTRUMENTED)
        return;
    load_modules();
    landlock_init(&landlock, LANDLOCK_CONNECTS);
    allow_files(&landlock);
    if (capability_set(0, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        (void)landlock_enter(&landlock);
        landlock_done(&landlock);
        (void)restrict_calls();
    }
    landlock_done(&landlock);
}
