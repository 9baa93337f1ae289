/* SPDX-License-Identifier: MIT */
/*
 * Inside of the Burnpack reader and writer. A file is
 *
 *   "NRUB" | version (2 bytes) | M (4 bytes) | M bytes of CBOR | padding | data
 *
 * little-endian. Ranges in the CBOR count from the start of the data: a multiple of 256, or right
 * behind the CBOR in the packed layout of the first releases.
 */
#ifndef WFS_BURNPACK_H
#define WFS_BURNPACK_H

#include "format/burnpack/burnpack_cbor.h"
#include "format/burnpack/burnpack_emit.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "format/core/oddities.h"

enum { BURNPACK_HEADER = 10, BURNPACK_VERSION = 1, BURNPACK_ALIGNMENT = 256 };

/* What Burn reads at most; beyond that a file is of no use to it. */
#define BURNPACK_CBOR_MAX UINT64_C(104857600)
#define BURNPACK_TENSORS_MAX UINT64_C(100000)
#define BURNPACK_TENSOR_MAX UINT64_C(10737418240)
#define BURNPACK_FILE_MAX UINT64_C(107374182400)

/* Attributes beside `param_id` and `quantization` (the scheme as JSON). */
#define BURNPACK_SCHEME "quantization_cbor" /* the dtype as the file has it, verbatim */
#define BURNPACK_STORE "bool_store"         /* of a BOOL that is not "Native" */

/* What a reader may stumble over, worst first. Only the first case of each is told, with a count.
 */
enum burnpack_oddity {
    BURNPACK_ODD_SHORT,
    BURNPACK_ODD_SIZE,
    BURNPACK_ODD_DTYPE,
    BURNPACK_ODD_DUPLICATE,
    BURNPACK_ODD_META_DUPLICATE,
    BURNPACK_ODD_SCALAR_DUPLICATE,
    BURNPACK_ODD_TENSOR_MAX,
    BURNPACK_ODD_FILE_MAX,
    BURNPACK_ODD_OVERLAP,
    BURNPACK_ODD_UNUSED,
    BURNPACK_ODD_TRAILING,
    BURNPACK_ODD_CBOR_TRAILING,
    BURNPACK_ODD_UNALIGNED,
    BURNPACK_ODD_FIELD,
    BURNPACK_ODD_PACKED,
    BURNPACK_ODD_BOOL,
    BURNPACK_ODD_SCHEME,
    BURNPACK_N_ODDITIES
};

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
    struct burnpack_pairs meta, scalars;
    uint64_t *dims; /* malloc'ed room for a shape */
    size_t dims_room;
    const struct wfs_text *scheme; /* attributes of the last quantized tensor */
    struct odd_count odd[BURNPACK_N_ODDITIES];
};

/* Counts one more, and keeps the text of the first. */
void burnpack_note(struct burnpack_load *load, enum burnpack_oddity oddity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int burnpack_fail_memory(const struct burnpack_load *load);

/* What the CBOR parser has found wrong. draft may be NULL. */
int burnpack_fail_cbor(const struct burnpack_load *load, const struct burnpack_draft *draft);

/* Parses the CBOR into tensors, pairs and oddities. */
int burnpack_parse(struct burnpack_load *load);

/* The value of the field `dtype`. */
int burnpack_take_dtype(struct burnpack_load *load, struct burnpack_draft *draft);

/* The value of the fields `metadata` and `scalars`. */
int burnpack_take_metadata(struct burnpack_load *load, struct burnpack_draft *none);
int burnpack_take_scalars(struct burnpack_load *load, struct burnpack_draft *none);

/* Puts the pairs into the catalog, the last of each name. */
int burnpack_fill_pairs(struct burnpack_load *load);

/* Sorts the tensors by place, finds the start of the data and compares them with the file. */
int burnpack_check(struct burnpack_load *load);

/* A file that is being laid out. Arrays are in the arena of the layout. */
struct burnpack_plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    const struct wfs_tensor **by_key;
    uint64_t *starts;              /* in the data; by position in the catalog */
    uint64_t end;                  /* of the data */
    struct wfs_text *meta;         /* by name */
    struct catalog_value *scalars; /* by name */
    size_t n_meta, n_scalars;
};

/* The tensor's text of that name, with its length; NULL: there is none. */
const struct wfs_text *burnpack_attr(const struct wfs_tensor *tensor, const char *name);

/* The name of a dtype that the format has by name alone, else NULL. */
const char *burnpack_dtype_name(enum wfs_dtype dtype);

/* Is it what a reader makes of a quantization scheme: a JSON object? And back again, as a dtype. */
bool burnpack_is_scheme(const char *text);
void burnpack_put_scheme(struct cbor_out *out, const char *text);

/* text is the tensor's `param_id`. -EINVAL. */
int burnpack_param_id(const struct wfs_tensor *tensor, const char *text, uint64_t *ret,
                      struct wfs_error *err);

/* Appends the CBOR. -EINVAL, -ENOMEM. */
int burnpack_write(const struct burnpack_plan *plan, struct cbor_out *out);

/* Lays a catalog out as the newest Burn does. */
int burnpack_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                  struct wfs_error *err);

/* True when a Burn that wrote the packed layout says so in the metadata. */
bool burnpack_is_old(const struct wfs_text *meta);

extern const struct wfs_format format_burnpack;

#endif
