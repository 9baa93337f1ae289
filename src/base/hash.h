/* SPDX-License-Identifier: MIT */
/*
 * Hashes (XXH3, 64 bits) and a hash map from anything to small numbers. Maps over names from files
 * are keyed with hash_seed, so nobody can prepare names that collide.
 */
#ifndef WFS_HASH_H
#define WFS_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/cleanup.h>

/* Returns a random number, the same for the life of the process. */
uint64_t hash_seed(void);

/* Seed 0 for hashes that must be the same at the next run. */
uint64_t hash_bytes(const void *bytes, size_t n_bytes, uint64_t seed);

/* Piecewise hash with seed 0: the same as hash_bytes of the whole. */
struct hasher;
struct hasher *hasher_new(void);
void hasher_update(struct hasher *hasher, const void *bytes, size_t n_bytes);
uint64_t hasher_digest(const struct hasher *hasher);
void hasher_free(struct hasher *hasher);
void hasher_cleanup(struct hasher **hasher);

#define auto_hasher cleanup(hasher_cleanup)

/*
 * Open addressing with 8 bytes a slot. The map holds (hash, id); what the ids stand for is the
 * caller's, who compares in `is_match`. A zeroed struct is an empty map.
 */
struct map {
    struct map_slot *slots;
    uint32_t n_slots; /* a power of two, or 0 */
    uint32_t n_used;
};

typedef bool (*map_match)(const void *ctx, uint32_t id);

bool map_find(const struct map *map, uint64_t hash, map_match is_match, const void *ctx,
              uint32_t *ret_id);

/* Prefetches the memory that a later search for the hash needs. */
void map_prefetch(const struct map *map, uint64_t hash);

/* Adds an id below UINT32_MAX without a search for an equal one. -ENOMEM. */
int map_add(struct map *map, uint64_t hash, uint32_t id);
void map_remove(struct map *map, uint64_t hash, uint32_t id);

/* Makes room for n in all, so that adding them cannot fail. -ENOMEM. */
int map_reserve(struct map *map, uint32_t n);
void map_done(struct map *map);

#endif
