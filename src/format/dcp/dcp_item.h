/* SPDX-License-Identifier: MIT */
/*
 * What is stored of a part: an item, a torch.save file or a safetensors file. Opening one finds
 * where in the file the elements lie, and that they are what the metadata describes.
 */
#ifndef WFS_DCP_ITEM_H
#define WFS_DCP_ITEM_H

#include "base/limits.h"
#include "base/text_index.h"
#include "format/dcp/dcp_tensor.h"
#include "catalog/catalog.h"

/* Where a part begins. */
struct dcp_sharding_offsets {
    uint32_t rank;
    uint32_t first; /* in the numbers */
    bool is_bad;    /* they are not integers of 64 bits */
};

/*
 * DCP_SHARDING_INFO: the text in the metadata of a safetensors file by which its tensors are parts
 * of larger ones. JSON: {"KEY": {"saved_offsets": [0, 4]}, ...}. A zeroed struct is empty.
 */
struct dcp_sharding {
    char *text;
    struct text_index keys; /* numbers of the offsets */
    struct dcp_sharding_offsets *offsets;
    size_t n_offsets, n_offset_room;
    int64_t *numbers;
    size_t n_numbers, n_number_room;
};

/* 1: read; 0: the catalog has no such text. -EBADMSG: it is not JSON of that form; -ENOMEM. */
int dcp_sharding_read(struct dcp_sharding *sharding, const struct wfs_catalog *catalog,
                      struct wfs_error *err);

/* Returns where the part with that key begins; NULL: it does not name the key. */
const struct dcp_sharding_offsets *dcp_sharding_find(const struct dcp_sharding *sharding,
                                                     const char *key);
void dcp_sharding_done(struct dcp_sharding *sharding);

/*
 * The safetensors files that end .distcp files, where the writer was set to that format: all
 * tensors of one are items with the same offset. Each is read once, and kept. A zeroed struct has
 * none.
 */
struct dcp_windows {
    struct text_index places; /* of files and offsets; by number: */
    struct dcp_window **list; /* malloc'ed, as is each */
    size_t n_room;
    uint64_t n_bytes; /* of memory that they take */
};

void dcp_windows_done(struct dcp_windows *windows);

/* Returns whether a safetensors file may begin at an offset of a file. -EIO. */
int dcp_window_probe(const struct source *file, uint64_t offset);

struct dcp_opening {
    const struct dcp_tensor *tensor;
    const int64_t *box; /* of the part */
    const struct dcp_item *item;
    struct source *file;
    const char *file_name; /* below the directory */
    const struct limits *limits;
    struct dcp_windows *windows; /* kept from one opening to the next */
    uint64_t *n_header_bytes;    /* of the windows in the file so far */
};

/*
 * Finds the elements: *ret_data is their place in the file, or *ret_odd a catalog with one tensor
 * that has them, where they are not dense, or are to be changed. 1: the item is the whole tensor,
 * and more than elements (it is quantized, or of a class of its own). -EBADMSG, -EOPNOTSUPP,
 * -E2BIG, -EIO: err names the part and its file; -ENOMEM.
 */
int dcp_item_open(const struct dcp_opening *opening, uint64_t *ret_data,
                  struct wfs_catalog **ret_odd, struct wfs_error *err);

#endif
