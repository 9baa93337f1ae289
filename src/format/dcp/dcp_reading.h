/* SPDX-License-Identifier: MIT */
/*
 * Reading a distributed checkpoint, step by step: from the metadata to the tables of an assembly,
 * and from these to the catalog.
 */
#ifndef WFS_DCP_READING_H
#define WFS_DCP_READING_H

#include "base/text_index.h"
#include "format/core/format.h"
#include "format/dcp/dcp_assembly.h"
#include "format/dcp/dcp_metadata.h"

/* A key of the metadata: a tensor or a value. */
struct dcp_key {
    const char *name; /* in the arena of the tables */
    size_t n_name;
    bool is_tensor;
    uint32_t number;     /* tensor: in the tables; value: its item */
    const char *trouble; /* value: why it cannot be read */
};

/* What an item is stored for: the chunk at an offset of a key, or the value of a key. */
struct dcp_claim {
    uint32_t item;
    uint32_t rank, offset; /* as in struct dcp_index */
};

/* The items of a checkpoint, found by what they are. A zeroed struct is empty. */
struct dcp_items {
    struct dcp_claim *claims; /* malloc'ed, by key, of a key by offset */
    uint32_t *starts;         /* malloc'ed, by key: its first claim; one more at the end */
};

struct dcp_reading {
    const struct load_context *context;
    struct wfs_catalog *catalog; /* adopts the files */
    const char *folder;          /* with its slash */
    int directory;               /* open; -1: a URL */
    const char *url;  /* of the metadata, which the files are beside; NULL: a directory */
    uint32_t n_early; /* files of a URL that somebody has begun to open */
    bool is_new;      /* a file has the temporary name of what will have its name */
    struct wfs_error *err;
    struct dcp_metadata *metadata;
    struct dcp_tables tables;
    struct dcp_key *keys; /* malloc'ed, in the order of the metadata */
    size_t n_keys, n_key_room;
    struct text_index names; /* of the keys */
    struct dcp_items items;  /* until the tables are filled */
};

/* The tables are not freed when they have become an assembly's. */
void dcp_reading_done(struct dcp_reading *reading);

/* Fills the tables; what is wrong with one thing becomes its trouble. -EBADMSG, -E2BIG, -ENOMEM. */
int dcp_table_fill(struct dcp_reading *reading);

/* Adds a finding about the tensors that cannot be read. -ENOMEM. */
int dcp_values_tell(struct wfs_catalog *catalog);

/*
 * Reads all values, nests them and the tensors, and lists everything in the catalog. The tensors of
 * the tables are ranges of the assembly. A value that cannot be read is left out, with a finding.
 * -E2BIG, -EOPNOTSUPP, -EIO, -ENOMEM.
 */
int dcp_values_list(struct dcp_reading *reading, struct source *assembly);

#endif
