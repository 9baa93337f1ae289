/* SPDX-License-Identifier: MIT */
/*
 * A load of a record on its way: everything that its steps share.
 */
#ifndef WFS_RECORD_LOAD_H
#define WFS_RECORD_LOAD_H

#include <weightfs/strbuf.h>

#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/names.h"
#include "format/core/tally.h"
#include "format/records/record_list.h"

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
    /* Metadata, as record_head_check finds it. */
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

/* Makes the lists of numbers in a value lists of values. */
int record_settle(struct record_load *load, uint32_t id);

#endif
