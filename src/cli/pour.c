/* SPDX-License-Identifier: MIT */
/*
 * What must be made before it can be written (turned, cast) is made by two threads, piece by piece;
 * each waits for its turn to write. Who writes holds the lock: the other one reads meanwhile.
 */
#include "cli/pour.h"

#include "cli/input.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

struct pour {
    const struct wfs_tensor *tensor;
    const char *path;
    size_t n_piece;
    pthread_mutex_t lock;
    pthread_cond_t turned;
    uint64_t n_claimed, n_written; /* bytes of the tensor */
    enum exit_code exit_code;
};

enum exit_code pour_bytes(const char *bytes, size_t n_bytes)
{
    const int code = -io_write(STDOUT_FILENO, bytes, n_bytes);
    if (code == 0)
        return EXIT_DONE;
    if (code == EPIPE)
        return EXIT_OUTPUT;
    return print_error(EXIT_OUTPUT, "standard output", "cannot write: %s", strerror(code));
}

/* False after the last piece, and when writing has failed. */
static bool claim(struct pour *pour, uint64_t *ret_offset)
{
    pthread_mutex_lock(&pour->lock);
    const bool has_more = pour->exit_code == EXIT_DONE && pour->n_claimed < pour->tensor->n_bytes;
    *ret_offset = pour->n_claimed;
    if (has_more)
        pour->n_claimed += pour->n_piece;
    pthread_mutex_unlock(&pour->lock);
    return has_more;
}

/* n is what reading the piece gave. */
static void write_in_turn(struct pour *pour, uint64_t offset, const char *bytes, ssize_t n)
{
    pthread_mutex_lock(&pour->lock);
    while (pour->n_written != offset)
        pthread_cond_wait(&pour->turned, &pour->lock);
    if (pour->exit_code == EXIT_DONE)
        pour->exit_code = n > 0 ? pour_bytes(bytes, (size_t)n)
                                : input_read_error(pour->path, pour->tensor, n < 0 ? (int)n : -EIO);
    pour->n_written += pour->n_piece;
    pthread_cond_broadcast(&pour->turned);
    pthread_mutex_unlock(&pour->lock);
}

/* The argument, or NULL when there was no memory to take part. */
static void *pour_pieces(void *ctx)
{
    struct pour *pour = ctx;
    const size_t n_room = (pour->n_piece + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    autofree char *bytes = aligned_alloc(HUGE_PAGE, n_room);
    if (bytes == NULL)
        return NULL;
    (void)madvise(bytes, n_room, MADV_HUGEPAGE);
    for (uint64_t offset; claim(pour, &offset);) {
        const ssize_t n = wfs_tensor_read(pour->tensor, offset, bytes, pour->n_piece);
        write_in_turn(pour, offset, bytes, n);
    }
    return pour;
}

enum exit_code pour_tensor(const struct wfs_tensor *tensor, const char *path)
{
    struct pour pour = {.tensor = tensor,
                        .path = path,
                        .n_piece = wfs_tensor_piece_bytes(tensor),
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .turned = PTHREAD_COND_INITIALIZER,
                        .exit_code = EXIT_DONE};
    pthread_t second;
    const bool has_second = !wfs_tensor_is_plain(tensor) && tensor->n_bytes > pour.n_piece &&
                            pthread_create(&second, NULL, pour_pieces, &pour) == 0;
    const bool has_memory = tensor->n_bytes == 0 || pour_pieces(&pour) != NULL;
    if (has_second)
        pthread_join(second, NULL);
    if (!has_memory && pour.n_written < tensor->n_bytes && pour.exit_code == EXIT_DONE)
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    return pour.exit_code;
}
