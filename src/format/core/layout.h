/* SPDX-License-Identifier: MIT */
/*
 * Inside of a layout: a planned file as a list of segments. Formats build one; reading and saving
 * it is the same for all of them.
 */
#ifndef WFS_CORE_LAYOUT_H
#define WFS_CORE_LAYOUT_H

#include <weightfs/layout.h>
#include "base/arena.h"
#include "catalog/catalog.h"

#include <stdatomic.h>

/*
 * The CRC-32 of a tensor's content, which is read for it once, when it is first needed. May be
 * asked for from several threads.
 */
struct layout_crc {
    const struct wfs_tensor *tensor;
    _Atomic uint64_t known; /* 2^32 more than the CRC; 0: not computed yet */
};

/* Either bytes in the arena, bytes that `make` makes, or the whole content of a tensor. */
struct layout_segment {
    uint64_t offset, n_bytes;
    const struct wfs_tensor *tensor; /* NULL: bytes */
    const void *bytes;               /* NULL: they are made */
    struct layout_crc *crc;          /* stored in the bytes at crc_offset; NULL: none */
    uint32_t crc_offset;
};

/* The complete file: segments in the order of their offsets; gaps between them are zeros. */
struct wfs_layout {
    struct arena arena;
    const struct wfs_format *format;
    const struct wfs_catalog *catalog;
    struct layout_segment *segments; /* malloc'ed */
    size_t n_segments, n_room;
    uint64_t n_bytes;
    /* Makes bytes of the first segment, from an offset in it on; by any thread. -ENOMEM. */
    int (*make)(const struct wfs_layout *layout, uint64_t offset, char *buf, size_t n_bytes);
    const void *plan;    /* what they are made from, in the arena */
    struct source *made; /* bytes that are made of tensors; owned, NULL: there are none */
    /* All tensors in the order of the file, in the arena; NULL: in the order of the catalog. */
    const struct wfs_tensor **order;
    /* Metadata of the file where it differs from the catalog's; NULL: it does not. */
    const struct wfs_text *meta;
};

/* Makes an empty layout. NULL without memory. */
struct wfs_layout *layout_new(const struct wfs_format *format, const struct wfs_catalog *catalog);

/* -EIO: a tensor of the catalog cannot be read, and err says why. */
int layout_check_tensors(const struct wfs_catalog *catalog, struct wfs_error *err);

/*
 * Append a segment; offset must not be before the end of the last one. Empty ones are left out.
 * -ENOMEM, or -EFBIG past 2^63-1 bytes.
 */
int layout_add_bytes(struct wfs_layout *layout, uint64_t offset, const void *bytes,
                     uint64_t n_bytes);
int layout_add_tensor(struct wfs_layout *layout, uint64_t offset, const struct wfs_tensor *tensor);
int layout_add_crc(struct wfs_layout *layout, uint64_t offset, const void *bytes, uint64_t n_bytes,
                   struct layout_crc *crc, uint32_t crc_offset);

/* Returns the first segment that ends behind offset, which may begin behind it too. NULL: none. */
const struct layout_segment *layout_segment_at(const struct wfs_layout *layout, uint64_t offset);

/*
 * Checks key, dtype, shape and size against each other and against the format. -EINVAL,
 * -EOPNOTSUPP, or what the format's own check returns.
 */
int storable_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                          struct wfs_error *err);

/* Reads the `param_id` of the tensor. Returns 1, or 0 if it has none; -EINVAL if it is not one. */
int storable_param_id(const struct wfs_tensor *tensor, uint64_t *ret, struct wfs_error *err);

/* Checks that names and values of the metadata are UTF-8. -EINVAL. */
int storable_check_metadata(const struct wfs_catalog *catalog, struct wfs_error *err);

#endif
