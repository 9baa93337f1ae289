/* SPDX-License-Identifier: MIT */
/*
 * What a Burnpack is made of:
 *
 *   "NRUB" | version (2 bytes) | M (4 bytes) | M bytes of CBOR | padding | data
 *
 * little-endian. Ranges in the CBOR count from the start of the data: a multiple of 256, or right
 * behind the CBOR in the packed layout of the first releases.
 */
#ifndef WFS_BURNPACK_FILE_H
#define WFS_BURNPACK_FILE_H

#include <stdint.h>

enum { BURNPACK_HEADER = 10, BURNPACK_VERSION = 1, BURNPACK_ALIGNMENT = 256 };

/* What Burn reads at most; beyond that a file is of no use to it. */
#define BURNPACK_CBOR_MAX UINT64_C(104857600)
#define BURNPACK_TENSORS_MAX UINT64_C(100000)
#define BURNPACK_TENSOR_MAX UINT64_C(10737418240)
#define BURNPACK_FILE_MAX UINT64_C(107374182400)

/* Attributes beside `param_id` and `quantization` (the scheme as JSON). */
#define BURNPACK_SCHEME "quantization_cbor" /* the dtype as the file has it, verbatim */
#define BURNPACK_STORE "bool_store"         /* of a BOOL that is not "Native" */

#endif
