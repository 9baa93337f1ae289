/* SPDX-License-Identifier: MIT */
/*
 * Deflated bytes read in any order. Inflating only goes forward, so a few positions are kept to
 * continue from, and a few blocks of inflated bytes; memory is bounded however many members there
 * are.
 */
#ifndef WFS_INFLATE_H
#define WFS_INFLATE_H

#include "base/source.h"

/* A run of raw deflate in a source. */
struct deflated {
    uint64_t offset, n_packed;
    uint64_t n_bytes; /* inflated, as declared */
};

struct inflater;

/* Borrows the source. -ENOMEM. */
int inflater_new(const struct source *source, struct inflater **out);
void inflater_free(struct inflater *inflater);

/*
 * Reads a range inside of a member, which has the same number at every call. -EBADMSG when the
 * packed data is damaged or ends too early, -ENOMEM, errors as source_read. Safe to call from many
 * threads, one of which inflates at a time.
 */
int inflater_read(struct inflater *inflater, uint32_t number, const struct deflated *member,
                  uint64_t offset, void *buf, size_t n_bytes);

/*
 * Reads a member to its end: its CRC-32, and how many bytes it really has (at most one more than it
 * declares). Errors as inflater_read.
 */
int inflate_crc(const struct source *source, const struct deflated *member, uint32_t *ret_crc,
                uint64_t *ret_n_bytes);

/* The same, and how many packed bytes that took: what follows them is not part of the member. */
int inflate_measure(const struct source *source, const struct deflated *member, uint32_t *ret_crc,
                    uint64_t *ret_n_bytes, uint64_t *ret_n_packed);

/* Computes the CRC-32 of a range of a source. -ENOMEM, errors as source_read. */
int stored_crc(const struct source *source, uint64_t offset, uint64_t n_bytes, uint32_t *ret_crc);

#endif
