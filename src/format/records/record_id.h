/* SPDX-License-Identifier: MIT */
/*
 * Ids of parameters. They are texts in a record, and numbers of 64 bits in a Burnpack.
 */
#ifndef WFS_RECORD_ID_H
#define WFS_RECORD_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_id_kind {
    RECORD_ID_DIGITS, /* 13 of them, or fewer: the number that Burn reads from them */
    RECORD_ID_UUID,   /* of Burn up to 0.13: the number is a hash of ours */
    RECORD_ID_OTHER,  /* Burn from 0.15 on stops at it; the number is a hash of ours */
};

enum { RECORD_ID_N = 13 }; /* digits of a new id */

enum record_id_kind record_id_parse(const char *text, size_t n_bytes, uint64_t *ret);

/* Writes the digits and a NUL. */
void record_id_print(uint64_t id, char ret[RECORD_ID_N + 1]);

#endif
