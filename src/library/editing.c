/* SPDX-License-Identifier: MIT */
/*
 * Edits, and saving. A checkpoint stays as it is: what is written is another catalog, that it
 * becomes by its edits or by none.
 */
#include "library/call.h"

#include "edits/edits.h"
#include "program/checkpoint.h"
#include "program/saving.h"
#include "program/suggestion.h"
#include "tensor/tensor.h"

#include <weightfs/json_out.h>
#include <weightfs/patch.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct wfs_edits {
    const struct wfs_checkpoint *of;
    struct wfs_patch *patch;
    struct wfs_catalog *file; /* a patch file that they are read from; NULL: none is */
};

int wfs_edits_new(const struct wfs_checkpoint *checkpoint, struct wfs_edits **out,
                  struct wfs_error *err)
{
    struct wfs_edits *edits = calloc(1, sizeof(*edits));
    call_clear(err);
    if (edits == NULL || wfs_patch_new(&edits->patch) < 0) {
        free(edits);
        return wfs_fail_memory(err);
    }
    edits->of = checkpoint;
    *out = edits;
    return 0;
}

void wfs_edits_free(struct wfs_edits *edits)
{
    if (edits == NULL)
        return;
    wfs_patch_free(edits->patch);
    wfs_catalog_free(edits->file);
    free(edits);
}

/* ---- one by one ---- */

/* Begins an edit. Those of a patch file are all that there are. */
static int begin(const struct wfs_edits *edits, struct wfs_error *err)
{
    call_clear(err);
    return edits->file == NULL ? 0
                               : wfs_fail(err, EINVAL, "the edits of a patch file are complete");
}

/* Ends one with its result; key: what was to be found, NULL: nothing by its key. */
static int end(const struct wfs_edits *edits, const char *key, int code,
               const struct wfs_error *own, struct wfs_error *err)
{
    struct wfs_error whole = *own;
    if (code >= 0)
        return 0;
    if (code == -ENOKEY && key != NULL) {
        const size_t n = strlen(whole.text);
        snprintf(whole.text + n, sizeof(whole.text) - n, "%s",
                 suggestion_of_keys(edits->of->catalog, key, true).text);
    }
    return call_fail(err, code == -EINVAL ? NULL : edits->of->source, &whole);
}

int wfs_edits_rename(struct wfs_edits *edits, const char *key, const char *new_key,
                     struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    return end(edits, key, wfs_patch_rename(edits->patch, edits->of->catalog, key, new_key, &own),
               &own, err);
}

int wfs_edits_remove(struct wfs_edits *edits, const char *key, struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    int code = wfs_patch_remove(edits->patch, edits->of->catalog, key, &own);
    if (code == 0)
        code = wfs_fail(&own, ENOKEY, "no tensor or value '%s'", wfs_quote(key).text);
    return end(edits, key, code, &own, err);
}

int wfs_edits_put(struct wfs_edits *edits, const char *key, const char *dtype, const uint64_t *dims,
                  size_t rank, const void *bytes, uint64_t n_bytes, struct wfs_error *err)
{
    struct wfs_error own = {0};
    unsigned n_elems, n_each;
    enum wfs_dtype found;
    struct wfs_tensor tensor = {.shape = {(uint32_t)rank, dims}, .n_bytes = n_bytes};
    uint64_t n_needed = 0;
    if (begin(edits, err) < 0 || wfs_dtype_size(dtype, &n_elems, &n_each, err) < 0)
        return -EINVAL;
    (void)wfs_dtype_spelled(dtype, strlen(dtype), &found);
    if (rank > PATCH_RANK_MAX || wfs_shape_bytes(&tensor.shape, found, &n_needed) < 0 ||
        n_needed != n_bytes || n_bytes > SIZE_MAX)
        return wfs_fail(err, EINVAL, "tensor '%s': dtype and shape make %s, and not %" PRIu64,
                        wfs_quote(key).text, wfs_count(n_needed, "byte").text, n_bytes);
    tensor.dtype = tensor.stored.dtype = (uint8_t)found;
    if (source_new_memory("memory", bytes, (size_t)n_bytes, &tensor.stored.source) < 0 ||
        catalog_adopt_source(edits->patch->contents, tensor.stored.source) < 0)
        return wfs_fail_memory(err);
    return end(edits, key, wfs_patch_put(edits->patch, edits->of->catalog, key, &tensor, &own),
               &own, err);
}

int wfs_edits_copy(struct wfs_edits *edits, const char *key, const struct wfs_tensor *tensor,
                   struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    if (wfs_tensor_trouble(tensor) != NULL || tensor->stored.source == NULL)
        return wfs_tensor_fail_read(err, tensor, -EIO);
    source_add_access(source_file(tensor->stored.source), &edits->patch->access);
    return end(edits, key, wfs_patch_put(edits->patch, edits->of->catalog, key, tensor, &own), &own,
               err);
}

int wfs_edits_set(struct wfs_edits *edits, const char *key, const char *name, const char *value,
                  struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    return end(edits, key, wfs_patch_set(edits->patch, edits->of->catalog, key, name, value, &own),
               &own, err);
}

int wfs_edits_set_value(struct wfs_edits *edits, const char *key, const char *json,
                        struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    return end(edits, NULL, wfs_patch_set_value(edits->patch, edits->of->catalog, key, json, &own),
               &own, err);
}

int wfs_edits_set_metadata(struct wfs_edits *edits, const char *name, const char *value,
                           struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (begin(edits, err) < 0)
        return -EINVAL;
    return end(edits, NULL,
               wfs_patch_set_metadata(edits->patch, edits->of->catalog, name, value, &own), &own,
               err);
}

/* ---- all of them ---- */

static int put_line(void *ctx, const char *line)
{
    json_out_text(ctx, NULL, line);
    return 0;
}

int wfs_edits_list(const struct wfs_edits *edits, char **out, struct wfs_error *err)
{
    struct strbuf text = {0};
    struct json_out json = {.text = &text, .spelling = JSON_ASCII};
    call_clear(err);
    json_out_open_array(&json, NULL);
    if (wfs_patch_each(edits->patch, put_line, &json) < 0)
        strbuf_fail(&text);
    json_out_close(&json);
    return call_text(&text, out, err);
}

int wfs_edits_open(struct wfs_edits *edits, const char *patch, struct wfs_error *err)
{
    struct wfs_error own = {0};
    auto_catalog struct wfs_catalog *file = NULL;
    struct wfs_patch *parsed = NULL;
    if (begin(edits, err) < 0)
        return -EINVAL;
    if (wfs_patch_n_edits(edits->patch) > 0)
        return wfs_fail(err, EINVAL, "there are edits already");
    int code = wfs_load(patch, NULL, &file, &own);
    if (code == 0)
        code = wfs_patch_parse(file, &parsed, &own);
    if (code < 0)
        return call_fail(err, patch, &own);
    wfs_patch_free(edits->patch);
    edits->patch = parsed;
    edits->file = steal(&file);
    return 0;
}

/* ---- saving ---- */

static int step(void *ctx, uint64_t n_done, uint64_t n_total)
{
    return call_step(ctx, n_done, n_total);
}

static void note(void *ctx, const char *text)
{
    call_notice(ctx, "%s", text);
}

/* Returns the report of a saving as JSON. */
static int report(const struct saving *saving, char **out, struct wfs_error *err)
{
    struct strbuf text = {0};
    struct json_out json = {.text = &text, .spelling = JSON_ASCII};
    const struct commit *commit = &saving->commit;
    json_out_open_object(&json, NULL);
    json_out_text(&json, "output", commit->account.output);
    json_out_text(&json, "format", commit->format->name);
    json_out_u64(&json, "tensors", commit->account.n_tensors);
    json_out_u64(&json, "files", commit->account.n_files);
    json_out_u64(&json, "bytes", commit->account.n_bytes);
    json_out_open_array(&json, "left_out");
    for (size_t i = 0; i < commit->fit.n_items; i++) {
        const struct wfs_fit_item *item = &commit->fit.items[i];
        json_out_open_object(&json, NULL);
        json_out_text(&json, "kind", commit_kind_name(item->kind));
        json_out_text(&json, "name", item->name);
        json_out_text(&json, "why", item->why);
        json_out_close(&json);
    }
    json_out_close(&json);
    json_out_close(&json);
    return call_text(&text, out, err);
}

/* Writes a catalog, which is rewritten. path: what errors about the file are about. */
static int write_catalog(struct call *call, struct saving *saving, struct wfs_catalog *written,
                         const struct wfs_access *access, struct wfs_error *err)
{
    struct wfs_error own = {0};
    int code = saving_plan(saving, written, access, &own);
    saving->save.progress = step;
    saving->save.danger = note;
    saving->save.ctx = call;
    if (code == 0)
        code = saving_write(saving, &own);
    if (code < 0)
        return call_fail(err, saving->target, &own);
    commit_each_left_out(&saving->commit, note, call);
    return 0;
}

/* Decides where it goes. A mistake about the file is reported behind its path. */
static int choose(struct saving *saving, const struct wfs_catalog *read,
                  const struct wfs_catalog *file, struct wfs_error *err)
{
    struct wfs_error own = {0};
    enum exit_code exit_code = saving_choose(saving, &own);
    if (exit_code == EXIT_DONE && read != NULL)
        exit_code = saving_check(saving, read, file, &own);
    if (exit_code == EXIT_DONE)
        return 0;
    if (saving->destination.is_taken)
        own.code = EEXIST;
    return call_fail(err, exit_code == EXIT_OUTPUT ? saving->target : NULL, &own);
}

struct refusal {
    char text[WFS_ERROR_TEXT_MAX]; /* of the first edit that does not fit */
};

static void refuse(void *ctx, const char *line)
{
    struct refusal *refusal = ctx;
    if (*refusal->text == '\0')
        snprintf(refusal->text, sizeof(refusal->text), "%s", line);
}

/* Makes what the checkpoint becomes by the patch. */
static int apply(const struct wfs_patch *patch, const struct wfs_checkpoint *checkpoint,
                 struct wfs_catalog **out, struct wfs_error *err)
{
    struct refusal refusal = {""};
    struct wfs_error own = {0};
    uint64_t n_refused = 0;
    const struct wfs_patch_options options = {.refuse = refuse, .ctx = &refusal};
    if (wfs_patch_apply(patch, checkpoint->catalog, &options, &n_refused, out, &own) == 0)
        return 0;
    if (n_refused > 0) {
        own = (struct wfs_error){0};
        wfs_fail(&own, EINVAL, "%s", refusal.text);
    }
    return call_fail(err, checkpoint->source, &own);
}

static int save(struct call *call, const struct wfs_checkpoint *checkpoint,
                const struct wfs_edits *edits, const char *target, char **ret_json,
                struct wfs_error *err)
{
    auto_patch struct wfs_patch *none = NULL;
    auto_catalog struct wfs_catalog *made = NULL;
    cleanup(saving_done) struct saving saving = {
        .source = checkpoint->source,
        .destination = {.typed = target,
                        .settings = &call->settings,
                        .speaker = DESTINATION_OF_CALLER},
        .keeps_format = wfs_catalog_format(checkpoint->catalog) != NULL};
    if (edits == NULL && wfs_patch_new(&none) < 0)
        return wfs_fail_memory(err);
    const struct wfs_patch *patch = edits == NULL ? none : edits->patch;
    int code = choose(&saving, checkpoint->catalog, edits == NULL ? NULL : edits->file, err);
    if (code == 0)
        code = apply(patch, checkpoint, &made, err);
    struct wfs_access access = wfs_catalog_access(checkpoint->catalog);
    const struct wfs_access more = wfs_patch_access(patch);
    wfs_access_merge(&access, &more);
    if (code == 0)
        code = write_catalog(call, &saving, made, &access, err);
    return code < 0 || ret_json == NULL ? code : report(&saving, ret_json, err);
}

int wfs_checkpoint_save(const struct wfs_checkpoint *checkpoint, const struct wfs_edits *edits,
                        const char *target, const struct wfs_options *options, char **ret_json,
                        struct wfs_error *err)
{
    auto_call struct call call;
    const int code = call_init(&call, options, CALL_OUTPUT, NULL, err);
    if (code == 0 && edits != NULL && edits->of != checkpoint)
        return wfs_fail(err, EINVAL, "the edits are of another checkpoint");
    return code < 0 ? code : save(&call, checkpoint, edits, target, ret_json, err);
}

int wfs_convert(const char *source, const char *target, const struct wfs_options *options,
                char **ret_json, struct wfs_error *err)
{
    auto_call struct call call;
    struct wfs_checkpoint *checkpoint = NULL;
    int code = call_init(&call, options, CALL_SOURCE | CALL_OUTPUT, NULL, err);
    if (code == 0)
        code = handle_open(source, &call, &checkpoint, NULL, err);
    if (code == 0)
        code = save(&call, checkpoint, NULL, target, ret_json, err);
    wfs_close(checkpoint);
    return code;
}

int wfs_edits_save(const struct wfs_edits *edits, const char *target,
                   const struct wfs_options *options, struct wfs_error *err)
{
    auto_call struct call call;
    auto_catalog struct wfs_catalog *file = NULL;
    cleanup(saving_done) struct saving saving = {0};
    int code = call_init(&call, options, CALL_OUTPUT, NULL, err);
    if (code < 0)
        return code;
    call.settings.format = wfs_format_by_path(WFS_PATCH_NAME);
    saving.destination = (struct destination){
        .typed = target, .settings = &call.settings, .speaker = DESTINATION_OF_CALLER};
    code = choose(&saving, NULL, NULL, err);
    if (code == 0)
        code = wfs_patch_file(edits->patch, true, &file, err);
    const struct wfs_access access = wfs_patch_access(edits->patch);
    return code < 0 ? code : write_catalog(&call, &saving, file, &access, err);
}
