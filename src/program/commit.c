/* SPDX-License-Identifier: MIT */
/*
 * The names of what is left out are in the report and on the terminal only: the summary also goes
 * to logs and has to be short.
 */
#include "program/commit.h"

#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- planning ---- */

int commit_fit(struct commit *commit, struct wfs_error *err)
{
    int code = 0;
    if (commit->tree != NULL && commit->is_patch) {
        code = wfs_tree_patch(commit->tree, &commit->patch, err);
        if (code == 0)
            code = wfs_patch_file(commit->patch, commit->has_digests, &commit->catalog, err);
    } else if (commit->tree != NULL) {
        code = wfs_tree_snapshot(commit->tree, commit->problems, &commit->catalog, err);
    }
    return code < 0 ? code
                    : wfs_catalog_fit(commit->catalog, commit->format, &commit->fit_options,
                                      &commit->fit, err);
}

static int plan_file(struct commit *commit, struct wfs_error *err)
{
    const int code = wfs_layout_new(commit->format, commit->catalog, &commit->layout, err);
    if (code < 0)
        return code;
    commit->account.n_files = 1;
    commit->account.n_bytes = wfs_layout_n_bytes(commit->layout);
    return 0;
}

static int plan_set(struct commit *commit, struct wfs_error *err)
{
    int code =
        wfs_shards_new(commit->format, commit->catalog, commit->max_shard, &commit->shards, err);
    if (code == 0)
        code = wfs_shards_fit(commit->shards, commit->catalog, &commit->fit, err);
    if (code < 0)
        return code;
    commit->account.n_files = wfs_shards_n_files(commit->shards);
    commit->account.n_bytes = wfs_shards_n_bytes(commit->shards);
    return 0;
}

int commit_plan(struct commit *commit, struct wfs_error *err)
{
    int code = commit_fit(commit, err);
    if (code == 0)
        code = commit->fit_options.is_set ? plan_set(commit, err) : plan_file(commit, err);
    if (code < 0)
        return code;
    commit->account.n_tensors = wfs_catalog_n_tensors(commit->catalog);
    const bool is_large = commit->layout != NULL ? wfs_layout_is_large(commit->layout)
                                                 : wfs_shards_is_large(commit->shards);
    if (commit->large_option != NULL && is_large)
        return wfs_fail(err, EFBIG,
                        "the output would be more than 16 times larger than what it is made of; "
                        "%s allows it",
                        commit->large_option);
    return 0;
}

/* The first tensor that the format cannot hold fails a plan; here are the others. */
static size_t report_tensors(const struct commit *commit)
{
    size_t n = 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(commit->catalog); i++) {
        struct wfs_error err = {0};
        if (wfs_format_check_tensor(commit->format, wfs_catalog_tensor(commit->catalog, i), &err) ==
            0)
            continue;
        commit->problems->visit(commit->problems->ctx, err.text);
        n++;
    }
    return n;
}

int commit_try(struct commit *commit, struct wfs_error *err)
{
    const int code = commit_plan(commit, err);
    if (code == 0 || code == -ENOMEM)
        return code;
    if (commit->catalog == NULL || report_tensors(commit) == 0)
        commit->problems->visit(commit->problems->ctx, err->text);
    return code;
}

void commit_done(struct commit *commit)
{
    wfs_layout_free(commit->layout);
    wfs_shards_free(commit->shards);
    wfs_fit_done(&commit->fit);
    commit->layout = NULL;
    commit->shards = NULL;
    commit->account = (struct wfs_report_commit){0};
    if (commit->tree == NULL)
        return;
    wfs_catalog_free(commit->catalog);
    commit->catalog = NULL;
    wfs_patch_free(commit->patch);
    commit->patch = NULL;
}

/* ---- saving ---- */

int commit_save(struct commit *commit, const char *path, const struct wfs_save_options *options,
                struct wfs_save_report *report, struct wfs_error *err)
{
    const int code = commit->shards != NULL
                         ? wfs_shards_save(commit->shards, path, options, report, err)
                         : wfs_save(commit->layout, path, options, report, err);
    if (code == 0) {
        commit->account.output = path;
        commit->account.at = time(NULL);
    }
    return code;
}

/* ---- the account ---- */

static const struct {
    const char *kind, *counted;
    const char *reason; /* before the names; %s, if any: the format */
} kinds[] = {
    [WFS_FIT_VALUE] = {"value", "value", "left out, because %s has no place for them"},
    [WFS_FIT_METADATA] = {"metadata", "metadata text",
                          "left out, because %s cannot store metadata"},
    [WFS_FIT_TIE] = {"tie", "tied name",
                     "left out, as further names of tensors that are stored once in %s"},
    [WFS_FIT_PARAM_ID] = {"param_id", "parameter id",
                          "left out, because %s cannot store parameter ids"},
    [WFS_FIT_QUANTIZATION] = {"quantization", "quantization",
                              "stored as plain integers, because %s cannot store their scales"},
    [WFS_FIT_NAME] = {"name", "name",
                      "left out with all that they make, as they are not known to be harmless"},
    [WFS_FIT_STORAGE] = {"storage", "storage", "left out, as no tensor shows them"},
    [WFS_FIT_BACKUP] = {"backup", "backup file", "left out, as backup copies of other files"},
};

enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };

int commit_report(const struct commit *commit, struct wfs_report *report)
{
    int code = commit->account.output != NULL ? wfs_report_commit(report, &commit->account) : 0;
    for (size_t i = 0; code == 0 && i < commit->fit.n_items; i++) {
        const struct wfs_fit_item *item = &commit->fit.items[i];
        code = wfs_report_leave_out(report, kinds[item->kind].kind, item->name, item->why);
    }
    for (const struct wfs_note *note = wfs_catalog_described(commit->catalog);
         note != NULL && code == 0; note = note->next)
        code = wfs_report_describe(report, note->path, note->other);
    return code;
}

static void add_count(char text[COMMIT_TEXT_MAX], const char *before, uint64_t n, const char *what)
{
    const size_t n_text = strlen(text);
    snprintf(text + n_text, COMMIT_TEXT_MAX - n_text, "%s%s", before, wfs_count(n, what).text);
}

void commit_summary(const struct commit *commit, char text[COMMIT_TEXT_MAX])
{
    const struct wfs_report_commit *account = &commit->account;
    uint64_t counts[N_KINDS] = {0};
    text[0] = '\0';
    add_count(text, "", account->n_edits, "edit");
    add_count(text, ": ", account->n_tensors, "tensor");
    add_count(text, ", ", account->n_bytes, "byte");
    if (account->n_files > 1)
        add_count(text, " in ", account->n_files, "file");
    for (size_t i = 0; i < commit->fit.n_items; i++)
        counts[commit->fit.items[i].kind]++;
    const char *before = "; left out: ";
    for (size_t i = 0; i < N_KINDS; i++) {
        if (counts[i] == 0)
            continue;
        add_count(text, before, counts[i], kinds[i].counted);
        before = ", ";
    }
    if (commit->fit.n_stored > 0)
        add_count(text, "; in metadata: ", commit->fit.n_stored, "value");
    uint64_t n_described = 0;
    for (const struct wfs_note *note = wfs_catalog_described(commit->catalog); note != NULL;
         note = note->next)
        n_described++;
    if (n_described > 0)
        add_count(text, "; with dtype and shape of a sibling: ", n_described, "tensor");
    if (commit->n_dangers > 0)
        add_count(text, "; may run code when Python loads it: ", commit->n_dangers, "name");
}

const char *commit_kind_name(enum wfs_fit_kind kind)
{
    return kinds[kind].kind;
}

static void list_left_out(const struct commit *commit, enum wfs_fit_kind kind, struct strbuf *line)
{
    enum { N_NAMED = 3 };
    const struct wfs_fit *fit = &commit->fit;
    const struct wfs_format *format = commit->format;
    const bool is_set = commit->fit_options.is_set && !format->sets_have_values;
    const bool has_room = !is_set && format->values == WFS_VALUES_ANY;
    size_t n = 0;
    for (size_t i = 0; i < fit->n_items; i++) {
        if (fit->items[i].kind != kind)
            continue;
        if (n == 0 && kind == WFS_FIT_VALUE && has_room)
            strbuf_puts(line, "left out, because a new file gets only tensors, numbers and edited "
                              "values");
        else if (n == 0)
            strbuf_printf(line, kinds[kind].reason,
                          is_set && !format->is_directory ? "a set of files" : format->name);
        if (n < N_NAMED)
            strbuf_printf(line, "%s '%s'", n > 0 ? "," : ":", wfs_quote(fit->items[i].name).text);
        n++;
    }
    if (n > N_NAMED)
        strbuf_printf(line, " and %zu more", n - N_NAMED);
}

/* Calls visit with a line, if there is one, and empties it. */
static void give(struct strbuf *line, void (*visit)(void *ctx, const char *line), void *ctx)
{
    if (line->n_bytes > 0 && !line->has_failed)
        visit(ctx, line->bytes);
    strbuf_done(line);
    *line = (struct strbuf){0};
}

void commit_each_left_out(const struct commit *commit, void (*visit)(void *ctx, const char *line),
                          void *ctx)
{
    struct strbuf line = {0};
    for (size_t i = 0; i < N_KINDS; i++) {
        list_left_out(commit, (enum wfs_fit_kind)i, &line);
        give(&line, visit, ctx);
    }
    if (commit->fit.n_stored > 0)
        strbuf_printf(&line, "values stored as metadata: %zu", commit->fit.n_stored);
    give(&line, visit, ctx);
    if (commit->fit.kept != NULL)
        strbuf_puts(&line, commit->fit.kept);
    give(&line, visit, ctx);
    if (commit->fit.needed != NULL)
        strbuf_printf(&line,
                      "the output has no value '%1$s', which readers of %2$s need: weightfs edit "
                      "--set-value '%1$s=\"NAME\"' adds it",
                      commit->fit.needed, commit->format->title);
    give(&line, visit, ctx);
}
