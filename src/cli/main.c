/* SPDX-License-Identifier: MIT */
/*
 * The program: a table of verbs. A first argument that is none of them is a source to mount.
 */
#include "program/print.h"
#include "cli/verbs.h"
#include "fuse/mount.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct verb verbs[] = {
    {"ls", verb_ls, "list the tensors of a checkpoint"},
    {"info", verb_info, "print a summary of a checkpoint"},
    {"cat", verb_cat, "write the elements of a tensor to standard output"},
    {"show", verb_show, "print statistics, a histogram and corner values of a tensor"},
    {"check", verb_check, "check a file for damage and oddities"},
    {"config", verb_config, "print the non-tensor contents of a checkpoint as JSON"},
    {"convert", verb_convert, "convert a checkpoint to another format or view"},
    {"diff", verb_diff, "compare two checkpoints"},
    {"plan", verb_plan, "show what the view options would do (dry run)"},
    {"commit", verb_commit, "save the edits of a mount"},
    {"status", verb_status, "show the uncommitted edits and the last commit of a mount"},
    {"umount", verb_umount, "save the edits of a mount and unmount it"},
    {"recover", verb_recover, "finish, publish or discard edits left by a crashed mount"},
};

enum { N_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static void print_help(void)
{
    puts("usage: weightfs SOURCE MOUNTPOINT [-o OPTION[,OPTION...]]\n"
         "       weightfs VERB [OPTION...] OPERAND...\n"
         "\n"
         "Mount a model checkpoint as a directory of tensor files, or inspect it.\n"
         "\n"
         "verbs:");
    for (size_t i = 0; i < N_VERBS; i++)
        printf("  %-8s  %s\n", verbs[i].name, verbs[i].help);
    puts("\n"
         "common mount options:\n"
         "  output=PATH  make the mount writable and save to PATH\n"
         "  overwrite    replace PATH if it exists\n"
         "  rw           make the mount writable and save to SOURCE\n"
         "  files=npy    show every tensor as a .npy file\n"
         "  layout=flat  show a single directory, with whole keys as file names\n"
         "\n"
         "options:\n"
         "  --help     print this text\n"
         "  --version  print the versions of weightfs and libfuse\n"
         "\n"
         "See 'weightfs VERB --help' for the options of a verb, and the manual page\n"
         "weightfs(1) for all mount options.");
}

static void print_version(void)
{
    const char *library = mount_library_version();
    printf("weightfs %s\n", WFS_VERSION);
    printf("libfuse %s\n", library != NULL ? library : "none: this build cannot mount");
}

/*
 * A standard descriptor that is closed would be given to the next file opened, and what is printed
 * would go into it. It gets one that no use is made of: writing to it fails, as it should.
 */
static void occupy_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            _exit(EXIT_UNSUPPORTED);
    }
}

/* A checkpoint may be in more files than the usual soft limit allows to have open, which is for
 * programs that use select. Not up to any hard limit: fusermount3 closes all there may be, one by
 * one. */
static void raise_descriptor_limit(void)
{
    enum { N_ENOUGH = 1 << 17 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= N_ENOUGH)
        return;
    limit.rlim_cur = limit.rlim_max < N_ENOUGH ? limit.rlim_max : N_ENOUGH;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return print_error(EXIT_USAGE, NULL, "a verb or a source is wanted; see 'weightfs --help'");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        print_version();
        return EXIT_DONE;
    }
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    }
    if (strncmp(argv[1], "--", 2) == 0)
        return print_error(EXIT_USAGE, NULL, "unknown option '%s'; see 'weightfs --help'",
                           wfs_quote(argv[1]).text);
    return mount_main(argc, argv);
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    raise_descriptor_limit();
    /* A threshold that is set does not grow: large tables go back to the system when freed. */
    mallopt(M_MMAP_THRESHOLD, 512 << 10);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    return print_finish(run(argc, argv));
}
