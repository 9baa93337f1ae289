/* SPDX-License-Identifier: MIT */
/*
 * The program: a table of verbs. A first argument that is none of them is a source to mount.
 */
#include "cli/print.h"
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
    {"info", verb_info, "tell what a checkpoint is, as a whole"},
    {"cat", verb_cat, "write the bytes of one tensor to standard output"},
    {"show", verb_show, "show one tensor: statistics, histogram, corner values"},
    {"check", verb_check, "verify everything that can be verified"},
    {"config", verb_config, "print what a checkpoint holds besides tensors"},
    {"convert", verb_convert, "write a checkpoint anew"},
    {"diff", verb_diff, "tell in what two checkpoints differ"},
    {"plan", verb_plan, "tell what the options of a view would do"},
    {"commit", verb_commit, "write the edits of a mount to its output, and wait"},
    {"status", verb_status, "print pending edits of a mount and its last commit"},
    {"recover", verb_recover, "finish, publish or discard what a mount left that died"},
    {"umount", verb_umount, "commit, unmount, and wait for the end of both"},
};

enum { N_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static void print_help(void)
{
    puts("usage: weightfs SOURCE MOUNTPOINT [-o OPTION[,OPTION...]]\n"
         "       weightfs VERB [OPTION...] OPERAND...\n"
         "\n"
         "Mounts a model checkpoint as a tree of tensor files, or looks into one.\n"
         "\n"
         "verbs:");
    for (size_t i = 0; i < N_VERBS; i++)
        printf("  %-8s  %s\n", verbs[i].name, verbs[i].help);
    puts("\n"
         "mount options, among others:\n"
         "  output=PATH  makes the tree writable; a commit writes PATH\n"
         "  rw           makes the tree writable; a commit replaces SOURCE\n"
         "  overwrite    PATH may be replaced where it is there\n"
         "  files=npy    every tensor is a .npy file\n"
         "  layout=flat  one directory with whole keys as names\n"
         "\n"
         "'weightfs VERB --help' tells about a verb, 'man weightfs' about everything.\n"
         "\n"
         "options:\n"
         "  --help     print this text\n"
         "  --version  print the versions of the program and of libfuse");
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
