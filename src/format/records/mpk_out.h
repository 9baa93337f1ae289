/* SPDX-License-Identifier: MIT */
/*
 * MessagePack written as Burn's codec spells it: the shortest form of everything. What is written
 * is added to a strbuf, which remembers a lack of memory.
 */
#ifndef WFS_MPK_OUT_H
#define WFS_MPK_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/strbuf.h>

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
