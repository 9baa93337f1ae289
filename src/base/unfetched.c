/* SPDX-License-Identifier: MIT */
/*
 * One note for each thread: passing it along would give a parameter to every function that reads.
 */
#include "base/unfetched.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>

enum { TRIES = 4096, N_PIECE = 1 << 20 };

static _Thread_local struct {
    bool is_refused;
    const struct source *source; /* of what was missing; NULL: nothing was */
    uint64_t offset, end;
    int code;         /* why it cannot be fetched; 0: it can */
    unsigned n_tries; /* since a try had all that it needed */
} note;

void wfs_unfetched_begin(void)
{
    note.is_refused = true;
}

void wfs_unfetched_end(void)
{
    note.is_refused = false;
}

bool unfetched_is_refused(void)
{
    return note.is_refused;
}

void wfs_unfetched_forget(void)
{
    note.source = NULL;
}

int unfetched_note(const struct source *source, uint64_t offset, uint64_t n_bytes)
{
    if (!note.is_refused)
        return 0;
    if (note.code < 0)
        return note.code;
    if (note.source == NULL) {
        const uint64_t expected = source_expected(source, offset);
        note.source = source;
        note.offset = offset;
        note.end = offset + n_bytes > expected ? offset + n_bytes : expected;
        note.end = note.end < source->n_bytes ? note.end : source->n_bytes;
    }
    return -EAGAIN;
}

static int fetch(void)
{
    autofree char *piece = malloc(N_PIECE);
    int code = piece == NULL ? -ENOMEM : 0;
    source_expect(note.source, note.offset, note.end - note.offset);
    while (code == 0 && note.offset < note.end) {
        const uint64_t n_left = note.end - note.offset;
        const size_t n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
        code = source_read(note.source, note.offset, piece, n);
        note.offset += n;
    }
    return code;
}

bool wfs_unfetched_fetch(void)
{
    if (note.source == NULL) {
        note.code = 0;
        note.n_tries = 0;
        return false;
    }
    /* A small cache may lose one part of what is needed for another, again and again. */
    note.code = ++note.n_tries > TRIES ? -EIO : fetch();
    note.source = NULL;
    return true;
}
