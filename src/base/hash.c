/* SPDX-License-Identifier: MIT */
/*
 * XXH3 and the open-addressing map. The only file that uses xxHash.
 */
#include "base/hash.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <xxhash.h>

#include "base/bytes.h"

struct map_slot {
    uint32_t tag;    /* upper half of the hash; its low bits say where the slot's home is */
    uint32_t id_one; /* id + 1; 0: free */
};

static uint64_t seed;

static void make_seed(void)
{
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed))
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)&now;
}

uint64_t hash_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_seed);
    return seed;
}

uint64_t hash_bytes(const void *bytes, size_t n_bytes, uint64_t with_seed)
{
    return XXH3_64bits_withSeed(bytes, n_bytes, with_seed);
}

struct hasher *hasher_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state != NULL)
        XXH3_64bits_reset(state);
    return (struct hasher *)state;
}

void hasher_update(struct hasher *hasher, const void *bytes, size_t n_bytes)
{
    XXH3_64bits_update((XXH3_state_t *)hasher, bytes, n_bytes);
}

uint64_t hasher_digest(const struct hasher *hasher)
{
    return XXH3_64bits_digest((const XXH3_state_t *)hasher);
}

void hasher_cleanup(struct hasher **hasher)
{
    hasher_free(*hasher);
}

void hasher_free(struct hasher *hasher)
{
    XXH3_freeState((XXH3_state_t *)hasher);
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

bool map_find(const struct map *map, uint64_t hash, map_match is_match, const void *ctx,
              uint32_t *ret_id)
{
    if (map->n_slots == 0)
        return false;
    const uint32_t mask = map->n_slots - 1, tag = tag_of(hash);
    for (uint32_t i = tag & mask; map->slots[i].id_one != 0; i = (i + 1) & mask) {
        if (map->slots[i].tag == tag && is_match(ctx, map->slots[i].id_one - 1)) {
            *ret_id = map->slots[i].id_one - 1;
            return true;
        }
    }
    return false;
}

void map_prefetch(const struct map *map, uint64_t hash)
{
    if (map->n_slots > 0)
        __builtin_prefetch(&map->slots[tag_of(hash) & (map->n_slots - 1)], 1);
}

static void put(struct map *map, struct map_slot slot)
{
    const uint32_t mask = map->n_slots - 1;
    uint32_t i = slot.tag & mask;
    while (map->slots[i].id_one != 0)
        i = (i + 1) & mask;
    map->slots[i] = slot;
}

int map_reserve(struct map *map, uint32_t n)
{
    uint32_t n_slots = map->n_slots == 0 ? 16 : map->n_slots;
    while (n_slots / 4 * 3 < n) {
        if (n_slots > UINT32_MAX / 2)
            return -ENOMEM;
        n_slots *= 2;
    }
    if (n_slots == map->n_slots)
        return 0;
    struct map larger = {calloc(n_slots, sizeof(struct map_slot)), n_slots, map->n_used};
    if (larger.slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < map->n_slots; i++) {
        if (map->slots[i].id_one != 0)
            put(&larger, map->slots[i]);
    }
    free(map->slots);
    *map = larger;
    return 0;
}

int map_add(struct map *map, uint64_t hash, uint32_t id)
{
    if (map->n_used == UINT32_MAX || map_reserve(map, map->n_used + 1) < 0)
        return -ENOMEM;
    put(map, (struct map_slot){tag_of(hash), id + 1});
    map->n_used++;
    return 0;
}

void map_remove(struct map *map, uint64_t hash, uint32_t id)
{
    if (map->n_slots == 0)
        return;
    const uint32_t mask = map->n_slots - 1;
    uint32_t hole = tag_of(hash) & mask;
    while (map->slots[hole].id_one != id + 1) {
        if (map->slots[hole].id_one == 0)
            return;
        hole = (hole + 1) & mask;
    }
    map->n_used--;
    /* Moves later slots back over the hole, as long as that does not put one before its home. */
    for (uint32_t i = (hole + 1) & mask; map->slots[i].id_one != 0; i = (i + 1) & mask) {
        const uint32_t home = map->slots[i].tag & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct map_slot){0, 0};
}

void map_done(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}
