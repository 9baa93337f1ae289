/* SPDX-License-Identifier: MIT */
/*
 * A load of a Burnpack on its way: everything that its steps share.
 */
#ifndef WFS_BURNPACK_LOAD_H
#define WFS_BURNPACK_LOAD_H

#include "format/burnpack/burnpack_file.h"
#include "format/core/format.h"
#include "format/burnpack/cbor_in.h"
#include "format/core/tally.h"

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
    struct tally tally;
};

/* -E2BIG or -ENOMEM. */
int burnpack_load_fail_memory(const struct burnpack_load *load);

/* Fails with what the CBOR parser has found wrong. draft may be NULL. */
int burnpack_load_fail_cbor(const struct burnpack_load *load, const struct burnpack_draft *draft);

/* The same, after putting the parser in error. error is static text, or in the arena. */
int burnpack_load_fail(struct burnpack_load *load, const struct burnpack_draft *draft,
                       const char *error);

/* Escapes the NULs of a name, or refuses it; what says what it is the name of. Returns 1 if there
 * are any. */
int burnpack_escape(const struct burnpack_load *load, struct cbor_span *name, const char *what);

static inline struct wfs_quoted burnpack_quote(const struct cbor_span *span)
{
    return wfs_quote_n(span->bytes, span->n_bytes);
}

#endif
