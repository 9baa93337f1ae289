/* SPDX-License-Identifier: MIT */
/*
 * Bytes are appended to blocks of the arena; a contiguous run in one block is a piece.
 */
#include "pickle/pickle_output.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { N_BLOCK = 65536, N_COPIED = 4096 };

static struct pickle_piece *add_piece(struct pickle_output *output)
{
    if (array_reserve(&output->pieces, sizeof(*output->pieces), output->n_pieces, 1,
                      &output->n_piece_room) < 0)
        return NULL;
    struct pickle_piece *piece = &output->pieces[output->n_pieces++];
    *piece = (struct pickle_piece){0};
    return piece;
}

/* Makes room for n_bytes (at most a block) at the end. NULL when out of memory. */
static uint8_t *make_room(struct pickle_output *output, size_t n_bytes)
{
    if (n_bytes > output->n_left || output->n_pieces == 0 ||
        output->pieces[output->n_pieces - 1].bytes == NULL) {
        if (n_bytes > output->n_left) {
            output->block = arena_alloc(output->arena, N_BLOCK);
            output->n_left = output->block == NULL ? 0 : N_BLOCK;
        }
        struct pickle_piece *piece = output->block == NULL ? NULL : add_piece(output);
        if (piece == NULL) {
            output->has_failed = true;
            return NULL;
        }
        piece->bytes = output->block;
    }
    uint8_t *at = output->block;
    output->block += n_bytes;
    output->n_left -= n_bytes;
    output->pieces[output->n_pieces - 1].n_bytes += n_bytes;
    output->n_bytes += n_bytes;
    return at;
}

void pickle_put(struct pickle_output *output, const void *bytes, size_t n_bytes)
{
    while (n_bytes > 0 && !output->has_failed) {
        const size_t n = n_bytes < N_BLOCK ? n_bytes : N_BLOCK;
        uint8_t *at = make_room(output, n);
        if (at == NULL)
            return;
        memcpy(at, bytes, n);
        bytes = (const char *)bytes + n;
        n_bytes -= n;
    }
}

int pickle_put_range(struct pickle_output *output, const struct value_bytes *bytes)
{
    if (bytes->n_bytes > N_COPIED) {
        struct pickle_piece *piece = add_piece(output);
        if (piece == NULL)
            return wfs_fail_memory(output->err);
        *piece = (struct pickle_piece){NULL, bytes->source, bytes->offset, bytes->n_bytes};
        return 0;
    }
    uint8_t *at = bytes->n_bytes == 0 ? NULL : make_room(output, (size_t)bytes->n_bytes);
    const int code =
        at == NULL ? 0 : source_read(bytes->source, bytes->offset, at, (size_t)bytes->n_bytes);
    if (code < 0)
        return wfs_fail(output->err, -code, "cannot read %s of a value in %s",
                        wfs_count(bytes->n_bytes, "byte").text,
                        wfs_quote(bytes->source->path).text);
    return 0;
}

void pickle_put_code(struct pickle_output *output, uint8_t opcode)
{
    pickle_put(output, &opcode, 1);
}

void pickle_put_length(struct pickle_output *output, uint8_t opcode, uint64_t n, size_t n_length)
{
    uint8_t bytes[9] = {opcode};
    store_le64(bytes + 1, n);
    pickle_put(output, bytes, 1 + n_length);
}

void pickle_output_done(struct pickle_output *output)
{
    const int saved = errno;
    free(output->pieces);
    output->pieces = NULL;
    errno = saved;
}
