/* SPDX-License-Identifier: MIT */
/*
 * weightfs status: the mounts of this user, from the list of the kernel; the edits of one, and its
 * last commit; or how it ends. A driver holds the lock of its staging directory until it ends, and
 * removes the directory if nothing is left in it.
 */
#include "cli/args.h"
#include "cli/mounted.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "program/place.h"
#include "program/print.h"
#include "program/unmount.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/json_out.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- all mounts ---- */

/* Replaces "\\040" by the character, in place. */
static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        unsigned code;
        int n = 0;
        if (sscanf(from, "\\%3o%n", &code, &n) == 1 && n == 4) {
            *to = (char)code;
            from += n;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* What the driver says of its mount. */
static void add_state(struct table *table, const char *place)
{
    struct wfs_control_reply hello = {0};
    autoclose int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, WFS_IOC_HELLO, &hello) < 0) {
        table_text(table, COLOUR_ERROR, errno == ENOTCONN ? "its driver has died" : "no answer");
        table_exact(table, NULL);
        return;
    }
    table_text(table, COLOUR_NONE, *hello.text != '\0' ? "writable" : "read-only");
    table_exact(table, &(uint64_t){hello.n_edits});
}

/* Adds a line of the list if it is a mount of this user. */
static void add_mount(struct table *table, const char *line)
{
    autofree char *place = NULL;
    autofree char *source = NULL;
    char user[32];
    const char *type = strstr(line, " - fuse.weightfs ");
    snprintf(user, sizeof(user), "user_id=%u,", (unsigned)geteuid());
    if (type == NULL || strstr(type, user) == NULL ||
        sscanf(line, "%*d %*d %*s %*s %ms", &place) != 1 ||
        sscanf(type, " - %*s %ms", &source) != 1)
        return;
    decode(place);
    decode(source);
    table_name(table, COLOUR_NONE, place);
    table_name(table, COLOUR_NONE, source);
    add_state(table, place);
}

static enum exit_code print_mounts(const struct args *args)
{
    static const struct table_column columns[] = {
        {.heading = "mount point", .member = "mountpoint", .is_key = true},
        {.heading = "source", .member = "source", .cuts_middle = true, .n_least = 12},
        {.heading = "state", .member = "state", .stays = true},
        {.heading = "edits", .member = "n_edits", .is_right = true},
    };
    struct json_out *json = receipt_json(args->receipt);
    auto_table struct table table;
    autofree char *line = NULL;
    size_t n_room = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        return print_error(EXIT_MOUNT, "/proc/self/mountinfo", "cannot open it: %s",
                           strerror(errno));
    if (json != NULL) {
        json_out_open_array(json, "mounts");
        table_start_json(&table, columns, 4, json);
    } else {
        table_start(&table, columns, 4, args);
    }
    while (getline(&line, &n_room, file) > 0)
        add_mount(&table, line);
    fclose(file);
    const int code = table_print(&table);
    if (json != NULL)
        json_out_close(json);
    table_print_dropped(&table);
    if (table.form == TABLE_SCREEN && table.n_cells == 0)
        puts("no mounts of this user");
    return code < 0 ? print_memory(NULL) : EXIT_DONE;
}

/* ---- waiting for the end ---- */

struct watch {
    struct receipt *receipt;
    const char *operand;
    int stage; /* the directory */
    struct progress progress;
    bool is_committing;        /* the progress is that of a commit */
    struct wfs_status *status; /* the last that was read, or NULL */
};

static bool has_ended(const struct watch *watch)
{
    if (flock(watch->stage, LOCK_SH | LOCK_NB) < 0)
        return errno != EWOULDBLOCK && errno != EINTR;
    flock(watch->stage, LOCK_UN);
    return true;
}

/* The text is replaced as a whole: what cannot be read now can be the next time. */
static void read_status(struct watch *watch)
{
    struct wfs_status *status = mounted_read_status(watch->stage, "status.json");
    if (status == NULL)
        return;
    free(watch->status);
    watch->status = status;
    const bool is_committing = status->state == WFS_MOUNT_COMMITTING;
    if (is_committing != watch->is_committing) {
        progress_end(&watch->progress);
        progress_start(&watch->progress, is_committing ? "committing" : "waiting", 0);
        watch->is_committing = is_committing;
    }
    mounted_draw(&watch->progress, status);
}

static enum exit_code report_end_of(const struct watch *watch)
{
    const struct wfs_status *status = watch->status;
    struct stat st;
    const bool has_output = status != NULL && status->output != NULL;
    if (fstat(watch->stage, &st) == 0 && st.st_nlink > 0) {
        const char *reason = status != NULL ? status->text : NULL;
        return print_error(EXIT_OUTPUT, watch->operand,
                           "the mount has ended, but its last edits are not committed%s%s",
                           reason != NULL ? ": " : "", reason != NULL ? reason : "");
    }
    const bool is_committed = has_output && (status->state == WFS_MOUNT_COMMITTING ||
                                             status->state == WFS_MOUNT_PUBLISHED ||
                                             status->state == WFS_MOUNT_PUBLISHED_UNSYNCED);
    receipt_text(watch->receipt, "output", is_committed ? status->output : NULL);
    if (is_committed)
        receipt_notice(watch->receipt, "the mount has ended; its edits are committed to '%s'",
                       wfs_quote(status->output).text);
    else
        receipt_notice(watch->receipt, "the mount has ended; no edits are left");
    return EXIT_DONE;
}

static enum exit_code watch_stage(struct receipt *receipt, const char *operand, const char *path)
{
    /* A commit of a small checkpoint takes less than a tenth of a second, and is to be seen. */
    static const struct timespec pause = {.tv_nsec = 10000000};
    struct watch watch = {.receipt = receipt, .operand = operand};
    autoclose int stage = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage < 0 && errno != ENOENT)
        return print_error(EXIT_MOUNT, path, "cannot open: %s", strerror(errno));
    if (stage < 0) {
        receipt_text(receipt, "output", NULL);
        receipt_notice(receipt, "no mount saves edits there");
        return EXIT_DONE;
    }
    watch.stage = stage;
    progress_start(&watch.progress, "waiting", 0);
    read_status(&watch);
    while (!has_ended(&watch)) {
        nanosleep(&pause, NULL);
        read_status(&watch);
    }
    progress_end(&watch.progress);
    const enum exit_code exit_code = report_end_of(&watch);
    free(watch.status);
    return exit_code;
}

static enum exit_code watch_output(struct receipt *receipt, const char *operand)
{
    cleanup(predecessor_done) struct predecessor found;
    struct wfs_error err = {0};
    if (predecessor_find(operand, NULL, &found, &err) < 0)
        return print_error(EXIT_MOUNT, operand, "%s", err.text);
    if (found.stage != NULL)
        return watch_stage(receipt, operand, found.stage);
    return print_error(EXIT_MOUNT, operand,
                       "is neither a weightfs mount point nor the output of one");
}

/*
 * operand: a mount point, or the output of a mount or its staging directory, where it is unmounted
 * already. Prints what became of the edits. Unless EXIT_DONE, a line was printed on stderr.
 */
static enum exit_code watch_run(struct receipt *receipt, const char *operand)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    if (!unmount_is_root(operand))
        return watch_output(receipt, operand);
    const enum exit_code exit_code = mounted_open(&mounted, operand);
    if (exit_code != EXIT_DONE)
        return exit_code;
    mounted_close(&mounted);
    if (!mounted.is_writable)
        return print_error(EXIT_MOUNT, operand, "is read-only: it has no edits to save");
    if (strcmp(mounted.stage, WFS_HELLO_HIDDEN) == 0)
        return print_error(EXIT_MOUNT, operand, "only the user who mounted it can watch it");
    return watch_stage(receipt, operand, mounted.stage);
}

/* ---- one of them ---- */

static void print_field(const char *label, const char *text)
{
    if (text == NULL)
        return;
    printf("%-12s ", label);
    print_line(stdout, text);
}

static void print_time(int64_t seconds)
{
    const time_t time = (time_t)seconds;
    struct tm local;
    char text[64] = "never";
    if (time != 0 && localtime_r(&time, &local) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
    print_field("committed", text);
}

static void print_status(const struct wfs_status *status)
{
    print_field("state", wfs_mount_state_name(status->state));
    printf("%-12s %" PRIu64 "\n", "edits", status->n_edits);
    print_field("output", status->output);
    if (status->output != NULL)
        print_time(status->committed_at);
    if (status->n_needed > 0)
        printf("%-12s %s of %s\n", "fetched", amount_of_bytes(status->n_fetched).text,
               amount_of_bytes(status->n_needed).text);
    print_field("written", status->written);
    print_field("step", status->step);
    print_field("message", status->text);
}

/* Names in the text are escaped when they are printed, line by line. */
static enum exit_code list_edits(const struct mounted *mounted, struct receipt *receipt)
{
    const bool is_json = receipt->is_json;
    autofree char *text = mounted_read(mounted->fd, is_json ? WFS_CONTROL_NAME "/edits.json"
                                                            : WFS_CONTROL_NAME "/edits.txt");
    if (text == NULL)
        return print_error(EXIT_MOUNT, mounted->path, "cannot list the edits: %s", strerror(errno));
    if (is_json) {
        receipt_text(receipt, "mountpoint", mounted->path);
        receipt_raw(receipt, "changes", text);
        return EXIT_DONE;
    }
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        print_line(stdout, line);
    }
    if (*text == '\0')
        puts("no edits");
    return EXIT_DONE;
}

static enum exit_code run_status(const struct args *args)
{
    auto_mounted struct mounted mounted = {.fd = -1};
    const bool is_of_one = args_has(args, "watch") || args_has(args, "edits");
    if (args->n_operands == 0)
        return !is_of_one ? print_mounts(args)
                          : print_error(EXIT_USAGE, NULL,
                                        "missing MOUNTPOINT; usage: weightfs status MOUNTPOINT");
    if (args_has(args, "watch"))
        return watch_run(args->receipt, args->operands[0]);
    enum exit_code exit_code = mounted_open(&mounted, args->operands[0]);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (args_has(args, "edits"))
        return list_edits(&mounted, args->receipt);
    autofree char *text = mounted_read(mounted.fd, MOUNTED_STATUS);
    if (text == NULL)
        return print_error(EXIT_MOUNT, mounted.path, "cannot read the status: %s", strerror(errno));
    if (args_has(args, "json")) {
        print_json(stdout, text, strlen(text));
        return EXIT_DONE;
    }
    autofree struct wfs_status *status = NULL;
    if (wfs_status_parse(text, strlen(text), &status) < 0)
        return print_error(EXIT_MOUNT, mounted.path, "cannot understand the status of this mount");
    print_status(status);
    return EXIT_DONE;
}

const struct verb verb_status = {
    .operands = "[MOUNTPOINT]",
    .text = "Show how many edits of a mount are not committed, and the result of its last\n"
            "commit; without MOUNTPOINT, list all mounts of this user. With --edits, list in\n"
            "what the mount differs from its source, a line for each name and file;\n"
            "'weightfs diff MOUNTPOINT' shows by how much. With --watch, show the progress of\n"
            "commits until the mount has ended; where it is unmounted already, name its\n"
            "output in place of MOUNTPOINT.",
    .options = {{"edits", NULL, "list what was renamed, removed, added, changed"},
                {"json", NULL, "print JSON"},
                {"watch", NULL, "wait until the mount is saved and gone"}},
    .run = run_status,
};
