/* SPDX-License-Identifier: MIT */
/*
 * What is written beside the content: the base before the first record, records, small texts, and
 * the sources that an output is about to hide.
 */
#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include "tree/stage/journal.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- texts ---- */

/* A reader that comes in between finds it torn, but later ones do not find an older text. */
static int overwrite(const struct wfs_stage *stage, const char *name, const char *bytes,
                     size_t n_bytes)
{
    size_t n_done;
    autoclose int fd = openat(stage->fd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || !io_is_plain_file(fd))
        return fd < 0 ? -errno : -EPERM;
    const int code = io_write_at(fd, bytes, n_bytes, 0, &n_done);
    return code == 0 && ftruncate(fd, (off_t)n_bytes) < 0 ? -errno : code;
}

int stage_put_text(struct wfs_stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.tmp", name);
    unlinkat(stage->fd, temporary, 0);
    autoclose int fd =
        openat(stage->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int code = fd < 0 ? -errno : io_write(fd, bytes, n_bytes);
    if (code == 0 && is_synced && fsync(fd) < 0)
        code = -errno;
    if (code == 0 && renameat(stage->fd, temporary, stage->fd, name) < 0)
        code = -errno;
    if (code == 0 && is_synced && io_sync_directory(stage->fd) < 0)
        code = -errno;
    if (code < 0 && fd >= 0)
        unlinkat(stage->fd, temporary, 0);
    const bool is_full = code == -ENOSPC || code == -EDQUOT;
    return is_full && !is_synced ? overwrite(stage, name, bytes, n_bytes) : code;
}

int stage_set_base(struct wfs_stage *stage, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL)
        return -ENOMEM;
    free(stage->base_text);
    stage->base_text = copy;
    return 0;
}

/* ---- records ---- */

static int write_base(struct wfs_stage *stage)
{
    int code = 0;
    if (!stage->has_base && stage->base_text != NULL)
        code = stage_put_text(stage, "base", stage->base_text, strlen(stage->base_text), true);
    stage->has_base |= code == 0;
    return code;
}

void stage_prepare(struct wfs_stage *stage, uint64_t n_bytes)
{
    if (write_base(stage) == 0)
        journal_reserve(&stage->journal, n_bytes);
}

static int append(struct wfs_stage *stage, const char *text, size_t n_bytes)
{
    return journal_append(&stage->journal, text, n_bytes,
                          record_claim((enum wfs_record_kind)text[0]));
}

/* What has to be there before the first record of this process. */
static int begin(struct wfs_stage *stage)
{
    autostrbuf struct strbuf text = {0};
    int code = write_base(stage);
    if (code < 0)
        return code;
    record_begin(&text, WFS_RECORD_RUN);
    record_puts(&text, stage->run);
    code = text.has_failed ? -ENOMEM : append(stage, text.bytes, text.n_bytes);
    stage->has_begun = code == 0;
    return code;
}

int stage_append(struct wfs_stage *stage, const char *text, size_t n_bytes)
{
    const int code = stage->has_begun ? 0 : begin(stage);
    return code < 0 ? code : append(stage, text, n_bytes);
}

int stage_sync_journal(struct wfs_stage *stage)
{
    const int code = journal_sync(&stage->journal);
    if (code < 0 || !atomic_exchange(&stage->data.has_new_names, false))
        return code;
    if (io_sync_directory(stage->data.dir_fd) == 0 && io_sync_directory(stage->fd) == 0 &&
        io_sync_directory(stage->parent_fd) == 0)
        return 0;
    const int failed = -errno;
    atomic_store(&stage->data.has_new_names, true);
    return failed;
}

int stage_append_step(struct wfs_stage *stage, const struct strbuf *record,
                      enum wfs_commit_state step)
{
    int code = record->has_failed ? -ENOMEM : stage_append(stage, record->bytes, record->n_bytes);
    if (code == 0)
        code = stage_sync_journal(stage);
    if (code == 0)
        stage->leftover.commit = step;
    return code;
}

int wfs_stage_note_published(struct wfs_stage *stage)
{
    autostrbuf struct strbuf record = {0};
    record_begin(&record, WFS_RECORD_PUBLISHED);
    const int code = stage_append_step(stage, &record, WFS_COMMIT_PUBLISHED);
    stage->owes_published = code < 0;
    return code;
}

/* ---- sources ---- */

/* A file that was kept before under the same name is what the edits are based on: it stays. */
int wfs_stage_keep_source(struct wfs_stage *stage, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (mkdirat(stage->fd, "source", 0700) < 0 && errno != EEXIST)
        return -errno;
    autoclose int fd = openat(stage->fd, "source", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (linkat(AT_FDCWD, path, fd, name, AT_SYMLINK_FOLLOW) < 0) {
        const int code = -errno;
        const bool is_kept =
            code == -EEXIST ||
            (code == -ENOENT && faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
        return is_kept ? 0 : code;
    }
    if (io_sync_directory(fd) < 0)
        return -errno;
    atomic_store(&stage->data.has_new_names, true);
    return 0;
}

/* ---- what an earlier process left ---- */

char *wfs_stage_failure(const struct wfs_stage *stage)
{
    autofree struct wfs_status *status = NULL;
    autofree char *text = NULL;
    if (leftover_read_text(stage->fd, "status.json", &text) < 0 || text == NULL ||
        wfs_status_parse(text, strlen(text), &status) < 0)
        return NULL;
    if (status->state != WFS_MOUNT_FAILED && status->state != WFS_MOUNT_PUBLISHED_UNSYNCED)
        return NULL;
    return strdup(status->text != NULL ? status->text : wfs_mount_state_name(status->state));
}

void wfs_stage_forget_published(struct wfs_stage *stage)
{
    stage->has_forgotten = true;
}

const struct wfs_leftover *wfs_stage_leftover(const struct wfs_stage *stage)
{
    return &stage->leftover;
}

struct visitor {
    int (*visit)(void *ctx, const struct wfs_record *record);
    void *ctx;
};

static int visit_record(void *ctx, char *text, size_t n_bytes)
{
    const struct visitor *visitor = ctx;
    struct wfs_record record;
    (void)n_bytes;
    const int code = record_parse(text, &record);
    return code < 0 ? code : visitor->visit(visitor->ctx, &record);
}

int wfs_stage_each(struct wfs_stage *stage,
                   int (*visit)(void *ctx, const struct wfs_record *record), void *ctx)
{
    struct visitor visitor = {visit, ctx};
    return journal_each(&stage->journal, visit_record, &visitor);
}

int64_t wfs_stage_n_bytes(const struct wfs_stage *stage, uint64_t number)
{
    struct stat st;
    const int code = datafiles_stat(&stage->data, number, &st);
    return code < 0 ? code : (int64_t)st.st_size;
}
