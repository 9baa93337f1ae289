/* SPDX-License-Identifier: MIT */
/*
 * CBOR written as Burn's codec spells it: definite lengths, shortest heads, shortest floats. What
 * is written is added to a strbuf, which remembers a lack of memory.
 */
#ifndef WFS_CBOR_OUT_H
#define WFS_CBOR_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/strbuf.h>

void cborout_map(struct strbuf *out, uint64_t n_pairs);
void cborout_array(struct strbuf *out, uint64_t n_items);
void cborout_text(struct strbuf *out, const char *text, size_t n_bytes);
void cborout_string(struct strbuf *out, const char *text);
void cborout_uint(struct strbuf *out, uint64_t value);
void cborout_int(struct strbuf *out, int64_t value);
void cborout_real(struct strbuf *out, double value);
void cborout_bool(struct strbuf *out, bool value);

#endif
