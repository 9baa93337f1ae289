/* SPDX-License-Identifier: MIT */
/*
 * A slot holds an open file. The slots are few enough to be searched one by one; one that is in use
 * is never given to another file.
 */
#include "tree/stage/datafiles.h"

#include <weightfs/io.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_NAME = 24 }; /* bytes that are enough for a name */

/* An open file in use: of a slot, or with a descriptor of its own when all slots are in use. */
struct handle {
    struct datafiles_slot *slot; /* NULL: none */
    int fd;
};

static const char *name_file(uint64_t number, char name[static N_NAME])
{
    snprintf(name, N_NAME, "%" PRIu64, number);
    return name;
}

/* ---- open files ---- */

void datafiles_init(struct datafiles *data)
{
    enum { SHARE = 4, SLOTS_MIN = 4 };
    struct rlimit limit;
    *data = (struct datafiles){.dir_fd = -1, .n_slots = DATAFILES_OPEN_MAX};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < DATAFILES_OPEN_MAX)
        data->n_slots =
            limit.rlim_cur / SHARE < SLOTS_MIN ? SLOTS_MIN : (size_t)limit.rlim_cur / SHARE;
    pthread_mutex_init(&data->lock, NULL);
}

/* The slot of the file, else the one to give it: free, or unused for the longest time. */
static struct datafiles_slot *find_slot(struct datafiles *data, uint64_t number)
{
    struct datafiles_slot *best = NULL;
    for (size_t i = 0; i < data->n_slots; i++) {
        struct datafiles_slot *slot = &data->slots[i];
        if (slot->number == number)
            return slot;
        if (slot->n_users == 0 && (best == NULL || slot->used_at < best->used_at))
            best = slot;
    }
    return best;
}

static void fill_slot(struct datafiles *data, struct datafiles_slot *slot, uint64_t number, int fd)
{
    if (slot->number != 0)
        close(slot->fd);
    *slot = (struct datafiles_slot){.number = number, .used_at = ++data->clock, .fd = fd};
}

static int find_or_open(struct datafiles *data, uint64_t number, struct handle *ret)
{
    struct datafiles_slot *slot = find_slot(data, number);
    if (slot == NULL || slot->number != number) {
        char name[N_NAME];
        const int fd = openat(data->dir_fd, name_file(number, name),
                              O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        if (!io_is_plain_file(fd)) {
            close(fd);
            return -EIO;
        }
        *ret = (struct handle){NULL, fd};
        if (slot == NULL)
            return 0;
        fill_slot(data, slot, number, fd);
    }
    slot->used_at = ++data->clock;
    slot->n_users++;
    *ret = (struct handle){slot, slot->fd};
    return 0;
}

static int acquire(struct datafiles *data, uint64_t number, struct handle *ret)
{
    pthread_mutex_lock(&data->lock);
    const int code = find_or_open(data, number, ret);
    pthread_mutex_unlock(&data->lock);
    return code;
}

static void release(struct datafiles *data, const struct handle *handle)
{
    if (handle->slot == NULL) {
        close(handle->fd);
        return;
    }
    pthread_mutex_lock(&data->lock);
    handle->slot->n_users--;
    pthread_mutex_unlock(&data->lock);
}

static void adopt(struct datafiles *data, uint64_t number, int fd)
{
    pthread_mutex_lock(&data->lock);
    struct datafiles_slot *slot = find_slot(data, number);
    if (slot != NULL)
        fill_slot(data, slot, number, fd);
    else
        close(fd);
    pthread_mutex_unlock(&data->lock);
}

/* Returns the descriptor of the file, which has no slot any more, or -1. */
static int take_out(struct datafiles *data, uint64_t number)
{
    int fd = -1;
    pthread_mutex_lock(&data->lock);
    struct datafiles_slot *slot = find_slot(data, number);
    if (slot != NULL && slot->number == number) {
        fd = slot->fd;
        *slot = (struct datafiles_slot){0};
    }
    pthread_mutex_unlock(&data->lock);
    return fd;
}

void datafiles_done(struct datafiles *data)
{
    for (size_t i = 0; i < data->n_slots; i++) {
        if (data->slots[i].number != 0)
            close(data->slots[i].fd);
    }
    if (data->dir_fd >= 0)
        close(data->dir_fd);
    data->dir_fd = -1;
    pthread_mutex_destroy(&data->lock);
}

/* ---- files ---- */

int datafiles_make(struct datafiles *data, uint64_t *ret_number)
{
    char name[N_NAME];
    const uint64_t number = data->n_made + 1;
    const int fd = openat(data->dir_fd, name_file(number, name),
                          O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    data->n_made = number;
    atomic_store(&data->has_new_names, true);
    adopt(data, number, fd);
    *ret_number = number;
    return 0;
}

void datafiles_remove(struct datafiles *data, uint64_t number)
{
    char name[N_NAME];
    const int saved = errno;
    if (data->keeps_all)
        return;
    int fd = take_out(data, number);
    if (fd < 0)
        fd = openat(data->dir_fd, name_file(number, name),
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    unlinkat(data->dir_fd, name_file(number, name), 0);
    if (fd >= 0)
        io_close_removed(fd);
    errno = saved;
}

ssize_t datafiles_read(struct datafiles *data, uint64_t number, uint64_t offset, void *buf,
                       size_t n_bytes)
{
    struct handle handle;
    const int code = acquire(data, number, &handle);
    if (code < 0)
        return code;
    const ssize_t result = io_read_at(handle.fd, buf, n_bytes, offset);
    release(data, &handle);
    return result;
}

ssize_t datafiles_write(struct datafiles *data, uint64_t number, uint64_t offset, const void *buf,
                        size_t n_bytes)
{
    struct handle handle;
    const int code = acquire(data, number, &handle);
    if (code < 0)
        return code;
    size_t n_done;
    const int written = io_write_at(handle.fd, buf, n_bytes, offset, &n_done);
    const ssize_t result = written == 0 || n_done > 0 ? (ssize_t)n_done : written;
    release(data, &handle);
    return result;
}

int datafiles_write_all(struct datafiles *data, uint64_t number, uint64_t offset, const void *buf,
                        size_t n_bytes)
{
    for (size_t n_done = 0; n_done < n_bytes;) {
        const ssize_t n = datafiles_write(data, number, offset + n_done, (const char *)buf + n_done,
                                          n_bytes - n_done);
        if (n < 0)
            return (int)n;
        n_done += (size_t)n;
    }
    return 0;
}

int datafiles_allocate(struct datafiles *data, uint64_t number, int mode, uint64_t offset,
                       uint64_t n_bytes)
{
    struct handle handle;
    int code = acquire(data, number, &handle);
    if (code < 0)
        return code;
    do
        code = fallocate(handle.fd, mode, (off_t)offset, (off_t)n_bytes) < 0 ? -errno : 0;
    while (code == -EINTR);
    release(data, &handle);
    return code;
}

int datafiles_copy(struct datafiles *data, uint64_t number, uint64_t offset, int fd,
                   uint64_t fd_offset, uint64_t n_bytes)
{
    struct handle handle;
    int code = acquire(data, number, &handle);
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
    release(data, &handle);
    return code;
}

/* Gives the name and the slot of the file to a new one. Returns the descriptor of the old one,
 * which no thread uses any more, or -1. */
static int swap(struct datafiles *data, struct datafiles_slot *slot, uint64_t made)
{
    char name[N_NAME], made_name[N_NAME];
    int old = -1;
    const int fd = take_out(data, made);
    pthread_mutex_lock(&data->lock);
    if (fd >= 0 && slot->n_users == 1 &&
        renameat(data->dir_fd, name_file(made, made_name), data->dir_fd,
                 name_file(slot->number, name)) == 0) {
        old = slot->fd;
        slot->fd = fd;
    }
    pthread_mutex_unlock(&data->lock);
    if (old < 0 && fd >= 0)
        close(fd);
    return old;
}

/*
 * Shortens a large file to a small one, in its place, and leaves the freeing of the old one to a
 * thread: filesystems may take seconds for that. False: it is as it was.
 */
static bool replace(struct datafiles *data, const struct handle *handle, uint64_t n_bytes)
{
    enum { N_COPIED = 1 << 20 };
    uint64_t made;
    if (handle->slot == NULL || n_bytes > N_COPIED || !io_has_much(handle->fd) ||
        datafiles_make(data, &made) < 0)
        return false;
    const int copied = datafiles_copy(data, made, 0, handle->fd, 0, n_bytes);
    const int old = copied < 0 ? -1 : swap(data, handle->slot, made);
    if (old >= 0)
        io_close_removed(old);
    else
        datafiles_remove(data, made);
    return old >= 0;
}

int datafiles_resize(struct datafiles *data, uint64_t number, uint64_t n_bytes)
{
    struct handle handle;
    int code = acquire(data, number, &handle);
    if (code < 0)
        return code;
    if (!replace(data, &handle, n_bytes))
        code = ftruncate(handle.fd, (off_t)n_bytes) < 0 ? -errno : 0;
    release(data, &handle);
    return code;
}

int datafiles_sync(struct datafiles *data, uint64_t number)
{
    struct handle handle;
    int code = acquire(data, number, &handle);
    if (code < 0)
        return code;
    code = fdatasync(handle.fd) < 0 ? -errno : 0;
    release(data, &handle);
    return code;
}

int datafiles_stat(const struct datafiles *data, uint64_t number, struct stat *ret)
{
    char name[N_NAME];
    return fstatat(data->dir_fd, name_file(number, name), ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
           : S_ISREG(ret->st_mode) && ret->st_nlink == 1                                ? 0
                                                                                        : -ENOENT;
}

int datafiles_statfs(const struct datafiles *data, struct statvfs *ret)
{
    return fstatvfs(data->dir_fd, ret) < 0 ? -errno : 0;
}

/* ---- what is not needed any more ---- */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* The number that is the name of a file, or 0. */
static uint64_t number_of(const char *name)
{
    char again[N_NAME];
    const uint64_t number = strtoull(name, NULL, 10);
    return strcmp(name_file(number, again), name) == 0 ? number : 0;
}

int datafiles_sweep(struct datafiles *data, const uint64_t *kept, size_t n_kept)
{
    const int fd = openat(data->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *found;
    if (dir == NULL) {
        const int code = -errno;
        if (fd >= 0)
            close(fd);
        return code;
    }
    while ((found = readdir(dir)) != NULL) {
        const uint64_t number = number_of(found->d_name);
        data->n_made = number > data->n_made ? number : data->n_made;
        if (number != 0 &&
            (n_kept == 0 || bsearch(&number, kept, n_kept, sizeof(*kept), compare_numbers) == NULL))
            datafiles_remove(data, number);
    }
    closedir(dir);
    return 0;
}
