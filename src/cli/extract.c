/* SPDX-License-Identifier: MIT */
/*
 * weightfs cat and extract: the bytes of one tensor, and files of the tree that a mount would show.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "program/checkpoint.h"
#include "program/destination.h"
#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/tree.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * ---- cat ----
 * What must be made before it can be written (transposed, cast) is made by two threads, piece by
 * piece; each waits for its turn to write, and the one that writes holds the lock while the other
 * one reads.
 */

struct stream {
    const struct wfs_tensor *tensor;
    const char *path;
    size_t n_piece;
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t n_claimed, n_written; /* bytes of the tensor */
    enum exit_code exit_code;
};

/* Returns false after the last piece, and when writing has failed. */
static bool claim(struct stream *stream, uint64_t *ret_offset)
{
    pthread_mutex_lock(&stream->lock);
    const bool has_more =
        stream->exit_code == EXIT_DONE && stream->n_claimed < stream->tensor->n_bytes;
    *ret_offset = stream->n_claimed;
    if (has_more)
        stream->n_claimed += stream->n_piece;
    pthread_mutex_unlock(&stream->lock);
    return has_more;
}

/* n is the result of reading the piece. */
static void write_in_turn(struct stream *stream, uint64_t offset, const char *bytes, ssize_t n)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->n_written != offset)
        pthread_cond_wait(&stream->turned, &stream->lock);
    if (stream->exit_code == EXIT_DONE && n <= 0)
        stream->exit_code = input_read_error(stream->path, stream->tensor, n < 0 ? (int)n : -EIO);
    else if (stream->exit_code == EXIT_DONE && fwrite(bytes, 1, (size_t)n, stdout) < (size_t)n)
        stream->exit_code = EXIT_OUTPUT; /* the line about the output comes at the end */
    stream->n_written += stream->n_piece;
    pthread_cond_broadcast(&stream->turned);
    pthread_mutex_unlock(&stream->lock);
}

/* Returns the argument, or NULL when there was no memory to take part. */
static void *write_pieces(void *ctx)
{
    struct stream *stream = ctx;
    autofree char *bytes = io_alloc(stream->n_piece);
    if (bytes == NULL)
        return NULL;
    for (uint64_t offset; claim(stream, &offset);) {
        const ssize_t n = wfs_tensor_read(stream->tensor, offset, bytes, stream->n_piece);
        write_in_turn(stream, offset, bytes, n);
    }
    return stream;
}

static enum exit_code write_tensor(const struct wfs_tensor *tensor, const char *path)
{
    struct stream stream = {.tensor = tensor,
                            .path = path,
                            .n_piece = wfs_tensor_piece_bytes(tensor),
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .turned = PTHREAD_COND_INITIALIZER,
                            .exit_code = EXIT_DONE};
    pthread_t second;
    const bool has_second = !wfs_tensor_is_plain(tensor) && tensor->n_bytes > stream.n_piece &&
                            pthread_create(&second, NULL, write_pieces, &stream) == 0;
    const bool has_memory = tensor->n_bytes == 0 || write_pieces(&stream) != NULL;
    if (has_second)
        pthread_join(second, NULL);
    if (!has_memory && stream.n_written < tensor->n_bytes && stream.exit_code == EXIT_DONE)
        return print_memory(path);
    return stream.exit_code;
}

static enum exit_code write_header(const struct wfs_tensor *tensor, const char *path)
{
    const size_t n_header = wfs_npy_header(tensor, NULL, 0);
    autofree char *header = malloc(n_header);
    if (header == NULL)
        return print_memory(path);
    wfs_npy_header(tensor, header, n_header);
    fwrite(header, 1, n_header, stdout);
    return EXIT_DONE;
}

static enum exit_code run_cat(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct wfs_tensor *tensor;
    const char *path = args->operands[0];
    enum exit_code exit_code = input_load_npy(args, path, &catalog);
    if (exit_code == EXIT_DONE)
        exit_code = input_find(catalog, path, args->operands[1], &tensor);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (isatty(STDOUT_FILENO))
        return print_error(EXIT_USAGE, path,
                           "tensor bytes are not written to a terminal; "
                           "redirect them, or use 'weightfs show'");
    if (tensor->trouble != NULL)
        return input_read_error(path, tensor, -EIO);
    if (args_has(args, "npy")) {
        if (checkpoint_is_unknown_to_numpy(tensor) && screen_width(STDERR_FILENO) > 0)
            print_warning(path, tensor->key,
                          args_value(args, "npy") != NULL
                              ? "numpy cannot compute with it"
                              : "numpy cannot compute with it; --npy=f32 widens it");
        exit_code = write_header(tensor, path);
    }
    if (exit_code == EXIT_DONE)
        exit_code = write_tensor(tensor, path);
    return exit_code;
}

const struct verb verb_cat = {
    .operands = "SOURCE KEY",
    .text = "Write the elements of a tensor to standard output, row-major and little-endian.\n"
            "The output must not be a terminal.",
    .has_source = true,
    .options = {{"npy", "[f32]", "write a .npy header; f32: with floats widened"}},
    .run = run_cat,
};

/*
 * ---- extract ----
 * Names come from keys, and the directory may hold anything: no path leads through a symbolic link
 * in it.
 */

enum { N_PIECE = 4 << 20, N_TEMPORARY = 48 };

struct extraction {
    struct receipt *receipt;
    const char *source, *directory; /* as typed */
    const struct wfs_catalog *catalog;
    const struct wfs_tree *tree;
    struct glob *globs; /* malloc'ed */
    size_t n_globs;
    int fd; /* of the directory */
    bool is_overwriting, is_raw, is_widened;
    mode_t mode; /* of new files, before what the source grants */
    struct wfs_access access;
    struct progress progress;
    uint64_t n_files, n_bytes, n_done; /* selected; bytes written */
    uint64_t n_unknown;                /* files of floats that numpy does not have */
    uint64_t n_quantized;              /* files of integers whose scale is not in the file */
    struct wfs_quoted quantized;       /* the first of them */
    char *piece;
    char temporary[N_TEMPORARY]; /* name of a file that is not complete; no other process has it */
    enum exit_code exit_code;
};

/* Ends the walk with an exit code. */
static int stop(struct extraction *extraction, enum exit_code exit_code)
{
    extraction->exit_code = exit_code;
    return -ECANCELED;
}

static int fail_file(struct extraction *extraction, const char *path, int code)
{
    return stop(extraction, print_error(EXIT_OUTPUT, extraction->directory, "cannot write '%s': %s",
                                        wfs_quote(path).text, strerror(code)));
}

/* ---- which files ---- */

static bool is_selected(struct extraction *extraction, const struct wfs_tree_file *file)
{
    bool matches = extraction->n_globs == 0;
    for (size_t i = 0; i < extraction->n_globs && file->key != NULL; i++)
        matches |= glob_matches(&extraction->globs[i], file->key);
    return matches;
}

static int count_file(void *ctx, const struct wfs_tree_file *file)
{
    struct extraction *extraction = ctx;
    struct stat st;
    if (!is_selected(extraction, file))
        return 0;
    wfs_node_stat(extraction->tree, file->node, &st);
    extraction->n_files++;
    extraction->n_bytes = input_add(extraction->n_bytes, (uint64_t)st.st_size);
    return 0;
}

static enum exit_code report_unmatched(const struct extraction *extraction)
{
    const char *first = NULL;
    for (size_t i = extraction->n_globs; i-- > 0;) {
        if (extraction->globs[i].has_matched)
            continue;
        first = extraction->globs[i].text;
    }
    if (first == NULL)
        return EXIT_DONE;
    return input_unmatched(extraction->catalog, extraction->source, first);
}

/* ---- directories ---- */

/*
 * Opens the directory that a file goes into, or makes it. Returns -ENOENT where it is missing and
 * is not made. *ret_name is the last part of the path.
 */
static int open_parent(const struct extraction *extraction, const char *path, bool is_made,
                       const char **ret_name)
{
    int dir = fcntl(extraction->fd, F_DUPFD_CLOEXEC, 0);
    for (const char *slash; dir >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        autofree char *name = strndup(path, (size_t)(slash - path));
        autoclose int above = dir;
        if (name == NULL)
            return -ENOMEM;
        if (is_made && mkdirat(above, name, 0777) < 0 && errno != EEXIST)
            return -errno;
        dir = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    *ret_name = path;
    return dir < 0 ? -errno : dir;
}

static int check_free(void *ctx, const struct wfs_tree_file *file)
{
    struct extraction *extraction = ctx;
    const char *name;
    struct stat st;
    if (!is_selected(extraction, file))
        return 0;
    autoclose int dir = open_parent(extraction, file->path, false, &name);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return fail_file(extraction, file->path, -dir);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_file(extraction, file->path, errno);
    if (S_ISDIR(st.st_mode))
        return fail_file(extraction, file->path, EISDIR);
    if (extraction->is_overwriting)
        return 0;
    return stop(extraction, print_error(EXIT_OUTPUT, extraction->directory,
                                        "'%s' already exists (use --overwrite to replace files)",
                                        wfs_quote(file->path).text));
}

/* ---- writing ---- */

static int copy_content(struct extraction *extraction, const struct wfs_tree_file *file, int fd)
{
    struct stat st;
    wfs_node_stat(extraction->tree, file->node, &st);
    for (uint64_t offset = 0; offset < (uint64_t)st.st_size;) {
        const ssize_t n =
            wfs_node_read(extraction->tree, file->node, offset, extraction->piece, N_PIECE);
        const int failed = n > 0 ? 0 : n < 0 ? (int)n : -EIO;
        if (failed < 0 && wfs_node_loaded(file->node) != NULL)
            return stop(extraction,
                        input_read_error(extraction->source, wfs_node_loaded(file->node), failed));
        if (failed < 0)
            return stop(extraction,
                        print_error(EXIT_DAMAGED, extraction->source, "'%s' cannot be read: %s",
                                    wfs_quote(file->path).text, strerror(-failed)));
        const int code = io_write(fd, extraction->piece, (size_t)n);
        if (code < 0)
            return fail_file(extraction, file->path, -code);
        offset += (uint64_t)n;
        extraction->n_done += (uint64_t)n;
        if (progress_step(&extraction->progress, extraction->n_done, extraction->n_bytes) != 0)
            return stop(extraction, print_error(EXIT_OUTPUT, extraction->directory, "interrupted"));
    }
    return 0;
}

/* Gives the file its name; another one is replaced only where that was asked for. */
static int publish(const struct extraction *extraction, int dir, const char *name)
{
    const unsigned flags = extraction->is_overwriting ? 0 : RENAME_NOREPLACE;
    if (renameat2(dir, extraction->temporary, dir, name, flags) == 0)
        return 0;
    if (errno != EINVAL || flags == 0)
        return -errno;
    /* The filesystem cannot do that. */
    return linkat(dir, extraction->temporary, dir, name, 0) == 0 &&
                   unlinkat(dir, extraction->temporary, 0) == 0
               ? 0
               : -errno;
}

static int fill_temporary(struct extraction *extraction, const struct wfs_tree_file *file, int dir)
{
    struct stat st;
    (void)unlinkat(dir, extraction->temporary, 0); /* of an extraction that was killed */
    autoclose int fd = openat(dir, extraction->temporary,
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_file(extraction, file->path, errno);
    const int code = copy_content(extraction, file, fd);
    if (code < 0)
        return code;
    if (fstat(fd, &st) < 0 ||
        fchmod(fd, extraction->mode & wfs_access_mode(&extraction->access, st.st_gid)) < 0)
        return fail_file(extraction, file->path, errno);
    return 0;
}

/* Quantized integers of PyTorch have scale and zero point in an attribute. Opaque elements of Burn
 * have theirs in the bytes. */
static void note_quantized(struct extraction *extraction, const struct wfs_tree_file *file)
{
    char dtype[16];
    const ssize_t n = wfs_node_get_xattr(extraction->tree, file->node, "user.weightfs.dtype", dtype,
                                         sizeof(dtype));
    if (file->is_value || n <= 0 || memcmp(dtype, "OPAQUE", n < 6 ? (size_t)n : 6) == 0 ||
        wfs_node_get_xattr(extraction->tree, file->node, "user.weightfs.quantization", NULL, 0) < 0)
        return;
    if (extraction->n_quantized++ == 0)
        extraction->quantized = wfs_quote(file->path);
}

/* Leaves out a tensor whose data is not there. */
static int skip(struct extraction *extraction, const struct wfs_tree_file *file,
                const struct wfs_tensor *tensor)
{
    struct stat st;
    wfs_node_stat(extraction->tree, file->node, &st);
    extraction->n_files--;
    extraction->n_bytes -= (uint64_t)st.st_size;
    return input_skip(extraction->source, tensor, -EIO, &extraction->exit_code);
}

static int write_file(void *ctx, const struct wfs_tree_file *file)
{
    struct extraction *extraction = ctx;
    const char *name;
    if (!is_selected(extraction, file))
        return 0;
    const struct wfs_tensor *tensor = file->is_value || file->key == NULL
                                          ? NULL
                                          : wfs_catalog_find(extraction->catalog, file->key);
    if (tensor != NULL && wfs_tensor_is_damaged(tensor))
        return skip(extraction, file, tensor);
    autoclose int dir = open_parent(extraction, file->path, true, &name);
    if (dir < 0)
        return fail_file(extraction, file->path, -dir);
    int code = fill_temporary(extraction, file, dir);
    if (code == 0) {
        const int published = publish(extraction, dir, name);
        code = published < 0 ? fail_file(extraction, file->path, -published) : 0;
    }
    if (code == 0) {
        note_quantized(extraction, file);
        /* Of BF16 and narrower floats, numpy has the bytes only. */
        extraction->n_unknown +=
            tensor != NULL && !extraction->is_raw && checkpoint_is_unknown_to_numpy(tensor);
    }
    if (code < 0)
        (void)unlinkat(dir, extraction->temporary, 0);
    return code;
}

/* ---- the whole ---- */

static int walk(struct extraction *extraction,
                int (*visit)(void *ctx, const struct wfs_tree_file *file))
{
    const int code = wfs_tree_each(extraction->tree, visit, extraction);
    if (code < 0 && code != -ECANCELED)
        stop(extraction,
             print_error(exit_of_errno(-code), extraction->source, "%s", strerror(-code)));
    return code;
}

static void report(const struct extraction *extraction)
{
    struct receipt *receipt = extraction->receipt;
    char more[48] = "";
    receipt_sources(receipt, &extraction->source, 1);
    receipt_text(receipt, "output", extraction->directory);
    receipt_count(receipt, "n_files", extraction->n_files);
    receipt_count(receipt, "n_bytes", extraction->n_bytes);
    if (!receipt->is_json)
        printf("extracted %s, %s, to '%s'\n", wfs_count(extraction->n_files, "file").text,
               wfs_count(extraction->n_bytes, "byte").text, wfs_quote(extraction->directory).text);
    if (extraction->n_unknown > 0)
        receipt_notice(receipt, "numpy cannot compute with the elements of %s ('<V2', '|V1')%s",
                       wfs_count(extraction->n_unknown, "file").text,
                       extraction->is_widened ? "" : ": --npy=f32 widens them");
    if (extraction->n_quantized > 1)
        snprintf(more, sizeof(more), " and %" PRIu64 " more", extraction->n_quantized - 1);
    if (extraction->n_quantized > 0)
        receipt_notice(receipt,
                       "stored as plain integers, because a file of elements cannot store their "
                       "scales: '%s'%s",
                       extraction->quantized.text, more);
}

static enum exit_code write_all(struct extraction *extraction)
{
    if (mkdir(extraction->directory, 0777) < 0 && errno != EEXIST)
        return print_error(EXIT_OUTPUT, extraction->directory, "cannot create the directory: %s",
                           strerror(errno));
    extraction->fd = open(extraction->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (extraction->fd < 0)
        return print_error(EXIT_OUTPUT, extraction->directory, "cannot open: %s", strerror(errno));
    if (walk(extraction, check_free) < 0)
        return extraction->exit_code;
    progress_start(&extraction->progress, "writing", extraction->n_bytes);
    progress_hold_signals(&extraction->progress);
    const int code = walk(extraction, write_file);
    progress_end(&extraction->progress);
    if (code < 0)
        return extraction->exit_code;
    report(extraction);
    return extraction->exit_code;
}

static enum exit_code extract(struct extraction *extraction, const struct args *args)
{
    extraction->n_globs = args->n_operands - 1;
    extraction->globs = calloc(extraction->n_globs + 1, sizeof(*extraction->globs));
    extraction->piece = malloc(N_PIECE);
    if (extraction->globs == NULL || extraction->piece == NULL)
        return print_memory(NULL);
    snprintf(extraction->temporary, N_TEMPORARY, ".weightfs-extract.%d.tmp", (int)getpid());
    for (size_t i = 0; i < extraction->n_globs; i++)
        extraction->globs[i] = glob_of(args->operands[i + 1]);
    if (walk(extraction, count_file) < 0)
        return extraction->exit_code;
    const enum exit_code exit_code = report_unmatched(extraction);
    if (exit_code != EXIT_DONE)
        return exit_code;
    /* A few stored bytes can be shown as a tensor that fills a disk. */
    if (extraction->n_bytes > 1 << 20 && !args_has(args, "large") &&
        extraction->n_bytes / 16 > input_source_bytes(extraction->catalog))
        return print_error(EXIT_OUTPUT, extraction->source,
                           "the files would be more than 16 times larger than what they are made "
                           "of; --large allows it");
    return write_all(extraction);
}

static void extraction_done(struct extraction *extraction)
{
    for (size_t i = 0; extraction->globs != NULL && i < extraction->n_globs; i++)
        glob_done(&extraction->globs[i]);
    free(extraction->globs);
    free(extraction->piece);
    if (extraction->fd >= 0)
        close(extraction->fd);
}

/* Returns which of two words the option has, 0 without it; -1: a line was printed. */
static int choose(const struct args *args, const char *name, const char *first, const char *second)
{
    const char *value = args_value(args, name);
    if (value == NULL || strcmp(value, first) == 0)
        return 0;
    if (strcmp(value, second) == 0)
        return 1;
    print_error(EXIT_USAGE, NULL, "--%s must be %s or %s, not '%s'", name, first, second,
                wfs_quote(value).text);
    return -1;
}

static enum exit_code run_extract(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_tree *tree = NULL;
    struct wfs_error err = {0};
    const int is_raw = choose(args, "files", "npy", "raw");
    const int is_flat = choose(args, "layout", "nested", "flat");
    if (is_raw < 0 || is_flat < 0)
        return EXIT_USAGE;
    if (!args_has(args, "directory"))
        return print_error(EXIT_USAGE, NULL, "missing -d DIR; see 'weightfs extract --help'");
    if (is_raw && args_has(args, "npy"))
        return print_error(EXIT_USAGE, NULL, "--npy cannot be combined with --files=raw");
    enum exit_code exit_code = input_load_npy(args, args->operands[0], &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const struct wfs_tree_options tree_options = {.layout =
                                                      is_flat ? WFS_LAYOUT_FLAT : WFS_LAYOUT_NESTED,
                                                  .files = is_raw ? WFS_FILES_RAW : WFS_FILES_NPY};
    const int code = wfs_tree_new(catalog, &tree_options, &tree, &err);
    if (code < 0)
        return print_error(exit_of_errno(err.code), args->operands[0], "%s", err.text);
    struct extraction extraction = {.receipt = args->receipt,
                                    .source = args->operands[0],
                                    .directory = args_value(args, "directory"),
                                    .catalog = catalog,
                                    .tree = tree,
                                    .fd = -1,
                                    .is_overwriting = args_has(args, "overwrite"),
                                    .is_raw = is_raw != 0,
                                    .is_widened = args_value(args, "npy") != NULL,
                                    .mode = destination_mode(),
                                    .access = wfs_catalog_access(catalog)};
    exit_code = extract(&extraction, args);
    extraction_done(&extraction);
    wfs_tree_free(tree);
    return exit_code;
}

const struct verb verb_extract = {
    .operands = "SOURCE [GLOB...]",
    .text = "Write the tensors and values of SOURCE whose key matches a GLOB, or all, to\n"
            "files in DIR, with the directories and names that a mount shows: tensors as\n"
            ".npy, values as .json. Each file is complete or not there. Nothing is\n"
            "written if a GLOB matches nothing, or if a file exists, without --overwrite.",
    .has_source = true,
    .options = {{"directory", "DIR", "-d DIR: where to write, created if missing"},
                {"files", "npy|raw", ".npy files (default), or only the elements"},
                {"json", NULL, "print JSON: what was written"},
                {"large", NULL, "allow files over 16 times larger than SOURCE"},
                {"layout", "nested|flat", "as in a mount; default nested"},
                {"npy", "[f32]", ".npy files; f32: floats narrower than F32 as F32"},
                {"overwrite", NULL, "replace files that exist"}},
    .run = run_extract,
};
