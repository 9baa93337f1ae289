/* SPDX-License-Identifier: MIT */
/*
 * A list, the last used first; it is short, since each array is that of a whole factor. An array
 * that is being filled is in the list, so that others wait for it, unless they must not wait: those
 * fill one of their own, which is not in the list.
 */
#include "base/reader_lock.h"
#include "compute/patch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 32 << 20 }; /* of arrays that nobody uses */

struct entry {
    struct entry *next;
    struct shelf_key key;
    size_t n_users, n_bytes;
    bool is_full, is_listed;
    bool can_stop; /* who fills it */
    double array[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct entry *first;
} shelf = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

static struct entry *find(const struct shelf_key *key)
{
    for (struct entry *entry = shelf.first; entry != NULL; entry = entry->next) {
        if (memcmp(&entry->key, key, sizeof(*key)) == 0)
            return entry;
    }
    return NULL;
}

static void take_out(struct entry *entry)
{
    struct entry **at = &shelf.first;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    entry->is_listed = false;
}

static void put_first(struct entry *entry)
{
    entry->next = shelf.first;
    entry->is_listed = true;
    shelf.first = entry;
}

/* Drops what is not used and is too much; the last used are the first in the list. */
static void clear_up(void)
{
    size_t n_kept = 0;
    for (struct entry **at = &shelf.first; *at != NULL;) {
        struct entry *entry = *at;
        if (entry->n_users == 0 && (n_kept += entry->n_bytes) > KEPT_BYTES) {
            *at = entry->next;
            free(entry);
        } else {
            at = &entry->next;
        }
    }
}

/* Fills a new entry, without the lock meanwhile. */
static int fill_new(const struct wfs_io *io, const struct shelf_key *key, size_t n,
                    shelf_fill *fill, void *ctx, struct entry **ret)
{
    size_t n_bytes;
    if (__builtin_mul_overflow(n, sizeof(double), &n_bytes))
        return -ENOMEM;
    struct entry *entry = malloc(sizeof(*entry) + n_bytes);
    if (entry == NULL)
        return -ENOMEM;
    *entry = (struct entry){
        .key = *key, .n_users = 1, .n_bytes = n_bytes, .can_stop = wfs_io_can_stop(io)};
    if (*ret == NULL)
        put_first(entry);
    pthread_mutex_unlock(&shelf.lock);
    const int code = fill(ctx, entry->array);
    pthread_mutex_lock(&shelf.lock);
    pthread_cond_broadcast(&shelf.filled);
    if (code < 0) {
        if (entry->is_listed)
            take_out(entry);
        free(entry);
        return code;
    }
    entry->is_full = true;
    *ret = entry;
    return 0;
}

int shelf_take(const struct wfs_io *io, const struct shelf_key *key, size_t n, shelf_fill *fill,
               void *ctx, const double **ret)
{
    int code = 0;
    pthread_mutex_lock(&shelf.lock);
    struct entry *entry = find(key);
    while (code == 0 && entry != NULL && !entry->is_full) {
        code = reader_wait(io, &shelf.filled, &shelf.lock, entry->can_stop);
        entry = code == -EBUSY ? entry : find(key);
    }
    if (code == 0 && entry != NULL) {
        entry->n_users++;
        take_out(entry);
        put_first(entry);
    } else if (code != -EINTR) {
        code = fill_new(io, key, n, fill, ctx, &entry);
    }
    if (code == 0)
        *ret = entry->array;
    pthread_mutex_unlock(&shelf.lock);
    return code;
}

void shelf_give_back(const double *array)
{
    if (array == NULL)
        return;
    struct entry *entry = (struct entry *)((uintptr_t)array - offsetof(struct entry, array));
    pthread_mutex_lock(&shelf.lock);
    if (--entry->n_users == 0 && entry->is_listed)
        clear_up();
    else if (entry->n_users == 0)
        free(entry);
    pthread_mutex_unlock(&shelf.lock);
}

void shelf_forget(uint64_t owner)
{
    pthread_mutex_lock(&shelf.lock);
    for (struct entry **at = &shelf.first; *at != NULL;) {
        struct entry *entry = *at;
        if (entry->key.owner == owner) {
            *at = entry->next;
            free(entry);
        } else {
            at = &entry->next;
        }
    }
    pthread_mutex_unlock(&shelf.lock);
}
