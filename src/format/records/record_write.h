/* SPDX-License-Identifier: MIT */
/*
 * Laying out a catalog as a record in MessagePack. Tensors become the lists of numbers that Burn up
 * to 0.13 reads while they are read: each number has the marker of its dtype, however small it is,
 * so that all of a tensor take as many bytes. The catalog is the tree of a record: names are cut at
 * their dots, and what only has numbers below it is a list. What comes from a record keeps its
 * order.
 */
#ifndef WFS_RECORD_WRITE_H
#define WFS_RECORD_WRITE_H

#include <weightfs/strbuf.h>
#include "base/hash.h"
#include "base/source.h"
#include "base/stream.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "value/value_build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions of struct format_functions. */
bool record_layout_stores(const struct wfs_tensor *tensor);
int record_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err);
int record_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                       struct wfs_error *err);

/* ---- tensors as lists ---- */

/* Returns how many bytes an element of the dtype takes in a list, 0: it cannot be in one. */
unsigned record_encoded_bytes(enum wfs_dtype dtype);

/*
 * Adds the elements of a tensor, which is borrowed and has a dtype that can be in a list. The
 * source is made when it is NULL; *ret_offset is where in it they begin. -ENOMEM; -EOVERFLOW when
 * offsets run out.
 */
int record_encoded_add(struct source **source, const struct wfs_tensor *tensor,
                       uint64_t *ret_offset);

/* ---- the tree ---- */

/* Numbers of nodes are from 1; 0: none. */
struct outline_node {
    const char *name; /* the first n_name bytes of this: one component */
    uint32_t n_name;
    uint32_t parent, first, last, next, n_children;
    const struct wfs_tensor *tensor; /* leaf */
    uint32_t value;                  /* leaf: in the graph of the catalog */
    bool is_list;
};

struct record_outline {
    const struct wfs_catalog *catalog;
    bool is_record;             /* the catalog comes from one */
    struct outline_node *nodes; /* malloc'ed; [1] is the root */
    size_t n_nodes, n_room;
    struct map by_name;
};

/* -EINVAL: two things have one place, a list has a gap, or something else than a tensor would be
 * read as one; -E2BIG, -ENOMEM. record_outline_done is due in any case. */
int record_outline_make(struct record_outline *outline, const struct wfs_catalog *catalog,
                        bool is_record, struct wfs_error *err);
void record_outline_done(struct record_outline *outline);

/* Returns whether the tensor is written as a parameter, with an id. In a record, what had no id was
 * none. Everywhere else tensors are parameters, but for the state of an optimizer. */
bool record_outline_is_parameter(const struct record_outline *outline,
                                 const struct wfs_tensor *tensor);

/* Returns the child that the name leads to, 0: none. */
uint32_t record_outline_child(const struct record_outline *outline, uint32_t parent,
                              const char *name, size_t n_bytes);

/*
 * MessagePack written as Burn's codec spells it: the shortest form of everything. What is written
 * is added to a strbuf, which remembers a lack of memory.
 */

/* Takes a head, as a token without bytes; what an extension has is TOKEN_OTHER. -ENODATA: the
 * stream ends in or before it; -EBADMSG: the byte there is not a type; errors as source_read. The
 * stream stays where it is then. */
int mpk_next(struct stream *stream, struct token *ret);

/* Moves to an offset at or before which the stream has been. */
void mpk_return(struct stream *stream, uint64_t offset);

void mpkout_nil(struct strbuf *out);
void mpkout_bool(struct strbuf *out, bool value);
void mpkout_uint(struct strbuf *out, uint64_t value);
void mpkout_int(struct strbuf *out, int64_t value);
void mpkout_f32(struct strbuf *out, double value);
void mpkout_f64(struct strbuf *out, double value);
void mpkout_text(struct strbuf *out, const char *text, size_t n_bytes);
void mpkout_string(struct strbuf *out, const char *text);

/* Heads, of fewer than 2^32 items, pairs or bytes; what is in them follows. */
void mpkout_array(struct strbuf *out, uint32_t n_items);
void mpkout_map(struct strbuf *out, uint32_t n_pairs);
void mpkout_bytes(struct strbuf *out, uint32_t n_bytes);

#endif
