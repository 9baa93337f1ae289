/* SPDX-License-Identifier: MIT */
/*
 * Open inputs, read with pread, watched for change.
 */
#include "base/source.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static uint64_t next_id(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

int source_new(const struct source_kind *kind, const char *path, void *ctx, uint64_t n_bytes,
               struct source **out)
{
    struct {
        struct source source;
        atomic_bool has_changed;
    } *made = ctx == NULL && kind->done != NULL ? NULL : calloc(1, sizeof(*made));
    char *copy = made == NULL ? NULL : strdup(path);
    if (copy == NULL) {
        free(made);
        if (ctx != NULL && kind->done != NULL)
            kind->done(ctx);
        return -ENOMEM;
    }
    made->source = (struct source){.path = copy,
                                   .fd = -1,
                                   .id = next_id(),
                                   .n_bytes = n_bytes,
                                   .has_changed = &made->has_changed,
                                   .kind = kind,
                                   .ctx = ctx};
    *out = &made->source;
    return 0;
}

void source_add_access(const struct source *source, struct wfs_access *access)
{
    static const struct wfs_access private = {.is_known = true, .is_mixed = true, .mode = 0700};
    if (source->fd >= 0)
        wfs_access_add(access, source->fd);
    else if (source->is_private)
        wfs_access_merge(access, &private);
}

static const struct source_kind file_kind;

int source_new_fd(const char *path, int fd, struct source **out, struct wfs_error *err)
{
    autoclose int owned = fd;
    struct stat st;
    if (fstat(owned, &st) < 0)
        return wfs_fail(err, errno, "cannot inspect it: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return wfs_fail(err, EISDIR, "is a directory");
    if (!S_ISREG(st.st_mode))
        return wfs_fail(err, ENXIO, "is not a regular file%s",
                        S_ISFIFO(st.st_mode) ? ": save what the pipe has to one first" : "");
    struct source *source;
    if (source_new(&file_kind, path, NULL, (uint64_t)st.st_size, &source) < 0)
        return wfs_fail_memory(err);
    source->fd = steal_fd(&owned);
    source->identity = wfs_identity_of(&st);
    *out = source;
    return 0;
}

enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

/* A path without symbolic links, made of one with links: all that leads out is -EXDEV. */
struct beneath {
    char path[PATH_MAX]; /* so far, without links */
    char rest[PATH_MAX]; /* that follows it */
};

/* Puts what a link says before the rest. */
static int splice_link(int directory, struct beneath *b, const char *part, size_t n_part)
{
    char link[PATH_MAX], rest[PATH_MAX];
    const ssize_t n = readlinkat(directory, b->path, link, sizeof(link) - 1);
    if (n < 0)
        return -errno;
    link[n] = '\0';
    if (n == 0 || link[0] == '/')
        return -EXDEV;
    const char *behind = part + n_part;
    if (snprintf(rest, sizeof(rest), "%s%s", link, behind) >= (int)sizeof(rest))
        return -ENAMETOOLONG;
    strcpy(b->rest, rest);
    return 0;
}

/* Drops the last part of the path. */
static void go_up(struct beneath *b)
{
    char *slash = strrchr(b->path, '/');
    *(slash == NULL ? b->path : slash) = '\0';
}

/* Takes one part from the rest. 1: there was one. */
static int walk_part(int directory, struct beneath *b)
{
    struct stat st;
    const char *part = b->rest + strspn(b->rest, "/");
    const size_t n = strcspn(part, "/"), n_path = strlen(b->path);
    if (n == 0)
        return 0;
    if (n == 2 && memcmp(part, "..", 2) == 0) {
        if (n_path == 0)
            return -EXDEV;
        go_up(b);
    } else if (n != 1 || *part != '.') {
        if (n_path + 1 + n >= sizeof(b->path))
            return -ENAMETOOLONG;
        snprintf(b->path + n_path, sizeof(b->path) - n_path, "%s%.*s", n_path > 0 ? "/" : "",
                 (int)n, part);
        if (fstatat(directory, b->path, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (S_ISLNK(st.st_mode)) {
            const int code = splice_link(directory, b, part, n);
            go_up(b);
            return code < 0 ? code : 1;
        }
    }
    memmove(b->rest, part + n, strlen(part + n) + 1);
    return 1;
}

/* Opens a path that has no links: one that appears meanwhile is not followed. */
static int open_parts(int directory, char *path)
{
    autoclose int at = -1;
    for (char *part = path;;) {
        const size_t n = strcspn(part, "/");
        const bool is_last = part[n] == '\0';
        part[n] = '\0';
        const int next =
            openat(at < 0 ? directory : at, part,
                   O_NOFOLLOW | (is_last ? OPEN_FLAGS : O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (next < 0 || is_last)
            return next < 0 ? -errno : next;
        if (at >= 0)
            close(at);
        at = next;
        part += n + 1;
    }
}

/* For a system without openat2, and a sandbox, which cannot see what it is asked to do. */
static int open_by_hand(int directory, const char *relative)
{
    enum { MOST_STEPS = 4096 };
    struct beneath b = {0};
    int code =
        snprintf(b.rest, sizeof(b.rest), "%s", relative) < (int)sizeof(b.rest) ? 1 : -ENAMETOOLONG;
    if (relative[0] == '/')
        return -EXDEV;
    for (int i = 0; code == 1; i++)
        code = i < MOST_STEPS ? walk_part(directory, &b) : -ELOOP;
    return code < 0 ? code : b.path[0] == '\0' ? -EISDIR : open_parts(directory, b.path);
}

/* Returns a descriptor, or an error: -EXDEV where it leads out. */
static int open_beneath(int directory, const char *relative)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const int fd = (int)syscall(SYS_openat2, directory, relative, &how, sizeof(how));
    if (fd >= 0)
        return fd;
    return errno == ENOSYS || errno == EPERM ? open_by_hand(directory, relative) : -errno;
}

/*
 * Opens what a link in the directory leads to outside of it: in the folder that the directory is
 * in, where link and file have one owner; or in blobs/, where the directory is below the snapshots/
 * beside that, as in the cache of Hugging Face. -EXDEV: it leads elsewhere.
 */
static int open_outside(int directory, const char *relative)
{
    char link[PATH_MAX];
    struct stat below = {0}, st, of_link;
    autoclose int at = -1;
    int n_up = 0;
    const ssize_t n = readlinkat(directory, relative, link, sizeof(link) - 1);
    if (n < 0 || strchr(relative, '/') != NULL ||
        fstatat(directory, relative, &of_link, AT_SYMLINK_NOFOLLOW) < 0)
        return -EXDEV;
    link[n] = '\0';
    const char *rest = link;
    for (; strncmp(rest, "../", 3) == 0; rest += 3, n_up++) {
        const int from = at < 0 ? directory : at;
        const int up = openat(from, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(from, &below) < 0)
            return up < 0 ? -errno : -EXDEV;
        if (at >= 0)
            close(at);
        at = up;
    }
    const bool is_cached = n_up > 1 && strncmp(rest, "blobs/", 6) == 0 &&
                           fstatat(at, "snapshots", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                           st.st_ino == below.st_ino && st.st_dev == below.st_dev;
    const int fd = is_cached || n_up == 1 ? open_beneath(at, rest) : -EXDEV;
    if (fd < 0 || is_cached || (fstat(fd, &st) == 0 && st.st_uid == of_link.st_uid))
        return fd;
    close(fd);
    return -EXDEV;
}

int source_open_beneath(int directory, const char *relative, const char *shown, struct source **out,
                        struct wfs_error *err)
{
    int fd = open_beneath(directory, relative);
    if (fd == -EXDEV)
        fd = open_outside(directory, relative);
    if (fd < 0)
        return wfs_fail(
            err, -fd, "%s",
            fd == -EXDEV ? "is a symbolic link out of the directory, which is not followed: copy "
                           "the directory with cp -RL"
                         : strerror(-fd));
    return source_new_fd(shown, fd, out, err);
}

/* Returns why a path cannot be opened, where it looks like a URL. */
static const char *explain(const char *path, int code)
{
    const char *url = code == ENOENT ? url_find(path) : NULL;
    if (url == NULL)
        return strerror(code);
    if (strncasecmp(path, "file://", 7) == 0)
        return "name the file without 'file://'";
    if (url > path && path[strspn(path, " \t\n")] == *url)
        return "leave out the blank before the URL";
    if (url > path)
        return "No such file or directory; a URL has nothing before its scheme";
    if (url_is(path))
        return "it is a URL, where a file is needed; download it first";
    return strstr(path, "://") != NULL
               ? "URLs of this kind are not read, only https, http, s3 and hf; download it first"
               : "No such file or directory; a URL has '://' after its scheme";
}

int source_open(const char *path, struct source **out, struct wfs_error *err)
{
    int fd = open(path, OPEN_FLAGS);
    if (fd < 0) {
        const int code = errno;
        int number;
        char rest;
        if (sscanf(path, "/dev/fd/%d%c", &number, &rest) == 1)
            fd = fcntl(number, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
            return wfs_fail(err, code, "cannot open it: %s", explain(path, code));
    }
    return source_new_fd(path, fd, out, err);
}

static int read_memory(const struct source *source, const struct wfs_io *io, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    if (n_bytes > 0)
        memcpy(buf, (const char *)source->ctx + offset, n_bytes);
    return 0;
}

int source_new_memory(const char *name, const void *bytes, size_t n_bytes, struct source **out)
{
    static const struct source_kind kind = {.read = read_memory};
    return source_new(&kind, name, (void *)(uintptr_t)bytes, n_bytes, out);
}

void source_free(struct source *source)
{
    if (source == NULL)
        return;
    const int saved = errno;
    if (source->kind->done != NULL)
        source->kind->done(source->ctx);
    if (source->fd >= 0)
        close(source->fd);
    free(source->path);
    free(source);
    errno = saved;
}

void source_close(struct source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    atomic_store(source->has_changed, true);
}

static atomic_uint_fast64_t n_read; /* bytes, by all threads */

struct sharing {
    struct wfs_rooms *rooms;
    size_t n;
    void (*part)(void *ctx, size_t i, void *room);
    void *ctx;
    atomic_size_t n_taken;
};

/* Takes part after part, as one of several threads. */
static void do_parts(void *ctx, size_t thread)
{
    struct sharing *sharing = ctx;
    void **room = &sharing->rooms->all[thread];
    if (*room == NULL && sharing->n_taken < sharing->n)
        *room = io_alloc(sharing->rooms->n_bytes);
    for (size_t i; *room != NULL && (i = sharing->n_taken++) < sharing->n;)
        sharing->part(sharing->ctx, i, *room);
}

int wfs_rooms_share(struct wfs_rooms *rooms, const struct wfs_io *io, size_t n, size_t n_bytes,
                    void (*part)(void *ctx, size_t i, void *room), void *ctx)
{
    enum { N_BYTES = 64 << 20, N_THREADS = sizeof(rooms->all) / sizeof(*rooms->all) };
    struct sharing sharing = {rooms, n, part, ctx, 0};
    size_t n_threads = N_BYTES / (n_bytes + 1);
    n_threads = n_threads < 2 ? 2 : n_threads < N_THREADS ? n_threads : N_THREADS;
    if (n_bytes > rooms->n_bytes) {
        wfs_rooms_done(rooms);
        rooms->n_bytes = n_bytes;
    }
    wfs_io_share(io, n < n_threads ? n : n_threads, do_parts, &sharing);
    return sharing.n_taken < n ? -ENOMEM : 0;
}

void wfs_rooms_done(struct wfs_rooms *rooms)
{
    for (size_t i = 0; i < sizeof(rooms->all) / sizeof(*rooms->all); i++)
        free(rooms->all[i]);
    *rooms = (struct wfs_rooms){0};
}

uint64_t wfs_n_read(void)
{
    return atomic_load_explicit(&n_read, memory_order_relaxed);
}

static int read_file(const struct source *source, uint64_t offset, void *buf, size_t n_bytes)
{
    const ssize_t n = io_read_at(source->fd, buf, n_bytes, offset);
    if (n > 0)
        atomic_fetch_add_explicit(&n_read, (uint64_t)n, memory_order_relaxed);
    return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
}

int source_read_unchecked(const struct wfs_io *io, const struct source *source, uint64_t offset,
                          void *buf, size_t n_bytes)
{
    if (offset > source->n_bytes || n_bytes > source->n_bytes - offset)
        return -EIO;
    if (source->kind->read != NULL) {
        const int code = source->kind->read(source, io, offset, buf, n_bytes);
        if (code == 0 && source->is_remote)
            atomic_fetch_add_explicit(&n_read, n_bytes, memory_order_relaxed);
        return code;
    }
    return read_file(source, offset, buf, n_bytes);
}

static int compare_pointers(const void *a, const void *b)
{
    const struct source *const *one = a, *const *other = b;
    return (*one > *other) - (*one < *other);
}

uint64_t source_sum(const struct source **sources, size_t n)
{
    uint64_t n_bytes = 0;
    if (n > 0)
        qsort(sources, n, sizeof(*sources), compare_pointers);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || sources[i] != sources[i - 1])
            n_bytes += sources[i]->n_bytes;
    }
    return n_bytes;
}

int source_read_for(const struct wfs_io *io, const struct source *source, uint64_t offset,
                    void *buf, size_t n_bytes)
{
    const int code = source_read_unchecked(io, source, offset, buf, n_bytes);
    return code < 0 ? code : source_check(source);
}

int source_check(const struct source *source)
{
    struct stat st;
    if (atomic_load_explicit(source->has_changed, memory_order_relaxed))
        return -EIO;
    if (source->origin != NULL)
        return source_check(source->origin);
    if (source->fd < 0)
        return 0;
    if (fstat(source->fd, &st) == 0) {
        const struct wfs_identity now = wfs_identity_of(&st);
        if (wfs_identity_is_equal(&now, &source->identity))
            return 0;
    }
    atomic_store(source->has_changed, true);
    return -EIO;
}

const struct source *source_find(const struct source *source, uint64_t *offset, uint64_t *n_bytes,
                                 uint64_t n_least)
{
    uint64_t place = *offset, n = *n_bytes;
    const struct source *file =
        source->kind->find == NULL ? NULL : source->kind->find(source, &place, &n);
    if (file == NULL || n < n_least)
        return source;
    *offset = place;
    *n_bytes = n;
    return file;
}

struct wfs_io source_expect(const struct wfs_io *io, const struct source *source, uint64_t offset,
                            uint64_t n_bytes)
{
    struct wfs_io expecting = io != NULL ? *io : (struct wfs_io){0};
    expecting.source = source->id;
    expecting.offset = offset;
    if (__builtin_add_overflow(offset, n_bytes, &expecting.end))
        expecting.end = UINT64_MAX;
    return expecting;
}

uint64_t source_expected(const struct wfs_io *io, const struct source *source, uint64_t offset)
{
    return io != NULL && io->source == source->id && offset >= io->offset && offset < io->end
               ? io->end
               : 0;
}

int source_check_at(const struct source *source, uint64_t offset)
{
    return source->kind->check != NULL ? source->kind->check(source, offset) : source_check(source);
}

struct wfs_identity wfs_identity_of(const struct stat *st)
{
    return (struct wfs_identity){.device = st->st_dev,
                                 .inode = st->st_ino,
                                 .n_bytes = (uint64_t)st->st_size,
                                 .mtime_ns = mtime_ns(st)};
}

bool wfs_identity_is_equal(const struct wfs_identity *a, const struct wfs_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->n_bytes == b->n_bytes &&
           a->mtime_ns == b->mtime_ns;
}
