/* SPDX-License-Identifier: MIT */
/*
 * weightfs discard: takes edits of a running mount back, all or those of paths.
 */
#include "cli/args.h"
#include "cli/mounted.h"
#include "cli/verbs.h"
#include "program/print.h"

#include <weightfs/strbuf.h>

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

static const struct args_option options[] = {
    {"committed", NULL, "also take back edits that were committed"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "discard",
    .operands = "MOUNTPOINT [PATH...]",
    .text = "Take back the edits of a mount, which then shows its source again and goes on.\n"
            "With PATHs, only those of the files and directories there and of all below. PATH\n"
            "is the name now or the one in the source, below MOUNTPOINT; a PATH that begins\n"
            "with MOUNTPOINT/ is taken as typed.",
    .n_min = 1,
    .n_max = SIZE_MAX,
    .options = options,
};

/* Returns the part of a path that is below the mount point. */
static const char *below(const char *mountpoint, const char *path)
{
    size_t n = strlen(mountpoint);
    while (n > 1 && mountpoint[n - 1] == '/')
        n--;
    return strncmp(path, mountpoint, n) == 0 && (path[n] == '/' || path[n] == '\0') ? path + n
                                                                                    : path;
}

/* Adds a path in its shortest spelling. *is_all becomes true for the root. */
static enum exit_code add_path(const struct mounted *mounted, const char *typed,
                               struct strbuf *paths, bool *is_all)
{
    const char *path = below(mounted->path, typed);
    size_t n_names = 0;
    while (*path != '\0') {
        path += strspn(path, "/");
        const size_t n = strcspn(path, "/");
        if (n == 2 && strncmp(path, "..", 2) == 0)
            return print_error(EXIT_USAGE, mounted->path, "a PATH cannot contain '..': '%s'",
                               wfs_quote(typed).text);
        if (n > 0 && !(n == 1 && *path == '.')) {
            strbuf_puts(paths, n_names > 0 ? "/" : paths->n_bytes > 0 ? "//" : "");
            strbuf_add(paths, path, n);
            n_names++;
        }
        path += n;
    }
    *is_all |= n_names == 0;
    return EXIT_DONE;
}

static enum exit_code fill(const struct mounted *mounted, const struct args *args,
                           struct wfs_control_revert *request)
{
    autostrbuf struct strbuf paths = {0};
    bool is_all = args->n_operands == 1;
    enum exit_code exit_code = EXIT_DONE;
    for (size_t i = 1; i < args->n_operands && exit_code == EXIT_DONE; i++)
        exit_code = add_path(mounted, args->operands[i], &paths, &is_all);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (paths.has_failed)
        return print_error(EXIT_UNSUPPORTED, mounted->path, "out of memory");
    if (!is_all && paths.n_bytes >= sizeof(request->text))
        return print_error(
            EXIT_USAGE, mounted->path,
            "the PATHs take %s, and %zu is the limit; name directories, or discard in "
            "several calls",
            wfs_count(paths.n_bytes, "byte").text, sizeof(request->text) - 1);
    request->takes_committed = args_has(args, "committed");
    if (!is_all)
        memcpy(request->text, paths.bytes, paths.n_bytes + 1);
    return EXIT_DONE;
}

/* Waits until the kernel shows no old name and no old byte. */
static void wait_for_kernel(int fd)
{
    static const struct timespec pause = {.tv_nsec = 5000000};
    struct wfs_control_reply hello = {0};
    while (ioctl(fd, WFS_IOC_HELLO, &hello) == 0 && hello.error == EAGAIN)
        nanosleep(&pause, NULL);
}

int verb_discard(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_mounted struct mounted mounted = {.fd = -1};
    struct wfs_control_revert request = {0};
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    exit_code = mounted_open(&mounted, args.operands[0]);
    if (exit_code == EXIT_DONE)
        exit_code = fill(&mounted, &args, &request);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (ioctl(mounted.fd, WFS_IOC_REVERT, &request) < 0)
        return print_error(EXIT_OUTPUT, mounted.path, "cannot discard: %s", strerror(errno));
    request.text[sizeof(request.text) - 1] = '\0';
    if (request.error != 0)
        return print_error(request.error == ENOENT ? EXIT_NO_MATCH : EXIT_OUTPUT, mounted.path,
                           "cannot discard: %s", request.text);
    wait_for_kernel(mounted.fd);
    printf("discarded %s\n", wfs_count(request.n_edits, "edit").text);
    return EXIT_DONE;
}
