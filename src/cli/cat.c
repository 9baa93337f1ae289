/* SPDX-License-Identifier: MIT */
/*
 * weightfs cat: the bytes of one tensor. What must be made before it can be written (transposed,
 * cast) is made by two threads, piece by piece; each waits for its turn to write, and the one that
 * writes holds the lock while the other one reads.
 */

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/io.h>

#include "cli/args.h"
#include "cli/input.h"
#include "program/print.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- writing ---- */

enum { HUGE_PAGE = 2 << 20 };

struct stream {
    const struct wfs_tensor *tensor;
    const char *path;
    size_t n_piece;
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t n_claimed, n_written; /* bytes of the tensor */
    enum exit_code exit_code;
};

static enum exit_code write_bytes(const char *bytes, size_t n_bytes)
{
    const int code = -io_write(STDOUT_FILENO, bytes, n_bytes);
    if (code == 0)
        return EXIT_DONE;
    if (code == EPIPE)
        return EXIT_OUTPUT;
    return print_error(EXIT_OUTPUT, "standard output", "cannot write: %s", strerror(code));
}

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
    if (stream->exit_code == EXIT_DONE)
        stream->exit_code =
            n > 0 ? write_bytes(bytes, (size_t)n)
                  : input_read_error(stream->path, stream->tensor, n < 0 ? (int)n : -EIO);
    stream->n_written += stream->n_piece;
    pthread_cond_broadcast(&stream->turned);
    pthread_mutex_unlock(&stream->lock);
}

/* Returns the argument, or NULL when there was no memory to take part. */
static void *write_pieces(void *ctx)
{
    struct stream *stream = ctx;
    const size_t n_room = (stream->n_piece + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    autofree char *bytes = aligned_alloc(HUGE_PAGE, n_room);
    if (bytes == NULL)
        return NULL;
    (void)madvise(bytes, n_room, MADV_HUGEPAGE);
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

/* ---- the verb ---- */

static enum exit_code write_header(const struct wfs_tensor *tensor, const char *path)
{
    const size_t n_header = wfs_npy_header(tensor, NULL, 0);
    autofree char *header = malloc(n_header);
    if (header == NULL)
        return print_memory(path);
    wfs_npy_header(tensor, header, n_header);
    return write_bytes(header, n_header);
}

static enum exit_code run_cat(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct wfs_tensor *tensor;
    const char *path = args->operands[0];
    enum exit_code exit_code = input_load(args, path, &catalog);
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
    if (args_has(args, "npy"))
        exit_code = write_header(tensor, path);
    if (exit_code == EXIT_DONE)
        exit_code = write_tensor(tensor, path);
    return exit_code;
}

static const struct args_option cat_options[] = {
    {"npy", NULL, "write a .npy header before the data"},
    {NULL, NULL, NULL},
};

const struct verb verb_cat = {
    .name = "cat",
    .operands = "SOURCE KEY",
    .text = "Write the elements of a tensor to standard output, row-major and little-endian.\n"
            "The output must not be a terminal.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .options = cat_options,
    .run = run_cat,
};
