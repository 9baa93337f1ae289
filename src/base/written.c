/* SPDX-License-Identifier: MIT */
/*
 * Ranges end where a part was not written by hand, and after some megabytes. A round of them is
 * read at once, each by one thread, and whoever reads them all can stop between two rounds.
 */
#include "base/written.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/io.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { N_RANGE = 4 << 20, N_ROUND = 4 * N_RANGE, N_PIECE = 1 << 18 };

static void complete(struct written *written)
{
    if (written->hasher == NULL)
        return;
    written->ranges[written->n_ranges - 1].digest = hasher_digest(written->hasher);
    hasher_free(written->hasher);
    written->hasher = NULL;
}

static int begin(struct written *written, uint64_t offset)
{
    complete(written);
    if (array_reserve(&written->ranges, sizeof(*written->ranges), written->n_ranges, 1,
                      &written->n_room) < 0 ||
        (written->hasher = hasher_new()) == NULL)
        return -ENOMEM;
    written->ranges[written->n_ranges++] = (struct written_range){.offset = offset};
    return 0;
}

int written_add(struct written *written, uint64_t offset, const void *bytes, size_t n_bytes)
{
    const struct written_range *last =
        written->hasher == NULL ? NULL : &written->ranges[written->n_ranges - 1];
    if (last == NULL || last->offset + last->n_bytes != offset || last->n_bytes >= N_RANGE) {
        const int code = begin(written, offset);
        if (code < 0)
            return code;
    }
    hasher_update(written->hasher, bytes, n_bytes);
    written->ranges[written->n_ranges - 1].n_bytes += n_bytes;
    return 0;
}

int written_add_ranges(struct written *written, const struct written_range *ranges, size_t n)
{
    complete(written);
    if (array_reserve(&written->ranges, sizeof(*ranges), written->n_ranges, n, &written->n_room) <
        0)
        return -ENOMEM;
    memcpy(written->ranges + written->n_ranges, ranges, n * sizeof(*ranges));
    written->n_ranges += n;
    return 0;
}

static int digest_file(int fd, const struct written_range *range, struct hasher *hasher,
                       char *piece)
{
    for (uint64_t n_done = 0; n_done < range->n_bytes;) {
        const uint64_t n_left = range->n_bytes - n_done;
        const size_t n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
        const ssize_t n_read = io_read_at(fd, piece, n, range->offset + n_done);
        if (n_read < 0)
            return -EIO;
        if ((size_t)n_read < n)
            return -EILSEQ;
        hasher_update(hasher, piece, n);
        n_done += n;
    }
    return hasher_digest(hasher) == range->digest ? 0 : -EILSEQ;
}

struct round {
    struct written_range *ranges;
    int fd;
};

static void check_range(void *ctx, size_t i)
{
    const struct round *round = ctx;
    struct written_range *range = &round->ranges[i];
    autofree char *piece = malloc(N_PIECE);
    auto_hasher struct hasher *hasher = hasher_new();
    range->code =
        piece == NULL || hasher == NULL ? -ENOMEM : digest_file(round->fd, range, hasher, piece);
}

int written_check(const struct wfs_io *io, struct written *written, int fd, size_t *next,
                  struct written_range *ret)
{
    complete(written);
    struct round round = {written->ranges + *next, fd};
    const size_t n_left = written->n_ranges - *next;
    size_t n = 0;
    for (uint64_t n_bytes = 0; n < n_left && n_bytes < N_ROUND; n++)
        n_bytes += round.ranges[n].n_bytes;
    wfs_io_share(io, n, check_range, &round);
    *next += n;
    for (size_t i = 0; i < n; i++) {
        *ret = round.ranges[i];
        if (ret->code < 0)
            return ret->code;
    }
    return n > 0;
}

void written_done(struct written *written)
{
    hasher_free(written->hasher);
    free(written->ranges);
    *written = (struct written){0};
}
