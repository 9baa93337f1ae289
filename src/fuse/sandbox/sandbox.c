/* SPDX-License-Identifier: MIT */
/*
 * Capabilities are not effective while rules are made, so that the rights of the owner alone decide
 * what can be reached. Root that serves files of another user gets back those that it needs.
 *
 * Sanitizers examine all of memory at the end, and write reports: a build with them, or with
 * coverage measurement, has no seccomp, may read everything and write below its build directory.
 */
#include "fuse/sandbox/sandbox.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>
#include "program/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

/* ---- capabilities ---- */

/* For root: files of other users, replacing them in a sticky directory, leases on them. */
static const uint64_t file_rights =
    1ull << CAP_DAC_OVERRIDE | 1ull << CAP_DAC_READ_SEARCH | 1ull << CAP_FOWNER | 1ull << CAP_LEASE;

static void serve_others(struct sandbox *sandbox)
{
    const uint64_t permitted = capability_permitted();
    sandbox->serves_others = true;
    (void)capability_set(permitted, permitted & file_rights);
}

/* ---- what may be reached ---- */

void sandbox_init(struct sandbox *sandbox, enum sandbox_mode mode)
{
    *sandbox = (struct sandbox){.mode = mode, .landlock = {.fd = -1}};
    if (mode == SANDBOX_OFF)
        return;
    (void)capability_set(capability_permitted(), 0);
    landlock_init(&sandbox->landlock, LANDLOCK_ALONE);
}

void sandbox_done(struct sandbox *sandbox)
{
    landlock_done(&sandbox->landlock);
}

/* Opens the file with O_PATH; -1 when it cannot be reached. */
static int reach(struct sandbox *sandbox, const char *path, int mode)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    const bool is_refused =
        fd < 0 ? errno == EACCES : faccessat(AT_FDCWD, path, mode, AT_EACCESS) < 0;
    const bool is_own = fd < 0 || (fstat(fd, &st) == 0 && st.st_uid == geteuid());
    if (!sandbox->serves_others && (is_refused || !is_own)) {
        serve_others(sandbox);
        if (fd < 0)
            fd = open(path, O_PATH | O_CLOEXEC);
    }
    return fd;
}

static void allow(struct sandbox *sandbox, const char *path, int mode, enum landlock_access access)
{
    autoclose int fd = reach(sandbox, path, mode);
    if (fd >= 0)
        landlock_allow(&sandbox->landlock, fd, access);
}

/* Returns whether the files of the directory may be in directories of their own: those of a
 * distributed checkpoint, one of ranks, a pipeline, and an entry of the cache of the Hub. */
static bool has_directories(const char *directory)
{
    static const char *const names[] = {".metadata", "mp_rank_00", "model_index.json", "snapshots"};
    bool has = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !has; i++) {
        autofree char *path = NULL;
        has = asprintf(&path, "%s/%s", directory, names[i]) >= 0 && access(path, F_OK) == 0;
    }
    return has;
}

/* A directory of very many files is allowed as a whole: each rule keeps an inode in memory.
 * Recursion ends with n_deeper. */
static void allow_files_in(struct sandbox *sandbox, const char *directory, unsigned n_deeper)
{
    enum { N_RULES_MAX = 20000 };
    const bool has_deeper = n_deeper > 0 && has_directories(directory);
    size_t n_rules = 0;
    allow(sandbox, directory, R_OK | X_OK, LANDLOCK_LIST);
    DIR *open = opendir(directory);
    if (open == NULL)
        return;
    for (const struct dirent *file; (file = readdir(open)) != NULL && n_rules < N_RULES_MAX;) {
        autofree char *path = NULL;
        struct stat st;
        if (asprintf(&path, "%s/%s", directory, file->d_name) < 0) {
            path = NULL;
            break;
        }
        if (stat(path, &st) < 0)
            continue;
        if (S_ISREG(st.st_mode)) {
            allow(sandbox, path, R_OK, LANDLOCK_READ);
            n_rules++;
        } else if (has_deeper && S_ISDIR(st.st_mode) && strcmp(file->d_name, ".") != 0 &&
                   strcmp(file->d_name, "..") != 0) {
            allow(sandbox, path, R_OK | X_OK, LANDLOCK_LIST | LANDLOCK_READ);
            allow_files_in(sandbox, path, n_deeper - 1); /* where links lead to */
            n_rules++;
        }
    }
    closedir(open);
    if (n_rules == N_RULES_MAX)
        allow(sandbox, directory, R_OK | X_OK, LANDLOCK_READ);
}

/* Returns true for what may be an index, and for many other texts. */
static bool begins_with_brace(const char *path)
{
    char head[64];
    autoclose int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : io_read_at(fd, head, sizeof(head) - 1, 0);
    head[n < 0 ? 0 : n] = '\0';
    return head[strspn(head, " \t\r\n")] == '{';
}

/* Returns whether it is the file that describes a distributed checkpoint. */
static bool is_metadata(const char *path)
{
    static const char end[] = ".metadata";
    const size_t n = strlen(path), n_end = sizeof(end) - 1;
    return n >= n_end && strcmp(path + n - n_end, end) == 0;
}

void sandbox_allow_source(struct sandbox *sandbox, const char *path, bool has_siblings)
{
    struct stat st;
    if (sandbox->mode == SANDBOX_OFF || url_is(path))
        return;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        allow_files_in(sandbox, path, 1);
        return;
    }
    allow(sandbox, path, R_OK, LANDLOCK_READ);
    if (has_siblings || begins_with_brace(path) || is_metadata(path)) {
        autofree char *directory = strchr(path, '/') != NULL ? path_directory(path) : strdup(".");
        if (directory != NULL)
            allow_files_in(sandbox, directory, 1);
    }
}

void sandbox_allow_directory(struct sandbox *sandbox, const char *path)
{
    if (sandbox->mode != SANDBOX_OFF)
        allow(sandbox, path, R_OK | W_OK | X_OK,
              LANDLOCK_LIST | LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_CHANGE);
}

void sandbox_allow_output(struct sandbox *sandbox, const char *path)
{
    autofree char *directory = path_directory(path);
    if (sandbox->mode == SANDBOX_OFF)
        return;
    allow(sandbox, path, R_OK, LANDLOCK_READ); /* for its owner */
    if (directory != NULL)
        sandbox_allow_directory(sandbox, directory);
}

/* Allows what libfuse, glibc and the lock of the staging directory read. */
static void allow_system(const struct sandbox *sandbox)
{
    static const struct {
        const char *path;
        enum landlock_access access;
    } files[] = {
        {"/dev/null", LANDLOCK_READ | LANDLOCK_WRITE},
        {"/dev/fuse", LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_DEVICE},
        {"/proc/locks", LANDLOCK_READ},
        {"/sys/devices/system/cpu/online", LANDLOCK_READ},
        {WFS_INSTRUMENTED ? "/" : "", LANDLOCK_LIST | LANDLOCK_READ},
        {WFS_INSTRUMENTED ? WFS_BUILD_ROOT : "", LANDLOCK_WRITE | LANDLOCK_CHANGE},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        autoclose int fd = open(files[i].path, O_PATH | O_CLOEXEC);
        if (fd >= 0)
            landlock_allow(&sandbox->landlock, fd, files[i].access);
    }
}

/* ---- system calls ---- */

/*
 * What the worker, libfuse and glibc call while they serve, commit and end. The tests of mounts run
 * with it, so a missing call shows as a death by SIGSYS. Files are left to Landlock: a filter
 * cannot examine a name. Nothing sets a mode or an owner: a call that may do it to an output may do
 * it to a source that is open.
 */
static const char *const allowed[] = {
    /* content */
    "read", "readv", "pread64", "preadv", "write", "writev", "pwrite64", "pwritev", "lseek",
    "copy_file_range", "splice", "vmsplice", "pipe2", "fadvise64", "sync_file_range",
    /* files */
    "close", "fstat", "fgetxattr", "newfstatat", "stat", "lstat", "statx", "statfs", "fstatfs",
    "flock", "dup", "dup2", "dup3", "fsync", "fdatasync", "ftruncate", "fallocate",
    /* names */
    "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd", "chdir", "getdents64",
    "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "linkat",
    /* memory */
    "brk", "munmap", "mremap", "madvise",
    /* threads and time */
    "futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "membarrier",
    "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time",
    "restart_syscall", "exit", "exit_group",
    /* signals */
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "pause", "poll", "ppoll",
    /* identity and properties */
    "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getrandom", "sysinfo",
    "uname", "setsid", "recvmsg", NULL};

/* Refused with an error: glibc asks for these and goes on without. */
static const struct filter_refusal refused[] = {
    {"clone3", ENOSYS},  /* its flags are out of sight; clone is tried next */
    {"openat2", ENOSYS}, /* so is its mode; openat is tried next */
    {"socket", EACCES},  /* a new connection to syslog */
    {"connect", EACCES}, {NULL, 0},
};

static int restrict_calls(void)
{
    enum { SET_VMA = 0x53564d41 }; /* PR_SET_VMA, of newer headers */
    enum { SET_ID = 07000 };       /* of a mode: setuid, setgid, sticky */
    const uint64_t self = (uint64_t)getpid();
    const struct filter_condition conditions[] = {
        {"openat", 2, O_CREAT | (O_TMPFILE & ~O_DIRECTORY), 0},
        {"openat", 3, SET_ID, 0}, /* makes a file */
        {"mkdir", 1, SET_ID, 0},
        {"mkdirat", 2, SET_ID, 0},
        {"fcntl", 1, FILTER_WHOLE, F_DUPFD},
        {"fcntl", 1, FILTER_WHOLE, F_DUPFD_CLOEXEC},
        {"fcntl", 1, FILTER_WHOLE, F_GETFD},
        {"fcntl", 1, FILTER_WHOLE, F_SETFD},
        {"fcntl", 1, FILTER_WHOLE, F_GETFL},
        {"fcntl", 1, FILTER_WHOLE, F_SETPIPE_SZ},
        {"fcntl", 1, FILTER_WHOLE, F_SETLEASE},
        {"clone", 0, CLONE_THREAD, CLONE_THREAD},
        {"mmap", 2, PROT_EXEC, 0},
        {"mprotect", 2, PROT_EXEC, 0},
        {"ioctl", 1, UINT32_MAX, (uint32_t)FICLONE},
        {"ioctl", 1, UINT32_MAX, (uint32_t)FICLONERANGE},
        {"ioctl", 1, UINT32_MAX, (uint32_t)FUSE_DEV_IOC_CLONE},
        {"ioctl", 1, UINT32_MAX, (uint32_t)TCGETS},
        {"kill", 0, FILTER_WHOLE, self},
        {"tgkill", 0, FILTER_WHOLE, self},
        {"prctl", 0, FILTER_WHOLE, PR_SET_NAME},
        {"prctl", 0, FILTER_WHOLE, SET_VMA},
        {"prlimit64", 2, FILTER_WHOLE, 0}, /* asks only */
        {"sendto", 4, FILTER_WHOLE, 0},    /* to who is connected already */
        {NULL, 0, 0, 0},
    };
    const struct filter filter = {allowed, refused, conditions};
    return filter_enter(&filter);
}

/* ---- entering ---- */

bool sandbox_confines_files(enum sandbox_state state)
{
    return state == SANDBOX_STATE_LANDLOCK || state == SANDBOX_STATE_WHOLE;
}

const char *sandbox_state_name(enum sandbox_state state)
{
    static const char *const names[] = {[SANDBOX_STATE_OFF] = "off",
                                        [SANDBOX_STATE_NONE] = "none",
                                        [SANDBOX_STATE_SECCOMP] = "seccomp",
                                        [SANDBOX_STATE_LANDLOCK] = "landlock",
                                        [SANDBOX_STATE_WHOLE] = "seccomp+landlock"};
    return names[state];
}

int sandbox_enter(const struct sandbox *sandbox, enum sandbox_state *ret)
{
    const uint64_t kept = sandbox->serves_others ? capability_permitted() & file_rights : 0;
    *ret = SANDBOX_STATE_OFF;
    if (sandbox->mode == SANDBOX_OFF)
        return 0;
    allow_system(sandbox);
    const bool is_bare =
        capability_set(kept, kept) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    const bool has_landlock = is_bare && landlock_enter(&sandbox->landlock) == 0;
    const bool has_seccomp = is_bare && !WFS_INSTRUMENTED && restrict_calls() == 0;
    if (has_landlock)
        *ret = has_seccomp ? SANDBOX_STATE_WHOLE : SANDBOX_STATE_LANDLOCK;
    else
        *ret = has_seccomp ? SANDBOX_STATE_SECCOMP : SANDBOX_STATE_NONE;
    return sandbox->mode == SANDBOX_REQUIRE && *ret != SANDBOX_STATE_WHOLE ? -EOPNOTSUPP : 0;
}
