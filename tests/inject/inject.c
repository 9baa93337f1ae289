/* SPDX-License-Identifier: MIT */
/*
 * A library to preload: counts the calls that change files below a folder, and lets call N fail, do
 * half of its work, or be the last one. All processes that have it count together. From the
 * environment:
 *
 *   INJECT_FOLDER  absolute, without links    INJECT_FILE  for the count: 8 bytes, then the log
 *   INJECT_AT      N, from 1 on               INJECT_MODE  a name of the table below
 *
 * INJECT_FLIP is an offset: the byte there is another one in all that is written to files with
 * INJECT_NAME in their path. Apart from that, INJECT_REPLY is a name: the first reply to the kernel
 * that lists it is lost, as when the caller was killed.
 */
/* Both spellings of each call are wanted. */
#undef _FILE_OFFSET_BITS
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode {
    COUNT,
    KILL_BEFORE,
    KILL_AFTER,
    ENOSPC_ONCE,
    ENOSPC_ON,
    EDQUOT_ON,
    EDQUOT_BLOCKS, /* as EDQUOT_ON, but files that are written to by write(2) have room already */
    EIO_ONCE,
    HALF,
    SHUTDOWN, /* the power goes: nothing reaches the disk any more */
    UNSYNCED, /* as SHUTDOWN, and fsync was a lie before: what a test must notice */
};

static const char *const names[] = {"count",     "kill-before", "kill-after",    "enospc-once",
                                    "enospc-on", "edquot-on",   "edquot-blocks", "eio-once",
                                    "half",      "shutdown",    "unsynced"};

enum { N_FDS = 4096, N_PATH = 512 };

struct shared {
    _Atomic uint64_t n_calls;
};

static struct {
    char folder[N_PATH];
    uint64_t at;
    enum mode mode;
    struct shared *shared; /* NULL: nothing is counted */
    int log, folder_fd;
    char paths[N_FDS][N_PATH]; /* of what is open below the folder; "": not */
    const char *flipped;       /* in paths of files with a byte that flips; NULL: none */
    off_t flip_at;
} state;

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("INJECT_FOLDER"), *file = getenv("INJECT_FILE");
    const char *mode = getenv("INJECT_MODE"), *at = getenv("INJECT_AT");
    if (folder == NULL || file == NULL || mode == NULL || at == NULL)
        return;
    snprintf(state.folder, sizeof(state.folder), "%s", folder);
    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        state.mode = strcmp(names[i], mode) == 0 ? (enum mode)i : state.mode;
    state.at = strtoull(at, NULL, 10);
    const char *flip = getenv("INJECT_FLIP");
    state.flipped = flip == NULL ? NULL : getenv("INJECT_NAME");
    state.flip_at = flip == NULL ? 0 : (off_t)strtoll(flip, NULL, 10);
    /* High numbers: whoever closes what was inherited begins at the low ones. */
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CREAT | O_APPEND, 0600);
    state.log = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900);
    state.folder_fd = (int)syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY);
    state.folder_fd = (int)syscall(SYS_fcntl, state.folder_fd, F_DUPFD_CLOEXEC, 901);
    state.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state.shared == MAP_FAILED)
        abort();
}

/* ---- which file ---- */

static const char *path_of_fd(int fd)
{
    return fd >= 0 && fd < N_FDS ? state.paths[fd] : "";
}

/* The path that the name stands for, "" when it is not below the folder. */
static void resolve(int at_fd, const char *name, char ret[N_PATH])
{
    if (name[0] == '/')
        snprintf(ret, N_PATH, "%s", name);
    else if (path_of_fd(at_fd)[0] != '\0')
        snprintf(ret, N_PATH, "%.255s/%.255s", path_of_fd(at_fd), name);
    else
        ret[0] = '\0';
    const size_t n = strlen(state.folder);
    if (strncmp(ret, state.folder, n) != 0 || (ret[n] != '/' && ret[n] != '\0'))
        ret[0] = '\0';
}

static void remember(int fd, const char *path)
{
    if (fd >= 0 && fd < N_FDS)
        snprintf(state.paths[fd], N_PATH, "%s", path);
}

/* ---- what happens ---- */

struct call {
    const char *name, *path;
    bool takes_space;
    bool is_hit;
};

static void shut_down(void)
{
    uint32_t flags = 2; /* without writing the journal of the filesystem out */
    if (syscall(SYS_ioctl, state.folder_fd, _IOR('X', 125, uint32_t), &flags) < 0)
        abort();
}

/* True: the call is refused, errno says why. */
static bool before(struct call *call)
{
    if (state.shared == NULL || call->path[0] == '\0')
        return false;
    const uint64_t number = atomic_fetch_add(&state.shared->n_calls, 1) + 1;
    char line[N_PATH + 64];
    const int n = snprintf(line, sizeof(line), "%s %s\n", call->name, call->path);
    syscall(SYS_write, state.log, line, n);
    call->is_hit = number == state.at;
    if (call->is_hit && state.mode == KILL_BEFORE)
        syscall(SYS_kill, getpid(), SIGKILL);
    if (call->is_hit && (state.mode == SHUTDOWN || state.mode == UNSYNCED))
        shut_down();
    const bool has_room = state.mode == EDQUOT_BLOCKS && strcmp(call->name, "write") == 0;
    const bool is_full =
        (state.mode == ENOSPC_ON || state.mode == EDQUOT_ON || state.mode == EDQUOT_BLOCKS) &&
        number >= state.at && call->takes_space && !has_room;
    if (!is_full && !(call->is_hit && (state.mode == ENOSPC_ONCE || state.mode == EIO_ONCE)))
        return false;
    const bool is_quota = state.mode == EDQUOT_ON || state.mode == EDQUOT_BLOCKS;
    errno = state.mode == EIO_ONCE ? EIO : is_quota ? EDQUOT : ENOSPC;
    return true;
}

static void after(const struct call *call)
{
    if (call->is_hit && state.mode == KILL_AFTER)
        syscall(SYS_kill, getpid(), SIGKILL);
}

static size_t part(const struct call *call, size_t n_bytes)
{
    return call->is_hit && state.mode == HALF && n_bytes > 1 ? n_bytes / 2 : n_bytes;
}

/* Runs the call and keeps errno over what follows it. */
#define RUN(call, expression)                                                                      \
    __extension__({                                                                                \
        long result_ = before(call) ? -1 : (long)(expression);                                     \
        const int saved_ = errno;                                                                  \
        after(call);                                                                               \
        errno = saved_;                                                                            \
        result_;                                                                                   \
    })

/* ---- the calls ---- */

#pragma GCC visibility push(default)

static int open_at(int at_fd, const char *name, int flags, mode_t mode)
{
    char path[N_PATH];
    resolve(at_fd, name, path);
    struct call call = {"create", (flags & O_CREAT) != 0 ? path : "", true, false};
    const int fd = (int)RUN(&call, syscall(SYS_openat, at_fd, name, flags, mode));
    remember(fd, path);
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

#define OPEN_AT(name)                                                                              \
    int name(int at_fd, const char *path, int flags, ...)                                          \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const mode_t mode = mode_of(flags, args);                                                  \
        va_end(args);                                                                              \
        return open_at(at_fd, path, flags, mode);                                                  \
    }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const mode_t mode = mode_of(flags, args);                                                  \
        va_end(args);                                                                              \
        return open_at(AT_FDCWD, path, flags, mode);                                               \
    }

OPEN_AT(openat)
OPEN_AT(openat64)
OPEN(open)
OPEN(open64)

int close(int fd)
{
    remember(fd, "");
    return (int)syscall(SYS_close, fd);
}

int dup(int fd)
{
    const int copy = (int)syscall(SYS_dup, fd);
    remember(copy, path_of_fd(fd));
    return copy;
}

ssize_t write(int fd, const void *bytes, size_t n_bytes)
{
    struct call call = {"write", path_of_fd(fd), true, false};
    return RUN(&call, syscall(SYS_write, fd, bytes, part(&call, n_bytes)));
}

static ssize_t write_at(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    struct call call = {"pwrite", path_of_fd(fd), true, false};
    const bool is_flipped = state.flipped != NULL && offset <= state.flip_at &&
                            state.flip_at < offset + (off_t)n_bytes &&
                            strstr(call.path, state.flipped) != NULL;
    const long n = RUN(&call, syscall(SYS_pwrite64, fd, bytes, part(&call, n_bytes), offset));
    if (is_flipped && n > state.flip_at - offset) {
        const char other = (char)(((const char *)bytes)[state.flip_at - offset] ^ 0x10);
        syscall(SYS_pwrite64, fd, &other, (size_t)1, state.flip_at);
    }
    return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    return write_at(fd, bytes, n_bytes, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n_bytes, off64_t offset)
{
    return write_at(fd, bytes, n_bytes, offset);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t n_bytes,
                        unsigned flags)
{
    struct call call = {"copy", path_of_fd(to), true, false};
    return RUN(&call,
               syscall(SYS_copy_file_range, from, from_at, to, to_at, part(&call, n_bytes), flags));
}

static int truncate_fd(int fd, off_t n_bytes)
{
    struct call call = {"truncate", path_of_fd(fd), false, false};
    return (int)RUN(&call, syscall(SYS_ftruncate, fd, n_bytes));
}

int ftruncate(int fd, off_t n_bytes)
{
    return truncate_fd(fd, n_bytes);
}

int ftruncate64(int fd, off64_t n_bytes)
{
    return truncate_fd(fd, n_bytes);
}

static int allocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    struct call call = {"allocate", path_of_fd(fd), true, false};
    return (int)RUN(&call, syscall(SYS_fallocate, fd, mode, offset, n_bytes));
}

int fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    return allocate(fd, mode, offset, n_bytes);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t n_bytes)
{
    return allocate(fd, mode, offset, n_bytes);
}

static int sync_fd(const char *name, long number, int fd)
{
    struct call call = {name, path_of_fd(fd), false, false};
    const bool is_lie = state.mode == UNSYNCED && call.path[0] != '\0';
    return (int)RUN(&call, is_lie ? 0 : syscall(number, fd));
}

int fsync(int fd)
{
    return sync_fd("fsync", SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_fd("fdatasync", SYS_fdatasync, fd);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    char path[N_PATH];
    resolve(to_fd, to, path);
    struct call call = {"rename", path, false, false};
    return (int)RUN(&call, syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return renameat2(from_fd, from, to_fd, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    char path[N_PATH];
    resolve(to_fd, to, path);
    struct call call = {"link", path, true, false};
    return (int)RUN(&call, syscall(SYS_linkat, from_fd, from, to_fd, to, flags));
}

int unlinkat(int at_fd, const char *name, int flags)
{
    char path[N_PATH];
    resolve(at_fd, name, path);
    struct call call = {"unlink", path, false, false};
    return (int)RUN(&call, syscall(SYS_unlinkat, at_fd, name, flags));
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int mkdirat(int at_fd, const char *name, mode_t mode)
{
    char path[N_PATH];
    resolve(at_fd, name, path);
    struct call call = {"mkdir", path, true, false};
    return (int)RUN(&call, syscall(SYS_mkdirat, at_fd, name, mode));
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

/* ---- replies of a driver of FUSE ---- */

static bool lists_name(const struct iovec *pieces, int n_pieces)
{
    static const char *name;
    name = name != NULL ? name : getenv("INJECT_REPLY");
    for (int i = 0; name != NULL && i < n_pieces; i++) {
        if (pieces[i].iov_len > 256 &&
            memmem(pieces[i].iov_base, pieces[i].iov_len, name, strlen(name)))
            return true;
    }
    return false;
}

/* The kernel is told of an error in its place, so that nobody waits for ever. */
ssize_t writev(int fd, const struct iovec *pieces, int n_pieces)
{
    static atomic_bool is_lost;
    if (!lists_name(pieces, n_pieces) || atomic_exchange(&is_lost, true))
        return syscall(SYS_writev, fd, pieces, n_pieces);
    uint32_t header[4] = {sizeof(header), (uint32_t)-EIO};
    memcpy(header + 2, (const char *)pieces[0].iov_base + 8, 8); /* the number of the request */
    syscall(SYS_write, fd, header, sizeof(header));
    errno = ENOENT;
    return -1;
}
