/* SPDX-License-Identifier: MIT */
/*
 * What a file format is to the rest: its traits (weightfs/traits.h) and a few functions. A saver is
 * two steps: plan the complete layout (header bytes and ranges of tensors), then anything may emit
 * any range of it.
 */
#ifndef WFS_FORMAT_FORMAT_H
#define WFS_FORMAT_FORMAT_H

#include <stdatomic.h>

#include <weightfs/format.h>

#include "base/source.h"
#include "base/limits.h"
#include "tensor/catalog.h"

struct load_context {
    struct limits limits;
    bool force;
    bool shards; /* one shard stands for all */
};

struct format_functions {
    /* Is this content mine? head has the first n_head bytes (at most 4096) of a file of n_bytes. */
    bool (*probe)(const uint8_t *head, size_t n_head, uint64_t n_bytes);
    /* Fills an empty catalog. The source is the catalog's already. */
    int (*load)(struct source *source, const struct load_context *context,
                struct wfs_catalog *catalog, struct wfs_error *err);
    /*
     * Reads what loading leaves alone but has a checksum, in bounded memory, and adds what is wrong
     * with the source to the findings of the catalog. NULL: nothing has one.
     */
    int (*verify)(const struct source *source, struct wfs_catalog *catalog, struct wfs_error *err);
    /* Lays the catalog out. NULL: this format is only read. */
    int (*plan)(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                struct wfs_error *err);
};

/*
 * The CRC-32 of a tensor's content, which is read for it when somebody wants to know, once. May be
 * asked from many threads.
 */
struct layout_crc {
    const struct wfs_tensor *tensor;
    _Atomic uint64_t known; /* 2^32 more than the CRC; 0: not computed yet */
};

/*
 * The complete file: segments in order of their offset, gaps between them zero. Each is either
 * bytes in the arena or the whole content of a tensor.
 */
struct layout_segment {
    uint64_t offset, n_bytes;
    const struct wfs_tensor *tensor; /* NULL: bytes */
    const void *bytes;
    struct layout_crc *crc; /* what stands in the bytes at crc_offset; NULL: nothing */
    uint32_t crc_offset;
};

struct wfs_layout {
    struct arena arena;
    const struct wfs_format *format;
    const struct wfs_catalog *catalog;
    struct layout_segment *segments; /* malloc'ed */
    size_t n_segments, n_room;
    uint64_t n_bytes;
    /* All tensors as the file has them, in the arena; NULL: in the order of the catalog. */
    const struct wfs_tensor **order;
    /* Metadata as the file has it, where that is not what the catalog has; NULL: it is. */
    const struct wfs_text *meta;
    bool drops_meta; /* the format has no room for metadata */
};

/*
 * Appends; offset must not be before the end of the last one. What is empty is left out. -ENOMEM,
 * or -EFBIG past 2^63-1 bytes.
 */
int layout_add_bytes(struct wfs_layout *layout, uint64_t offset, const void *bytes,
                     uint64_t n_bytes);
int layout_add_tensor(struct wfs_layout *layout, uint64_t offset, const struct wfs_tensor *tensor);
int layout_add_crc(struct wfs_layout *layout, uint64_t offset, const void *bytes, uint64_t n_bytes,
                   struct layout_crc *crc, uint32_t crc_offset);

/* -EIO as wfs_tensor_read, -ENOMEM. */
int layout_crc_get(struct layout_crc *crc, uint32_t *ret);

/* Whose content this is, or NULL: arguments as for probe. */
const struct wfs_format *format_by_content(const uint8_t *head, size_t n_head, uint64_t n_bytes);

/* As wfs_load, of an open source. The source belongs to the catalog, or is freed on failure. */
int load_source(struct source *source, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err);

extern const struct wfs_format format_safetensors;
extern const struct wfs_format format_burnpack;
extern const struct wfs_format format_pytorch;

/*
 * Fails with what the file really is, EMEDIUMTYPE; 0 when nothing foreign is recognised.
 * sniff_magic knows the signatures that no checkpoint begins with, and comes before the probes of
 * formats; sniff_foreign knows more (empty, all zeros, git-lfs pointer, error page, text, ...) and
 * comes after them.
 */
int sniff_magic(const uint8_t *head, size_t n_head, struct wfs_error *err);
int sniff_foreign(const uint8_t *head, size_t n_head, const struct source *source,
                  struct wfs_error *err);

#endif
