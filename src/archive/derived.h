/* SPDX-License-Identifier: MIT */
/*
 * A source whose bytes are derived from those of another: inflated, decoded in memory, or gathered
 * with strides. Each addition gets a range of offsets, which are read in any order. Below it,
 * checks of deflated and of plain bytes, read once from front to back.
 */
#ifndef WFS_DERIVED_H
#define WFS_DERIVED_H

#include <weightfs/tensor.h>
#include "base/source.h"

/* A run of raw deflate in a source. */
struct deflated {
    uint64_t offset, n_packed;
    uint64_t n_bytes; /* inflated, as declared */
};

/* origin is borrowed. -ENOMEM. */
int derived_new(struct source *origin, struct source **out);

/*
 * Each adds a range and returns where it begins. -ENOMEM; -EOVERFLOW when offsets run out. Reads of
 * a deflated one give -EBADMSG when the packed data is damaged or ends too early.
 */
int derived_add_deflated(struct source *derived, const struct deflated *member,
                         uint64_t *ret_offset);

/* Adopts bytes, which were malloc'ed, also on failure. */
int derived_add_memory(struct source *derived, void *bytes, size_t n_bytes, uint64_t *ret_offset);

/* Adds the shown bytes of a tensor, which is borrowed. */
int derived_add_tensor(struct source *derived, const struct wfs_tensor *tensor,
                       uint64_t *ret_offset);

/* Adds a range right behind the last one, so that a read can go on from that to this. Errors as the
 * others. */
int derived_append_deflated(struct source *derived, const struct deflated *member);

struct inflated {
    uint64_t n_bytes;  /* at most one more than declared */
    uint64_t n_packed; /* of these; what follows them is not part of the member */
    uint32_t crc;
};

/* Reads a member to its end. -EBADMSG, -ENOMEM, errors as source_read. */
int inflate_all(const struct source *source, const struct deflated *member, struct inflated *ret);

/* Computes the CRC-32 of a range of a source. -ENOMEM, errors as source_read. */
int stored_crc(const struct source *source, uint64_t offset, uint64_t n_bytes, uint32_t *ret_crc);

#endif
