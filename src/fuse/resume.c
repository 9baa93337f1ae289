/* SPDX-License-Identifier: MIT */
/*
 * A commit that was published is finished, whether or not its process survived to note it. Newer
 * edits are based on the same source as those before them.
 */
#include "fuse/resume.h"

#include "program/print.h"
#include "fuse/log.h"
#include "program/predecessor.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- before loading ---- */

static int fail_note(const struct target *target, int code)
{
    return log_failure(EXIT_MOUNT, "cannot write to staging directory '%s': %s",
                       wfs_quote(target->stage_path).text, strerror(-code));
}

/*
 * A commit was published: only newer edits are shown. The journal that says so may have been
 * written by somebody else, so it never allows replacing a file. It only adds the file that it
 * names to those that the user allows to replace with `overwrite`.
 */
static int finish_published(struct target *target, const struct mount_options *options,
                            struct wfs_stage *stage, const struct wfs_written *written)
{
    const struct wfs_leftover *leftover = wfs_stage_leftover(stage);
    const bool has_newer = leftover->n_changes > written->n_changes;
    int code = 0;
    if (written == &leftover->complete && leftover->commit == WFS_COMMIT_COMPLETE)
        code = wfs_stage_note_published(stage);
    if (code == 0 && !has_newer)
        code = wfs_stage_discard(stage);
    if (code < 0)
        return fail_note(target, code);
    if (!has_newer)
        return 0;
    struct stat st;
    if (target->output.is_taken && options->settings.overwrite && stat(target->path, &st) == 0) {
        target->output.is_taken = false;
        target->output.replace = WFS_REPLACE_KNOWN;
        target->output.known = wfs_identity_of(&st);
    }
    target->is_published = true;
    if (target->output.is_source && asprintf(&target->kept_source, "%s/source/%s",
                                             target->stage_path, path_name(target->path)) < 0) {
        target->kept_source = NULL;
        return log_failure(EXIT_UNSUPPORTED, "out of memory");
    }
    return 0;
}

static int look(struct target *target, const struct mount_options *options, struct wfs_stage *stage)
{
    const struct wfs_leftover *leftover = wfs_stage_leftover(stage);
    if (leftover->bad_record != 0 && !target->is_forced)
        return log_failure(EXIT_MOUNT,
                           "the journal of an earlier mount in '%s' is damaged at record %" PRIu64
                           "; 'weightfs recover' lists the edits before it",
                           wfs_quote(target->stage_path).text, leftover->bad_record);
    const struct wfs_written *written = predecessor_written(
        leftover, target->path, options->settings.load.limits, options->settings.load.n_limits);
    if (written != NULL || leftover->commit != WFS_COMMIT_NONE)
        predecessor_remove_temporary(target->path);
    if (written != NULL)
        return finish_published(target, options, stage, written);
    wfs_stage_forget_published(stage);
    return 0;
}

int resume_open(struct target *target, const struct mount_options *options, struct wfs_stage **out)
{
    struct wfs_stage *stage;
    struct wfs_error err = {0};
    const struct wfs_stage_options how = {.path = target->stage_path, .boot = target->boot};
    if (target->path == NULL)
        return 0;
    if (wfs_stage_open(&how, &stage, &err) < 0) {
        const int exit_code = (int)exit_of_errno(err.code);
        return log_failure(exit_code == EXIT_SOURCE || exit_code == EXIT_DAMAGED ? EXIT_MOUNT
                                                                                 : exit_code,
                           "%s", err.text);
    }
    autofree char *failure = wfs_stage_failure(stage);
    if (failure != NULL)
        log_warning("the last commit failed: %s", failure);
    int rc = look(target, options, stage);
    if (rc == 0 && target->output.is_taken)
        rc = log_failure(EXIT_MOUNT, "output '%s' already exists; use %s to replace it",
                         wfs_quote(target->path).text, target->allows_replacing);
    if (rc != 0) {
        wfs_stage_close(stage);
        return rc;
    }
    *out = stage;
    return 0;
}

/* ---- afterwards ---- */

/* Returns the next line that is compared, without its line feed; NULL at the end. */
static const char *next_line(const char **at, size_t *ret_n)
{
    while (**at != '\0') {
        const char *line = *at;
        *ret_n = strcspn(line, "\n");
        *at = line + *ret_n + (line[*ret_n] != '\0');
        if (line[0] != '#')
            return line;
    }
    return NULL;
}

static bool is_same_base(const char *a, const char *b)
{
    for (;;) {
        size_t n_a, n_b;
        const char *line_a = next_line(&a, &n_a), *line_b = next_line(&b, &n_b);
        if (line_a == NULL || line_b == NULL)
            return line_a == line_b;
        if (n_a != n_b || memcmp(line_a, line_b, n_a) != 0)
            return false;
    }
}

int resume_check(const struct target *target, const struct wfs_stage *stage, const char *base_text)
{
    const struct wfs_leftover *leftover = wfs_stage_leftover(stage);
    if (leftover->n_changes == 0 || target->is_moved ||
        (leftover->base != NULL && is_same_base(leftover->base, base_text)))
        return 0;
    return log_failure(EXIT_MOUNT,
                       "staging directory '%s' holds edits of an earlier mount, but the source or "
                       "the view options have changed since; see 'weightfs recover'",
                       wfs_quote(target->stage_path).text);
}

void resume_tell(const struct wfs_tree *tree)
{
    struct wfs_replayed replayed;
    char more[128] = "";
    wfs_tree_replayed(tree, &replayed);
    if (replayed.n_doubtful > 0)
        snprintf(more, sizeof(more), "; %s not synced before a restart and may be torn",
                 wfs_count_as(replayed.n_doubtful, "of them was", "of them were").text);
    if (replayed.n_lost > 0)
        log_warning("the content of %s of an earlier mount is lost",
                    wfs_count(replayed.n_lost, "edit").text);
    if (replayed.n_edits > 0)
        log_warning("%s shown again%s",
                    wfs_count_as(replayed.n_edits, "edit of an earlier mount is",
                                 "edits of an earlier mount are")
                        .text,
                    more);
}
