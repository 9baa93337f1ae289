/* SPDX-License-Identifier: MIT */
/*
 * A record in MessagePack.
 */
#ifndef WFS_RECORD_MPK_H
#define WFS_RECORD_MPK_H

#include "format/records/record_build.h"

/* Reads one value from the front of load->bytes. *ret_end is where it ends. */
int record_mpk_parse(struct build *build, uint64_t *ret_end);

#endif
