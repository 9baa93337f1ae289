/* SPDX-License-Identifier: MIT */
/*
 * What a safetensors file is made of:
 *
 *   n (8 bytes, little-endian) | header: n bytes of JSON, padded | data
 *
 * Offsets in the header count from the start of the data.
 */
#ifndef WFS_SAFETENSORS_FILE_H
#define WFS_SAFETENSORS_FILE_H

#include <stdint.h>

enum {
    SAFETENSORS_PREFIX = 8,
    SAFETENSORS_HEADER_MAX = 100000000, /* what the reference reads */
};

#define SAFETENSORS_METADATA "__metadata__"

/* The last dtype of the format; those before it in the table are the format's too, in its order. */
#define SAFETENSORS_LAST_DTYPE WFS_U64

#endif
