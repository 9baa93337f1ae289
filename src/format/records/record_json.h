/* SPDX-License-Identifier: MIT */
/*
 * A record in JSON.
 */
#ifndef WFS_RECORD_JSON_H
#define WFS_RECORD_JSON_H

#include "format/records/record_build.h"

/* Reads one value from load->bytes, the text of which is in memory only for that. *ret_end is where
 * it ends. */
int record_json_parse(struct build *build, uint64_t *ret_end);

#endif
