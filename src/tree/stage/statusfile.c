/* SPDX-License-Identifier: MIT */
/*
 * One table names the states. Everything else is a field of its own.
 */
#include "tree/stage/stage.h"

#include <jansson.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[WFS_N_MOUNT_STATES] = {
    [WFS_MOUNT_CLEAN] = "clean",
    [WFS_MOUNT_DIRTY] = "dirty",
    [WFS_MOUNT_COMMITTING] = "committing",
    [WFS_MOUNT_PUBLISHED] = "published",
    [WFS_MOUNT_PUBLISHED_UNSYNCED] = "published-unsynced",
    [WFS_MOUNT_FAILED] = "failed",
};

const char *wfs_mount_state_name(enum wfs_mount_state state)
{
    return state_names[state];
}

/* ---- out ---- */

void statusfile_add(const struct wfs_status *status, struct json_out *out)
{
    json_out_u64(out, "schema", 1);
    json_out_text(out, "state", state_names[status->state]);
    json_out_text(out, "step", status->step);
    json_out_i64(out, "errno", status->error);
    json_out_text(out, "text", status->text);
    json_out_u64(out, "edits", status->n_edits);
    json_out_u64(out, "unsynced", status->n_unsynced);
    json_out_u64(out, "done", status->n_done);
    json_out_u64(out, "total", status->n_total);
    if (status->n_needed > 0) {
        json_out_u64(out, "fetched", status->n_fetched);
        json_out_u64(out, "needed", status->n_needed);
    }
    json_out_i64(out, "committed_at", status->committed_at);
    json_out_text(out, "written", status->written);
    json_out_u64(out, "n_tensors", status->n_tensors);
    json_out_u64(out, "n_files", status->n_files);
    json_out_text(out, "output", status->output);
    json_out_text(out, "sandbox", status->sandbox);
    json_out_i64(out, "pid", status->pid);
}

/* ---- in ---- */

static bool find_state(const char *name, enum wfs_mount_state *ret)
{
    for (int i = 0; name != NULL && i < WFS_N_MOUNT_STATES; i++) {
        if (strcmp(state_names[i], name) == 0) {
            *ret = (enum wfs_mount_state)i;
            return true;
        }
    }
    return false;
}

static const char *text_of(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

static json_int_t number_of(const json_t *root, const char *name)
{
    return json_integer_value(json_object_get(root, name));
}

int wfs_status_parse(const char *text, size_t n_bytes, struct wfs_status **out)
{
    json_t *root = json_loadb(text, n_bytes, 0, NULL);
    struct wfs_status status = {
        .step = text_of(root, "step"),
        .error = (int)number_of(root, "errno"),
        .text = text_of(root, "text"),
        .written = text_of(root, "written"),
        .output = text_of(root, "output"),
        .sandbox = text_of(root, "sandbox"),
        .n_done = (uint64_t)number_of(root, "done"),
        .n_total = (uint64_t)number_of(root, "total"),
        .n_tensors = (uint64_t)number_of(root, "n_tensors"),
        .n_files = (uint64_t)number_of(root, "n_files"),
        .committed_at = number_of(root, "committed_at"),
        .n_edits = (uint64_t)number_of(root, "edits"),
        .n_unsynced = (uint64_t)number_of(root, "unsynced"),
        .n_fetched = (uint64_t)number_of(root, "fetched"),
        .n_needed = (uint64_t)number_of(root, "needed"),
        .pid = number_of(root, "pid"),
    };
    const bool is_status = find_state(text_of(root, "state"), &status.state);
    struct wfs_status *copy = is_status ? statusfile_copy(&status) : NULL;
    json_decref(root);
    if (copy == NULL)
        return is_status ? -ENOMEM : -EBADMSG;
    *out = copy;
    return 0;
}

/* ---- copies ---- */

struct wfs_status *statusfile_copy(const struct wfs_status *status)
{
    struct wfs_status made = *status;
    const char **const texts[] = {&made.step, &made.text, &made.written, &made.output,
                                  &made.sandbox};
    size_t n_bytes = sizeof(made);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        n_bytes += *texts[i] == NULL ? 0 : strlen(*texts[i]) + 1;
    struct wfs_status *copy = malloc(n_bytes);
    if (copy == NULL)
        return NULL;
    char *at = (char *)(copy + 1);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (*texts[i] == NULL)
            continue;
        const size_t n = strlen(*texts[i]) + 1;
        *texts[i] = memcpy(at, *texts[i], n);
        at += n;
    }
    *copy = made;
    return copy;
}
