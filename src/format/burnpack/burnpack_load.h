/* SPDX-License-Identifier: MIT */
/*
 * The room of Burnpack from the inside. What a file is made of:
 *
 *   "NRUB" | version (2 bytes) | M (4 bytes) | M bytes of CBOR | padding | data
 *
 * little-endian. Ranges in the CBOR count from the start of the data: a multiple of 256, or right
 * behind the CBOR in the packed layout of the first releases.
 */
#ifndef WFS_BURNPACK_LOAD_H
#define WFS_BURNPACK_LOAD_H

#include "format/burnpack/cbor.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "format/core/tally.h"

/* What can be odd about a file; see tally.h. */
enum burnpack_finding {
    BPK_SHORT,
    BPK_SIZE,
    BPK_DTYPE,
    BPK_DUPLICATE,
    BPK_META_DUPLICATE,
    BPK_SCALAR_DUPLICATE,
    BPK_TENSOR_MAX,
    BPK_FILE_MAX,
    BPK_OVERLAP,
    BPK_UNUSED,
    BPK_TRAILING,
    BPK_CBOR_TRAILING,
    BPK_UNALIGNED,
    BPK_FIELD,
    BPK_PACKED,
    BPK_BOOL,
    BPK_SCHEME,
};

enum { BURNPACK_HEADER = 10, BURNPACK_VERSION = 1, BURNPACK_ALIGNMENT = 256 };

/* What Burn reads at most; beyond that a file is of no use to it. */
#define BURNPACK_CBOR_MAX UINT64_C(104857600)
#define BURNPACK_TENSORS_MAX UINT64_C(100000)
#define BURNPACK_TENSOR_MAX UINT64_C(10737418240)
#define BURNPACK_FILE_MAX UINT64_C(107374182400)

enum { BURNPACK_SCHEME_MAX = 4096 }; /* bytes; 200 have been seen */

/* Attributes beside `param_id` and `quantization` (the scheme as JSON). */
#define BURNPACK_SCHEME "quantization_cbor" /* the dtype as the file has it, verbatim */
#define BURNPACK_STORE "bool_store"         /* of a BOOL that is not "Native" */

/* One pair of the metadata or of the scalars. Texts lie in the CBOR. */
struct burnpack_pair {
    struct cbor_span name, text;
    uint32_t value; /* in the graph of the catalog; 0: the text is it */
};

struct burnpack_pairs {
    struct burnpack_pair *items; /* malloc'ed */
    size_t n_items, n_room;
};

/* A tensor that is being parsed. */
struct burnpack_draft {
    struct cbor_span key;
    struct wfs_tensor *tensor;
    const struct wfs_text *attrs; /* that its dtype brings along */
    uint64_t param_id;
    bool has_param_id;
};

/* A load on its way: everything that its steps share. Until the start of the data is known, offsets
 * of tensors count from there. */
struct burnpack_load {
    struct source *source;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    uint8_t *cbor; /* malloc'ed, n_cbor bytes */
    uint64_t n_cbor;
    struct cbor_in in;
    struct cbor_span key; /* of the tensor that is being parsed; bytes NULL: none */
    int code;             /* of a failure that is not one of the CBOR */
    struct burnpack_pairs meta, scalars;
    uint64_t *dims; /* malloc'ed room for a shape */
    size_t dims_room;
    const struct wfs_text *scheme; /* attributes of the last quantized tensor */
    struct tally tally;
};

/* Finds a dtype that is a name. */
bool burnpack_dtype_parse(const struct cbor_span *name, enum wfs_dtype *ret);

/* Sorts the tensors by place, finds the start of the data and compares them with the file. */
int burnpack_extent_check(struct burnpack_load *load);

/* Returns whether a Burn that wrote the packed layout says so in the metadata. */
bool burnpack_extent_is_old(const struct wfs_text *meta);

/* The functions of struct format_functions. A quantization scheme, the size that Burn reads and a
 * parameter id are checked. -EINVAL, -E2BIG. */
bool burnpack_layout_stores(const struct wfs_tensor *tensor);
int burnpack_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err);
int burnpack_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                         struct wfs_error *err);

#endif
