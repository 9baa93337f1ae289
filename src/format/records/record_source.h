/* SPDX-License-Identifier: MIT */
/*
 * The decoded source of a record: tensors whose elements are a list of numbers in the file, each a
 * range of bytes that is decoded when it is read.
 */
#ifndef WFS_RECORD_SOURCE_H
#define WFS_RECORD_SOURCE_H

#include "format/records/record_list.h"

/*
 * Makes a source without ranges. bytes has the lists; is_owned: it is freed with the source. Moves
 * the lists into the source. -ENOMEM: neither is taken.
 */
int record_source_new(struct source *file, struct source *bytes, bool is_owned,
                      struct record_lists *lists, struct source **out);

/* Adds the list as elements of a dtype, and returns where they begin. -ENOMEM; -EOVERFLOW when
 * offsets run out. */
int record_source_add(struct source *source, uint32_t list, enum wfs_dtype dtype,
                      uint64_t *ret_offset);

/* Returns a list of the source. */
const struct record_list *record_source_list(const struct source *source, uint32_t list);

/*
 * Returns the list that a tensor is, as it is stored and shown, in MessagePack; *ret_bytes is what
 * it lies in. NULL: the tensor is something else.
 */
const struct record_list *record_source_whole(const struct wfs_tensor *tensor,
                                              const struct source **ret_bytes);

/* Starts to read a list of the source. As list_reader_init. */
int record_source_read(const struct source *source, uint32_t list, struct list_reader *reader);

#endif
