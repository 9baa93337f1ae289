/* SPDX-License-Identifier: MIT */
/*
 * CBOR as Burnpack has it: a pull parser over bytes in memory, which takes and refuses what Burn's
 * codec does, and a writer that spells as that codec does: definite lengths, shortest heads,
 * shortest floats.
 */
#ifndef WFS_CBOR_H
#define WFS_CBOR_H

#include <weightfs/strbuf.h>
#include "value/value_build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text, or a byte string, in the parsed bytes. No NUL ends it; it may have some in it. */
struct cbor_span {
    const char *bytes;
    size_t n_bytes;
};

struct cbor_level {
    uint64_t n_left; /* items: two for each pair of a map */
    bool is_indefinite;
    bool is_map;
};

/* Open containers are levels; `next` is about the innermost. */
struct cbor_in {
    uint8_t *start, *at, *end;
    struct cbor_level *levels; /* malloc'ed */
    size_t n_level_room;
    uint64_t depth, depth_max;
    bool is_too_deep;      /* the error is the nesting */
    bool is_out_of_memory; /* the error is that */
    const char *error;     /* NULL while all is well; `at` stands where it is not */
};

/* Texts in pieces are joined in place: the bytes are spoilt. */
void cborin_init(struct cbor_in *in, void *bytes, size_t n_bytes, uint64_t depth_max);
void cborin_done(struct cbor_in *in);

/* Where the parser stands. */
size_t cborin_offset(const struct cbor_in *in);

/* What the next value is, behind any tags; takes nothing but those. TOKEN_OTHER: there is none. */
enum token_kind cborin_kind(struct cbor_in *in);

/*
 * Each takes one thing from the front, with its tags. False: it is not there, and the parser stays
 * in error; every call after that is false too.
 */
bool cborin_open_map(struct cbor_in *in);
bool cborin_open_array(struct cbor_in *in);
bool cborin_text(struct cbor_in *in, struct cbor_span *ret);
bool cborin_uint(struct cbor_in *in, uint64_t *ret);
bool cborin_null(struct cbor_in *in); /* or undefined */
bool cborin_skip(struct cbor_in *in); /* any value, checked in full, spoiling nothing */

/* The adapter of CBOR: takes the next token. Byte strings are skipped. */
bool cborin_token(struct cbor_in *in, enum token_place place, struct token *ret);

/* A field's name: text or bytes in one piece. */
bool cborin_field(struct cbor_in *in, struct cbor_span *ret);

/*
 * Reads the name of a variant. With *ret_has_payload it is the key of a map of one pair, whose
 * value is next; call cborin_next after that value.
 */
bool cborin_variant(struct cbor_in *in, struct cbor_span *ret, bool *ret_has_payload);

/*
 * True when the innermost container has one more item, or pair, which comes next. False at its end,
 * which is taken, and in error: look at `error` after the loop.
 */
bool cborin_next(struct cbor_in *in);

/* Puts the parser in error, if it is not yet. error is static text. Returns false. */
bool cborin_fail(struct cbor_in *in, const char *error);

bool cbor_span_is(const struct cbor_span *span, const char *text);

/* What is written is added to a strbuf, which remembers a lack of memory. */
void cborout_map(struct strbuf *out, uint64_t n_pairs);
void cborout_array(struct strbuf *out, uint64_t n_items);
void cborout_text(struct strbuf *out, const char *text, size_t n_bytes);
void cborout_string(struct strbuf *out, const char *text);
void cborout_uint(struct strbuf *out, uint64_t value);
void cborout_int(struct strbuf *out, int64_t value);
void cborout_real(struct strbuf *out, double value);
void cborout_bool(struct strbuf *out, bool value);

#endif
