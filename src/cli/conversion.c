/* SPDX-License-Identifier: MIT */
/*
 * weightfs convert, edit and patch: a checkpoint written as a new file or set, as it is or with
 * edits.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/mounted.h"
#include "cli/progress.h"
#include "program/checkpoint.h"
#include "program/place.h"
#include "program/commit.h"
#include "program/destination.h"
#include "program/print.h"
#include "program/saving.h"
#include "program/suggestion.h"
#include "program/threads.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/output.h>
#include <weightfs/patch.h>
#include <weightfs/strbuf.h>
#include <weightfs/value.h>
#include <weightfs/view.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct conversion_request {
    const struct args *args; /* with the settings of a source and an output, and options of views */
    const char *source, *target;
    /*
     * Makes a catalog of the loaded one, which outlives it, or prints a line. NULL: the loaded one
     * is written.
     */
    enum exit_code (*change)(void *ctx, const struct wfs_catalog *loaded, struct wfs_catalog **out);
    void *ctx;
    const struct wfs_catalog
        *file; /* what else it makes that of; NULL: nothing that is known yet */
    const struct wfs_access
        *access; /* of what else it makes that of, read afterwards; NULL: none */
};

struct conversion {
    struct saving saving;
    struct progress progress;
    struct team team;
    struct strbuf dangers; /* a line for each */
};

/* ---- writing ---- */

/* Reports a failure of the source with another exit code than one of the target. */
static enum exit_code save_error(const struct conversion *conversion,
                                 const struct wfs_catalog *catalog, const struct wfs_error *err)
{
    size_t changed;
    if (err->code == EIO && wfs_catalog_check_sources(catalog, &changed) < 0)
        return print_error(EXIT_DAMAGED, wfs_catalog_source_path(catalog, changed), "%s",
                           err->text);
    return print_error(EXIT_OUTPUT, conversion->saving.target, "%s", err->text);
}

static int step(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct conversion *conversion = ctx;
    return progress_step(&conversion->progress, n_done, n_total);
}

static void note_danger(void *ctx, const char *text)
{
    struct conversion *conversion = ctx;
    strbuf_printf(&conversion->dangers, "weightfs: %s: %s\n",
                  wfs_quote(conversion->saving.target).text, text);
}

/* A directory that was created goes again also when a signal ends the program. */
static enum exit_code save(struct conversion *conversion, const struct wfs_catalog *catalog,
                           struct wfs_catalog *written, const struct wfs_access *access)
{
    struct wfs_error err = {0};
    struct wfs_save_options *options = &conversion->saving.save;
    if (saving_plan(&conversion->saving, written, access, &err) < 0)
        return save_error(conversion, catalog, &err);
    options->progress = step;
    options->danger = note_danger;
    options->abandon = progress_abandon;
    options->ctx = conversion;
    progress_start(&conversion->progress, "writing", 0);
    progress_hold_signals(&conversion->progress);
    team_start(&conversion->team);
    options->team = &conversion->team.team;
    const int code = saving_write(&conversion->saving, &err);
    team_end(&conversion->team);
    progress_end(&conversion->progress);
    return code < 0 ? save_error(conversion, catalog, &err) : EXIT_DONE;
}

static void note_left_out(void *ctx, const char *line)
{
    receipt_notice(ctx, "%s", line);
}

static void put_left_out(struct json_out *json, const struct wfs_fit *fit)
{
    json_out_open_array(json, "left_out");
    for (size_t i = 0; i < fit->n_items; i++) {
        json_out_open_object(json, NULL);
        json_out_text(json, "kind", commit_kind_name(fit->items[i].kind));
        json_out_text(json, "name", fit->items[i].name);
        json_out_text(json, "why", fit->items[i].why);
        json_out_close(json);
    }
    json_out_close(json);
}

/* Reports what was written, and what differs from the source without being asked for. */
static void give_receipt(const struct conversion *conversion, const struct wfs_report *report,
                         struct receipt *receipt)
{
    const struct commit *commit = &conversion->saving.commit;
    const char *notice = report != NULL ? wfs_report_notice(report) : NULL;
    receipt_output(receipt, conversion->saving.target, commit->account.n_tensors,
                   commit->account.n_files, commit->account.n_bytes);
    if (receipt->is_json)
        put_left_out(receipt_json(receipt), &commit->fit);
    if (notice != NULL)
        receipt_notice(receipt, "%s; 'weightfs plan' with the same options lists them", notice);
    commit_each_left_out(commit, note_left_out, receipt);
}

/* Counts the edits of a patch in the receipt, and the kinds that there are in a line. */
static void count_edits(struct receipt *receipt, const struct wfs_patch *patch, struct strbuf *line)
{
    struct wfs_patch_counts counts;
    wfs_patch_count(patch, &counts);
    const struct {
        uint64_t n;
        const char *member, *what;
    } kinds[] = {{counts.n_renamed, "n_renamed", "renamed"},
                 {counts.n_removed, "n_removed", "removed"},
                 {counts.n_added, "n_added", "added"},
                 {counts.n_replaced, "n_replaced", "replaced"},
                 {counts.n_described, "n_changed", "changed"},
                 {counts.n_values, "n_values", "of values"},
                 {counts.n_metadata, "n_metadata", "of metadata"}};
    const char *before = ": ";
    receipt_count(receipt, "n_edits", wfs_patch_n_edits(patch));
    strbuf_puts(line, wfs_count(wfs_patch_n_edits(patch), "edit").text);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        receipt_count(receipt, kinds[i].member, kinds[i].n);
        if (kinds[i].n == 0)
            continue;
        strbuf_printf(line, "%s%" PRIu64 " %s", before, kinds[i].n, kinds[i].what);
        before = ", ";
    }
}

/* Loads the source, and has it changed where the verb does that. */
static enum exit_code load(const struct conversion_request *request, struct wfs_catalog **loaded,
                           struct wfs_report **report, struct wfs_catalog **changed)
{
    const enum exit_code exit_code =
        input_load_report(request->args, request->source, loaded, report);
    return exit_code != EXIT_DONE || request->change == NULL
               ? exit_code
               : request->change(request->ctx, *loaded, changed);
}

static void conversion_done(struct conversion *conversion)
{
    strbuf_done(&conversion->dangers);
    saving_done(&conversion->saving);
}

/* A mistake about the file is printed behind its path. */
static enum exit_code refuse(const struct conversion *conversion, enum exit_code exit_code,
                             const struct wfs_error *err)
{
    return print_error(exit_code, exit_code == EXIT_OUTPUT ? conversion->saving.target : NULL, "%s",
                       err->text);
}

/* Loads, changes and saves; prints what is left out, or a line about what went wrong. */
static enum exit_code conversion_run(const struct conversion_request *request)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    auto_report struct wfs_report *report = NULL;
    auto_catalog struct wfs_catalog *changed = NULL;
    struct wfs_error err = {0};
    cleanup(conversion_done) struct conversion conversion = {
        .saving = {.source = request->source,
                   .destination = {.typed = request->target, .settings = &request->args->settings},
                   .keeps_format = request->change != NULL}};
    enum exit_code exit_code = saving_choose(&conversion.saving, &err);
    if (exit_code != EXIT_DONE)
        return refuse(&conversion, exit_code, &err);
    exit_code = load(request, &catalog, &report, &changed);
    if (exit_code != EXIT_DONE)
        return exit_code;
    exit_code = saving_check(&conversion.saving, catalog, request->file, &err);
    if (exit_code != EXIT_DONE)
        return refuse(&conversion, exit_code, &err);
    struct wfs_access access = wfs_catalog_access(catalog);
    if (request->access != NULL)
        wfs_access_merge(&access, request->access);
    exit_code = save(&conversion, catalog, changed != NULL ? changed : catalog, &access);
    if (exit_code != EXIT_DONE)
        return exit_code;
    receipt_sources(request->args->receipt, &request->source, 1);
    give_receipt(&conversion, report, request->args->receipt);
    fputs(conversion.dangers.bytes != NULL ? conversion.dangers.bytes : "", stderr);
    return EXIT_DONE;
}

/* ---- edit: the options become a patch, which is applied ---- */

struct editing {
    const struct args *args;
    const char *source; /* as typed */
    const struct wfs_catalog *of;
    struct wfs_patch *patch;
    struct wfs_access access;
    bool has_complained;
};

static enum exit_code fail_edit(const struct editing *editing, const char *key,
                                const struct wfs_error *err)
{
    if (err->code != ENOKEY || key == NULL)
        return print_error(err->code == ENOKEY || err->code == EEXIST ? EXIT_NO_MATCH
                           : err->code == EINVAL                      ? EXIT_USAGE
                                                                      : exit_of_errno(err->code),
                           err->code == EINVAL ? NULL : editing->source, "%s", err->text);
    return print_error(EXIT_NO_MATCH, editing->source, "%s%s", err->text,
                       suggestion_of_keys(editing->of, key, true).text);
}

/* Cuts "KEY=TEXT" at its first '='; NULL: it has none. key is malloc'ed, NULL without memory. */
static const char *split(const char *value, char **ret_key)
{
    const char *sign = strchr(value, '=');
    if (sign == NULL || sign == value)
        return NULL;
    *ret_key = strndup(value, (size_t)(sign - value));
    if (*ret_key != NULL)
        wfs_unescape(*ret_key);
    return sign + 1;
}

static enum exit_code remove_matches(struct editing *editing, const struct args_given *given)
{
    cleanup(glob_done) struct glob glob = glob_of(given->value);
    const struct wfs_catalog *of = editing->of;
    struct wfs_error err = {0};
    int code = strpbrk(given->value, "*?[\\") == NULL
                   ? wfs_patch_remove(editing->patch, of, given->value, &err)
                   : 0;
    glob.has_matched = code > 0;
    for (size_t i = 0; i < wfs_catalog_n_tensors(of) && code == 0; i++) {
        const char *key = wfs_catalog_tensor(of, i)->key;
        if (glob_matches(&glob, key) &&
            (code = wfs_patch_remove(editing->patch, of, key, &err)) > 0)
            code = 0;
    }
    for (size_t i = 0; i < wfs_catalog_n_values(of) && code == 0; i++) {
        const char *key = wfs_catalog_value_name(of, i);
        if (glob_matches(&glob, key) &&
            (code = wfs_patch_remove(editing->patch, of, key, &err)) > 0)
            code = 0;
    }
    if (code < 0)
        return fail_edit(editing, NULL, &err);
    if (glob.has_matched)
        return EXIT_DONE;
    return print_error(EXIT_NO_MATCH, editing->source, "no key matches '%s'%s",
                       wfs_quote(given->value).text,
                       suggestion_of_keys(of, given->value, true).text);
}

/* "KEY.NAME": the name is what follows the last dot. */
static int set_attribute(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                         const char *value, struct wfs_error *err)
{
    const char *dot = strrchr(key, '.');
    if (dot == NULL || dot == key)
        return wfs_fail(err, EINVAL,
                        "--set '%s': expected KEY.dtype, KEY.shape or KEY.param_id before the '='",
                        wfs_quote(key).text);
    autofree char *tensor = strndup(key, (size_t)(dot - key));
    return tensor == NULL ? wfs_fail_memory(err)
                          : wfs_patch_set(patch, of, tensor, dot + 1, value, err);
}

/* A text, or "@FILE" with it; "@@" is a text that begins with "@". */
static int set_metadata(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                        const char *value, struct wfs_error *err)
{
    enum { N_MOST = 64 << 20 };
    struct stat st;
    if (value[0] != '@' || value[1] == '@')
        return wfs_patch_set_metadata(patch, of, key, value + (value[0] == '@'), err);
    autoclose int fd = open(value + 1, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, EINVAL, "--set-metadata: cannot open '%s': %s",
                        wfs_quote(value + 1).text, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > N_MOST)
        return wfs_fail(err, EINVAL, "'%s' is not a file of at most %s", wfs_quote(value + 1).text,
                        amount_of_bytes(N_MOST).text);
    autofree char *text = calloc((size_t)st.st_size + 1, 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = read(fd, text, (size_t)st.st_size);
    if (n < 0 || strlen(text) != (size_t)n)
        return wfs_fail(err, EINVAL, n < 0 ? "cannot read '%s'" : "'%s' is not text: it has a NUL",
                        wfs_quote(value + 1).text);
    return wfs_patch_set_metadata(patch, of, key, text, err);
}

/* Options whose value is "KEY=VALUE". */
static const struct pair {
    const char *name;
    int (*apply)(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                 const char *value, struct wfs_error *err);
    const char *form;     /* what is wrong without a '=' */
    const char *no_value; /* and without what follows it; NULL: nothing is */
} pairs[] = {
    {"add", wfs_patch_add_npy, "expected KEY=VALUE",
     "nothing follows the '='; expected a .npy file"},
    {"replace", wfs_patch_replace_npy, "expected KEY=VALUE",
     "nothing follows the '='; expected a .npy file"},
    {"set", set_attribute, "expected KEY.NAME=TEXT", NULL},
    {"set-metadata", set_metadata, "expected NAME=TEXT or NAME=@FILE", NULL},
    {"set-value", wfs_patch_set_value, "expected KEY=VALUE", "nothing follows the '='"},
};

static enum exit_code apply_pair(struct editing *editing, const struct args_given *given,
                                 const struct pair *pair)
{
    autofree char *key = NULL;
    struct wfs_error err = {0};
    const char *value = split(given->value, &key);
    if (value != NULL && key == NULL)
        return print_memory(NULL);
    const char *problem = value == NULL ? pair->form : *value == '\0' ? pair->no_value : NULL;
    if (problem != NULL)
        return print_error(EXIT_USAGE, NULL, "--%s '%s': %s", given->name,
                           wfs_quote(given->value).text, problem);
    if (pair->apply(editing->patch, editing->of, key, value, &err) == 0)
        return EXIT_DONE;
    char *dot = pair->apply == set_attribute ? strrchr(key, '.') : NULL;
    if (dot != NULL)
        *dot = '\0'; /* what was not found is what precedes it */
    return fail_edit(editing, key, &err);
}

static enum exit_code apply_option(struct editing *editing, const struct args_given *given)
{
    struct wfs_error err = {0};
    if (strcmp(given->name, "remove") == 0)
        return remove_matches(editing, given);
    if (strcmp(given->name, "remove-metadata") == 0)
        return wfs_patch_set_metadata(editing->patch, editing->of, given->value, NULL, &err) < 0
                   ? fail_edit(editing, NULL, &err)
                   : EXIT_DONE;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        if (strcmp(given->name, pairs[i].name) == 0)
            return apply_pair(editing, given, &pairs[i]);
    }
    return EXIT_DONE; /* not of this verb alone */
}

/* Attributes are set last: of tensors that other options add. */
static enum exit_code make_edits(struct editing *editing)
{
    enum exit_code exit_code = EXIT_DONE;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < editing->args->n_given && exit_code == EXIT_DONE; i++) {
            const struct args_given *given = &editing->args->given[i];
            if ((strcmp(given->name, "set") == 0) == (pass == 1))
                exit_code = apply_option(editing, given);
        }
    }
    return exit_code;
}

/* The first one only: an error is one line. */
static void print_first(void *ctx, const char *line)
{
    struct editing *editing = ctx;
    if (!editing->has_complained)
        print_error(EXIT_NO_MATCH, editing->source, "%s", line);
    editing->has_complained = true;
}

static enum exit_code change_by_options(void *ctx, const struct wfs_catalog *loaded,
                                        struct wfs_catalog **out)
{
    struct editing *editing = ctx;
    struct wfs_error err = {0};
    uint64_t n_refused;
    editing->of = loaded;
    const enum exit_code exit_code = make_edits(editing);
    if (exit_code != EXIT_DONE)
        return exit_code;
    editing->access = wfs_patch_access(editing->patch);
    const struct wfs_patch_options patch_options = {.refuse = print_first, .ctx = editing};
    if (wfs_patch_apply(editing->patch, loaded, &patch_options, &n_refused, out, &err) == 0)
        return EXIT_DONE;
    return n_refused > 0 ? EXIT_NO_MATCH
                         : print_error(err.code == EINVAL ? EXIT_NO_MATCH : exit_of_errno(err.code),
                                       editing->source, "%s", err.text);
}

static enum exit_code run_edit(const struct args *args)
{
    auto_patch struct wfs_patch *patch = NULL;
    if (wfs_patch_new(&patch) < 0)
        return print_memory(NULL);
    struct editing editing = {.args = args, .source = args->operands[0], .patch = patch};
    const struct conversion_request request = {.args = args,
                                               .source = args->operands[0],
                                               .target = args->operands[1],
                                               .change = change_by_options,
                                               .ctx = &editing,
                                               .access = &editing.access};
    const enum exit_code exit_code = conversion_run(&request);
    autostrbuf struct strbuf line = {0};
    if (exit_code == EXIT_DONE)
        count_edits(args->receipt, patch, &line);
    return exit_code;
}

const struct verb verb_edit = {
    .operands = "SOURCE TARGET",
    .text = "Write SOURCE with edits to TARGET, atomically, as a mount with the same edits\n"
            "would. --rename and the other view options are applied first; all other options\n"
            "refer to the result of that, and their order does not matter. With --set, the\n"
            "bytes of a tensor stay: --set w.dtype=F16, --set w.shape=2,3. TARGET may be\n"
            "SOURCE, with --overwrite.",
    .has_source = true,
    .has_output = true,
    .examples = "weightfs edit model@2 new@2 --remove 'head.*' --rename encoder model\n"
                "weightfs edit model@2 new@2 --add scale=scale.npy",
    .options = {{"add", "KEY=FILE", "add a tensor from a .npy file"},
                {"json", NULL, "print JSON: what was written"},
                {"remove", "GLOB", "remove tensors and values by key"},
                {"remove-metadata", "NAME", "remove a metadata text"},
                {"replace", "KEY=FILE", "replace a tensor by a .npy file"},
                {"set", "KEY.NAME=TEXT", "set dtype, shape or param_id"},
                {"set-metadata", "NAME=TEXT", "set a metadata text; NAME=@FILE: to that of FILE"},
                {"set-value", "KEY=JSON", "set a value, or add it"}},
    .run = run_edit,
};

/* ---- convert ---- */

static enum exit_code run_convert(const struct args *args)
{
    if (args_has(args, "set-metadata"))
        return run_edit(args);
    const struct conversion_request request = {
        .args = args, .source = args->operands[0], .target = args->operands[1]};
    return conversion_run(&request);
}

const struct verb verb_convert = {
    .operands = "SOURCE TARGET",
    .text = "Write the tensors and metadata of SOURCE to TARGET, atomically. Reports anything\n"
            "the target format cannot store. The format is inferred from the extension of\n"
            "TARGET. If TARGET is a directory or NAME.index.json, writes shards and an index;\n"
            "a missing directory is created if the name ends with a slash.",
    .examples = "weightfs convert --cast F16 model@2 model@1\n"
                "weightfs convert --rename encoder model model@1 new@1",
    .lists_directories = true,
    .has_source = true,
    .has_output = true,
    .options = {{"json", NULL, "print JSON: what was written"},
                {"set-metadata", "NAME=TEXT", "set a metadata text; NAME=@FILE: to that of FILE"}},
    .run = run_convert,
};

/* ---- patch: edits as a file, made of a mount or of two checkpoints ---- */

#define EDITS WFS_CONTROL_NAME "/" WFS_OUT_NAME "/" WFS_PATCH_NAME

struct opened {
    struct wfs_catalog *file; /* must live longer than the patch */
    struct wfs_patch *patch;
};

static void opened_done(struct opened *opened)
{
    wfs_patch_free(opened->patch);
    wfs_catalog_free(opened->file);
}

static enum exit_code open_patch(const struct args *args, const char *path, struct opened *opened)
{
    struct wfs_error err = {0};
    const struct wfs_load_options load = {.limits = args->settings.load.limits,
                                          .n_limits = args->settings.load.n_limits};
    memory_limit(&load);
    int code = wfs_load(path_opened(path), &load, &opened->file, &err);
    if (code == 0)
        code = wfs_patch_parse(opened->file, &opened->patch, &err);
    return code < 0 ? print_error(exit_of_errno(err.code), path, "%s", err.text) : EXIT_DONE;
}

/* ---- making one ---- */

static void give_patch(const struct args *args, const struct wfs_patch *patch,
                       const struct wfs_report_commit *account)
{
    autostrbuf struct strbuf line = {0};
    receipt_sources(args->receipt, args->operands + 1, args->n_operands - 2);
    receipt_output(args->receipt, account->output, account->n_tensors, account->n_files,
                   account->n_bytes);
    count_edits(args->receipt, patch, &line);
    if (!args->receipt->is_json && !line.has_failed)
        printf("wrote '%s': %s\n", wfs_quote(account->output).text, line.bytes);
}

/* Writes the file of a patch, and reports it. */
static enum exit_code save_patch(const struct args *args, const struct wfs_patch *patch,
                                 struct wfs_catalog *file, const char *path,
                                 const struct wfs_access *access)
{
    struct wfs_error err = {0};
    struct stat st;
    struct commit commit = {.catalog = file, .format = wfs_format_by_path(WFS_PATCH_NAME)};
    struct destination destination = {.typed = path, .settings = &args->settings};
    enum exit_code exit_code = destination_check_links(&destination, path, &err);
    if (exit_code == EXIT_DONE)
        exit_code =
            destination_choose_replacement(&destination, stat(path, &st) == 0 ? &st : NULL, &err);
    if (exit_code != EXIT_DONE)
        return print_error(exit_code, path, "%s", err.text);
    struct wfs_save_options save = destination_save_options(&destination);
    struct progress progress;
    save.access = *access;
    progress_start(&progress, "writing", 0);
    progress_hold_signals(&progress);
    save.progress = progress_step;
    save.abandon = progress_abandon;
    save.ctx = &progress;
    int code = commit_plan(&commit, &err);
    if (code == 0)
        code = commit_save(&commit, path, &save, NULL, &err);
    progress_end(&progress);
    if (code == 0)
        give_patch(args, patch, &commit.account);
    commit_done(&commit);
    return code < 0 ? print_error(EXIT_OUTPUT, path, "%s", err.text) : EXIT_DONE;
}

/* The file is loaded and written again: the copy is whole, or there is none. */
static enum exit_code make_of_mount(const struct args *args, const char *mountpoint,
                                    const char *path)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    cleanup(opened_done) struct opened opened = {0};
    enum exit_code exit_code = mounted_open(&mounted, mountpoint);
    if (exit_code != EXIT_DONE)
        return exit_code;
    char *edits;
    if (asprintf(&edits, "%s/" EDITS, mountpoint) < 0)
        return print_memory(NULL);
    autofree char *owned = edits;
    autoclose int held = openat(mounted.fd, EDITS, O_RDONLY | O_CLOEXEC);
    if (held < 0)
        return print_error(EXIT_OUTPUT, mountpoint,
                           "cannot list the edits: %s; 'weightfs commit' reports which file is "
                           "the cause",
                           strerror(errno));
    exit_code = open_patch(args, owned, &opened);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct wfs_access access = {0};
    wfs_access_add(&access, mounted.fd); /* as the sources grant it; the control files do less */
    return save_patch(args, opened.patch, opened.file, path, &access);
}

static enum exit_code make_of_two(const struct args *args, const char *from, const char *to,
                                  const char *path)
{
    auto_catalog struct wfs_catalog *a = NULL;
    auto_catalog struct wfs_catalog *b = NULL;
    auto_patch struct wfs_patch *patch = NULL;
    auto_catalog struct wfs_catalog *file = NULL;
    struct wfs_error err = {0};
    enum exit_code exit_code = input_load(args, from, &a);
    if (exit_code == EXIT_DONE)
        exit_code = input_load(args, to, &b);
    if (exit_code != EXIT_DONE)
        return exit_code;
    int code = wfs_catalog_check_backup(a, path, &args->settings.backup, &err);
    if (code == 0)
        code = wfs_catalog_check_backup(b, path, &args->settings.backup, &err);
    if (code < 0)
        return print_error(EXIT_OUTPUT, path, "%s", err.text);
    code = wfs_patch_compare(a, b, args->settings.allows_large, &patch, &err);
    if (code == -EFBIG)
        return input_workload_error(from, &err, INPUT_CHOOSE_FEWER);
    if (code == 0)
        code = wfs_patch_file(patch, true, &file, &err);
    if (code < 0)
        return print_error(exit_of_errno(err.code), NULL, "%s", err.text);
    struct wfs_access access = wfs_catalog_access(a);
    const struct wfs_access more = wfs_catalog_access(b);
    wfs_access_merge(&access, &more);
    return save_patch(args, patch, file, path, &access);
}

/* ---- showing and applying ---- */

static int show_line(void *ctx, const char *line)
{
    (void)ctx;
    print_line(stdout, line);
    return ferror(stdout) ? -EIO : 0;
}

/* With --json, the text that the file itself has. */
static enum exit_code show_patch(const struct args *args, const char *path)
{
    cleanup(opened_done) struct opened opened = {0};
    autostrbuf struct strbuf line = {0};
    const enum exit_code exit_code = open_patch(args, path, &opened);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (!args->receipt->is_json)
        return wfs_patch_each(opened.patch, show_line, NULL) == -ENOMEM ? print_memory(path)
                                                                        : EXIT_DONE;
    receipt_sources(args->receipt, &path, 1);
    count_edits(args->receipt, opened.patch, &line);
    const struct wfs_text *text = wfs_catalog_meta(opened.file);
    while (strcmp(text->name, WFS_PATCH_TEXT) != 0)
        text = text->next;
    receipt_raw(args->receipt, "patch", text->value);
    return EXIT_DONE;
}

struct application {
    struct receipt *receipt;
    const char *path; /* as typed */
    const struct wfs_patch *patch;
    bool is_forced;
    uint64_t n_refused;
};

static void print_misfit(void *ctx, const char *line)
{
    struct application *application = ctx;
    receipt_notice(application->receipt, "does not fit: %s", line);
}

static enum exit_code change_by_patch(void *ctx, const struct wfs_catalog *loaded,
                                      struct wfs_catalog **out)
{
    struct application *application = ctx;
    struct wfs_error err = {0};
    const struct wfs_patch_options options = {
        .is_forced = application->is_forced, .refuse = print_misfit, .ctx = application};
    if (wfs_patch_apply(application->patch, loaded, &options, &application->n_refused, out, &err) ==
        0)
        return EXIT_DONE;
    const bool is_misfit = application->n_refused > 0 && err.code == EINVAL;
    return print_error(err.code == EINVAL ? EXIT_NO_MATCH : exit_of_errno(err.code),
                       application->path, "%s%s", err.text,
                       is_misfit ? "; --force applies the others" : "");
}

static enum exit_code apply_patch(const struct args *args)
{
    cleanup(opened_done) struct opened opened = {0};
    enum exit_code exit_code = open_patch(args, args->operands[1], &opened);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct args source_args = *args;
    source_args.settings.load.force = false; /* is about edits here, not about damage */
    struct application application = {.receipt = args->receipt,
                                      .path = args->operands[1],
                                      .patch = opened.patch,
                                      .is_forced = args->settings.load.force};
    autostrbuf struct strbuf line = {0};
    const struct wfs_access access = wfs_catalog_access(opened.file);
    const struct conversion_request request = {.args = &source_args,
                                               .source = args->operands[2],
                                               .target = args->operands[3],
                                               .change = change_by_patch,
                                               .ctx = &application,
                                               .file = opened.file,
                                               .access = &access};
    exit_code = conversion_run(&request);
    if (exit_code != EXIT_DONE)
        return exit_code;
    count_edits(args->receipt, opened.patch, &line);
    receipt_count(args->receipt, "n_refused", application.n_refused);
    if (application.n_refused > 0)
        receipt_notice(args->receipt, "left out: %s of %" PRIu64,
                       wfs_count(application.n_refused, "edit").text,
                       wfs_patch_n_edits(opened.patch));
    return EXIT_DONE;
}

static enum exit_code run_patch(const struct args *args)
{
    const char *what = args->operands[0];
    const char **operands = args->operands;
    if (strcmp(what, "make") == 0 && args->n_operands == 3)
        return make_of_mount(args, operands[1], operands[2]);
    if (strcmp(what, "make") == 0 && args->n_operands == 4)
        return make_of_two(args, operands[1], operands[2], operands[3]);
    if (strcmp(what, "show") == 0 && args->n_operands == 2)
        return show_patch(args, operands[1]);
    if (strcmp(what, "apply") == 0 && args->n_operands == 4)
        return apply_patch(args);
    return print_error(EXIT_USAGE, NULL,
                       "expected 'weightfs patch %s'; see 'weightfs patch --help'",
                       strcmp(what, "make") == 0    ? "make MNT FILE' or 'make A B FILE"
                       : strcmp(what, "show") == 0  ? "show FILE"
                       : strcmp(what, "apply") == 0 ? "apply FILE SOURCE TARGET"
                                                    : "make|show|apply");
}

const struct verb verb_patch = {
    .operands = "make|show|apply FILE...",
    .text = "weightfs patch make MNT FILE\n"
            "weightfs patch make A B FILE\n"
            "weightfs patch show FILE\n"
            "weightfs patch apply FILE SOURCE TARGET\n"
            "\n"
            "Make a patch FILE of the edits of a mount, or of those that lead from A to B;\n"
            "list its edits; or write SOURCE with these edits to TARGET, atomically. An edit\n"
            "that does not fit SOURCE is an error; with --force, the others are applied.\n"
            "The view options apply to A, B and SOURCE.",
    .n_max = 4,
    .has_source = true,
    .has_output = true,
    .options = {{"json", NULL, "print JSON: what was written, or the edits"}},
    .run = run_patch,
};
