/* SPDX-License-Identifier: MIT */
/*
 * weightfs recover: lists, finishes, publishes or discards the edits that a crashed mount left.
 */
#include "cli/args.h"
#include "fuse/mount.h"
#include "program/place.h"
#include "program/print.h"
#include "program/unmount.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/error.h>
#include <weightfs/url.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the search for staging directories ---- */

struct leftovers {
    char **paths; /* malloc'ed, as each of them; in the order of names */
    size_t n_paths, n_room;
    bool is_below; /* one of them is not in the directory itself */
    size_t n_seen; /* names that were looked at */
    bool is_cut;   /* there was more than is searched, or some directory could not be read */
    char cut_at[PATH_MAX];
};

#define auto_leftovers cleanup(leftovers_done)

enum { N_DEPTH = 32, N_NAMES = 1000000 };

/* Takes the path over. */
static int add(struct leftovers *leftovers, char *path)
{
    if (array_reserve(&leftovers->paths, sizeof(*leftovers->paths), leftovers->n_paths, 1,
                      &leftovers->n_room) < 0) {
        free(path);
        return -ENOMEM;
    }
    leftovers->paths[leftovers->n_paths++] = path;
    return 0;
}

static void cut(struct leftovers *leftovers, const char *path)
{
    if (!leftovers->is_cut)
        snprintf(leftovers->cut_at, sizeof(leftovers->cut_at), "%s", path);
    leftovers->is_cut = true;
}

/* Looks into a directory, which is on the device, or what was mounted there since. */
static int search(struct leftovers *leftovers, int above, const char *name, const char *path,
                  dev_t device, unsigned depth)
{
    struct stat st;
    const int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 || depth == 0 ? NULL : fdopendir(fd);
    int code = 0;
    if (dir == NULL) {
        cut(leftovers, path);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    const bool is_inside = fstat(fd, &st) == 0 && st.st_dev == device;
    for (const struct dirent *found; is_inside && code == 0 && (found = readdir(dir)) != NULL;) {
        char *below;
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        if (leftovers->n_seen++ >= N_NAMES) {
            cut(leftovers, path);
            break;
        }
        if ((found->d_type != DT_DIR && found->d_type != DT_UNKNOWN) ||
            fstatat(fd, found->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
            !S_ISDIR(st.st_mode) || st.st_dev != device)
            continue;
        if (asprintf(&below, "%s/%s", path, found->d_name) < 0) {
            code = -ENOMEM;
        } else if (place_is_stage_name(found->d_name)) {
            code = add(leftovers, below);
        } else {
            code = search(leftovers, fd, found->d_name, below, device, depth - 1);
            free(below);
        }
    }
    closedir(dir);
    return code;
}

static int compare(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;
    return strcmp(*one, *other);
}

/*
 * Finds them. Follows no link, enters no other filesystem (a mount would be looked through), and
 * stops at a depth and a number of names. A path that is not a directory, or is a staging
 * directory, has none. Returns a negative errno; leftovers_done is due in any case.
 */
static int leftovers_find(const char *path, struct leftovers *ret)
{
    struct stat st;
    autofree char *whole = realpath(path, NULL);
    if (whole == NULL || stat(whole, &st) < 0 || !S_ISDIR(st.st_mode) ||
        place_is_stage_name(path_name(whole)))
        return 0;
    const size_t n_whole = strcmp(whole, "/") == 0 ? 0 : strlen(whole);
    const int code =
        search(ret, AT_FDCWD, whole, n_whole == 0 ? "" : whole, st.st_dev, N_DEPTH + 1);
    for (size_t i = 0; i < ret->n_paths; i++)
        ret->is_below |= strchr(ret->paths[i] + n_whole + 1, '/') != NULL;
    if (ret->n_paths > 1)
        qsort(ret->paths, ret->n_paths, sizeof(*ret->paths), compare);
    return code;
}

static void leftovers_done(struct leftovers *leftovers)
{
    for (size_t i = 0; i < leftovers->n_paths; i++)
        free(leftovers->paths[i]);
    free(leftovers->paths);
}

/* ---- one of them ---- */

struct recovery {
    struct receipt *receipt;
    const char *typed;
    const char *options;
    struct predecessor found;
    struct wfs_stage *stage;
    const struct wfs_leftover *leftover;
    const struct wfs_written *written; /* the commit that wrote the output; NULL: none did */
};

static void recovery_done(struct recovery *recovery)
{
    wfs_stage_close(recovery->stage);
    predecessor_done(&recovery->found);
}

enum { MAX_LIMITS = 64 };

/* Finds the commit that wrote the output, which is loaded with the limits of the user. */
static void find_written(struct recovery *recovery)
{
    const char *limits[MAX_LIMITS];
    size_t n_limits = 0;
    autofree char *copy = strdup(recovery->options);
    char *rest = copy;
    for (const char *option; (option = strsep(&rest, ",")) != NULL;) {
        if (strncmp(option, "limit.", 6) == 0 && n_limits < MAX_LIMITS)
            limits[n_limits++] = option + 6;
    }
    recovery->written =
        predecessor_written(recovery->leftover, recovery->found.output, limits, n_limits);
}

/* Opens the staging directory. EXIT_DONE without a stage: there are no edits. */
static enum exit_code find(struct recovery *recovery, const struct args *args, const char *operand)
{
    struct wfs_error err = {0};
    autofree char *boot = wfs_stage_boot();
    recovery->receipt = args->receipt;
    recovery->typed = operand;
    recovery->options = args_has(args, "options") ? args_value(args, "options") : "";
    int code = predecessor_find(operand, args_value(args, "stage"), &recovery->found, &err);
    if (code < 0)
        return print_error(code == -ENOMEM ? EXIT_UNSUPPORTED : EXIT_OUTPUT, operand, "%s",
                           err.text);
    if (recovery->found.stage == NULL)
        return EXIT_DONE;
    (void)unmount_wait_for_driver(recovery->found.stage);
    const struct wfs_stage_options options = {
        .path = recovery->found.stage, .boot = boot, .is_found = true};
    code = wfs_stage_open(&options, &recovery->stage, &err);
    if (code == -ENOENT)
        return EXIT_DONE;
    if (code < 0)
        return print_error(code == -EBUSY ? EXIT_MOUNT : EXIT_OUTPUT, operand, "%s", err.text);
    recovery->leftover = wfs_stage_leftover(recovery->stage);
    const char *base = recovery->leftover->base;
    if (recovery->found.is_output_implied && (base == NULL || !predecessor_is_beside(base))) {
        free(recovery->found.output);
        recovery->found.output = NULL;
    }
    if (recovery->found.output != NULL)
        find_written(recovery);
    return EXIT_DONE;
}

/* ---- listing ---- */

static void print_label(const char *label)
{
    printf("%-10s ", label);
}

static void print_field(const char *label, const char *text)
{
    print_label(label);
    print_escaped(stdout, text);
    putchar('\n');
}

/* The lines of a base that are listed: their first word, and what precedes the rest. The places are
 * not looked at. */
static const struct base_line {
    const char *word, *label, *prefix;
} base_lines[] = {
    {"#device", "source", ""},
    {"#output", "output", ""},
    {"option", "option", ""},
    {"view", "option", ""},
    {"#option limit", "option", "limit."},
    {"#option flag", "option", ""},
};

enum { N_BASE_LINES = sizeof(base_lines) / sizeof(*base_lines), FIRST_OPTION = 2 };

/* Returns the n-th value of a line, malloc'ed: of a source without the number of its device. */
static char *base_value(const char *base, const struct base_line *line, size_t n)
{
    int n_skipped = 0;
    autofree char *value = predecessor_base_value(base, line->word, n);
    char *whole;
    if (value == NULL)
        return NULL;
    if (line == base_lines)
        sscanf(value, "%*u %n", &n_skipped);
    return asprintf(&whole, "%s%s", line->prefix, value + n_skipped) < 0 ? NULL : whole;
}

static void list_base(const char *base)
{
    for (size_t i = 0; i < N_BASE_LINES; i++) {
        char *value;
        for (size_t j = 0; (value = base_value(base, &base_lines[i], j)) != NULL; j++) {
            print_label(base_lines[i].label);
            print_line(stdout, value);
            free(value);
        }
    }
}

static void json_base(const char *base, struct json_out *json)
{
    char *value;
    autofree char *output = predecessor_base_value(base, "#output", 0);
    json_out_text(json, "output", output);
    json_out_open_array(json, "sources");
    for (size_t j = 0; (value = base_value(base, &base_lines[0], j)) != NULL; j++) {
        json_out_open_object(json, NULL);
        json_out_text(json, "file", value);
        json_out_close(json);
        free(value);
    }
    json_out_close(json);
    json_out_open_array(json, "options");
    for (size_t i = FIRST_OPTION; i < N_BASE_LINES; i++) {
        for (size_t j = 0; (value = base_value(base, &base_lines[i], j)) != NULL; j++) {
            json_out_text(json, NULL, value);
            free(value);
        }
    }
    json_out_close(json);
}

/* The label of a record, and which of its words are printed: [first, end). */
static const struct {
    enum wfs_record_kind kind;
    const char *label;
    unsigned first, end;
} changes[] = {{WFS_RECORD_FILE, "made", 0, 1},    {WFS_RECORD_DIRECTORY, "directory", 0, 1},
               {WFS_RECORD_MOVE, "renamed", 0, 2}, {WFS_RECORD_REMOVE, "removed", 0, 1},
               {WFS_RECORD_LINK, "linked", 0, 2},  {WFS_RECORD_ATTR, "attribute", 0, 1},
               {WFS_RECORD_EDIT, "content", 1, 2}, {WFS_RECORD_SYNC, "synced", 2, 3}};

static void print_edit(const struct wfs_stage *stage, const char *number)
{
    const int64_t n_bytes = wfs_stage_n_bytes(stage, strtoull(number, NULL, 10));
    fputs(": ", stdout);
    if (n_bytes < 0) {
        fputs("removed again", stdout);
        return;
    }
    fputs("edit ", stdout);
    print_escaped(stdout, number);
    printf(", %s", wfs_count((uint64_t)n_bytes, "byte").text);
}

static int list_change(void *ctx, const struct wfs_record *record)
{
    const struct wfs_stage *stage = ctx;
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        if (changes[i].kind != record->kind)
            continue;
        print_label(changes[i].label);
        for (unsigned j = changes[i].first; j < changes[i].end && j < record->n_words; j++) {
            fputs(j > changes[i].first ? " -> " : "", stdout);
            print_escaped(stdout, record->words[j]);
        }
        if (record->kind == WFS_RECORD_ATTR && record->n_words > 1) {
            putchar(' ');
            print_escaped(stdout, record->words[1]);
        }
        if (record->kind == WFS_RECORD_EDIT && record->n_words > 0)
            print_edit(stage, record->words[0]);
        putchar('\n');
    }
    return 0;
}

static int json_change(void *ctx, const struct wfs_record *record)
{
    const struct recovery *recovery = ctx;
    struct json_out *json = receipt_json(recovery->receipt);
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        const char *const *words = (const char *const *)record->words + changes[i].first;
        if (changes[i].kind != record->kind || record->n_words < changes[i].end)
            continue;
        json_out_open_object(json, NULL);
        json_out_text(json, "change", changes[i].label);
        json_out_text(json, "path", words[0]);
        if (changes[i].end - changes[i].first > 1)
            json_out_text(json, "to", words[1]);
        if (record->kind == WFS_RECORD_ATTR && record->n_words > 1)
            json_out_text(json, "attribute", record->words[1]);
        if (record->kind == WFS_RECORD_EDIT) {
            const int64_t n_bytes =
                wfs_stage_n_bytes(recovery->stage, strtoull(record->words[0], NULL, 10));
            if (n_bytes < 0) /* removed again */
                json_out_text(json, "bytes", NULL);
            else
                json_out_i64(json, "bytes", n_bytes);
        }
        json_out_close(json);
    }
    return 0;
}

/* Returns the number of changes that are not in the output. */
static uint64_t count_pending(const struct recovery *recovery)
{
    const uint64_t n_done = recovery->written != NULL ? recovery->written->n_changes : 0;
    return recovery->leftover->n_changes - n_done;
}

/* Returns true when a commit began but did not reach its rename. */
static bool is_cut_off(const struct recovery *recovery)
{
    const enum wfs_commit_state state = recovery->leftover->commit;
    return state == WFS_COMMIT_BEGUN ||
           (state == WFS_COMMIT_COMPLETE && recovery->written != &recovery->leftover->complete);
}

static const char *describe_commit(const struct recovery *recovery)
{
    if (recovery->leftover->commit == WFS_COMMIT_NONE)
        return "none";
    if (recovery->found.output == NULL)
        return "not known: OUTPUT is not named";
    if (is_cut_off(recovery))
        return "interrupted before it was published";
    return recovery->written != NULL ? "published"
                                     : "published, but the output has been replaced since";
}

static bool is_done(const struct recovery *recovery)
{
    return recovery->leftover->bad_record == 0 && count_pending(recovery) == 0;
}

/* Adds what is left to the list of the receipt. */
static void json_leftover(struct recovery *recovery, const char *failure)
{
    const struct wfs_leftover *leftover = recovery->leftover;
    struct json_out *json = receipt_json(recovery->receipt);
    json_out_open_object(json, NULL);
    json_out_text(json, "stage", recovery->found.stage);
    json_base(leftover->base != NULL ? leftover->base : "", json);
    json_out_u64(json, "n_edits", count_pending(recovery));
    json_out_open_array(json, "changes");
    wfs_stage_each(recovery->stage, json_change, recovery);
    json_out_close(json);
    if (leftover->bad_record != 0)
        json_out_u64(json, "bad_record", leftover->bad_record);
    json_out_text(json, "commit", describe_commit(recovery));
    json_out_text(json, "failure", failure);
    json_out_close(json);
}

static void print_leftover(const struct recovery *recovery, const char *failure)
{
    const struct wfs_leftover *leftover = recovery->leftover;
    print_field("staging", recovery->found.stage);
    if (leftover->base != NULL)
        list_base(leftover->base);
    wfs_stage_each(recovery->stage, list_change, recovery->stage);
    if (leftover->bad_record != 0)
        printf("%-10s record %" PRIu64 " is damaged; what follows it is unknown\n", "journal",
               leftover->bad_record);
    print_field("commit", describe_commit(recovery));
    if (failure != NULL) {
        print_label("failure");
        print_line(stdout, failure);
    }
}

static enum exit_code list(struct recovery *recovery)
{
    autofree char *failure = wfs_stage_failure(recovery->stage);
    if (recovery->receipt->is_json)
        json_leftover(recovery, failure);
    else
        print_leftover(recovery, failure);
    if (is_done(recovery))
        return EXIT_DONE;
    const uint64_t n_pending = count_pending(recovery);
    return print_error(EXIT_OUTPUT, recovery->typed,
                       "%s not committed: --publish writes the output, "
                       "--discard removes the edits, and a mount with the same output shows them "
                       "again",
                       wfs_count_as(n_pending, "change is", "changes are").text);
}

/* ---- doing ---- */

static enum exit_code discard(struct recovery *recovery)
{
    if (recovery->found.output != NULL && (recovery->written != NULL || is_cut_off(recovery)))
        predecessor_remove_temporary(recovery->found.output);
    const uint64_t n_edits = count_pending(recovery);
    const int code = wfs_stage_discard(recovery->stage);
    if (code < 0)
        return print_error(EXIT_OUTPUT, recovery->typed, "cannot remove '%s': %s",
                           wfs_quote(recovery->found.stage).text, strerror(-code));
    receipt_text(recovery->receipt, "stage", recovery->found.stage);
    receipt_count(recovery->receipt, "n_edits", n_edits);
    return EXIT_DONE;
}

/* Returns the path of the source that the user named, malloc'ed: with an option, or as the output
 * where the mount was to replace its source. NULL: it is not named, or does not exist. */
static char *find_source(const struct recovery *recovery, const char *recorded, const char *named)
{
    static const char suffix[] = ".index.json";
    const char *output = recovery->found.output;
    autofree char *directory = path_directory(output);
    const size_t n = strlen(output), n_suffix = sizeof(suffix) - 1;
    if (named != NULL)
        return url_is(named) ? strdup(named) : realpath(named, NULL);
    if (recorded == NULL || directory == NULL)
        return NULL;
    if (strcmp(recorded, output) == 0)
        return strdup(output);
    return n > n_suffix && strcmp(output + n - n_suffix, suffix) == 0 &&
                   strcmp(recorded, directory) == 0
               ? strdup(directory)
               : NULL;
}

static bool had_options(const char *base)
{
    for (size_t i = FIRST_OPTION; i < N_BASE_LINES; i++) {
        autofree char *value = predecessor_base_value(base, base_lines[i].word, 0);
        if (value != NULL)
            return true;
    }
    return false;
}

static enum exit_code fail_source(const struct recovery *recovery, const char *recorded,
                                  const char *named)
{
    if (named != NULL)
        return print_error(EXIT_OUTPUT, recovery->typed,
                           "cannot publish: the source '%s' does not exist", wfs_quote(named).text);
    return print_error(EXIT_OUTPUT, recovery->typed,
                       "cannot publish: name the source with --source; the mount had '%s'",
                       recorded != NULL ? wfs_quote(recorded).text : "");
}

/* Lets go of the stage: mount_recover opens it again. */
static enum exit_code publish_from(struct recovery *recovery, const struct args *args,
                                   const char *source)
{
    autofree char *base = strdup(recovery->leftover->base);
    const struct mount_recovery request = {.stage = recovery->found.stage,
                                           .base = base,
                                           .source = source,
                                           .output = recovery->found.output,
                                           .options = recovery->options,
                                           .is_onto = args_has(args, "onto"),
                                           .is_forced = args_has(args, "force"),
                                           .receipt = args->receipt};
    if (base == NULL)
        return print_memory(recovery->typed);
    wfs_stage_close(recovery->stage);
    recovery->stage = NULL;
    return (enum exit_code)mount_recover(&request);
}

static enum exit_code publish(struct recovery *recovery, const struct args *args)
{
    const char *base = recovery->leftover->base;
    const char *named = args_value(args, args_has(args, "onto") ? "onto" : "source");
    if (base == NULL)
        return print_error(
            EXIT_OUTPUT, recovery->typed,
            "cannot publish: the staging directory does not record which source was edited");
    if (recovery->found.output == NULL)
        return print_error(EXIT_OUTPUT, recovery->typed,
                           "cannot publish: name the output, and with --stage the directory of the "
                           "edits");
    if (!args_has(args, "options") && had_options(base))
        return print_error(EXIT_OUTPUT, recovery->typed,
                           "cannot publish: the mount had options, which 'weightfs recover' lists; "
                           "name them with --options");
    autofree char *recorded = predecessor_base_value(base, "#source", 0);
    autofree char *source = find_source(recovery, recorded, named);
    if (source == NULL)
        return fail_source(recovery, recorded, named);
    return publish_from(recovery, args, source);
}

static enum exit_code resume(struct recovery *recovery, const struct args *args)
{
    if (is_done(recovery))
        return discard(recovery);
    if (is_cut_off(recovery))
        return publish(recovery, args);
    if (recovery->written != NULL || recovery->leftover->commit == WFS_COMMIT_NONE)
        return print_error(EXIT_OUTPUT, recovery->typed,
                           "no commit was interrupted; use --publish to commit the edits");
    return print_error(EXIT_OUTPUT, recovery->typed,
                       "the output is not the file that was published; the edits are kept");
}

static enum exit_code act(struct recovery *recovery, const struct args *args)
{
    if (args_has(args, "discard"))
        return discard(recovery);
    if (is_done(recovery) && (args_has(args, "publish") || args_has(args, "resume")))
        return discard(recovery);
    if (args_has(args, "publish"))
        return publish(recovery, args);
    return args_has(args, "resume") ? resume(recovery, args) : list(recovery);
}

static enum exit_code do_one(const struct args *args, const char *operand)
{
    cleanup(recovery_done) struct recovery recovery = {0};
    const enum exit_code exit_code = find(&recovery, args, operand);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (recovery.stage != NULL)
        return act(&recovery, args);
    receipt_notice(args->receipt, "no unfinished edits for '%s'", wfs_quote(operand).text);
    return EXIT_DONE;
}

/* Lists what each of several mounts has left. The exit code is the largest. */
static int list_all(const struct args *args, const struct leftovers *found)
{
    enum exit_code exit_code = EXIT_DONE;
    for (size_t i = 0; i < found->n_paths; i++) {
        if (i > 0 && !args->receipt->is_json)
            putchar('\n');
        const enum exit_code one = do_one(args, found->paths[i]);
        exit_code = one > exit_code ? one : exit_code;
    }
    return (int)exit_code;
}

static enum exit_code run_recover(const struct args *args)
{
    const int n_verbs =
        args_has(args, "resume") + args_has(args, "publish") + args_has(args, "discard");
    if (n_verbs > 1 || (!args_has(args, "publish") && args_value(args, "onto") != NULL))
        return print_error(EXIT_USAGE, NULL,
                           n_verbs > 1 ? "use only one of --resume, --publish and --discard"
                                       : "--onto needs --publish");
    const char *operand = args->n_operands > 0 ? args->operands[0] : ".";
    if (n_verbs == 0 && args->receipt->is_json)
        json_out_open_array(receipt_json(args->receipt), "leftovers");
    if (n_verbs == 0 && args_value(args, "stage") == NULL) {
        auto_leftovers struct leftovers found = {0};
        const int code = leftovers_find(operand, &found);
        if (code < 0)
            return print_error(EXIT_SOURCE, operand, "cannot look for edits: %s", strerror(-code));
        if (found.is_cut)
            print_warning(operand, "not all directories below were searched", found.cut_at);
        if (found.n_paths > 1)
            return list_all(args, &found);
        if (found.n_paths == 1 && found.is_below)
            return do_one(args, found.paths[0]);
    }
    return do_one(args, operand);
}

const struct verb verb_recover = {
    .operands = "[OUTPUT|DIRECTORY]",
    .text = "List the edits left by a crashed mount and the state of its last commit, or\n"
            "finish, publish or discard them. OUTPUT is the output of that mount, DIRECTORY\n"
            "that of its shards, its staging directory, or the one given with -o stage. Any\n"
            "other directory, or the current one without an operand, stands for all that\n"
            "mounts have left in it and below.\n"
            "What is published is based on the paths and options given here only.\n"
            "The exit code is 0 if nothing is left to do, otherwise 9.",
    .options = {{"discard", NULL, "delete the edits"},
                {"force", NULL, "publish unsynced edits; replace a changed output"},
                {"json", NULL, "print JSON: what is left, or what was done"},
                {"onto", "SOURCE", "publish the edits on top of another source"},
                {"options", "OPTION,...", "the options of the mount, as after -o"},
                {"publish", NULL, "save the edits to OUTPUT"},
                {"resume", NULL, "finish an interrupted commit, remove leftovers"},
                {"source", "SOURCE", "the edited source, if it is not OUTPUT"},
                {"stage", "DIRECTORY", "where the edits are, if the mount had -o stage"}},
    .run = run_recover,
};
