/* SPDX-License-Identifier: MIT */
/*
 * Caps on what a file may ask for, checked before memory is taken. Each can be replaced with `-o
 * limit.NAME=N`. Name, default, and why.
 */
#ifndef WFS_LIMITS_H
#define WFS_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>

#define LIMITS(X)                                                                                  \
    X(tensors, 1000000, "the largest published model has half as many")                            \
    X(header, 100000000, "safetensors header bytes, as the reference")                             \
    X(files, 10000, "shards of a set, each of which is open; 1,000 have been seen")                \
    X(rank, 16384, "torch and safetensors have none; a header of 64 KiB names that many")          \
    X(key, 1048576, "key bytes; 70,000 has been seen")                                             \
    X(pickle, 268435456, "bytes of pickle but for payloads; tables of 100 MB have been seen")      \
    X(metadata, 1073741824, "bytes of a .metadata; those 1.5 M chunks take 270 MB")                \
    X(chunks, 16777216,                                                                            \
      "chunks of a distributed checkpoint; 2,000 tensors, AdamW, 256 ranks: 1.5 M")                \
    X(items, 32768, "chunks that are looked at when a checkpoint is loaded; of more, none is")     \
    X(opcodes, 67108864, "of pickles; a million tensors take half")                                \
    X(values, 16777216, "values that pickles make, 16 bytes each; a million tensors take 9 M")     \
    X(memo, 16777216, "memo entries of a pickle; as values")                                       \
    X(marks, 10000, "open marks of a pickle; 40 have been seen")                                   \
    X(text, 67108864, "bytes of one string of a pickle")                                           \
    X(integer, 1024, "bytes of one integer of a pickle, or a quarter of its digits; 17 seen")      \
    X(depth, 256, "nesting of values below which nothing is listed; 20 seen")                      \
    X(repeats, 65536, "items of containers that are listed again because they are used again")     \
    X(names, 268435456, "bytes of all keys of a pickle together")                                  \
    X(zip_entries, 1000000, "one a tensor")                                                        \
    X(zip_directory, 268435456, "bytes of the directory of a zip")                                 \
    X(zip_name, 4096, "bytes of a name in a zip")                                                  \
    X(inflate_ratio, 1100, "inflated over deflated bytes of a pickle; deflate ends at 1032")       \
    X(cbor, 104857600, "burnpack metadata bytes, as Burn; so are the next two")                    \
    X(cbor_depth, 128, "nesting of burnpack metadata")                                             \
    X(burnpack_tensors, 100000, "tensors of a burnpack")                                           \
    X(record_depth, 1024, "nesting of a record, as Burn")                                          \
    X(record_json, 1073741824, "bytes of a record in JSON, which is parsed in memory")             \
    X(index_memory, 2147483648, "bytes of memory for everything but tensor data")

struct limits {
#define X(name, value, reason) uint64_t name;
    LIMITS(X)
#undef X
};

void limits_init(struct limits *limits);

/* Those that decide how much of a file is listed, rather than whether it is refused. */
struct listing_limits {
    uint64_t depth, repeats;
};

void limits_listing(const struct limits *limits, struct listing_limits *ret);

/* Removes all other limits, for a file that this program made of one that was listed with these:
 * it lists the same again, and no more. */
void limits_max(struct limits *limits, const struct listing_limits *listing);

/* Replaces a limit; text is "NAME=NUMBER". -EINVAL: err lists the limits. */
int limits_set(struct limits *limits, const char *text, struct wfs_error *err);

#endif
