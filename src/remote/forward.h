/* SPDX-License-Identifier: MIT */
/*
 * Readers that go forward: how far ahead of each is asked for. A few readers of an object are
 * distinguished by where they are.
 */
#ifndef WFS_FORWARD_H
#define WFS_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

enum { FORWARD_READERS = 16 };

struct forward_reader {
    uint64_t next;   /* behind what it has read; 0: none */
    uint64_t asked;  /* up to where it was asked ahead */
    uint64_t window; /* bytes */
    uint64_t end;    /* of what it reads, as far as that is known */
    uint64_t n_read; /* bytes */
    bool has_passed; /* it went on behind the end of what it read before */
    uint64_t used;   /* when */
};

/* A zeroed one has seen no reader. */
struct forward {
    struct forward_reader readers[FORWARD_READERS];
    uint64_t n_uses;
};

/*
 * Notes a read; end is up to where it may go on, 0: that is not known, and little is asked ahead.
 * Returns true when [*ret_from, *ret_end), which lies behind the read and not behind end, is to be
 * asked for.
 */
bool forward_note(struct forward *forward, uint64_t offset, uint64_t n_bytes, uint64_t end,
                  uint64_t *ret_from, uint64_t *ret_end);

#endif
