/* SPDX-License-Identifier: MIT */
/*
 * What the steps of reading a distributed checkpoint share: the metadata that is read, and the
 * tables that are made of it.
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
};

#endif
