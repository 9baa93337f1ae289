/* SPDX-License-Identifier: MIT */
/*
 * The window over a source: refilled when it runs out, left behind when much is skipped.
 */
#include "base/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int stream_init(struct stream *stream, const struct source *source, uint64_t offset, uint64_t end)
{
    *stream = (struct stream){.source = source, .next = offset, .end = end};
    stream->window = malloc(STREAM_WINDOW);
    stream->at = stream->stop = stream->window;
    return stream->window == NULL ? -ENOMEM : 0;
}

void stream_done(struct stream *stream)
{
    free(stream->window);
    free(stream->line);
    *stream = (struct stream){0};
}

/* Moves what is left to the front and fills the rest of the window. */
static int refill(struct stream *stream)
{
    const size_t n_kept = (size_t)(stream->stop - stream->at);
    const uint64_t n_left = stream->end - stream->next;
    const size_t n = n_left < STREAM_WINDOW - n_kept ? (size_t)n_left : STREAM_WINDOW - n_kept;
    memmove(stream->window, stream->at, n_kept);
    const int code =
        source_read_for(stream->io, stream->source, stream->next, stream->window + n_kept, n);
    if (code < 0)
        return code;
    stream->next += n;
    stream->at = stream->window;
    stream->stop = stream->window + n_kept + n;
    return 0;
}

int stream_fill(struct stream *stream, size_t n_bytes)
{
    return n_bytes <= (size_t)(stream->stop - stream->at) || stream->next == stream->end
               ? 0
               : refill(stream);
}

int stream_take_more(struct stream *stream, size_t n_bytes, const uint8_t **ret)
{
    if (n_bytes > stream_left(stream))
        return -ENODATA;
    const int code = refill(stream);
    if (code < 0)
        return code;
    *ret = stream->at;
    stream->at += n_bytes;
    return 0;
}

int stream_read(struct stream *stream, void *buf, size_t n_bytes)
{
    const size_t n_here = (size_t)(stream->stop - stream->at);
    if (n_bytes > stream_left(stream))
        return -ENODATA;
    const size_t n = n_bytes < n_here ? n_bytes : n_here;
    memcpy(buf, stream->at, n);
    stream->at += n;
    if (n == n_bytes)
        return 0;
    const int code =
        source_read_for(stream->io, stream->source, stream->next, (char *)buf + n, n_bytes - n);
    if (code == 0)
        stream->next += n_bytes - n;
    return code;
}

int stream_skip(struct stream *stream, uint64_t n_bytes)
{
    const size_t n_here = (size_t)(stream->stop - stream->at);
    if (n_bytes > stream_left(stream))
        return -ENODATA;
    if (n_bytes <= n_here) {
        stream->at += n_bytes;
    } else {
        stream->next += n_bytes - n_here;
        stream->at = stream->stop = stream->window;
    }
    stream->n_skipped += n_bytes;
    return 0;
}

/* A line that does not fit the window: collected piece by piece. */
static int long_line(struct stream *stream, size_t n_max, size_t *ret_n)
{
    size_t n = 0, n_room = 0;
    for (;;) {
        const size_t n_here = (size_t)(stream->stop - stream->at);
        const uint8_t *end = memchr(stream->at, '\n', n_here);
        const size_t n_piece = end != NULL ? (size_t)(end - stream->at) : n_here;
        if (n_piece > n_max - n)
            return -E2BIG;
        if (n + n_piece > n_room) {
            n_room = n + n_piece + n / 2;
            char *line = realloc(stream->line, n_room);
            if (line == NULL)
                return -ENOMEM;
            stream->line = line;
        }
        if (n_piece > 0)
            memcpy(stream->line + n, stream->at, n_piece);
        n += n_piece;
        stream->at += n_piece + (end != NULL);
        *ret_n = n;
        if (end != NULL)
            return 0;
        if (stream_left(stream) == 0)
            return -ENODATA;
        const int code = refill(stream);
        if (code < 0)
            return code;
    }
}

int stream_line(struct stream *stream, size_t n_max, const char **ret, size_t *ret_n)
{
    const uint8_t *end = memchr(stream->at, '\n', (size_t)(stream->stop - stream->at));
    if (end == NULL) {
        const int code = refill(stream);
        if (code < 0)
            return code;
        end = memchr(stream->at, '\n', (size_t)(stream->stop - stream->at));
    }
    if (end == NULL) {
        const int code = long_line(stream, n_max, ret_n);
        *ret = stream->line;
        return code;
    }
    *ret = (const char *)stream->at;
    *ret_n = (size_t)(end - stream->at);
    stream->at = end + 1;
    return *ret_n > n_max ? -E2BIG : 0;
}
