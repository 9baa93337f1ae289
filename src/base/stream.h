/* SPDX-License-Identifier: MIT */
/*
 * A range of a source read from front to back through a small window.
 */
#ifndef WFS_STREAM_H
#define WFS_STREAM_H

#include "base/source.h"

enum { STREAM_WINDOW = 65536 };

struct stream {
    const struct wfs_io *io; /* NULL at the beginning */
    const struct source *source;
    uint64_t next, end; /* of what is not in the window yet */
    uint8_t *window;
    const uint8_t *at, *stop; /* of what is in the window and not taken yet */
    uint64_t n_skipped;
    char *line; /* of a line that is longer than the window */
};

/* -ENOMEM. */
int stream_init(struct stream *stream, const struct source *source, uint64_t offset, uint64_t end);
void stream_done(struct stream *stream);

static inline uint64_t stream_offset(const struct stream *stream)
{
    return stream->next - (uint64_t)(stream->stop - stream->at);
}

static inline uint64_t stream_left(const struct stream *stream)
{
    return stream->end - stream_offset(stream);
}

/*
 * n_bytes (at most a window) in one piece, valid until the next call. -ENODATA when less is
 * left; errors as source_read.
 */
int stream_take_more(struct stream *stream, size_t n_bytes, const uint8_t **ret);

/* Fills the window so that it has n_bytes (at most a window), fewer where the input ends. Errors as
 * source_read. */
int stream_fill(struct stream *stream, size_t n_bytes);

static inline int stream_take(struct stream *stream, size_t n_bytes, const uint8_t **ret)
{
    if (n_bytes > (size_t)(stream->stop - stream->at))
        return stream_take_more(stream, n_bytes, ret);
    *ret = stream->at;
    stream->at += n_bytes;
    return 0;
}

/* Copies any number of bytes. */
int stream_read(struct stream *stream, void *buf, size_t n_bytes);

/* Skips any number of bytes without reading them. */
int stream_skip(struct stream *stream, uint64_t n_bytes);

/*
 * Takes a line up to its LF, which is taken too but not counted. -ENODATA when there is none,
 * -E2BIG when the line is longer than n_max.
 */
int stream_line(struct stream *stream, size_t n_max, const char **ret, size_t *ret_n);

#endif
