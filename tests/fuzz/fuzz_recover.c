/* SPDX-License-Identifier: MIT */
/*
 * What a stranger may have put beside an output: a staging directory, and the note beside a set. An
 * input describes their files. One command of the program is run there, and everything that the
 * command does not name must be as it was.
 *
 *     310                         number of the command, of the output, 1: with overwrite
 *     == journal
 *     O x                         each line gets its checksum and its number
 *     B @p0 notes
 *     == link data/1 2            a symbolic link to file 2; `hard` makes a second name of it
 *
 * In the text of a file, @iN, @sN, @mN, @xN and @pN stand for inode, size, time, digest and path of
 * file N of the table below, @d0 for the device, and @b0 for a base that fits.
 */
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include "cli/args.h"
#include "fuse/process.h"
#include "fuse/driver.h"
#include "fuse/keeper.h"
#include "fuse/log.h"
#include "fuse/mount_options.h"
#include "fuse/publication.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { N_PATH = 512, N_INPUT = 1 << 16, N_KEPT = 32 << 20 };

#define demand(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(STDERR_FILENO, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define TENSOR "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   "
#define MODEL(content) "\x38\0\0\0\0\0\0\0" TENSOR content
#define SHARD "model-00001-of-00001.safetensors"

/* The files that exist before. */
static const struct {
    const char *path, *bytes;
    size_t n_bytes; /* 0: a text */
} files[] = {
    {"home/notes", "one line without an end", 0},
    {"home/model.safetensors", MODEL("mine"), 68},
    {"given/source.safetensors", MODEL("1234"), 68},
    {"given/mine.safetensors", MODEL("5678"), 68},
    {"given/.hidden.weightfs.tmp", "a name like ours", 0},
    {"set/model.safetensors.index.json", "{\"weight_map\": {\"w\": \"" SHARD "\"}}", 0},
    {"set/" SHARD, MODEL("9abc"), 68},
    {"set/other-00001-of-00001.safetensors", MODEL("defg"), 68},
    {"set/.other-00001-of-00001.safetensors.weightfs.tmp", "a name like ours", 0},
};

enum { N_FILES = sizeof(files) / sizeof(*files), SOURCE = 2, MINE = 3, IN_SET = 5 };

enum command { LIST, DISCARD, RESUME, PUBLISH, FORCE, ONTO, MOUNT, CONVERT, N_COMMANDS };

static struct {
    char root[N_PATH];
    char *base;
    uint64_t digests[N_FILES];
    FILE *nowhere;
} state;

/* What an input asks for. */
struct request {
    enum command command;
    bool is_mine, has_overwrite;
    char output[N_PATH], stage[N_PATH], note[N_PATH], set[N_PATH];
};

static void join(char path[N_PATH], const char *name)
{
    demand(snprintf(path, N_PATH, "%s/%s", state.root, name) < N_PATH);
}

/* ---- making and removing ---- */

static void put(const char *path, const void *bytes, size_t n_bytes)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    demand(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
}

static void make_file(size_t i)
{
    char path[N_PATH];
    join(path, files[i].path);
    put(path, files[i].bytes, files[i].n_bytes > 0 ? files[i].n_bytes : strlen(files[i].bytes));
}

static void remove_all(const char *path)
{
    char *paths[] = {(char *)(uintptr_t)path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    demand(walk != NULL);
    for (const FTSENT *found; (found = fts_read(walk)) != NULL;) {
        if (found->fts_info == FTS_DP)
            rmdir(found->fts_accpath);
        else if (found->fts_info != FTS_D)
            unlink(found->fts_accpath);
    }
    fts_close(walk);
}

static void make_set(void)
{
    char path[N_PATH];
    join(path, "set");
    remove_all(path);
    demand(mkdir(path, 0700) == 0);
    for (size_t i = IN_SET; i < N_FILES; i++)
        make_file(i);
}

/* ---- looking ---- */

static int compare(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* May the command change what is at the path? */
static bool is_named(const struct request *request, const char *path)
{
    const bool replaces = !request->is_mine || request->has_overwrite || request->command == FORCE;
    const char *name = strrchr(path, '/') + 1;
    if (request->command == CONVERT)
        return strncmp(path, request->set, strlen(request->set)) == 0 &&
               (strncmp(name, "model", 5) == 0 || strncmp(name, ".model", 6) == 0);
    return strcmp(path, request->stage) == 0 || (strcmp(path, request->output) == 0 && replaces);
}

static void add_file(struct strbuf *text, const FTSENT *found)
{
    const struct stat *st = found->fts_statp;
    char bytes[256];
    strbuf_printf(text, "%s %o %llu", found->fts_path, st->st_mode, (unsigned long long)st->st_ino);
    if (S_ISREG(st->st_mode)) {
        autoclose int fd = open(found->fts_accpath, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        const ssize_t n = read(fd, bytes, sizeof(bytes));
        demand(fd >= 0 && n >= 0);
        strbuf_printf(text, " %lld.%ld ", (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
        strbuf_add(text, bytes, (size_t)n);
    }
    strbuf_puts(text, "\n");
}

/* All that the command does not name. */
static void look(const struct request *request, struct strbuf *text)
{
    char *paths[] = {state.root, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, compare);
    demand(walk != NULL);
    for (FTSENT *found; (found = fts_read(walk)) != NULL;) {
        if (found->fts_level > 0 && is_named(request, found->fts_path))
            fts_set(walk, found, FTS_SKIP);
        else if (found->fts_info != FTS_DP)
            add_file(text, found);
    }
    fts_close(walk);
    demand(!text->has_failed);
}

/* ---- the files of an input ---- */

static void add_token(struct strbuf *text, char kind, size_t i)
{
    char path[N_PATH];
    struct stat st;
    join(path, files[i].path);
    demand(lstat(path, &st) == 0);
    const uint64_t mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
    const uint64_t number = kind == 'i'   ? st.st_ino
                            : kind == 's' ? (uint64_t)st.st_size
                            : kind == 'm' ? mtime
                            : kind == 'x' ? state.digests[i]
                                          : st.st_dev;
    if (kind == 'p' || kind == 'b')
        strbuf_puts(text, kind == 'p' ? path : state.base);
    else
        strbuf_printf(text, "%" PRIu64, number);
}

static void expand(const char *at, size_t n_bytes, struct strbuf *text)
{
    for (const char *end = at + n_bytes; at < end;) {
        const bool is_token = *at == '@' && end - at >= 3 && strchr("ismxpdb", at[1]) != NULL &&
                              at[1] != '\0' && at[2] >= '0' && at[2] < '0' + N_FILES;
        if (is_token)
            add_token(text, at[1], (size_t)(at[2] - '0'));
        else
            strbuf_add(text, at, 1);
        at += is_token ? 3 : 1;
    }
}

static uint32_t crc32c(const char *bytes, size_t n_bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static void number_lines(const struct strbuf *plain, struct strbuf *text)
{
    unsigned long number = 0;
    for (size_t at = 0; at < plain->n_bytes;) {
        autostrbuf struct strbuf line = {0};
        const char *feed = memchr(plain->bytes + at, '\n', plain->n_bytes - at);
        const size_t n = feed != NULL ? (size_t)(feed - plain->bytes) - at : plain->n_bytes - at;
        strbuf_printf(&line, "%lu ", ++number);
        strbuf_add(&line, plain->bytes + at, n);
        strbuf_printf(text, "%08" PRIx32 " ", crc32c(line.bytes, line.n_bytes));
        strbuf_add(text, line.bytes, line.n_bytes);
        strbuf_puts(text, "\n");
        at += n + 1;
    }
}

/* Returns the path of one of the few names that a file of an input may have, or NULL. */
static const char *place_of(const struct request *request, const char *name, char path[N_PATH])
{
    static const char *const names[] = {"journal",
                                        "base",
                                        "data",
                                        "data/1",
                                        "data/2",
                                        "source",
                                        "source/new.safetensors",
                                        "source/mine.safetensors",
                                        "status.json",
                                        "base.tmp",
                                        "journal.tmp"};
    if (strcmp(name, "note") == 0)
        return request->note;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(names[i], name) == 0 &&
            snprintf(path, N_PATH, "%s/%s", request->stage, name) < N_PATH)
            return path;
    }
    return NULL;
}

/* Makes the directory of a file in the staging directory; false: something else is there. */
static bool make_directory(const char *path)
{
    struct stat st;
    char directory[N_PATH];
    strcpy(directory, path);
    *strrchr(directory, '/') = '\0';
    return (lstat(directory, &st) == 0 && S_ISDIR(st.st_mode)) || mkdir(directory, 0700) == 0;
}

static void plant(const struct request *request, const char *title, const char *at, size_t n_bytes)
{
    char kind[8], name[40], path[N_PATH], target[N_PATH];
    unsigned i;
    autostrbuf struct strbuf text = {0}, lines = {0};
    const bool is_link = sscanf(title, "%7s %39s %u", kind, name, &i) == 3 && i < N_FILES &&
                         (strcmp(kind, "link") == 0 || strcmp(kind, "hard") == 0);
    const char *place = place_of(request, is_link ? name : title, path);
    if (place == NULL || !make_directory(place) || access(place, F_OK) == 0)
        return;
    if (is_link) {
        join(target, files[i].path);
        demand((kind[0] == 'l' ? symlink(target, place) : link(target, place)) == 0 ||
               access(place, F_OK) < 0);
        return;
    }
    expand(at, n_bytes, &text);
    if (strcmp(title, "journal") == 0)
        number_lines(&text, &lines);
    const struct strbuf *chosen = strcmp(title, "journal") == 0 ? &lines : &text;
    demand(!chosen->has_failed);
    struct stat st;
    if (lstat(place, &st) < 0)
        put(place, chosen->n_bytes > 0 ? chosen->bytes : "", chosen->n_bytes);
}

static void plant_all(const struct request *request, char *text)
{
    for (char *at = strstr(text, "\n== "); at != NULL;) {
        char *title = at + 4;
        char *body = strchr(title, '\n');
        if (body == NULL)
            return;
        char *next = strstr(body, "\n== ");
        *body++ = '\0';
        /* The line feed before the next title is the end of the last line. */
        const size_t n = next == NULL ? strlen(body) : next < body ? 0 : (size_t)(next + 1 - body);
        plant(request, title, body, n);
        at = next;
    }
}

/* ---- commands ---- */

static void run_verb(const struct verb *verb, const char *const *words)
{
    char *argv[12];
    int n = 0;
    for (; words[n] != NULL; n++)
        demand(n < 11 && (argv[n] = strdup(words[n])) != NULL);
    argv[n] = NULL;
    const int code = args_run(verb, n, argv);
    demand(code >= 0 && code < 10);
    for (int i = 0; i < n; i++)
        free(argv[i]);
}

/* In this process, so that libFuzzer sees the task and sanitizers end the run. */
int __wrap_process_run_child(const struct mount_options *options, const struct target *target,
                             process_task *task, void *ctx);

int __wrap_process_run_child(const struct mount_options *options, const struct target *target,
                             process_task *task, void *ctx)
{
    struct keeper keeper;
    demand(options->sandbox == SANDBOX_OFF);
    demand(keeper_init(&keeper, target->place.directory) == 0);
    const int channel = dup(keeper.ends[1]);
    demand(channel >= 0 && keeper_start(&keeper) == 0);
    const int code = task(ctx, channel);
    close(channel);
    keeper_done(&keeper);
    return code;
}

static int publish(void *driver, int keeper)
{
    char summary[COMMIT_TEXT_MAX];
    struct wfs_error err = {0};
    ((struct driver *)driver)->keeper = keeper;
    return publication_run(driver, false, NULL, summary, &err);
}

/* A mount without the kernel. `base` receives what the edits of a new one are based on. */
static void run_mount(const struct request *request, char **base)
{
    struct mount_options options;
    struct target target = {0};
    struct driver driver = {0};
    char program[] = "weightfs", flag[] = "-o", root[] = "/", source[N_PATH], list[N_PATH + 40];
    char *argv[] = {program, flag, list, source, root, NULL};
    join(source, files[SOURCE].path);
    demand(snprintf(list, sizeof(list), "sandbox=off,output=%s%s", request->output,
                    request->has_overwrite ? ",overwrite" : "") < (int)sizeof(list));
    demand(mount_options_parse(&options, 5, argv));
    log_start(source, LOG_WARNING);
    int rc = target_init(&target, &options);
    if (rc == 0)
        rc = loading_run(&driver, &options, &target);
    if (rc == 0 && base != NULL)
        *base = target_base_text(&target, &options, driver.catalog);
    else if (rc == 0)
        process_run_child(&options, &target, publish, &driver);
    driver_done(&driver);
    target_done(&target);
    mount_options_done(&options);
}

static void run(const struct request *request)
{
    static const char *const flags[] = {"--discard", "--discard", "--resume",
                                        "--publish", "--publish", "--publish"};
    const char *options =
        request->has_overwrite ? "--options=sandbox=off,overwrite" : "--options=sandbox=off";
    char source[N_PATH];
    join(source, files[SOURCE].path);
    if (request->command == MOUNT)
        run_mount(request, NULL);
    else if (request->command == CONVERT)
        run_verb(&verb_convert,
                 (const char *[]){"convert", "--overwrite", source, request->set, NULL});
    else if (request->command == LIST)
        run_verb(&verb_recover, (const char *[]){"recover", request->output, NULL});
    else
        run_verb(&verb_recover,
                 (const char *[]){"recover", flags[request->command], options,
                                  request->command == ONTO ? "--onto" : "--source", source,
                                  request->output, request->command == FORCE ? "--force" : NULL,
                                  NULL});
}

/* ---- one input ---- */

static void clean_up(void)
{
    remove_all(state.root);
}

static void start(void)
{
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    struct request request = {.command = MOUNT};
    char path[N_PATH];
    /* To give memory back and take it again would be a third of the time. */
    mallopt(M_TOP_PAD, N_KEPT);
    mallopt(M_TRIM_THRESHOLD, N_KEPT);
    mallopt(M_MMAP_THRESHOLD, N_KEPT);
    snprintf(state.root, sizeof(state.root), "%s/wfs-fuzz-XXXXXX", folder);
    demand(mkdtemp(state.root) != NULL && atexit(clean_up) == 0);
    demand((state.nowhere = fopen("/dev/null", "we")) != NULL);
    for (size_t i = 0; i < 2; i++) {
        join(path, (const char *[]){"home", "given"}[i]);
        demand(mkdir(path, 0700) == 0);
    }
    for (size_t i = 0; i < IN_SET; i++)
        make_file(i);
    make_set();
    for (size_t i = 0; i < N_FILES; i++) {
        auto_catalog struct wfs_catalog *catalog = NULL;
        join(path, files[i].path);
        if (wfs_load(path, NULL, &catalog, NULL) == 0)
            demand(wfs_catalog_digest(catalog, &state.digests[i]) == 0);
    }
    join(request.output, "given/new.safetensors");
    run_mount(&request, &state.base);
    demand(state.base != NULL && *state.base != '\0');
    state.base[strlen(state.base) - 1] = '\0'; /* its last line feed is that of the input */
    log_open();
}

static void read_request(const char *text, struct request *request)
{
    const size_t n = strlen(text);
    *request = (struct request){.command = (enum command)((unsigned char)text[0] % N_COMMANDS),
                                .is_mine = n > 1 && text[1] == '1',
                                .has_overwrite = n > 2 && text[2] == '1'};
    join(request->output, request->is_mine ? files[MINE].path : "given/new.safetensors");
    join(request->stage,
         request->is_mine ? "given/.mine.safetensors.weightfs" : "given/.new.safetensors.weightfs");
    join(request->set, "set/");
    join(request->note, "set/.model.safetensors.index.json.weightfs.set");
}

/* Returns the number of the next file that is opened. */
static int next_descriptor(void)
{
    const int fd = dup(0);
    demand(fd >= 0 && close(fd) == 0);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    autofree char *text = n_bytes > N_INPUT ? NULL : strndup((const char *)data, n_bytes);
    struct request request;
    autostrbuf struct strbuf before = {0}, after = {0};
    FILE *const out = stdout, *const errors = stderr;
    if (text == NULL)
        return 0;
    stdout = state.nowhere != NULL ? state.nowhere : fopen("/dev/null", "we");
    stderr = stdout;
    if (state.root[0] == '\0')
        start();
    read_request(text, &request);
    demand(mkdir(request.stage, 0700) == 0);
    plant_all(&request, text);
    look(&request, &before);
    const int fd = next_descriptor();
    run(&request);
    demand(next_descriptor() == fd); /* none is left open */
    look(&request, &after);
    stdout = out;
    stderr = errors;
    demand(before.n_bytes == after.n_bytes &&
           memcmp(before.bytes, after.bytes, before.n_bytes) == 0);
    remove_all(request.stage);
    if (request.is_mine)
        make_file(MINE);
    else
        unlink(request.output);
    unlink(request.note);
    if (request.command == CONVERT)
        make_set();
    return 0;
}
