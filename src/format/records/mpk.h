/* SPDX-License-Identifier: MIT */
/*
 * MessagePack written as Burn's codec spells it: the shortest form of everything. What is written
 * is added to a strbuf, which remembers a lack of memory.
 */
#ifndef WFS_MPK_H
#define WFS_MPK_H

#include <weightfs/strbuf.h>
#include "base/stream.h"
#include "value/value_build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes a head, as a token without bytes; what an extension has is TOKEN_OTHER. -ENODATA: the
 * stream ends in or before it; -EBADMSG: the byte there is not a type; errors as source_read. The
 * stream stays where it is then. */
int mpk_next(struct stream *stream, struct token *ret);

/* Moves to an offset at or before which the stream has been. */
void mpk_return(struct stream *stream, uint64_t offset);

void mpkout_nil(struct strbuf *out);
void mpkout_bool(struct strbuf *out, bool value);
void mpkout_uint(struct strbuf *out, uint64_t value);
void mpkout_int(struct strbuf *out, int64_t value);
void mpkout_f32(struct strbuf *out, double value);
void mpkout_f64(struct strbuf *out, double value);
void mpkout_text(struct strbuf *out, const char *text, size_t n_bytes);
void mpkout_string(struct strbuf *out, const char *text);

/* Heads, of fewer than 2^32 items, pairs or bytes; what is in them follows. */
void mpkout_array(struct strbuf *out, uint32_t n_items);
void mpkout_map(struct strbuf *out, uint32_t n_pairs);
void mpkout_bytes(struct strbuf *out, uint32_t n_bytes);

#endif
