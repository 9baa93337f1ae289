/* SPDX-License-Identifier: MIT */
/*
 * The tensor: what it shows (dtype, shape, row-major little-endian bytes) and where its elements
 * lie. Describing one costs no I/O; bytes are computed when they are read.
 */
#ifndef WFS_TENSOR_H
#define WFS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <weightfs/error.h>

struct source;
struct wfs_io; /* who reads: weightfs/interruption.h; may be NULL */

/*
 * Every element type of safetensors 0.8, PyTorch 2.15 and Burn: identifier, name (the safetensors
 * spelling where it has one, else the one of the library that has it), elements and bytes of a
 * block, kind, and the numpy descr of one element ("|V1" and "<V2" where numpy has no such type;
 * sub-byte types are shown to numpy as bytes). The first 22 are in the order of the safetensors
 * reference, whose writer sorts by it. Those behind OPAQUE are the block types of GGML: an element
 * has no bytes of its own, and blocks lie along rows, the last dimension.
 */
#define WFS_DTYPES(X)                                                                              \
    X(BOOL, "BOOL", 1, 1, BOOL, "|b1")                                                             \
    X(F4, "F4", 2, 1, FLOAT, "|V1")                                                                \
    X(F6_E2M3, "F6_E2M3", 4, 3, FLOAT, "|V1")                                                      \
    X(F6_E3M2, "F6_E3M2", 4, 3, FLOAT, "|V1")                                                      \
    X(U8, "U8", 1, 1, UNSIGNED, "|u1")                                                             \
    X(I8, "I8", 1, 1, SIGNED, "|i1")                                                               \
    X(F8_E5M2, "F8_E5M2", 1, 1, FLOAT, "|V1")                                                      \
    X(F8_E4M3, "F8_E4M3", 1, 1, FLOAT, "|V1")                                                      \
    X(F8_E8M0, "F8_E8M0", 1, 1, FLOAT, "|V1")                                                      \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 1, 1, FLOAT, "|V1")                                              \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 1, 1, FLOAT, "|V1")                                              \
    X(I16, "I16", 1, 2, SIGNED, "<i2")                                                             \
    X(U16, "U16", 1, 2, UNSIGNED, "<u2")                                                           \
    X(F16, "F16", 1, 2, FLOAT, "<f2")                                                              \
    X(BF16, "BF16", 1, 2, FLOAT, "<V2")                                                            \
    X(I32, "I32", 1, 4, SIGNED, "<i4")                                                             \
    X(U32, "U32", 1, 4, UNSIGNED, "<u4")                                                           \
    X(F32, "F32", 1, 4, FLOAT, "<f4")                                                              \
    X(C64, "C64", 1, 8, COMPLEX, "<c8")                                                            \
    X(F64, "F64", 1, 8, FLOAT, "<f8")                                                              \
    X(I64, "I64", 1, 8, SIGNED, "<i8")                                                             \
    X(U64, "U64", 1, 8, UNSIGNED, "<u8")                                                           \
    X(C32, "C32", 1, 4, COMPLEX, "<V4")                                                            \
    X(BC32, "BC32", 1, 4, COMPLEX, "<V4")                                                          \
    X(C128, "C128", 1, 16, COMPLEX, "<c16")                                                        \
    X(BITS8, "BITS8", 1, 1, BITS, "|V1")                                                           \
    X(BITS1X8, "BITS1X8", 1, 1, BITS, "|V1")                                                       \
    X(BITS2X4, "BITS2X4", 1, 1, BITS, "|V1")                                                       \
    X(BITS4X2, "BITS4X2", 1, 1, BITS, "|V1")                                                       \
    X(BITS16, "BITS16", 1, 2, BITS, "<V2")                                                         \
    X(QI8, "QI8", 1, 1, SIGNED, "|i1")                                                             \
    X(QU8, "QU8", 1, 1, UNSIGNED, "|u1")                                                           \
    X(QI32, "QI32", 1, 4, SIGNED, "<i4")                                                           \
    X(QU4X2, "QU4X2", 2, 1, BITS, "|V1")                                                           \
    X(QU2X4, "QU2X4", 4, 1, BITS, "|V1")                                                           \
    X(FLEX32, "FLEX32", 1, 4, FLOAT, "<f4")                                                        \
    X(BOOL32, "BOOL32", 1, 4, BOOL, "<u4")                                                         \
    X(OPAQUE, "OPAQUE", 1, 1, BITS, "|V1")                                                         \
    X(Q1_0, "Q1_0", 128, 18, BITS, "|u1")                                                          \
    X(Q2_0, "Q2_0", 64, 18, BITS, "|u1")                                                           \
    X(Q4_0, "Q4_0", 32, 18, BITS, "|u1")                                                           \
    X(Q4_1, "Q4_1", 32, 20, BITS, "|u1")                                                           \
    X(Q5_0, "Q5_0", 32, 22, BITS, "|u1")                                                           \
    X(Q5_1, "Q5_1", 32, 24, BITS, "|u1")                                                           \
    X(Q8_0, "Q8_0", 32, 34, BITS, "|u1")                                                           \
    X(Q8_1, "Q8_1", 32, 36, BITS, "|u1")                                                           \
    X(Q2_K, "Q2_K", 256, 84, BITS, "|u1")                                                          \
    X(Q3_K, "Q3_K", 256, 110, BITS, "|u1")                                                         \
    X(Q4_K, "Q4_K", 256, 144, BITS, "|u1")                                                         \
    X(Q5_K, "Q5_K", 256, 176, BITS, "|u1")                                                         \
    X(Q6_K, "Q6_K", 256, 210, BITS, "|u1")                                                         \
    X(Q8_K, "Q8_K", 256, 292, BITS, "|u1")                                                         \
    X(IQ1_S, "IQ1_S", 256, 50, BITS, "|u1")                                                        \
    X(IQ1_M, "IQ1_M", 256, 56, BITS, "|u1")                                                        \
    X(IQ2_XXS, "IQ2_XXS", 256, 66, BITS, "|u1")                                                    \
    X(IQ2_XS, "IQ2_XS", 256, 74, BITS, "|u1")                                                      \
    X(IQ2_S, "IQ2_S", 256, 82, BITS, "|u1")                                                        \
    X(IQ3_XXS, "IQ3_XXS", 256, 98, BITS, "|u1")                                                    \
    X(IQ3_S, "IQ3_S", 256, 110, BITS, "|u1")                                                       \
    X(IQ4_NL, "IQ4_NL", 32, 18, BITS, "|u1")                                                       \
    X(IQ4_XS, "IQ4_XS", 256, 136, BITS, "|u1")                                                     \
    X(TQ1_0, "TQ1_0", 256, 54, BITS, "|u1")                                                        \
    X(TQ2_0, "TQ2_0", 256, 66, BITS, "|u1")                                                        \
    X(MXFP4, "MXFP4", 32, 17, BITS, "|u1")                                                         \
    X(NVFP4, "NVFP4", 64, 36, BITS, "|u1")

enum wfs_dtype {
#define X(id, name, n_elems, n_bytes, kind, descr) WFS_##id,
    WFS_DTYPES(X)
#undef X
        WFS_N_DTYPES
};

/* The fewest elements of a dtype that fill whole bytes. */
struct wfs_block {
    unsigned n_elems, n_bytes;
};

enum wfs_kind {
    WFS_KIND_BOOL,
    WFS_KIND_UNSIGNED,
    WFS_KIND_SIGNED,
    WFS_KIND_FLOAT,
    WFS_KIND_COMPLEX,
    WFS_KIND_BITS, /* without a known arithmetic meaning */
};

/* dims is row-major, outermost first; rank 0 is a scalar of one element. dims may be NULL then. */
struct wfs_shape {
    uint32_t rank;
    const uint64_t *dims;
};

/*
 * Where the elements lie. Element (i0, i1, ...) is at offset + (i0 * strides[0] + ...) * element
 * bytes. strides are in elements, one per shown dimension, never negative; NULL means row-major and
 * dense. An OPAQUE tensor is n_bytes verbatim bytes whatever its shape.
 */
struct wfs_stored {
    struct source *source; /* borrowed from the catalog; NULL when there are no bytes */
    uint64_t offset;       /* bytes from the start of source to element 0 */
    const uint64_t *strides;
    uint8_t dtype;      /* enum wfs_dtype in the file */
    bool is_big_endian; /* each element (each half of a complex one) is byte-swapped */
    bool is_conjugate;  /* imaginary halves are to be negated */
    bool is_negative;   /* every element is to be negated */
    bool is_unrounded;  /* it is computed: F64 is rounded once, to what is shown */
};

/* A named text that a format keeps with a tensor, such as param_id; the list ends with NULL. */
struct wfs_text {
    const char *name;
    const char *value;
    size_t n_bytes; /* of value, which may contain NULs; one more follows it */
    struct wfs_text *next;
};

/* Strings live in the catalog's arena. key is UTF-8 without NUL (lone surrogates of a pickle
 * aside). */
struct wfs_tensor {
    const char *key; /* as shown */
    struct wfs_shape shape;
    uint64_t n_bytes; /* as shown */
    struct wfs_stored stored;
    uint8_t dtype;       /* enum wfs_dtype as shown */
    uint32_t place;      /* number of where it was in what was loaded; 0: nowhere */
    const char *origin;  /* key in the file; NULL: the same as key */
    const char *changes; /* what the view did and why, as text; NULL: nothing */
    const char *trouble; /* why it cannot be read; NULL: it can */
    const struct wfs_text *attrs;
};

#pragma GCC visibility push(default)

const char *wfs_dtype_name(enum wfs_dtype dtype);
/* Returns the bits of an element; of a block type about as many, and fewer than 8. */
unsigned wfs_dtype_bits(enum wfs_dtype dtype);
/* Returns whether it is a block type. */
bool wfs_dtype_has_blocks(enum wfs_dtype dtype);
struct wfs_block wfs_dtype_block(enum wfs_dtype dtype);
enum wfs_kind wfs_dtype_kind(enum wfs_dtype dtype);
const char *wfs_dtype_descr(enum wfs_dtype dtype);

/* Returns the dtype of each half of a complex one. */
enum wfs_dtype wfs_dtype_part(enum wfs_dtype dtype);

/* Finds a dtype by its exact name; returns false and leaves *ret when none has it. */
bool wfs_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret);

/* The same for what a person types: a name in any case, or that of PyTorch, such as bfloat16. */
bool wfs_dtype_spelled(const char *name, size_t n_bytes, enum wfs_dtype *ret);

/* Multiplies the dims from left to right; -EOVERFLOW when a product passes 2^64-1. */
int wfs_shape_count(const struct wfs_shape *shape, uint64_t *ret_n_elems);

bool wfs_shape_is_equal(const struct wfs_shape *a, const struct wfs_shape *b);

/*
 * Computes how many bytes shape and dtype take when dense. -EOVERFLOW when the count or its bits
 * pass 2^64-1, -EDOM when a sub-byte dtype does not end on a whole byte, or a row of a block type
 * on a whole block.
 */
int wfs_shape_bytes(const struct wfs_shape *shape, enum wfs_dtype dtype, uint64_t *ret_n_bytes);

/*
 * Writes "[2, 3]" and returns the length that the whole text has, as snprintf does; buf may be NULL
 * when n_bytes is 0.
 */
size_t wfs_shape_format(const struct wfs_shape *shape, char *buf, size_t n_bytes);

/* Returns whether the shown bytes are a verbatim range of the source. */
bool wfs_tensor_is_plain(const struct wfs_tensor *tensor);

/*
 * Finds the shown bytes as one range of a file: its descriptor (borrowed; -1 for one on the
 * network) and the offset of the first one. Returns false when they are not one range, when the
 * source is not a file, or when it ends before they do.
 */
bool wfs_tensor_extent(const struct wfs_tensor *tensor, int *ret_fd, uint64_t *ret_offset);

/*
 * Reads n_bytes of the shown content from offset, clipped to its end. Returns the count that the
 * clip leaves, all of them read. -EIO when the source is short, changed or failing, or the tensor
 * has a trouble; -EBADMSG when its compressed data is damaged; -EINTR when the reader is to stop;
 * -ENOMEM. Pure apart from the source; may run in parallel.
 */
ssize_t wfs_tensor_read_for(const struct wfs_io *io, const struct wfs_tensor *tensor,
                            uint64_t offset, void *buf, size_t n_bytes);
ssize_t wfs_tensor_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf,
                        size_t n_bytes);

/* Reports why bytes could not be read; code is what the read returned, 0 for too few, or -ENOMEM
 * for whatever had no memory. Returns its negative errno. */
int wfs_tensor_fail_read(struct wfs_error *err, const struct wfs_tensor *tensor, int code);

/* Returns whether a trouble is known that other tensors need not have, unlike that of a network. */
bool wfs_tensor_is_damaged(const struct wfs_tensor *tensor);

/*
 * Returns how many bytes are best read at once, from a multiple of that number: 1 MiB, more where
 * the shown order runs across the stored one, 0 for an empty tensor. Reading from start to end is
 * fastest in pieces of that size, in two threads.
 */
size_t wfs_tensor_piece_bytes(const struct wfs_tensor *tensor);

/*
 * Prepares, in the calling thread, what a reader that has reached offset needs next if it goes
 * forward. Returns at once where a read is cheap. May run in parallel with reads.
 */
void wfs_tensor_read_ahead(const struct wfs_io *io, const struct wfs_tensor *tensor,
                           uint64_t offset);

/* Returns -EIO when the file of the bytes is no longer what it was when it was opened, else 0. A
 * change is remembered for good. */
int wfs_tensor_check_source(const struct wfs_tensor *tensor);

/* Computes XXH3 (64 bits) of the shown content, read in bounded pieces. -EIO as wfs_tensor_read. */
int wfs_tensor_digest(const struct wfs_tensor *tensor, uint64_t *ret_digest);

/* Gets the next bytes of a tensor. Anything but 0 ends the reading, and is returned there. */
typedef int (*wfs_take)(void *ctx, const void *bytes, size_t n_bytes);

/* Computes the same, and gives each piece to take, unless that is NULL; may run in parallel. */
int wfs_tensor_digest_and(const struct wfs_io *io, const struct wfs_tensor *tensor, wfs_take take,
                          void *ctx, uint64_t *ret_digest);

/*
 * The result of one pass over the shown elements as numbers. Elements of complex, bits and opaque
 * kinds are not numbers: -EOPNOTSUPP. min, max, mean and std (population) leave NaN and infinities
 * out; all are 0 when no element is finite. The same numbers on every machine and with any team.
 */
struct wfs_stats {
    uint64_t n_elems, n_finite, n_nan, n_positive_inf, n_negative_inf, n_zero;
    double min, max, mean, std;
};

int wfs_tensor_stats(const struct wfs_io *io, const struct wfs_tensor *tensor,
                     struct wfs_stats *ret);

/* Adds the counts of the one to those of the other; min, max, mean and std stay. */
static inline void wfs_stats_add_counts(struct wfs_stats *to, const struct wfs_stats *from)
{
    to->n_elems += from->n_elems;
    to->n_finite += from->n_finite;
    to->n_nan += from->n_nan;
    to->n_positive_inf += from->n_positive_inf;
    to->n_negative_inf += from->n_negative_inf;
    to->n_zero += from->n_zero;
}

/* A tensor whose elements are numbers: the one that was given or, where that has blocks or less
 * than a byte for each, a copy that shows them as F32. It stays where it is. */
struct wfs_numbers {
    const struct wfs_tensor *tensor;
    struct wfs_tensor decoded;
    struct source *source; /* NULL: none was needed */
};

/* -EOPNOTSUPP for blocks whose byte order is not known or that are too many, -ENOMEM; tensor is the
 * one that was given then. */
int wfs_numbers_init(struct wfs_numbers *numbers, const struct wfs_tensor *tensor);
void wfs_numbers_done(struct wfs_numbers *numbers);

/*
 * Counts what should not be in a tensor: elements that are NaN, of complex ones those with a half
 * that is, and those that are infinite and not NaN. is_constant: all of at least one element are
 * the same finite real number. Much faster than wfs_tensor_stats; errors as there, but for complex
 * elements.
 */
struct wfs_odd {
    uint64_t n_elems, n_nan, n_inf;
    bool is_constant;
    double constant;
};

int wfs_tensor_count_odd(const struct wfs_io *io, const struct wfs_tensor *tensor,
                         struct wfs_odd *ret);

/*
 * Decodes n_elems shown elements of a number dtype into doubles (64-bit integers lose their low
 * bits); -EOPNOTSUPP for the others. bytes are the shown ones, whole elements; sub-byte dtypes pack
 * the first element into the low bits.
 */
int wfs_dtype_decode(enum wfs_dtype dtype, const void *bytes, size_t n_elems, double *ret);

/*
 * Makes the header of a .npy file (version 1.0, or 2.0 where the text needs it) for the tensor:
 * magic, lengths, dict, padding to 64 bytes. Returns the length that the header has; writes at most
 * n_bytes of it. Sub-byte and opaque tensors are bytes: their last dimension counts bytes where
 * whole, else the shape is the one number of bytes.
 */
size_t wfs_npy_header(const struct wfs_tensor *tensor, char *buf, size_t n_bytes);

#pragma GCC visibility pop

#endif
