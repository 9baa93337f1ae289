/* SPDX-License-Identifier: MIT */
/*
 * Everything is reached from descriptors that were opened at the start; no link is followed.
 */
#include "tree/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tree/handles.h"

struct stage {
    char *name; /* in the parent directory */
    char *base_text;
    int parent_fd, fd, data_fd;
    bool has_base, has_new_names;
    uint64_t n_made;
    struct handles handles;
};

/* ---- making and removing ---- */

/* The process that holds the lock on the directory, 0: not known. */
static long lock_holder(const struct stat *st)
{
    char line[256];
    long holder = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return 0;
    while (holder == 0 && fgets(line, sizeof(line), locks) != NULL) {
        long pid;
        unsigned major_number, minor_number;
        uint64_t inode;
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%" SCNu64, &pid, &major_number,
                   &minor_number, &inode) == 4 &&
            inode == st->st_ino && makedev(major_number, minor_number) == st->st_dev)
            holder = pid;
    }
    fclose(locks);
    return holder;
}

static int open_directory(int at_fd, const char *name, struct stat *ret_st)
{
    autoclose int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_st) < 0)
        return errno == ELOOP || errno == ENOTDIR ? -EPERM : -errno;
    if (ret_st->st_uid != geteuid() || (ret_st->st_mode & 077) != 0)
        return -EPERM;
    return steal_fd(&fd);
}

static int fail_open(int code, const char *path, struct wfs_error *err)
{
    if (code == -EPERM)
        return wfs_fail(err, EPERM,
                        "staging directory '%s' is not a directory of your own that is closed to "
                        "others (mode 0700)",
                        wfs_quote(path).text);
    return wfs_fail(err, -code, "cannot make staging directory '%s': %s", wfs_quote(path).text,
                    strerror(-code));
}

/* Opens and locks it. -EAGAIN: it was removed by its last holder in between. */
static int lock_directory(struct stage *stage, const char *path, struct wfs_error *err)
{
    struct stat st;
    if (mkdirat(stage->parent_fd, stage->name, 0700) < 0 && errno != EEXIST)
        return fail_open(-errno, path, err);
    autoclose int fd = open_directory(stage->parent_fd, stage->name, &st);
    if (fd == -ENOENT)
        return -EAGAIN;
    if (fd < 0)
        return fail_open(fd, path, err);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const long holder = errno == EWOULDBLOCK ? lock_holder(&st) : 0;
        if (holder > 0)
            return wfs_fail(err, EBUSY, "staging directory '%s' is in use by process %ld",
                            wfs_quote(path).text, holder);
        return wfs_fail(err, EBUSY, "staging directory '%s' is in use by another process",
                        wfs_quote(path).text);
    }
    if (fstat(fd, &st) < 0 || st.st_nlink == 0)
        return -EAGAIN;
    stage->fd = steal_fd(&fd);
    return 0;
}

/* Calls unlink on each file of data/, or only says whether there is one. */
static bool walk_data(const struct stage *stage, bool is_removal)
{
    const int fd = openat(stage->data_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool has_any = false;
    const struct dirent *found;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return true;
    }
    while ((found = readdir(dir)) != NULL) {
        const bool is_ours = found->d_name[strspn(found->d_name, "0123456789")] == '\0';
        has_any |= is_ours;
        if (is_removal && is_ours)
            unlinkat(stage->data_fd, found->d_name, 0);
    }
    closedir(dir);
    return has_any;
}

static int open_data(struct stage *stage, const char *path, struct wfs_error *err)
{
    struct stat st;
    if (mkdirat(stage->fd, "data", 0700) < 0 && errno != EEXIST)
        return fail_open(-errno, path, err);
    const int fd = open_directory(stage->fd, "data", &st);
    if (fd < 0)
        return fail_open(fd, path, err);
    stage->data_fd = stage->handles.dir_fd = fd;
    if (walk_data(stage, false))
        return wfs_fail(err, ENOTEMPTY,
                        "staging directory '%s' holds edits that an earlier mount left; take what "
                        "you need from its data/ and remove it",
                        wfs_quote(path).text);
    return 0;
}

static int open_parent(struct stage *stage, const char *path, struct wfs_error *err)
{
    autofree char *copy = strdup(path);
    if (copy == NULL)
        return wfs_fail_memory(err);
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    char *slash = strrchr(copy, '/');
    stage->name = strdup(slash == NULL ? copy : slash + 1);
    if (stage->name == NULL)
        return wfs_fail_memory(err);
    if (slash != NULL)
        slash[slash == copy] = '\0';
    stage->parent_fd = open(slash == NULL ? "." : copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return stage->parent_fd < 0 ? fail_open(-errno, path, err) : 0;
}

static void close_all(struct stage *stage)
{
    handles_done(&stage->handles);
    const int fds[] = {stage->data_fd, stage->fd, stage->parent_fd};
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    free(stage->name);
    free(stage->base_text);
    free(stage);
}

int stage_new(const char *path, const char *base_text, struct stage **out, struct wfs_error *err)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL)
        return wfs_fail_memory(err);
    stage->parent_fd = stage->fd = stage->data_fd = -1;
    handles_init(&stage->handles);
    int code = open_parent(stage, path, err);
    if (code == 0 && base_text != NULL && (stage->base_text = strdup(base_text)) == NULL)
        code = wfs_fail_memory(err);
    if (code == 0)
        code = lock_directory(stage, path, err);
    for (int i = 0; code == -EAGAIN && i < 100; i++)
        code = lock_directory(stage, path, err);
    if (code == -EAGAIN)
        code = wfs_fail(err, EBUSY, "staging directory '%s' is made and removed by others",
                        wfs_quote(path).text);
    if (code == 0)
        code = open_data(stage, path, err);
    if (code < 0) {
        close_all(stage);
        return code;
    }
    *out = stage;
    return 0;
}

void stage_free(struct stage *stage, bool is_kept)
{
    if (stage == NULL)
        return;
    const int saved = errno;
    if (!is_kept) {
        static const char *const files[] = {"base", "base.tmp", "status.json", "status.json.tmp"};
        walk_data(stage, true);
        unlinkat(stage->fd, "data", AT_REMOVEDIR);
        for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
            unlinkat(stage->fd, files[i], 0);
        unlinkat(stage->parent_fd, stage->name, AT_REMOVEDIR);
    }
    close_all(stage);
    errno = saved;
}

/* ---- content ---- */

int stage_make(struct stage *stage, uint64_t *ret_number)
{
    if (!stage->has_base && stage->base_text != NULL) {
        const int code =
            stage_put_text(stage, "base", stage->base_text, strlen(stage->base_text), true);
        if (code < 0)
            return code;
    }
    stage->has_base = true;
    const uint64_t number = stage->n_made + 1;
    const int fd = openat(stage->data_fd, handles_name(number).text,
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    stage->n_made = number;
    stage->has_new_names = true;
    handles_adopt(&stage->handles, number, fd);
    *ret_number = number;
    return 0;
}

void stage_remove(struct stage *stage, uint64_t number)
{
    const int saved = errno;
    handles_drop(&stage->handles, number);
    unlinkat(stage->data_fd, handles_name(number).text, 0);
    errno = saved;
}

ssize_t stage_read(struct stage *stage, uint64_t number, uint64_t offset, void *buf, size_t n_bytes)
{
    struct handle handle;
    const int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    size_t n_done = 0;
    ssize_t n = 1;
    while (n_done < n_bytes && n != 0) {
        n = pread(handle.fd, (char *)buf + n_done, n_bytes - n_done, (off_t)(offset + n_done));
        if (n < 0 && errno != EINTR)
            break;
        n_done += n > 0 ? (size_t)n : 0;
    }
    const ssize_t result = n < 0 ? -errno : (ssize_t)n_done;
    handles_release(&stage->handles, &handle);
    return result;
}

ssize_t stage_write(struct stage *stage, uint64_t number, uint64_t offset, const void *buf,
                    size_t n_bytes)
{
    struct handle handle;
    const int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    size_t n_done = 0;
    ssize_t n = 0;
    while (n_done < n_bytes) {
        n = pwrite(handle.fd, (const char *)buf + n_done, n_bytes - n_done,
                   (off_t)(offset + n_done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        n_done += (size_t)n;
    }
    const ssize_t result = n_done > 0 || n_bytes == 0 ? (ssize_t)n_done : n < 0 ? -errno : -EIO;
    handles_release(&stage->handles, &handle);
    return result;
}

int stage_resize(struct stage *stage, uint64_t number, uint64_t n_bytes)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    code = ftruncate(handle.fd, (off_t)n_bytes) < 0 ? -errno : 0;
    handles_release(&stage->handles, &handle);
    return code;
}

int stage_allocate(struct stage *stage, uint64_t number, int mode, uint64_t offset,
                   uint64_t n_bytes)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    do
        code = fallocate(handle.fd, mode, (off_t)offset, (off_t)n_bytes) < 0 ? -errno : 0;
    while (code == -EINTR);
    handles_release(&stage->handles, &handle);
    return code;
}

int stage_copy(struct stage *stage, uint64_t number, uint64_t offset, int fd, uint64_t fd_offset,
               uint64_t n_bytes)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    off_t from = (off_t)fd_offset, to = (off_t)offset;
    while (n_bytes > 0 && code == 0) {
        const size_t n_most = n_bytes < (1u << 30) ? (size_t)n_bytes : 1u << 30;
        const ssize_t n = copy_file_range(fd, &from, handle.fd, &to, n_most, 0);
        if (n > 0)
            n_bytes -= (uint64_t)n;
        else if (n == 0)
            code = -EIO; /* the source ends early */
        else if (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EBADF)
            code = -EOPNOTSUPP;
        else if (errno != EINTR)
            code = -errno;
    }
    handles_release(&stage->handles, &handle);
    return code;
}

/* ---- durability, texts ---- */

int stage_sync(struct stage *stage, uint64_t number)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    code = fdatasync(handle.fd) < 0 ? -errno : 0;
    handles_release(&stage->handles, &handle);
    if (code == 0 && stage->has_new_names) {
        if (fsync(stage->data_fd) < 0 || fsync(stage->fd) < 0 || fsync(stage->parent_fd) < 0)
            return -errno;
        stage->has_new_names = false;
    }
    return code;
}

static int write_text(int fd, const char *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        const ssize_t n = write(fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        bytes += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

int stage_put_text(struct stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.tmp", name);
    unlinkat(stage->fd, temporary, 0);
    autoclose int fd =
        openat(stage->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int code = fd < 0 ? -errno : write_text(fd, bytes, n_bytes);
    if (code == 0 && is_synced && fsync(fd) < 0)
        code = -errno;
    if (code == 0 && renameat(stage->fd, temporary, stage->fd, name) < 0)
        code = -errno;
    if (code == 0 && is_synced && fsync(stage->fd) < 0)
        code = -errno;
    if (code < 0 && fd >= 0)
        unlinkat(stage->fd, temporary, 0);
    return code;
}

int stage_statfs(const struct stage *stage, struct statvfs *ret)
{
    return fstatvfs(stage->fd, ret) < 0 ? -errno : 0;
}
