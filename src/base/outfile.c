/* SPDX-License-Identifier: MIT */
/*
 * The output file that is complete or not there. All names are taken relative to the directory that
 * was opened at the start, so a directory that is renamed meanwhile takes its output along.
 */
#include "base/outfile.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/output.h"

enum {
    N_NAME = WFS_OUTPUT_NAME_MAX,
    N_BUFFER = 1 << 20,
    N_PENDING = 1 << 18, /* bytes that wait to be written at once */
    N_SMALL = 1 << 14,   /* ranges up to that go through memory: a call each is dearer */
    N_MADE = 4 << 20,    /* bytes that were made and are written at once */
    N_RANGE = 16 << 20,  /* bytes that the kernel copies at once: that cannot be interrupted */
};

struct outfile {
    struct wfs_save_options options;
    int dir_fd, fd;
    char name[N_NAME];      /* of the target in the directory */
    char temporary[N_NAME]; /* beside it */
    char *path;             /* of the temporary */
    uint64_t offset;        /* the last n_pending bytes before it are not written yet */
    char *pending;          /* malloc'ed, N_PENDING bytes */
    size_t n_pending;
    struct writeback writeback;
    int error;
    bool cannot_read;           /* a source: that is the error */
    bool is_there;              /* the temporary */
    struct wfs_identity parked; /* of it, where it is closed */
    bool has_own_directory;
    bool is_published;
    bool is_link;   /* of a source: nothing of it may be changed */
    bool can_copy;  /* copy_file_range has not refused yet */
    bool can_share; /* ranges that lie alike in their blocks need no space */
    struct stat replaced;
    bool is_replacing;
    char *buffer; /* malloc'ed, N_BUFFER bytes: what was last read of a source */
    uint64_t read_id, read_offset, n_read; /* source, place; 0 bytes: nothing that is of use */
    struct written written;
    struct wfs_rooms rooms; /* for what is made */
};

static int check_target(struct outfile *outfile, struct wfs_error *err)
{
    const int code = output_check_place(outfile->dir_fd, outfile->name, &outfile->options,
                                        &outfile->replaced, err);
    outfile->is_replacing = code > 0;
    return code < 0 ? code : 0;
}

/* In memory that takes as long as writing does, which has to wait for it. */
static int reserve(struct outfile *outfile, uint64_t n_bytes, struct wfs_error *err)
{
    struct statfs fs;
    if (n_bytes == 0 || outfile->can_share)
        return 0;
    const bool is_memory = fstatfs(outfile->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    const int code = is_memory ? output_check_room(outfile->fd, n_bytes, NULL)
                     : fallocate(outfile->fd, 0, 0, (off_t)n_bytes) == 0 ? 0
                                                                         : -errno;
    if (code == -EOPNOTSUPP || code == -EINTR)
        return output_check_room(outfile->fd, n_bytes, err);
    return code == 0 ? 0
                     : wfs_fail(err, -code, "cannot reserve %s for the output: %s",
                                wfs_count(n_bytes, "byte").text, strerror(-code));
}

static int set_names(struct outfile *outfile, const char *directory, const char *name,
                     struct wfs_error *err)
{
    if (strlen(name) >= sizeof(outfile->name))
        return wfs_fail(err, ENAMETOOLONG, "the name of the output is too long");
    strcpy(outfile->name, name);
    wfs_output_temporary(name, outfile->temporary);
    if (asprintf(&outfile->path, "%s/%s", directory, outfile->temporary) < 0) {
        outfile->path = NULL;
        return wfs_fail_memory(err);
    }
    return 0;
}

static int open_directory(struct outfile *outfile, const char *path, struct wfs_error *err)
{
    autofree char *for_dir = strdup(path);
    autofree char *for_name = strdup(path);
    if (for_dir == NULL || for_name == NULL)
        return wfs_fail_memory(err);
    const char *dir = dirname(for_dir);
    const int code = set_names(outfile, dir, basename(for_name), err);
    if (code < 0)
        return code;
    outfile->has_own_directory = true;
    outfile->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (outfile->dir_fd < 0)
        return output_fail_directory(path, errno, err);
    return 0;
}

static void set_mode(const struct outfile *outfile, uint32_t mode)
{
    const struct wfs_save_options *options = &outfile->options;
    if (options->set_mode != NULL)
        (void)options->set_mode(options->ctx, outfile->name, mode);
    else if (fchmod(outfile->fd, mode) < 0)
        errno = 0;
}

/*
 * Opens it to others as far as that is granted; the group of a new file is known once it exists,
 * because the directory may decide it. Where modes cannot be set the file stays as it was made.
 */
static void set_new_mode(const struct outfile *outfile)
{
    const struct wfs_save_options *options = &outfile->options;
    struct stat st;
    if (fstat(outfile->fd, &st) < 0)
        return;
    const uint32_t mode = options->mode & wfs_access_mode(&options->access, st.st_gid) & 0777;
    set_mode(outfile, mode | S_IRUSR);
}

static int create(struct outfile *outfile, uint64_t n_bytes, struct wfs_error *err)
{
    int code = wfs_output_remove_temporary(outfile->dir_fd, outfile->temporary, err);
    if (code < 0)
        return code;
    outfile->fd = openat(outfile->dir_fd, outfile->temporary,
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (outfile->fd < 0)
        return wfs_fail(err, errno, "cannot create %s beside the output: %s", outfile->temporary,
                        strerror(errno));
    code = output_lock(outfile->dir_fd, outfile->temporary, outfile->fd, LOCK_EX, err);
    if (code < 0)
        return code;
    outfile->is_there = true;
    set_new_mode(outfile);
    outfile->can_share = io_shares_blocks(outfile->fd);
    return reserve(outfile, n_bytes, err);
}

static struct outfile *alloc_outfile(const struct wfs_save_options *options)
{
    struct outfile *outfile = calloc(1, sizeof(*outfile));
    if (outfile == NULL)
        return NULL;
    outfile->options = *options;
    outfile->dir_fd = outfile->fd = -1;
    outfile->can_copy = true;
    return outfile;
}

/* Once it has its directory; code is what came of that. */
static int start(struct outfile *outfile, int code, uint64_t n_bytes, struct outfile **out,
                 struct wfs_error *err)
{
    if (code == 0)
        code = check_target(outfile, err);
    if (code == 0 && outfile->is_replacing)
        code = output_check_backup(outfile->dir_fd, outfile->name, &outfile->options.backup, err);
    if (code == 0)
        code = create(outfile, n_bytes, err);
    if (code < 0) {
        outfile_free(outfile);
        return code;
    }
    *out = outfile;
    return 0;
}

int outfile_new(const char *path, uint64_t n_bytes, const struct wfs_save_options *options,
                struct outfile **out, struct wfs_error *err)
{
    struct outfile *outfile = alloc_outfile(options);
    if (outfile == NULL)
        return wfs_fail_memory(err);
    return start(outfile, open_directory(outfile, path, err), n_bytes, out, err);
}

int outfile_new_beside(const struct outfile *beside, const char *name, uint64_t n_bytes,
                       struct outfile **out, struct wfs_error *err)
{
    struct outfile *outfile = alloc_outfile(&beside->options);
    autofree char *directory =
        strndup(beside->path, (size_t)(strrchr(beside->path, '/') - beside->path));
    if (outfile == NULL || directory == NULL) {
        outfile_free(outfile);
        return wfs_fail_memory(err);
    }
    outfile->options.replace = WFS_REPLACE_NONE;
    outfile->dir_fd = beside->dir_fd;
    return start(outfile, set_names(outfile, directory, name, err), n_bytes, out, err);
}

/* Returns whether the temporary still is what has its name. Some filesystems give a closed file
 * another inode number, or keep only the seconds of its time. */
static bool has_name(const struct outfile *outfile)
{
    enum { NS = 1000000000 };
    const struct wfs_identity *parked = &outfile->parked;
    struct stat st;
    if (outfile->fd >= 0)
        return output_has_name(outfile->dir_fd, outfile->temporary, outfile->fd);
    if (fstatat(outfile->dir_fd, outfile->temporary, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return parked->n_bytes == (uint64_t)st.st_size && parked->mtime_ns / NS == st.st_mtim.tv_sec;
}

static void give_up(struct outfile *outfile)
{
    const struct wfs_save_options *options = &outfile->options;
    if (!has_name(outfile))
        return;
    if (outfile->fd < 0)
        outfile->fd =
            openat(outfile->dir_fd, outfile->temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    unlinkat(outfile->dir_fd, outfile->temporary, 0);
    if (options->abandon == NULL || outfile->fd < 0 || !io_frees_much(outfile->fd))
        return;
    options->abandon(options->ctx, outfile->fd);
    outfile->fd = -1;
}

static void let_go(struct outfile *outfile)
{
    if (outfile->fd >= 0)
        close(outfile->fd);
    outfile->fd = -1;
    free(outfile->buffer);
    free(outfile->pending);
    outfile->buffer = outfile->pending = NULL;
    written_done(&outfile->written);
    wfs_rooms_done(&outfile->rooms);
    outfile->n_pending = 0;
    outfile->n_read = 0;
}

void outfile_free(struct outfile *outfile)
{
    if (outfile == NULL)
        return;
    const int saved = errno;
    if (outfile->is_there && !outfile->is_published)
        give_up(outfile);
    let_go(outfile);
    if (outfile->has_own_directory && outfile->dir_fd >= 0)
        close(outfile->dir_fd);
    free(outfile->path);
    free(outfile);
    errno = saved;
}

int outfile_identity(const struct outfile *outfile, struct wfs_identity *ret)
{
    struct stat st;
    if (fstat(outfile->fd, &st) < 0)
        return -errno;
    *ret = wfs_identity_of(&st);
    return 0;
}

/* A server may note only at the close when the file was written. */
void outfile_park(struct outfile *outfile)
{
    struct stat st;
    const bool is_own = has_name(outfile);
    let_go(outfile);
    if (is_own && fstatat(outfile->dir_fd, outfile->temporary, &st, AT_SYMLINK_NOFOLLOW) == 0)
        outfile->parked = wfs_identity_of(&st);
}

int outfile_directory(const struct outfile *outfile)
{
    return outfile->dir_fd;
}

const char *outfile_name(const struct outfile *outfile)
{
    return outfile->name;
}

const char *outfile_path(const struct outfile *outfile)
{
    return outfile->path;
}

uint64_t outfile_offset(const struct outfile *outfile)
{
    return outfile->offset;
}

static int write_at(struct outfile *outfile, const char *at, size_t n_bytes, uint64_t offset)
{
    size_t n;
    if (outfile->error == 0)
        outfile->error = io_write_at(outfile->fd, at, n_bytes, offset, &n);
    return outfile->error;
}

static int advance(struct outfile *outfile, uint64_t n_bytes)
{
    outfile->offset += n_bytes;
    return outfile->error = writeback_advance(&outfile->writeback, outfile->fd,
                                              outfile->offset - outfile->n_pending);
}

static int flush(struct outfile *outfile)
{
    const size_t n = outfile->n_pending;
    outfile->n_pending = 0;
    return write_at(outfile, outfile->pending, n, outfile->offset - n);
}

int outfile_write(struct outfile *outfile, const void *bytes, size_t n_bytes)
{
    if (outfile->n_pending + n_bytes > N_PENDING && flush(outfile) < 0)
        return outfile->error;
    if (outfile->pending == NULL && (outfile->pending = malloc(N_PENDING)) == NULL)
        outfile->error = -ENOMEM;
    if (outfile->error != 0 || n_bytes == 0)
        return outfile->error;
    if (n_bytes >= N_PENDING) {
        if (write_at(outfile, bytes, n_bytes, outfile->offset) < 0)
            return outfile->error;
    } else {
        memcpy(outfile->pending + outfile->n_pending, bytes, n_bytes);
        outfile->n_pending += n_bytes;
    }
    if (written_add(&outfile->written, outfile->offset, bytes, n_bytes) < 0)
        return outfile->error = -ENOMEM;
    return advance(outfile, n_bytes);
}

int outfile_pad(struct outfile *outfile, uint64_t to_offset)
{
    static const char zeros[4096];
    while (outfile->error == 0 && outfile->offset < to_offset) {
        const uint64_t n = to_offset - outfile->offset;
        outfile_write(outfile, zeros, n < sizeof(zeros) ? (size_t)n : sizeof(zeros));
    }
    return outfile->error;
}

struct making {
    const struct wfs_io *io;
    const struct outfile *outfile;
    struct written_range *parts;
    int (*make)(void *ctx, size_t i, char *bytes);
    void *ctx;
    /* The kernel lets one thread write to a file at a time; others spin there, and sleep here. */
    pthread_mutex_t writing;
};

static void make_part(void *ctx, size_t i, void *bytes)
{
    struct making *making = ctx;
    struct written_range *part = &making->parts[i];
    part->code = making->make(making->ctx, i, bytes);
    if (part->code < 0)
        return;
    part->digest = hash_bytes(bytes, (size_t)part->n_bytes, 0);
    pthread_mutex_lock(&making->writing);
    for (uint64_t at = 0; at < part->n_bytes && part->code == 0;) {
        const uint64_t n_left = part->n_bytes - at;
        size_t n = n_left < N_MADE ? (size_t)n_left : N_MADE;
        part->code = wfs_io_check(making->io);
        if (part->code == 0)
            part->code = io_write_at(making->outfile->fd, (const char *)bytes + at, n,
                                     part->offset + at, &n);
        at += n;
    }
    pthread_mutex_unlock(&making->writing);
}

int outfile_make(const struct wfs_io *io, struct outfile *outfile, struct written_range *parts,
                 size_t n, int (*make)(void *ctx, size_t i, char *bytes), void *ctx)
{
    struct making making = {io, outfile, parts, make, ctx, PTHREAD_MUTEX_INITIALIZER};
    uint64_t n_largest = 0;
    for (size_t i = 0; i < n; i++)
        n_largest = parts[i].n_bytes > n_largest ? parts[i].n_bytes : n_largest;
    if (outfile->error != 0 || flush(outfile) < 0)
        return outfile->error;
    outfile->error = wfs_rooms_share(&outfile->rooms, io, n, (size_t)n_largest, make_part, &making);
    for (size_t i = 0; i < n && outfile->error == 0; i++) {
        outfile->error = parts[i].code;
        outfile->offset += outfile->error == 0 ? parts[i].n_bytes : 0;
    }
    if (outfile->error == 0 && written_add_ranges(&outfile->written, parts, n) < 0)
        outfile->error = -ENOMEM;
    return outfile->error == 0 ? advance(outfile, 0) : outfile->error;
}

static int fail_read(struct outfile *outfile, int code)
{
    outfile->cannot_read = true;
    return outfile->error = code;
}

bool outfile_cannot_read(const struct outfile *outfile)
{
    return outfile->cannot_read;
}

static int read_piece(const struct wfs_io *io, struct outfile *outfile, const struct source *source,
                      uint64_t offset, size_t n_bytes)
{
    if (outfile->buffer == NULL)
        outfile->buffer = malloc(N_BUFFER);
    if (outfile->buffer == NULL)
        return outfile->error = -ENOMEM;
    outfile->n_read = 0;
    const int code = source_read_for(io, source, offset, outfile->buffer, n_bytes);
    if (code < 0)
        return fail_read(outfile, code);
    outfile->read_id = source->id;
    outfile->read_offset = offset;
    outfile->n_read = n_bytes;
    return 0;
}

/* One piece through memory: for what the kernel cannot copy. */
static int copy_by_hand(const struct wfs_io *io, struct outfile *outfile,
                        const struct source *source, uint64_t offset, uint64_t n_bytes,
                        uint64_t *ret_n)
{
    const size_t n = n_bytes < N_BUFFER ? (size_t)n_bytes : N_BUFFER;
    if (read_piece(io, outfile, source, offset, n) < 0)
        return outfile->error;
    *ret_n = n;
    return outfile_write(outfile, outfile->buffer, n);
}

/* Small ranges of a file lie close to each other more often than not: what follows one is read with
 * it. Other sources can be read in pieces of their own only. */
static int copy_small(struct outfile *outfile, const struct source *source, uint64_t offset,
                      size_t n_bytes, uint64_t *ret_n)
{
    const bool is_there = outfile->n_read > 0 && outfile->read_id == source->id &&
                          offset >= outfile->read_offset && n_bytes <= outfile->n_read &&
                          offset - outfile->read_offset <= outfile->n_read - n_bytes;
    if (!is_there) {
        const bool has_more = offset < source->n_bytes && source->n_bytes - offset > n_bytes;
        const uint64_t n_left = has_more ? source->n_bytes - offset : n_bytes;
        if (read_piece(NULL, outfile, source, offset, n_left < N_SMALL ? (size_t)n_left : N_SMALL) <
            0)
            return outfile->error;
    }
    *ret_n = n_bytes;
    return outfile_write(outfile, outfile->buffer + (offset - outfile->read_offset), n_bytes);
}

/* How much to ask for: whole blocks apart from the rest, where they can be shared. */
static size_t n_at_once(const struct outfile *outfile, uint64_t offset, uint64_t n_bytes)
{
    enum { N_WORTH = 16 * IO_BLOCK };
    const size_t n = n_bytes < N_RANGE ? (size_t)n_bytes : N_RANGE;
    const size_t n_before = (size_t)(-offset % IO_BLOCK);
    if (!outfile->can_share || (offset - outfile->offset) % IO_BLOCK != 0 || n < N_WORTH)
        return n;
    return n_before > 0 ? n_before : n - n % IO_BLOCK;
}

int outfile_copy(const struct wfs_io *io, struct outfile *outfile, const struct source *source,
                 uint64_t offset, uint64_t n_bytes, uint64_t *ret_n)
{
    if (outfile->error != 0)
        return outfile->error;
    source = source_find(source, &offset, &n_bytes, N_SMALL + 1);
    if (source->fd >= 0 && n_bytes <= N_SMALL)
        return copy_small(outfile, source, offset, (size_t)n_bytes, ret_n);
    if (source->fd < 0 || !outfile->can_copy)
        return copy_by_hand(io, outfile, source, offset, n_bytes, ret_n);
    if (flush(outfile) < 0)
        return outfile->error;
    off_t from = (off_t)offset, to = (off_t)outfile->offset;
    const ssize_t n = copy_file_range(source->fd, &from, outfile->fd, &to,
                                      n_at_once(outfile, offset, n_bytes), 0);
    if (n < 0) {
        /* Another filesystem, or one that cannot: the same bytes by hand. */
        if (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
            outfile->can_copy = false;
            return copy_by_hand(io, outfile, source, offset, n_bytes, ret_n);
        }
        if (errno == EINTR)
            return *ret_n = 0, 0;
        return errno == EIO ? fail_read(outfile, -EIO) : (outfile->error = -errno);
    }
    if (n == 0 || source_check(source) < 0)
        return fail_read(outfile, -EIO);
    *ret_n = (uint64_t)n;
    return advance(outfile, *ret_n);
}

/* The temporary becomes another name of the source's file. */
static int link_source(struct outfile *outfile, const struct source *source)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", source->fd);
    if (unlinkat(outfile->dir_fd, outfile->temporary, 0) < 0)
        return -errno;
    outfile->is_there = false;
    if (linkat(AT_FDCWD, path, outfile->dir_fd, outfile->temporary, AT_SYMLINK_FOLLOW) < 0) {
        let_go(outfile);
        const int code = create(outfile, 0, NULL);
        return code < 0 ? code : -EOPNOTSUPP;
    }
    outfile->is_there = true;
    outfile->is_link = true;
    let_go(outfile);
    outfile->parked = source->identity;
    outfile->fd = openat(outfile->dir_fd, outfile->temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return outfile->fd < 0 ? -errno : 0;
}

int outfile_take(struct outfile *outfile, const struct source *source)
{
    if (source->fd < 0)
        return -EOPNOTSUPP;
    const int code =
        ioctl(outfile->fd, FICLONE, source->fd) == 0 ? 0 : link_source(outfile, source);
    if (code == 0)
        outfile->offset = source->n_bytes;
    return code;
}

/*
 * Owner and group first: changing them clears set-id bits. Where that is not permitted the file is
 * the user's, and bits for the old group say nothing about the new one.
 */
static void keep_owner_and_mode(const struct outfile *outfile)
{
    const struct stat *old = &outfile->replaced;
    const struct wfs_save_options *options = &outfile->options;
    const struct wfs_access kept = {
        .is_known = true, .mode = old->st_mode & 0777, .group = old->st_gid};
    struct stat st;
    if (options->set_owner != NULL)
        (void)options->set_owner(options->ctx, outfile->name);
    else if (fchown(outfile->fd, old->st_uid, old->st_gid) < 0 &&
             fchown(outfile->fd, (uid_t)-1, old->st_gid) < 0)
        errno = 0;
    if (fstat(outfile->fd, &st) < 0)
        return;
    uint32_t mode = wfs_access_mode(&kept, st.st_gid);
    if (options->narrows_replaced)
        mode &= wfs_access_mode(&options->access, st.st_gid);
    set_mode(outfile, mode);
}

/* An exclusive lock on SMB lets nobody else read, not even another descriptor of this program, and
 * only goes with all locks. */
static int let_others_read(const struct outfile *outfile, struct wfs_error *err)
{
    flock(outfile->fd, LOCK_UN);
    return output_lock(outfile->dir_fd, outfile->temporary, outfile->fd, LOCK_SH, err);
}

int outfile_sync(struct outfile *outfile, struct wfs_error *err)
{
    if (outfile->error != 0 || flush(outfile) < 0)
        return wfs_fail(err, -outfile->error, "cannot write the output: %s",
                        strerror(-outfile->error));
    if (!outfile->is_link && ftruncate(outfile->fd, (off_t)outfile->offset) < 0)
        return wfs_fail(err, errno, "cannot set the length of the output: %s", strerror(errno));
    if (outfile->is_replacing)
        keep_owner_and_mode(outfile);
    if (fsync(outfile->fd) < 0)
        return wfs_fail(err, errno, "cannot sync the output: %s", strerror(errno));
    return outfile->is_link ? 0 : let_others_read(outfile, err);
}

int outfile_check(struct outfile *outfile, const struct wfs_save_options *options,
                  struct wfs_error *err)
{
    struct written_range range;
    size_t next = 0;
    int code;
    const struct wfs_io io = {.team = options->team};
    while ((code = written_check(&io, &outfile->written, outfile->fd, &next, &range)) == 1) {
        const int given_up =
            options->progress == NULL
                ? 0
                : options->progress(options->ctx, outfile->offset, outfile->offset);
        if (given_up != 0)
            return wfs_fail(err, -given_up, "interrupted while the output was read back");
    }
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code == -EILSEQ)
        return wfs_fail(err, EIO,
                        "the output was damaged while it was written: it has other bytes than "
                        "expected between offsets %" PRIu64 " and %" PRIu64,
                        range.offset, range.offset + range.n_bytes);
    return code < 0 ? wfs_fail(err, EIO, "cannot read the output back: %s", strerror(-code)) : 0;
}

static int rename_into_place(const struct outfile *outfile)
{
    const unsigned flags = outfile->is_replacing ? 0 : RENAME_NOREPLACE;
    int status =
        renameat2(outfile->dir_fd, outfile->temporary, outfile->dir_fd, outfile->name, flags);
    if (status < 0 && flags != 0 && (errno == EINVAL || errno == ENOSYS))
        status = renameat(outfile->dir_fd, outfile->temporary, outfile->dir_fd, outfile->name);
    return status < 0 ? -errno : 0;
}

int outfile_rename(struct outfile *outfile, struct wfs_error *err)
{
    char backup[N_NAME] = "";
    int code = check_target(outfile, err);
    if (code == 0 && outfile->is_replacing)
        code = output_keep_backup(outfile->dir_fd, outfile->name, &outfile->options.backup, backup,
                                  err);
    if (code == 0 && !has_name(outfile))
        code = wfs_fail(err, EBUSY, "another program has replaced %s", outfile->temporary);
    if (code == 0 && (code = rename_into_place(outfile)) < 0)
        wfs_fail(err, -code, "cannot rename the output into place: %s", strerror(-code));
    outfile->is_published = code == 0;
    output_settle_backup(outfile->dir_fd, outfile->name, backup, outfile->is_published);
    return code;
}

int outfile_publish(struct outfile *outfile, struct wfs_save_report *report, struct wfs_error *err)
{
    struct wfs_identity identity;
    report->step = "rename";
    int code = outfile_identity(outfile, &identity);
    if (code < 0)
        return wfs_fail(err, -code, "cannot inspect the output: %s", strerror(-code));
    code = outfile_rename(outfile, err);
    if (code < 0)
        return code;
    report->published = identity;
    report->step = "sync directory";
    if (io_sync_directory(outfile->dir_fd) < 0)
        return wfs_fail(err, errno, "published, but its directory cannot be synced: %s",
                        strerror(errno));
    report->is_durable = true;
    report->step = "done";
    return 0;
}

int wfs_output_write(const char *path, const void *bytes, uint64_t n_bytes,
                     const struct wfs_save_options *options, struct wfs_error *err)
{
    struct outfile *outfile = NULL;
    struct wfs_save_report report = {0};
    int code = outfile_new(path, n_bytes, options, &outfile, err);
    if (code < 0)
        return code;
    code = outfile_write(outfile, bytes, n_bytes);
    if (code < 0)
        wfs_fail(err, -code, "cannot write the output: %s", strerror(-code));
    if (code == 0)
        code = outfile_sync(outfile, err);
    if (code == 0)
        code = outfile_publish(outfile, &report, err);
    outfile_free(outfile);
    return code;
}
