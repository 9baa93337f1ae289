/* SPDX-License-Identifier: MIT */
/*
 * The life of a staging directory: made or taken over, locked, emptied, removed. Everything is
 * reached from descriptors that were opened at the start; no link is followed. One pass over the
 * journal counts its changes and finds out how far its last commit came.
 */
#include "tree/stage/stage.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/stage.h>
#include <weightfs/status.h>
#include <weightfs/strbuf.h>
#include "tree/stage/datafiles.h"
#include "tree/stage/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { TEXT_MAX = 16 << 20 }; /* bytes of base or status.json */

int leftover_read_text(int dir_fd, const char *name, char **ret)
{
    struct stat st;
    *ret = NULL;
    autoclose int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT || errno == ELOOP ? 0 : -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
        return 0;
    autofree char *text = calloc(1, (size_t)st.st_size + 1);
    if (text == NULL)
        return -ENOMEM;
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < st.st_size)
        return n < 0 ? (int)n : -EIO;
    *ret = steal(&text);
    return 0;
}

/* ---- records of a commit ---- */

static int complete(struct wfs_leftover *leftover, const struct wfs_record *record)
{
    uint64_t numbers[5];
    for (unsigned i = 0; i < 5; i++) {
        if (record_to_number(record, i, &numbers[i]) < 0)
            return -EBADMSG;
    }
    if (leftover->commit == WFS_COMMIT_NONE)
        return -EBADMSG;
    leftover->commit = WFS_COMMIT_COMPLETE;
    leftover->complete = (struct wfs_written){
        .is_known = true,
        .identity = {numbers[0], numbers[1], numbers[2], (int64_t)numbers[3]},
        .digest = numbers[4],
        .n_changes = leftover->n_changes,
    };
    return 0;
}

static int look(void *ctx, char *text, size_t n_bytes)
{
    struct wfs_leftover *leftover = ctx;
    struct wfs_record record;
    (void)n_bytes;
    if (record_parse(text, &record) < 0)
        return -EBADMSG;
    leftover->n_changes += record_is_change(record.kind);
    switch (record.kind) {
    case WFS_RECORD_COMMIT: /* its words are for people who read the journal */
        leftover->commit = WFS_COMMIT_BEGUN;
        return record.n_words == 2 && strchr(record.words[1], '/') == NULL ? 0 : -EBADMSG;
    case WFS_RECORD_COMPLETE:
        return complete(leftover, &record);
    case WFS_RECORD_PUBLISHED:
        leftover->commit = WFS_COMMIT_PUBLISHED;
        leftover->published = leftover->complete;
        return leftover->complete.is_known ? 0 : -EBADMSG;
    default:
        return 0;
    }
}

static int fail_read(int code, const char *name, const char *path, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return wfs_fail(err, -code, "cannot read the %s in '%s': %s", name, wfs_quote(path).text,
                    strerror(-code));
}

/* Opens the journal, so that it can be appended to, and fills a zeroed struct. path is for
 * messages.
 */
static int leftover_read(struct wfs_leftover *leftover, struct journal *journal, const char *path,
                         struct wfs_error *err)
{
    int code = journal_open(journal, look, leftover, &leftover->bad_record);
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG,
                        "the journal in '%s' has records that this version of weightfs does not "
                        "know",
                        wfs_quote(path).text);
    if (code < 0)
        return fail_read(code, "journal", path, err);
    char *base;
    code = leftover_read_text(journal->dir_fd, "base", &base);
    leftover->base = base;
    return code < 0 ? fail_read(code, "base", path, err) : 0;
}

static void leftover_done(struct wfs_leftover *leftover)
{
    free((char *)(uintptr_t)leftover->base);
    *leftover = (struct wfs_leftover){0};
}

/* ---- opening ---- */

/* Returns the process that holds the lock on the directory, 0: not known. */
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

pid_t wfs_stage_holder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? (pid_t)lock_holder(&st) : 0;
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
                        "staging directory '%s' must be a directory of your own that is closed to "
                        "others (mode 0700)",
                        wfs_quote(path).text);
    return wfs_fail(err, -code, "cannot create staging directory '%s': %s", wfs_quote(path).text,
                    strerror(-code));
}

static int fail_lock(int code, const struct stat *st, const char *path, struct wfs_error *err)
{
    if (code != EWOULDBLOCK)
        return wfs_fail(err, code, "cannot lock staging directory '%s': %s", wfs_quote(path).text,
                        strerror(code));
    const long holder = lock_holder(st);
    if (holder > 0)
        return wfs_fail(err, EBUSY, "staging directory '%s' is in use by process %ld",
                        wfs_quote(path).text, holder);
    return wfs_fail(err, EBUSY, "staging directory '%s' is in use by another process",
                    wfs_quote(path).text);
}

/* Opens and locks it. -EAGAIN: it was removed by its last holder in between. */
static int lock_directory(struct wfs_stage *stage, const char *path, struct wfs_error *err)
{
    struct stat st;
    if (mkdirat(stage->parent_fd, stage->name, 0700) < 0 && errno != EEXIST)
        return fail_open(-errno, path, err);
    autoclose int fd = open_directory(stage->parent_fd, stage->name, &st);
    if (fd == -ENOENT)
        return -EAGAIN;
    if (fd < 0)
        return fail_open(fd, path, err);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return fail_lock(errno, &st, path, err);
    if (fstat(fd, &st) < 0 || st.st_nlink == 0)
        return -EAGAIN;
    stage->fd = steal_fd(&fd);
    return 0;
}

static int open_parent(struct wfs_stage *stage, const char *path, struct wfs_error *err)
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

static int open_locked(struct wfs_stage *stage, const struct wfs_stage_options *options,
                       struct wfs_error *err)
{
    int code = open_parent(stage, options->path, err);
    if (code < 0)
        return code;
    if (options->is_found &&
        faccessat(stage->parent_fd, stage->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return wfs_fail(err, errno, "no staging directory '%s'", wfs_quote(options->path).text);
    code = lock_directory(stage, options->path, err);
    for (int i = 0; code == -EAGAIN && i < 100; i++)
        code = lock_directory(stage, options->path, err);
    if (code == -EAGAIN)
        code = wfs_fail(err, EBUSY,
                        "staging directory '%s' is being created and removed by other processes",
                        wfs_quote(options->path).text);
    return code;
}

/* What is kept of a source is a file: a link there would lead to what nobody named. */
static int check_sources(const struct wfs_stage *stage, const char *path, struct wfs_error *err)
{
    struct stat st;
    const int fd = open_directory(stage->fd, "source", &st);
    if (fd == -ENOENT)
        return 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *found;
    bool is_good = dir != NULL;
    while (is_good && (found = readdir(dir)) != NULL)
        is_good =
            strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0 ||
            (fstatat(fd, found->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode));
    if (dir != NULL)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return is_good ? 0
                   : wfs_fail(err, EPERM,
                              "the sources kept in staging directory '%s' must be regular files in "
                              "a directory of your own",
                              wfs_quote(path).text);
}

static int open_data(struct wfs_stage *stage, const char *path, struct wfs_error *err)
{
    struct stat st;
    if (mkdirat(stage->fd, "data", 0700) < 0 && errno != EEXIST)
        return fail_open(-errno, path, err);
    const int fd = open_directory(stage->fd, "data", &st);
    if (fd < 0)
        return fail_open(fd, path, err);
    stage->data.dir_fd = fd;
    stage->journal.dir_fd = stage->fd;
    atomic_store(&stage->data.has_new_names, true);
    return 0;
}

/* Edits are whole when the machine has run, and the filesystem was mounted, since they were made.
 */
static int name_run(struct wfs_stage *stage, const char *boot)
{
    struct statx found = {0};
    const bool is_known = boot != NULL &&
                          statx(stage->fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &found) == 0 &&
                          (found.stx_mask & STATX_MNT_ID) != 0;
    const uint64_t mount = is_known ? found.stx_mnt_id : 0;
    const int n = asprintf(&stage->run, "%.64s.%" PRIu64, is_known ? boot : "unknown", mount);
    if (n < 0)
        stage->run = NULL;
    return n < 0 ? -ENOMEM : 0;
}

char *wfs_stage_boot(void)
{
    char text[64] = "";
    autoclose int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : io_read_at(fd, text, sizeof(text) - 1, 0);
    text[strcspn(text, "\n")] = '\0';
    return n > 0 ? strdup(text) : NULL;
}

bool wfs_stage_is_same_run(const struct wfs_stage *stage, const char *run)
{
    return strncmp(run, "unknown", 7) != 0 && strcmp(run, stage->run) == 0;
}

static void close_all(struct wfs_stage *stage)
{
    datafiles_done(&stage->data);
    journal_done(&stage->journal);
    leftover_done(&stage->leftover);
    if (stage->fd >= 0)
        close(stage->fd);
    if (stage->parent_fd >= 0)
        close(stage->parent_fd);
    free(stage->name);
    free(stage->run);
    free(stage->base_text);
    free(stage);
}

int wfs_stage_open(const struct wfs_stage_options *options, struct wfs_stage **out,
                   struct wfs_error *err)
{
    struct wfs_stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL)
        return wfs_fail_memory(err);
    stage->parent_fd = stage->fd = -1;
    datafiles_init(&stage->data);
    journal_init(&stage->journal, -1);
    int code = open_locked(stage, options, err);
    if (code == 0)
        code = open_data(stage, options->path, err);
    if (code == 0)
        code = check_sources(stage, options->path, err);
    if (code == 0 && name_run(stage, options->boot) < 0)
        code = wfs_fail_memory(err);
    if (code == 0)
        code = leftover_read(&stage->leftover, &stage->journal, options->path, err);
    stage->has_base = stage->journal.sequence > 0;
    if (code < 0) {
        close_all(stage);
        return code;
    }
    *out = stage;
    return 0;
}

/* ---- removing ---- */

static void remove_sources(const struct wfs_stage *stage)
{
    struct stat st;
    const int fd = open_directory(stage->fd, "source", &st);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *found;
    while (dir != NULL && (found = readdir(dir)) != NULL) {
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            unlinkat(fd, found->d_name, 0);
    }
    if (dir != NULL)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    unlinkat(stage->fd, "source", AT_REMOVEDIR);
}

/* Without the journal, the rest means nothing. */
int stage_forget(struct wfs_stage *stage)
{
    const int code = journal_remove(&stage->journal);
    if (code < 0)
        return code;
    return io_sync_directory(stage->fd) < 0 ? -errno : 0;
}

int stage_restart(struct wfs_stage *stage)
{
    const int code = stage_forget(stage);
    if (code < 0)
        return code;
    stage->has_begun = false;
    stage->leftover.commit = WFS_COMMIT_NONE;
    journal_reserve(&stage->journal, 0);
    return 0;
}

int wfs_stage_discard(struct wfs_stage *stage)
{
    static const char *const files[] = {"journal.tmp", "base", "base.tmp", "status.json.tmp"};
    const int code = stage_forget(stage);
    if (code < 0)
        return code;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        unlinkat(stage->fd, files[i], 0);
    remove_sources(stage);
    stage->has_base = stage->has_begun = stage->data.keeps_all = false;
    leftover_done(&stage->leftover);
    return datafiles_sweep(&stage->data, NULL, 0);
}

void stage_free(struct wfs_stage *stage, bool is_kept)
{
    if (stage == NULL)
        return;
    const int saved = errno;
    if (!is_kept && wfs_stage_discard(stage) == 0) {
        unlinkat(stage->fd, "data", AT_REMOVEDIR);
        unlinkat(stage->fd, "status.json", 0);
        unlinkat(stage->parent_fd, stage->name, AT_REMOVEDIR);
    }
    close_all(stage);
    errno = saved;
}

void wfs_stage_close(struct wfs_stage *stage)
{
    if (stage != NULL)
        stage_free(stage, stage->leftover.n_changes > 0 || stage->leftover.bad_record > 0);
}
