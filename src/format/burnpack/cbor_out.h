/* SPDX-License-Identifier: MIT */
/*
 * CBOR written as Burn's codec spells it: definite lengths, shortest heads, shortest floats.
 */
#ifndef WFS_CBOR_OUT_H
#define WFS_CBOR_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Grows as it is written to. A zeroed struct is empty. */
struct cbor_out {
    uint8_t *bytes; /* malloc'ed */
    size_t n_bytes, n_room;
    bool has_failed; /* out of memory: what is written is lost */
};

void cborout_done(struct cbor_out *out);
void cborout_raw(struct cbor_out *out, const void *bytes, size_t n_bytes);
void cborout_map(struct cbor_out *out, uint64_t n_pairs);
void cborout_array(struct cbor_out *out, uint64_t n_items);
void cborout_text(struct cbor_out *out, const char *text, size_t n_bytes);
void cborout_string(struct cbor_out *out, const char *text);
void cborout_uint(struct cbor_out *out, uint64_t value);
void cborout_int(struct cbor_out *out, int64_t value);
void cborout_real(struct cbor_out *out, double value);
void cborout_bool(struct cbor_out *out, bool value);

#endif
