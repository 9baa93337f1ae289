/* SPDX-License-Identifier: MIT */
/*
 * The content of edits: files of data/, reached by number.
 */
#include "tree/stage/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int stage_make(struct wfs_stage *stage, uint64_t *ret_number)
{
    const uint64_t number = stage->n_made + 1;
    const int fd = openat(stage->data_fd, handles_name(number).text,
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    stage->n_made = number;
    atomic_store(&stage->has_new_names, true);
    handles_adopt(&stage->handles, number, fd);
    *ret_number = number;
    return 0;
}

void stage_remove(struct wfs_stage *stage, uint64_t number)
{
    const int saved = errno;
    if (!stage->is_replaying) {
        handles_drop(&stage->handles, number);
        unlinkat(stage->data_fd, handles_name(number).text, 0);
    }
    errno = saved;
}

ssize_t stage_read(struct wfs_stage *stage, uint64_t number, uint64_t offset, void *buf,
                   size_t n_bytes)
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

ssize_t stage_write(struct wfs_stage *stage, uint64_t number, uint64_t offset, const void *buf,
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

int stage_resize(struct wfs_stage *stage, uint64_t number, uint64_t n_bytes)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    code = ftruncate(handle.fd, (off_t)n_bytes) < 0 ? -errno : 0;
    handles_release(&stage->handles, &handle);
    return code;
}

int stage_allocate(struct wfs_stage *stage, uint64_t number, int mode, uint64_t offset,
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

int stage_copy(struct wfs_stage *stage, uint64_t number, uint64_t offset, int fd,
               uint64_t fd_offset, uint64_t n_bytes)
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

int stage_sync(struct wfs_stage *stage, uint64_t number)
{
    struct handle handle;
    int code = handles_acquire(&stage->handles, number, &handle);
    if (code < 0)
        return code;
    code = fdatasync(handle.fd) < 0 ? -errno : 0;
    handles_release(&stage->handles, &handle);
    return code;
}

int stage_stat(const struct wfs_stage *stage, uint64_t number, struct stat *ret)
{
    const char *name = handles_name(number).text;
    return fstatat(stage->data_fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
           : S_ISREG(ret->st_mode)                                     ? 0
                                                                       : -ENOENT;
}

int stage_statfs(const struct wfs_stage *stage, struct statvfs *ret)
{
    return fstatvfs(stage->fd, ret) < 0 ? -errno : 0;
}
