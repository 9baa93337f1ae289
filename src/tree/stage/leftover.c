/* SPDX-License-Identifier: MIT */
/*
 * One pass over the journal counts its changes and finds out how far its last commit came.
 */
#include "tree/stage/leftover.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tree/stage/record.h"

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

/* Its words are for people who read the journal. */
static int begin(struct wfs_leftover *leftover, const struct wfs_record *record)
{
    if (record->n_words != 2 || strchr(record->words[1], '/') != NULL)
        return -EBADMSG;
    leftover->commit = WFS_COMMIT_BEGUN;
    return 0;
}

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

static int publish(struct wfs_leftover *leftover)
{
    if (!leftover->complete.is_known)
        return -EBADMSG;
    leftover->commit = WFS_COMMIT_PUBLISHED;
    leftover->published = leftover->complete;
    return 0;
}

static int look(void *ctx, char *text, size_t n_bytes)
{
    struct leftover *leftover = ctx;
    struct wfs_record record;
    (void)n_bytes;
    if (record_parse(text, &record) < 0)
        return -EBADMSG;
    leftover->found.n_changes += record_is_change(record.kind);
    switch (record.kind) {
    case WFS_RECORD_COMMIT:
        return begin(&leftover->found, &record);
    case WFS_RECORD_COMPLETE:
        return complete(&leftover->found, &record);
    case WFS_RECORD_PUBLISHED:
        return publish(&leftover->found);
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

int leftover_read(struct leftover *leftover, struct journal *journal, const char *path,
                  struct wfs_error *err)
{
    int code = journal_open(journal, look, leftover, &leftover->found.bad_record);
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG,
                        "the journal in '%s' has records that this version of weightfs does not "
                        "know",
                        wfs_quote(path).text);
    if (code < 0)
        return fail_read(code, "journal", path, err);
    code = leftover_read_text(journal->dir_fd, "base", &leftover->base);
    if (code < 0)
        return fail_read(code, "base", path, err);
    leftover->found.base = leftover->base;
    return 0;
}

void leftover_done(struct leftover *leftover)
{
    free(leftover->base);
    *leftover = (struct leftover){0};
}
