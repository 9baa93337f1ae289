/* SPDX-License-Identifier: MIT */
/*
 * The program: a table of verbs. Any other first argument is a source to mount.
 */
#include "cli/args.h"
#include "cli/habits.h"
#include "fuse/mount.h"
#include "program/print.h"
#include "program/settings.h"
#include "program/terminal.h"
#include "program/urls.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    const struct verb *verb;
    const char *help;
} verbs[] = {
    {"ls", &verb_ls, "list the tensors of a checkpoint"},
    {"find", &verb_find, "list the tensors that fit a name or a condition"},
    {"info", &verb_info, "print a summary of a checkpoint"},
    {"cat", &verb_cat, "write the elements of a tensor to standard output"},
    {"show", &verb_show, "print statistics, a histogram and values of tensors"},
    {"check", &verb_check, "check a file for damage and oddities"},
    {"sum", &verb_sum, "print or check SHA-256 and XXH3 of each tensor"},
    {"config", &verb_config, "print the non-tensor contents of a checkpoint as JSON"},
    {"convert", &verb_convert, "convert a checkpoint to another format or view"},
    {"edit", &verb_edit, "rename, remove, replace or add parts of a checkpoint"},
    {"extract", &verb_extract, "write tensors to files, as a mount shows them"},
    {"diff", &verb_diff, "compare two checkpoints"},
    {"report", &verb_report, "draw a checkpoint, or what differs, as an HTML page"},
    {"map", &verb_map, "draw the parameters by module as an SVG picture"},
    {"plan", &verb_plan, "show what the view options would do (dry run)"},
    {"patch", &verb_patch, "make edits a file of their own, or apply one"},
    {"cache", &verb_cache, "list, verify or clear what was fetched of URLs and kept"},
    {"commit", &verb_commit, "save the edits of a mount"},
    {"status", &verb_status, "show the uncommitted edits and the last commit of a mount"},
    {"discard", &verb_discard, "take back the edits of a mount"},
    {"umount", &verb_umount, "save the edits of a mount and unmount it"},
    {"recover", &verb_recover, "finish, publish or discard edits left by a crashed mount"},
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
         "See 'weightfs VERB --help' for the options of a verb, 'weightfs help common' for\n"
         "those of URLs and limits, and the manual page weightfs(1) for mount options.");
}

static void print_version(void)
{
    const char *library = mount_library_version();
    printf("weightfs %s\n", WFS_VERSION);
    printf("libfuse %s\n", library != NULL ? library : "none: this build cannot mount");
}

/*
 * A closed standard descriptor would be given to the next file opened, and output would go into
 * that file. It gets /dev/null, opened so that reading from it or writing to it fails.
 */
static void occupy_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            _exit(EXIT_UNSUPPORTED);
    }
}

/* A checkpoint may have more files than the usual soft limit, which is for programs that use
 * select. The hard limit may be too much: fusermount3 closes every possible descriptor, one by one.
 */
static void raise_descriptor_limit(void)
{
    enum { N_ENOUGH = 1 << 17 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= N_ENOUGH)
        return;
    limit.rlim_cur = limit.rlim_max < N_ENOUGH ? limit.rlim_max : N_ENOUGH;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(name, verbs[i].name) == 0)
            return verbs[i].verb;
    }
    return NULL;
}

static int refuse_verb(const char *name, char *const *words)
{
    struct spelling spelling;
    autostrbuf struct strbuf line = {0};
    const struct habits_words typed = {.verb = name, .words = words};
    if (habits_add_verb(&typed, &line) && !line.has_failed)
        return print_error(EXIT_USAGE, NULL, "no verb '%s'; use '%s'", wfs_quote(name).text,
                           line.bytes);
    spelling_start(&spelling, name);
    for (size_t i = 0; i < N_VERBS; i++)
        spelling_try(&spelling, verbs[i].name);
    if (spelling.best != NULL)
        return print_error(EXIT_USAGE, NULL, "no verb '%s'; did you mean '%s'?",
                           wfs_quote(name).text, spelling.best);
    return print_error(EXIT_USAGE, NULL, "no verb '%s'; see 'weightfs --help'",
                       wfs_quote(name).text);
}

/* `weightfs help [VERB|common]` */
static int help(int argc, char **argv)
{
    static char flag[] = "--help";
    if (argc == 2 || strcmp(argv[2], argv[1]) == 0) {
        print_help();
        return EXIT_DONE;
    }
    if (strcmp(argv[2], "common") == 0) {
        args_print_common();
        return EXIT_DONE;
    }
    const struct verb *verb = find_verb(argv[2]);
    char *words[] = {argv[2], flag, NULL};
    return verb != NULL ? args_run(verb, 2, words) : refuse_verb(argv[2], argv + argc);
}

/* A missing source whose mount point, if any, cannot be one, or that is a verb elsewhere: a verb
 * was meant. */
static bool is_mistyped_verb(int argc, char **argv)
{
    struct stat st;
    autostrbuf struct strbuf line = {0};
    const struct habits_words typed = {.verb = argv[1], .words = argv + 2};
    if (access(argv[1], F_OK) < 0 && errno == ENOENT && habits_add_verb(&typed, &line))
        return true;
    return strpbrk(argv[1], "/.-:") == NULL && access(argv[1], F_OK) < 0 && errno == ENOENT &&
           (argc == 2 || (stat(argv[2], &st) == 0 && !S_ISDIR(st.st_mode)));
}

/* "FILE ls" would mount on a new directory of that name. */
static bool is_verb_last(int argc, char **argv)
{
    struct stat st;
    return argc >= 3 && argv[1][0] != '-' && find_verb(argv[2]) != NULL &&
           lstat(argv[2], &st) < 0 && errno == ENOENT;
}

/* "SOURCE MOUNTPOINT --help" */
static bool asks_for_help(char **argv)
{
    for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, "--help") == 0)
            return true;
    }
    return false;
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return print_error(EXIT_USAGE, NULL, "missing VERB or SOURCE; see 'weightfs --help'");
    const struct verb *verb = find_verb(argv[1]);
    if (strcmp(argv[1], "-h") == 0 || (verb == NULL && asks_for_help(argv + 1))) {
        print_help();
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        print_version();
        return EXIT_DONE;
    }
    if (verb != NULL)
        return args_run(verb, argc - 1, argv + 1);
    if (strcmp(argv[1], "help") == 0 && access("help", F_OK) < 0)
        return help(argc, argv);
    if (is_verb_last(argc, argv))
        return print_error(EXIT_USAGE, NULL,
                           "the verb comes first: 'weightfs %s %s%s' (to mount on a new directory "
                           "of that name, write './%s')",
                           argv[2], wfs_quote(argv[1]).text, argc > 3 ? " ..." : "", argv[2]);
    if (strncmp(argv[1], "--", 2) == 0)
        return print_error(EXIT_USAGE, NULL, "unknown option '%s'; see 'weightfs --help'",
                           wfs_quote(argv[1]).text);
    if (strcmp(argv[1], "mount") == 0 && access("mount", F_OK) < 0)
        return print_error(EXIT_USAGE, NULL,
                           "'mount' is not a verb: use 'weightfs SOURCE MOUNTPOINT'");
    if (is_mistyped_verb(argc, argv))
        return refuse_verb(argv[1], argv + 2);
    return mount_main(argc, argv);
}

/* What the URLs of a word are, by the options of the verb; those of a mount follow -o. */
static enum urls_kind kind_of(const void *verb, const char *word, enum urls_kind *ret_next)
{
    const char *list = verb == NULL && word[0] == '-' && word[1] != '-' ? strchr(word, 'o') : NULL;
    const char *argument = verb == NULL ? NULL : args_argument(verb, word);
    const bool is_list = list != NULL || (argument != NULL && strstr(argument, ",...") != NULL);
    const bool is_text = argument != NULL &&
                         (strstr(argument, "=TEXT") != NULL || strstr(argument, "=JSON") != NULL);
    const enum urls_kind kind = is_list ? URLS_LIST : is_text ? URLS_TEXT : URLS_WORD;
    const bool is_next = list != NULL ? list[1] == '\0' : strchr(word, '=') == NULL;
    *ret_next = is_next ? kind : URLS_WORD;
    return kind;
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    raise_descriptor_limit();
    /* A threshold that is set does not grow: large tables go back to the system when freed. */
    mallopt(M_MMAP_THRESHOLD, 512 << 10);
    /* Buffers of reads that follow each other do not: their pages would be cleared each time. */
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
    signal(SIGXFSZ, SIG_IGN); /* a write above `ulimit -f` fails instead */
    if (wrapping_start() < 0 ||
        urls_take(argc, argv, kind_of, argc < 2 ? NULL : find_verb(argv[1])) < 0)
        return print_memory(NULL);
    return print_finish(run(argc, argv));
}
