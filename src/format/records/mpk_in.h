/* SPDX-License-Identifier: MIT */
/*
 * MessagePack as a stream of tokens over a source: heads, one by one, through a small window.
 * Payloads are taken or skipped by the caller. Nothing is built and no count is believed.
 */
#ifndef WFS_MPK_IN_H
#define WFS_MPK_IN_H

#include "base/stream.h"

enum mpk_kind {
    MPK_NIL,
    MPK_BOOL,
    MPK_UINT,
    MPK_NEGATIVE,
    MPK_F32,
    MPK_F64,
    MPK_TEXT,
    MPK_BYTES,
    MPK_EXT,
    MPK_ARRAY,
    MPK_MAP,
};

struct mpk_token {
    enum mpk_kind kind;
    /* Number: its bits, negative ones in two's complement. Text, bytes, ext: how many bytes follow.
     * Array: items; map: pairs. */
    uint64_t n;
};

/* Takes a head. -ENODATA: the stream ends in or before it; -EBADMSG: the byte there is not a type;
 * errors as source_read. The stream stays where it is then. */
int mpk_next(struct stream *stream, struct mpk_token *ret);

/* Moves to an offset at or before which the stream has been. */
void mpk_return(struct stream *stream, uint64_t offset);

#endif
