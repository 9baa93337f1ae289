/* SPDX-License-Identifier: MIT */
/*
 * A source in which every tensor in parts is a range of row-major bytes, put together when it is
 * read: any range costs about the bytes that it has.
 */
#ifndef WFS_DCP_ASSEMBLY_H
#define WFS_DCP_ASSEMBLY_H

#include "base/limits.h"
#include "format/dcp/dcp_tensor.h"

struct dcp_file {
    struct source *source;   /* borrowed from the catalog; NULL: it cannot be opened */
    const char *name;        /* below the directory */
    const char *trouble;     /* why it cannot */
    uint64_t n_header_bytes; /* of the safetensors files in it that were read */
};

/* Tables that the assembly adopts; all were malloc'ed, except for texts and numbers that tensors
 * and parts point to, which are in the arena. */
struct dcp_tables {
    struct arena arena;
    int64_t *numbers;
    struct dcp_file *files;
    uint32_t n_files;
    struct dcp_item *items;
    uint32_t n_items;
    struct dcp_tensor *tensors; /* their starts ascend */
    uint32_t n_tensors;
    struct dcp_part *parts; /* of all tensors */
    uint32_t n_parts;
    struct limits limits;
};

void dcp_tables_done(struct dcp_tables *tables);

/* Gives each tensor its room among the parts, by their number, which becomes 0: parts are added. */
void dcp_tables_divide(struct dcp_tables *tables);

/* Checks that the parts of each tensor fill it; else it gets a trouble. -ENOMEM. */
int dcp_tables_check(struct dcp_tables *tables);

/* Gives each tensor its range; then tables->n_bytes are taken. Moves the tables into a source. path
 * is that of the directory. -ENOMEM: the tables are as they were. */
int dcp_assembly_new(const char *path, struct dcp_tables *tables, struct source **out);

/* Opens all items of a tensor of the assembly. Returns what is wrong, NULL: nothing; valid as long
 * as the assembly. *ret_code: 0, -ENOMEM. */
const char *dcp_assembly_open(const struct source *assembly, uint32_t tensor, int *ret_code);

/* Returns the tables of an assembly. */
const struct dcp_tables *dcp_assembly_tables(const struct source *assembly);

#endif
