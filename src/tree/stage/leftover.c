/* SPDX-License-Identifier: MIT */
/*
 * One pass over the journal tells how much is in it and how far its last commit came.
 */
#include "tree/stage/leftover.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tree/stage/record.h"

enum { TEXT_MAX = 16 << 20 }; /* bytes of base or status.json */

/* A small file whole, malloc'ed; NULL: none. */
static char *read_text(const struct wfs_stage *stage, const char *name)
{
    struct stat st;
    autoclose int fd = openat(stage->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
        return NULL;
    autofree char *text = calloc(1, (size_t)st.st_size + 1);
    if (text == NULL)
        return NULL;
    for (off_t n_done = 0; n_done < st.st_size;) {
        const ssize_t n = pread(fd, text + n_done, (size_t)(st.st_size - n_done), n_done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return NULL;
        n_done += n;
    }
    return steal(&text);
}

/* ---- records of a commit ---- */

static int begin(struct wfs_stage *stage, const struct wfs_record *record)
{
    struct wfs_leftover *leftover = &stage->leftover;
    if (record->n_words != 2)
        return -EBADMSG;
    for (int i = 0; i < 2; i++) {
        free(stage->texts[1 + i]);
        stage->texts[1 + i] = strdup(record->words[i]);
        if (stage->texts[1 + i] == NULL)
            return -ENOMEM;
    }
    leftover->commit = WFS_COMMIT_BEGUN;
    leftover->output = stage->texts[1];
    leftover->temporary = stage->texts[2];
    return strchr(leftover->temporary, '/') == NULL ? 0 : -EBADMSG;
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
    struct wfs_stage *stage = ctx;
    struct wfs_record record;
    (void)n_bytes;
    if (record_parse(text, &record) < 0)
        return -EBADMSG;
    if (strchr(RECORD_CHANGES, record.kind) != NULL) {
        stage->leftover.n_changes++;
        return 0;
    }
    switch (record.kind) {
    case 'B':
        return begin(stage, &record);
    case 'P':
        return complete(&stage->leftover, &record);
    case 'F':
        return publish(&stage->leftover);
    default:
        return record.kind == 'O' || record.kind == 'S' ? 0 : -EBADMSG;
    }
}

int leftover_read(struct wfs_stage *stage, const char *path, struct wfs_error *err)
{
    struct wfs_leftover *leftover = &stage->leftover;
    const int code = journal_open(&stage->journal, look, stage, &leftover->bad_record);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG,
                        "the journal in '%s' has records that this version of "
                        "weightfs does not know",
                        wfs_quote(path).text);
    if (code < 0)
        return wfs_fail(err, -code, "the journal in '%s' cannot be read: %s", wfs_quote(path).text,
                        strerror(-code));
    stage->texts[0] = read_text(stage, "base");
    leftover->base = stage->texts[0];
    stage->has_base = stage->journal.sequence > 0;
    return 0;
}

/* ---- for programs ---- */

char *wfs_stage_failure(const struct wfs_stage *stage)
{
    autofree char *text = read_text(stage, "status.json");
    json_t *status = text == NULL ? NULL : json_loads(text, 0, NULL);
    const char *state = json_string_value(json_object_get(status, "state"));
    const char *reason = json_string_value(json_object_get(status, "text"));
    const bool has_failed =
        state != NULL && (strcmp(state, "failed") == 0 || strcmp(state, "published-unsynced") == 0);
    char *copy = has_failed ? strdup(reason != NULL ? reason : state) : NULL;
    json_decref(status);
    return copy;
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
    const int code = stage_stat(stage, number, &st);
    return code < 0 ? code : (int64_t)st.st_size;
}
