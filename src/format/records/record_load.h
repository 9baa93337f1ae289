/* SPDX-License-Identifier: MIT */
/*
 * A load of a record on its way: everything that its steps share, and the steps.
 */
#ifndef WFS_RECORD_LOAD_H
#define WFS_RECORD_LOAD_H

#include "format/core/format.h"
#include "format/core/tally.h"
#include "format/records/record_list.h"

/* What can be odd about a record; see tally.h. */
enum record_finding {
    REC_SHORT,
    REC_CHECKSUM,
    REC_SIZE,
    REC_DTYPE,
    REC_DUPLICATE,
    REC_TAIL,
    REC_GUESS,
    REC_MIXED,
    REC_LENGTH,
    REC_MEMBERS,
    REC_FORM,
    REC_ID,
    REC_TRAILING,
    REC_KEY,
    REC_EMPTY,
    REC_EXTENSION,
    REC_FIELD,
    REC_UUID,
};

struct record_load {
    struct source *file;
    struct source *bytes;   /* MessagePack or JSON: the file itself, or what its gzip data holds */
    struct source *decoded; /* of the catalog; NULL: not made yet */
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct graph *graph; /* of the catalog: the whole record, a list of numbers as PERSISTENT */
    struct wfs_error *err;
    struct record_lists lists; /* until `decoded` has them */
    struct tally tally;
    bool is_gzip;
    bool has_other_sum; /* the gzip data, than its trailer says */
    /* Metadata: */
    uint32_t item;       /* in the graph */
    unsigned minor;      /* of the version 0.minor of Burn; 0: it is another one */
    uint8_t float_dtype; /* of its settings; WFS_OPAQUE: none that is known */
    uint8_t int_dtype;   /* the same */
};

/* -E2BIG or -ENOMEM. */
int record_fail_memory(const struct record_load *load);

/* Returns " of the decompressed record" for positions in one, else "". */
const char *record_where(const struct record_load *load);

/* Fails because the record ends at the offset, or at the end of the file. */
int record_fail_short(const struct record_load *load, uint64_t offset);

/* Fails for an error of a read: its errno. */
int record_fail_read(const struct record_load *load, int code);

/* Fails because there are more values than the limit. */
int record_fail_values(const struct record_load *load);

/* Makes the lists of numbers in a value lists of values. Recursion ends with the depth that the
 * record may have. */
int record_settle(const struct record_load *load, uint32_t id);

extern const struct wfs_limit record_limits[]; /* of the depth, and of JSON */

/* Builds the graph from load->bytes, which are in the encoding of load->lists. *ret_root is the
 * outermost value. With force, what there is of a record that was cut. */
int record_read(struct record_load *load, uint32_t *ret_root);

/* What has no name because it is the whole record. */
#define RECORD_ITEM "item"

/* Adds all tensors, and the largest values without one, to the catalog. -EBADMSG, -EOPNOTSUPP,
 * -E2BIG, -ENOMEM. */
int record_listing_add(struct record_load *load);

/*
 * Adds a tensor under the key, which lives in the arena. -EBADMSG, -EOPNOTSUPP, -E2BIG, -ENOMEM.
 * What can be known of a tensor whose bytes do not fit its shape is added with a trouble.
 */
int record_tensor_add(struct record_load *load, uint32_t id, uint32_t place, const char *key);

#endif
