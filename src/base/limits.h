/* SPDX-License-Identifier: MIT */
/*
 * Caps on what a file may ask for, checked before memory is taken. Each can be replaced with `-o
 * limit.NAME=N`. Those of this table are for files of several formats, or for what is in them, such
 * as pickles; a format brings its own (traits.h). Name, default, and why.
 */
#ifndef WFS_LIMITS_H
#define WFS_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>
#include <weightfs/traits.h>

#define LIMITS(X)                                                                                  \
    X(tensors, 1000000, "the largest published model has half as many")                            \
    X(header, 100000000, "bytes of a header or an index, as the reference implementation")         \
    X(files, 10000, "shards of a set, each of which is open; 1,000 have been seen")                \
    X(rank, 16384, "most formats have no limit; a header of 64 KiB names that many")               \
    X(key, 1048576, "key bytes; 70,000 has been seen")                                             \
    X(pickle, 268435456, "bytes of pickle but for payloads; tables of 100 MB have been seen")      \
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
    X(index_memory, 2147483648, "bytes of memory for everything but tensor data")

enum { LIMITS_OWN_MAX = 16 }; /* limits that formats may declare in all */

struct limits {
#define X(name, value, reason) uint64_t name;
    LIMITS(X)
#undef X
    struct {
        const struct wfs_limit *limit;
        uint64_t value;
    } own[LIMITS_OWN_MAX]; /* those of formats that were replaced */
    size_t n_own;
    bool is_max; /* there are no others of formats */
};

void limits_init(struct limits *limits);

/* Returns the value of a limit that a format declares. */
uint64_t limits_own(const struct limits *limits, const struct wfs_limit *limit);

/* Those that decide how much of a file is listed, rather than whether it is refused. */
struct listing_limits {
    uint64_t depth, repeats;
};

void limits_listing(const struct limits *limits, struct listing_limits *ret);

/* Removes all other limits, for a file that this program made of one that was listed with these:
 * it lists the same again, and no more. */
void limits_max(struct limits *limits, const struct listing_limits *listing);

/* Replaces a limit; text is "NAME=NUMBER". own returns those of formats one by one, NULL after the
 * last. -EINVAL: err lists the limits. */
int limits_set(struct limits *limits, const char *text, const struct wfs_limit *(*own)(size_t i),
               struct wfs_error *err);

#endif
