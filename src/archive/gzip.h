/* SPDX-License-Identifier: MIT */
/*
 * A gzip file as a source of what it holds. Its members are measured once, when it is opened, and
 * read in any order afterwards, as those of a zip are.
 */
#ifndef WFS_GZIP_H
#define WFS_GZIP_H

#include "base/source.h"

/* What is odd about a file that can be read all the same. */
struct gzip_facts {
    uint64_t n_members;
    uint64_t n_trailing; /* bytes behind the last member */
    bool has_other_crc;  /* a member's content is not what its trailer says */
    bool has_other_size; /* the same of its length */
    bool lacks_trailer;  /* the file ends before the trailer of its last member does */
};

/* Returns whether a file begins like a gzip file. */
bool gzip_probe(const uint8_t *head, size_t n_head);

/* Inflates the front of a file, of which only the head is at hand: at most n_bytes, fewer when the
 * head is too short or damaged. Returns how many. */
size_t gzip_peek(const uint8_t *head, size_t n_head, void *buf, size_t n_bytes);

/*
 * Inflates all of a gzip file once, and makes a source of the content of its members, one behind
 * the other. Borrows the file. -EBADMSG when a member is damaged or cut, -E2BIG when there are too
 * many, -ENOMEM, errors as source_read.
 */
int gzip_open(struct source *file, struct source **out, struct gzip_facts *facts,
              struct wfs_error *err);

#endif
