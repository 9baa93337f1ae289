/* SPDX-License-Identifier: MIT */
/*
 * The index of a sharded checkpoint: what is read finds all of its own keys, in files that are
 * plain names.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/set/shard_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void look(const struct shard_index *index)
{
    for (size_t i = 0; i < index->n_keys; i++) {
        const struct shard_key *key = &index->keys[i];
        if (key->shard >= index->n_shards || shard_index_find(index, key->name) != key)
            abort();
    }
    for (size_t i = 0; i < index->n_shards; i++) {
        if (strpbrk(index->shards[i], "/\\") != NULL || strcmp(index->shards[i], "..") == 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct shard_index index = {0};
    struct wfs_error err = {0};
    struct source *source;
    if (source_new_memory("index", data, n_bytes, &source) < 0)
        return 0;
    const int code = shard_index_read(&index, source, 1 << 20, &err);
    if (code > 0)
        look(&index);
    if (code < 0 && (err.code != -code || err.text[0] == '\0'))
        abort();
    shard_index_done(&index);
    source_free(source);
    return 0;
}
