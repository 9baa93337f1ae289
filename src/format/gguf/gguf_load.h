/* SPDX-License-Identifier: MIT */
/*
 * The room of GGUF from the inside. What a file is made of; A is the alignment:
 *
 *   "GGUF" | version | n tensors | n pairs | pairs | infos of tensors | zeros to A | data
 *   text:  n bytes (8) | bytes
 *   pair:  text key | type (4) | value
 *   array: type of the items (4) | n (8) | items
 *   info:  text name | rank (4) | dims (8 each), innermost first | type (4) | offset in the data
 * (8)
 *
 * In version 1, all but offsets is 4 bytes. Only the version shows the byte order: its low
 * half is 0 when it is read in the wrong one.
 */
#ifndef WFS_GGUF_LOAD_H
#define WFS_GGUF_LOAD_H

#include "base/stream.h"
#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/tally.h"
#include "value/value_build.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES,
    GGUF_NONE = GGUF_N_TYPES, /* the value is not from a GGUF */
};

#define GGUF_ALIGNMENT "general.alignment"

/* Which file of several one is, from 0; how many there are; tensors of all. */
#define GGUF_PART_NUMBER "split.no"
#define GGUF_PART_COUNT "split.count"
#define GGUF_PART_TENSORS "split.tensors.count"

enum {
    GGUF_VERSION = 3,
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_NAME_MAX = 63, /* bytes of the name of a tensor that llama.cpp reads */
    GGUF_RANK_MAX = 4,  /* of a tensor that it reads */
};

/* What can be odd about a file; see tally.h. */
enum gguf_finding {
    GGUF_UNKNOWN_TYPE,
    GGUF_BEYOND,
    GGUF_OVERLAP,
    GGUF_BYTE_ORDER,
    GGUF_LONG_NAME,
    GGUF_RANK,
    GGUF_PLACE,
    GGUF_NESTED,
    GGUF_TRUTH,
    GGUF_TRAILING,
    GGUF_FIRST_VERSION,
};

/* A load on its way. */
struct gguf_load {
    struct source *source;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    struct tally tally;
    struct stream stream;
    struct text_index names; /* of pairs, then of tensors */
    uint64_t n_tensors, n_pairs;
    uint64_t alignment, data; /* data: where it starts in the file */
    unsigned version;
    bool is_big; /* all numbers are big-endian */
};

struct gguf_text {
    const char *bytes; /* in the arena, ended by a NUL */
    size_t n_bytes;
};

/* ---- types ---- */

/* Bytes of a value, 0 for texts and arrays; its name in the format. */
unsigned gguf_type_bytes(enum gguf_type type);
const char *gguf_type_name(enum gguf_type type);

/* Keeps the type of a number or text, or that of the items of a list, in the value; finds it
 * again. */
void gguf_type_keep(struct value *value, enum gguf_type type);
enum gguf_type gguf_type_of(const struct value *value);

/* Finds the dtype with that number. Returns false when there is none; *ret_removed is its name if
 * there once was one, else NULL. */
bool gguf_dtype_of(uint64_t number, enum wfs_dtype *ret, const char **ret_removed);

/* Returns the number of a dtype, or -1. */
int gguf_dtype_number(enum wfs_dtype dtype);

/* ---- pieces of the header ---- */

/* Reads a number of that many bytes, or a count, whose size depends on the version. */
int gguf_take_number(struct gguf_load *load, size_t n_bytes, uint64_t *ret);
int gguf_take_count(struct gguf_load *load, uint64_t *ret);

/* Reads a key, of a pair or a tensor, which is UTF-8; escapes its NULs where that is allowed, else
 * refuses it. Returns 1 if there were any. what: for messages. */
int gguf_take_key(struct gguf_load *load, const char *what, struct gguf_text *ret);

/* Reads all pairs as values of the catalog, the alignment, and which file of several it is. */
int gguf_values_take(struct gguf_load *load);

/* ---- writing ---- */

/* The functions of struct format_functions. */
bool gguf_layout_stores(const struct wfs_tensor *tensor);
int gguf_layout_check(const struct wfs_tensor *tensor, struct wfs_error *err);
int gguf_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                     struct wfs_error *err);
int gguf_settle(struct wfs_catalog *catalog, struct wfs_error *err);
bool gguf_describes_part(const char *value);

/* ---- the data ---- */

/* Compares the places of the tensors with each other and with the file. */
int gguf_extent_check(struct gguf_load *load);

#endif
