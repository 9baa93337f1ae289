/* SPDX-License-Identifier: MIT */
/*
 * MessagePack written as Burn's codec spells it: the shortest form of everything.
 */
#ifndef WFS_MPK_OUT_H
#define WFS_MPK_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Grows as it is written to. A zeroed struct is empty. */
struct mpk_out {
    uint8_t *bytes; /* malloc'ed */
    size_t n_bytes, n_room;
    bool has_failed; /* out of memory: what is written is lost */
};

void mpkout_done(struct mpk_out *out);
void mpkout_raw(struct mpk_out *out, const void *bytes, size_t n_bytes);
void mpkout_nil(struct mpk_out *out);
void mpkout_bool(struct mpk_out *out, bool value);
void mpkout_uint(struct mpk_out *out, uint64_t value);
void mpkout_int(struct mpk_out *out, int64_t value);
void mpkout_f32(struct mpk_out *out, double value);
void mpkout_f64(struct mpk_out *out, double value);
void mpkout_text(struct mpk_out *out, const char *text, size_t n_bytes);
void mpkout_string(struct mpk_out *out, const char *text);

/* Heads, of fewer than 2^32 items, pairs or bytes; what is in them follows. */
void mpkout_array(struct mpk_out *out, uint32_t n_items);
void mpkout_map(struct mpk_out *out, uint32_t n_pairs);
void mpkout_bytes(struct mpk_out *out, uint32_t n_bytes);

#endif
