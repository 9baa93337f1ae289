/* SPDX-License-Identifier: MIT */
/*
 * The files that the description of a checkpoint names, found without parsing it: an index or
 * metadata. The process that fetches opens nothing else beside it. Shared by library and programs,
 * not installed.
 */
#ifndef WFS_DESCRIBED_H
#define WFS_DESCRIBED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct described {
    char *text; /* of the description, not NUL-terminated */
    size_t n_bytes;
    size_t at;           /* where the last name was, which the next one is near to */
    uint64_t n_searched; /* bytes so far */
};

/* Returns whether the name is one of its strings: of JSON, in quotes and with escapes, or of a
 * pickle, behind its length. After 64 GiB of searching nothing is found any more. */
bool described_has(struct described *described, const char *name);

/* Returns whether both are URLs of ranks, whose paths differ in the number behind "/mp_rank_". */
bool described_is_rank(const char *url, const char *other);

/* Returns whether both are names of files of one set, which differ in the number before "-of-", or
 * behind "consolidated." or "model_part-"; or of what Lightning saves with .metadata. */
bool described_is_sibling(const char *name, const char *other);

#endif
