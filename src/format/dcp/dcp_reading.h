/* SPDX-License-Identifier: MIT */
/*
 * Reading a distributed checkpoint, step by step: from the metadata to the tables of an assembly,
 * and from these to the catalog.
 */
#ifndef WFS_DCP_READING_H
#define WFS_DCP_READING_H

#include <weightfs/error.h>
#include "base/limits.h"
#include "base/text_index.h"
#include "format/core/format.h"
#include "format/dcp/dcp_assembly.h"
#include "value/value.h"

/*
 * What the pickle .metadata describes. Its millions of small objects (chunks, where they are
 * stored) become rows of tables while the pickle is read; the rest stays a graph.
 */

enum dcp_limit { DCP_LIMIT_METADATA, DCP_LIMIT_CHUNKS, DCP_LIMIT_ITEMS };
extern const struct wfs_limit dcp_limits[];

/* The classes of PyTorch whose objects describe a distributed checkpoint, known by their names. */
enum dcp_class {
    DCP_OTHER = 1, /* not one of these */
    DCP_METADATA,
    DCP_TENSOR,
    DCP_BYTES,
    DCP_CHUNK,
    DCP_PROPERTIES,
    DCP_INDEX,
    DCP_STORAGE,
    DCP_PADDLE, /* anything of PaddlePaddle's distributed checkpoints */
    DCP_SIZE,
    DCP_RECONSTRUCTOR, /* the function by which protocols 0 and 1 spell a new object */
};

/* Returns the class of a value that is an object, DCP_OTHER for other values. */
enum dcp_class dcp_class_of(struct graph *graph, uint32_t id);

/* Returns the last state that an object got, 0: none. */
uint32_t dcp_state_of(const struct graph *graph, uint32_t id);

/* Returns what the state of an object has by that name; 0: nothing. */
uint32_t dcp_field(const struct graph *graph, uint32_t id, const char *name);

/* A chunk: a box of the tensor. */
struct dcp_chunk {
    uint32_t rank;
    uint32_t box; /* in the numbers: rank offsets, then rank sizes */
};

/* What a stored item is: a chunk at an offset of a tensor, or a value. */
struct dcp_index {
    uint32_t key;    /* number of its text in the names */
    uint32_t rank;   /* of the offset; DCP_NO_OFFSET: a value */
    uint32_t offset; /* in the numbers */
};

/* Where an item is stored. */
struct dcp_storage {
    uint32_t path; /* number of its text in the paths */
    bool is_transformed;
    int64_t offset, length;
};

#define DCP_NO_OFFSET UINT32_MAX

struct dcp_metadata {
    struct arena arena;
    struct graph graph;
    uint64_t n_bytes_left;                /* of all files */
    uint64_t n_most_rank, n_most_texts;   /* of a tuple, of the names or paths */
    uint64_t n_most_rows, n_most_numbers; /* of a table, of the numbers */
    uint32_t *roots; /* malloc'ed: objects of class Metadata, one for each file that was read */
    size_t n_roots, n_root_room;
    int64_t *numbers; /* malloc'ed, as are the tables */
    size_t n_numbers, n_number_room;
    struct dcp_chunk *chunks;
    size_t n_chunks, n_chunk_room;
    struct dcp_index *indexes;
    size_t n_indexes, n_index_room;
    struct dcp_storage *storages;
    size_t n_storages, n_storage_room;
    struct text_index names, paths; /* of what is stored, and of the files; in the arena */
};

void dcp_metadata_init(struct dcp_metadata *metadata, const struct limits *limits);
void dcp_metadata_done(struct dcp_metadata *metadata);

/*
 * Reads one file and adds what it describes. -EBADMSG where it is not a Metadata object, -E2BIG,
 * -EIO, -EOPNOTSUPP, -ENOMEM.
 */
int dcp_metadata_read(struct dcp_metadata *metadata, const struct source *source,
                      const struct limits *limits, struct wfs_error *err);

/* Lists the files that one file of metadata names, as struct directory_functions. */
int dcp_metadata_list(const struct source *source, char **ret, struct wfs_error *err);

/* Return what a value of the graph stands for; NULL when it is something else. */
const struct dcp_chunk *dcp_chunk_of(const struct dcp_metadata *metadata, uint32_t id);
const struct dcp_index *dcp_index_of(const struct dcp_metadata *metadata, uint32_t id);
const struct dcp_storage *dcp_storage_of(const struct dcp_metadata *metadata, uint32_t id);

/* Reads the integers of a tuple or torch.Size of the graph, and adds them to the numbers. 1: *ret
 * is the first and *ret_rank their number; 0: it is something else; -ENOMEM. */
int dcp_metadata_numbers(struct dcp_metadata *metadata, uint32_t id, uint32_t *ret,
                         uint32_t *ret_rank);

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
    const char *url;    /* of the metadata, which the files are beside; NULL: a directory */
    uint32_t n_early;   /* files of a URL that somebody has begun to open */
    bool is_new;        /* a file has the temporary name of what will have its name */
    uint32_t companion; /* 1 + the item that is all of the file beside it; 0: there is none */
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

/* What Lightning writes beside it: a dict of all but models and optimizers. */
#define DCP_COMPANION "meta.pt"

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
