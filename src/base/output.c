/* SPDX-License-Identifier: MIT */
/*
 * A backup is a hard link: the file keeps its owner, mode and times, no byte is copied, and there
 * is no moment without a file at the place of the output.
 */
#include "base/output.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

void wfs_output_temporary(const char *path, char name[WFS_OUTPUT_NAME_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(name, WFS_OUTPUT_NAME_MAX, ".%.200s.weightfs.tmp", slash == NULL ? path : slash + 1);
}

void wfs_output_temporary_link(const char *path, char name[WFS_OUTPUT_NAME_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(name, WFS_OUTPUT_NAME_MAX, ".%.200s.weightfs.old", slash == NULL ? path : slash + 1);
}

/* ---- the temporary file ---- */

bool output_has_name(int directory, const char *temporary, int fd)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 &&
           fstatat(directory, temporary, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_ino == named.st_ino;
}

int output_lock(int directory, const char *temporary, int fd, int kind, struct wfs_error *err)
{
    const bool is_free = flock(fd, kind | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    return is_free && output_has_name(directory, temporary, fd)
               ? 0
               : wfs_fail(err, EBUSY, "another program is saving to it, and writes %s", temporary);
}

/* NFS locks what is open for writing only. */
int output_open_temporary(int directory, const char *temporary)
{
    enum { FLAGS = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };
    const int fd = openat(directory, temporary, O_RDWR | FLAGS);
    return fd >= 0 || errno == ENOENT ? fd : openat(directory, temporary, O_RDONLY | FLAGS);
}

/* EROFS comes for a name that does not exist, too: creating it reports that. */
int wfs_output_remove_temporary(int directory, const char *temporary, struct wfs_error *err)
{
    autoclose int fd = output_open_temporary(directory, temporary);
    if (fd < 0 && errno == ENOENT)
        return 0;
    const int code = fd < 0 ? 0 : output_lock(directory, temporary, fd, LOCK_EX, err);
    if (code == 0 && unlinkat(directory, temporary, 0) < 0 && errno != ENOENT && errno != EROFS)
        return wfs_fail(err, errno, "cannot remove the old %s: %s", temporary, strerror(errno));
    return code;
}

/* ---- the file at the place ---- */

/* Checks whether the file may be replaced. */
static int check_replaced(const struct stat *st, const struct wfs_save_options *options,
                          struct wfs_error *err)
{
    if (!S_ISREG(st->st_mode))
        return wfs_fail(err, EEXIST, "the output exists and is not a regular file");
    if (options->replace == WFS_REPLACE_NONE)
        return wfs_fail(err, EEXIST, "the output already exists; move it away to save here");
    const struct wfs_identity found = wfs_identity_of(st);
    if (options->replace == WFS_REPLACE_KNOWN && !wfs_identity_is_equal(&found, &options->known))
        return wfs_fail(err, EBUSY,
                        "the output was changed by another program; move it away to save here");
    return 0;
}

int output_check_place(int directory, const char *name, const struct wfs_save_options *options,
                       struct stat *st, struct wfs_error *err)
{
    if (fstatat(directory, name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : wfs_fail(err, errno, "cannot inspect the output: %s", strerror(errno));
    const int code = check_replaced(st, options, err);
    return code < 0 ? code : 1;
}

int output_check_room(int fd, uint64_t n_bytes, struct wfs_error *err)
{
    struct statvfs vfs;
    if (fstatvfs(fd, &vfs) < 0 || vfs.f_blocks == 0) /* 0: a tmpfs without a limit */
        return 0;
    const uint64_t n_free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (n_free < n_bytes)
        return wfs_fail(err, ENOSPC, "the output needs %s, %llu free",
                        wfs_count(n_bytes, "byte").text, (unsigned long long)n_free);
    return 0;
}

int output_fail_directory(const char *path, int code, struct wfs_error *err)
{
    return wfs_fail(
        err, code, "cannot open the directory of the output: %s%s", strerror(code),
        code == ENOENT && url_find(path) != NULL ? "; an output is a local file, not a URL" : "");
}

int wfs_output_check(const char *path, const struct wfs_save_options *options, uint64_t n_bytes,
                     struct wfs_error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    autofree char *directory =
        slash == NULL ? strdup(".") : strndup(path, (size_t)(slash + 1 - path));
    if (directory == NULL)
        return wfs_fail_memory(err);
    autoclose int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return output_fail_directory(path, errno, err);
    const char *name = slash == NULL ? path : slash + 1;
    int code = output_check_place(fd, name, options, &st, err);
    if (code > 0)
        code = output_check_backup(fd, name, &options->backup, err);
    return code < 0 ? code : io_shares_blocks(fd) ? 0 : output_check_room(fd, n_bytes, err);
}

/* ---- the backup of it ---- */

/* Returns N of "NAME.~N~", 0 for another name. */
static uint64_t number_of(const char *file, const char *name)
{
    enum { N_DIGITS_MAX = 18 };
    const size_t n_name = strlen(name);
    if (strncmp(file, name, n_name) != 0 || strncmp(file + n_name, ".~", 2) != 0)
        return 0;
    const char *digits = file + n_name + 2;
    const size_t n = strspn(digits, "0123456789");
    return n == 0 || n > N_DIGITS_MAX || digits[0] == '0' || strcmp(digits + n, "~") != 0
               ? 0
               : strtoull(digits, NULL, 10);
}

/* Finds the number of the last numbered backup; 0: there is none. */
static int find_last(int directory, const char *name, uint64_t *ret, struct wfs_error *err)
{
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *open = fd < 0 ? NULL : fdopendir(fd);
    if (open == NULL) {
        const int code = errno;
        if (fd >= 0)
            close(fd);
        return wfs_fail(err, code, "cannot look for backups: %s", strerror(code));
    }
    *ret = 0;
    for (const struct dirent *file; (file = readdir(open)) != NULL;) {
        const uint64_t number = number_of(file->d_name, name);
        *ret = number > *ret ? number : *ret;
    }
    closedir(open);
    return 0;
}

/* A name that does not fit is refused: a shorter one may be that of another file. */
static int set_name(char ret[WFS_OUTPUT_NAME_MAX], const char *name, const char *end,
                    struct wfs_error *err)
{
    const int n = snprintf(ret, WFS_OUTPUT_NAME_MAX, "%s%s", name, end);
    return n <= NAME_MAX ? 0
                         : wfs_fail(err, ENAMETOOLONG,
                                    "cannot keep a backup: its name would have %d bytes, and %d "
                                    "are allowed",
                                    n, NAME_MAX);
}

/* Finds the name of the backup; *ret_number is 0 for a simple one. */
static int choose_name(int directory, const char *name, const struct wfs_backup *backup,
                       uint64_t *ret_number, char ret[WFS_OUTPUT_NAME_MAX], struct wfs_error *err)
{
    char end[32];
    *ret_number = 0;
    const int code =
        backup->control == WFS_BACKUP_SIMPLE ? 0 : find_last(directory, name, ret_number, err);
    if (code < 0)
        return code;
    if (backup->control != WFS_BACKUP_NUMBERED && *ret_number == 0)
        return set_name(ret, name, backup->suffix, err);
    snprintf(end, sizeof(end), ".~%" PRIu64 "~", ++*ret_number);
    return set_name(ret, name, end, err);
}

static int fail_link(int code, struct wfs_error *err)
{
    const bool is_refused =
        code == EPERM || code == EOPNOTSUPP || code == ENOSYS || code == EMLINK || code == EXDEV;
    return wfs_fail(err, code,
                    is_refused ? "cannot keep a backup: its filesystem or its owner does not allow "
                                 "a hard link to the old file; copy that, and omit the backup"
                               : "cannot keep a backup: %s",
                    strerror(code));
}

static int link_temporary(int directory, const char *name, char ret[WFS_OUTPUT_NAME_MAX],
                          struct wfs_error *err)
{
    wfs_output_temporary_link(name, ret);
    if ((unlinkat(directory, ret, 0) < 0 && errno != ENOENT) ||
        linkat(directory, name, directory, ret, 0) < 0)
        return fail_link(errno, err);
    return 0;
}

int output_check_backup(int directory, const char *name, const struct wfs_backup *backup,
                        struct wfs_error *err)
{
    char kept[WFS_OUTPUT_NAME_MAX], temporary[WFS_OUTPUT_NAME_MAX];
    struct stat st;
    uint64_t number;
    if (backup->control == WFS_BACKUP_NONE)
        return 0;
    int code = choose_name(directory, name, backup, &number, kept, err);
    if (code == 0 && fstatat(directory, kept, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        code = wfs_fail(err, EISDIR, "cannot keep a backup: '%s' is a directory",
                        wfs_quote(kept).text);
    if (code == 0)
        code = link_temporary(directory, name, temporary, err);
    if (code == 0 && unlinkat(directory, temporary, 0) < 0)
        code = wfs_fail(err, errno, "cannot remove %s: %s", temporary, strerror(errno));
    return code;
}

/* The backup before it gets the temporary name, where the filesystem can do that. Renaming one name
 * of a file over another one does nothing, so that the temporary remains then, too. */
static int keep_simple(int directory, const char *name, const char *kept, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    int code = link_temporary(directory, name, temporary, err);
    if (code < 0)
        return code;
    if (renameat2(directory, temporary, directory, kept, RENAME_EXCHANGE) == 0 ||
        renameat(directory, temporary, directory, kept) == 0)
        return 0;
    code = wfs_fail(err, errno, "cannot keep a backup: %s", strerror(errno));
    unlinkat(directory, temporary, 0);
    return code;
}

static int keep_numbered(int directory, const char *name, uint64_t number,
                         char ret[WFS_OUTPUT_NAME_MAX], struct wfs_error *err)
{
    while (linkat(directory, name, directory, ret, 0) < 0) {
        char end[32];
        if (errno != EEXIST)
            return fail_link(errno, err);
        snprintf(end, sizeof(end), ".~%" PRIu64 "~", ++number);
        const int code = set_name(ret, name, end, err);
        if (code < 0)
            return code;
    }
    return 0;
}

int output_keep_backup(int directory, const char *name, const struct wfs_backup *backup,
                       char ret[WFS_OUTPUT_NAME_MAX], struct wfs_error *err)
{
    uint64_t number;
    char kept[WFS_OUTPUT_NAME_MAX];
    ret[0] = '\0';
    if (backup->control == WFS_BACKUP_NONE)
        return 0;
    int code = choose_name(directory, name, backup, &number, kept, err);
    if (code == 0)
        code = number == 0 ? keep_simple(directory, name, kept, err)
                           : keep_numbered(directory, name, number, kept, err);
    if (code < 0)
        return code;
    strcpy(ret, kept);
    return io_sync_directory(directory) == 0
               ? 0
               : wfs_fail(err, errno, "cannot sync the directory of the backup: %s",
                          strerror(errno));
}

void output_settle_backup(int directory, const char *name, const char *kept, bool is_replaced)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    if (kept[0] == '\0')
        return;
    wfs_output_temporary_link(name, temporary);
    if (!is_replaced && renameat(directory, temporary, directory, kept) < 0)
        unlinkat(directory, kept, 0);
    unlinkat(directory, temporary, 0);
}
