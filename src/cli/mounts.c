/* SPDX-License-Identifier: MIT */
/*
 * weightfs status without a mount point: all mounts of this user, from the list of the kernel.
 */
#include "cli/mounts.h"

#include "cli/table.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/json_out.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

enum exit_code mounts_print(const struct args *args)
{
    static const struct table_column columns[] = {
        {.heading = "mount point", .member = "mountpoint", .is_key = true},
        {.heading = "source", .member = "source", .cuts_middle = true, .n_least = 12},
        {.heading = "state", .member = "state", .stays = true},
        {.heading = "edits", .member = "n_edits", .is_right = true},
    };
    struct json_out json = {.file = stdout, .spelling = JSON_ASCII};
    auto_table struct table table;
    const bool is_json = args_has(args, "json");
    autofree char *line = NULL;
    size_t n_room = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        return print_error(EXIT_MOUNT, "/proc/self/mountinfo", "cannot open it: %s",
                           strerror(errno));
    if (is_json) {
        print_json_start(&json);
        json_out_open_array(&json, "mounts");
        table_start_json(&table, columns, 4, &json);
    } else {
        table_start(&table, columns, 4, args);
    }
    while (getline(&line, &n_room, file) > 0)
        add_mount(&table, line);
    fclose(file);
    const int code = table_print(&table);
    if (is_json) {
        json_out_close(&json);
        json_out_close(&json);
    }
    table_print_dropped(&table);
    if (table.form == TABLE_SCREEN && table.n_cells == 0)
        puts("no mounts of this user");
    return code < 0 ? print_memory(NULL) : EXIT_DONE;
}
