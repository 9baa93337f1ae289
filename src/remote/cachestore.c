/* SPDX-License-Identifier: MIT */
/*
 * The room of an entry that was dropped is used again while a process may still write into it: what
 * it writes has the sums of another object, and is not present for the new one.
 */
#include <weightfs/array.h>
#include <weightfs/cachestore.h>
#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>
#include "base/bytes.h"
#include "base/hash.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum {
    ENTRY = 64,
    N_HASHED = 56,
    ENTRIES_AT = IO_BLOCK,
    TEXTS_AT = ENTRIES_AT + CACHESTORE_ENTRIES * ENTRY,
    OBJECTS_AT = TEXTS_AT + CACHESTORE_ENTRIES * CACHESTORE_TEXT,
    LOCK_TRIES = 300, /* of 10 ms */
};

static const char magic[] = "weightfs cache 1\n";
static const char file_name[] = "weightfs.cache";

struct entry {
    uint64_t seed;
    uint64_t n_bytes; /* UINT64_MAX: free */
    uint64_t base, opened, url;
};

/* ---- the file ---- */

int cachestore_make(int fd)
{
    size_t n_written;
    return ftruncate(fd, OBJECTS_AT) < 0 ? -errno
                                         : io_write_at(fd, magic, sizeof(magic) - 1, 0, &n_written);
}

static bool is_store(int fd)
{
    char text[sizeof(magic) - 1];
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size >= OBJECTS_AT &&
           io_read_at(fd, text, sizeof(text), 0) == (ssize_t)sizeof(text) &&
           memcmp(text, magic, sizeof(text)) == 0;
}

/* Another process holds it for a moment, unless it is stopped. */
static int lock(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return -EBUSY;
}

static int open_directory(const char *path, bool creates, struct wfs_error *err)
{
    struct stat st;
    if (creates && mkdir(path, S_IRWXU) < 0 && errno != EEXIST)
        return wfs_fail(err, errno, "cannot make the directory of the cache '%s': %s%s",
                        wfs_quote(path).text, strerror(errno),
                        *path == '~' ? "; the shell did not expand the '~', write $HOME" : "");
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot open the directory of the cache '%s': %s",
                        wfs_quote(path).text,
                        errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return wfs_fail(err, EACCES,
                        "the directory of the cache '%s' must belong to you, and be writable by "
                        "nobody else: chmod 700",
                        wfs_quote(path).text);
    return steal_fd(&fd);
}

static int open_file(int directory, int flags, bool *ret_is_own)
{
    struct stat st;
    const int fd = openat(directory, file_name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                          S_IRUSR | S_IWUSR);
    if (fd < 0)
        return -errno;
    *ret_is_own = io_is_plain_file(fd) && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
                  (st.st_mode & 077) == 0;
    return fd;
}

/* Opens the store, or makes one; the directory is locked. */
static int open_store(int directory, bool creates)
{
    bool is_own = false;
    autoclose int fd = open_file(directory, O_RDWR, &is_own);
    if (fd >= 0 && is_own && is_store(fd))
        return steal_fd(&fd);
    if (fd == -ENOENT && !creates)
        return -ENOENT;
    if (fd >= 0 && !is_own)
        return -EACCES;
    if (fd < 0 && fd != -ENOENT)
        return fd;
    if (!creates)
        return -EBADMSG;
    if (fd >= 0 && unlinkat(directory, file_name, 0) < 0)
        return -errno;
    autoclose int made = open_file(directory, O_RDWR | O_CREAT | O_EXCL, &is_own);
    const int code = made < 0 ? made : cachestore_make(made);
    return code < 0 ? code : steal_fd(&made);
}

int cachestore_open(const char *path, bool creates, int *ret_fd, int *ret_read,
                    struct wfs_error *err)
{
    bool is_own;
    autoclose int directory = open_directory(path, creates, err);
    if (directory < 0)
        return directory;
    int code = lock(directory);
    autoclose int fd = code < 0 ? code : open_store(directory, creates);
    autoclose int readable =
        fd < 0 || ret_read == NULL ? -1 : open_file(directory, O_RDONLY, &is_own);
    code = fd < 0 ? fd : ret_read != NULL && readable < 0 ? readable : 0;
    if (code < 0)
        return wfs_fail(err, -code, "cannot use the cache '%s/%s': %s", wfs_quote(path).text,
                        file_name,
                        code == -EACCES    ? "it is not a file of your own that only you can open"
                        : code == -EBADMSG ? "it is not a cache of this version"
                        : code == -EBUSY   ? "another process holds its lock"
                                           : strerror(-code));
    *ret_fd = steal_fd(&fd);
    if (ret_read != NULL)
        *ret_read = steal_fd(&readable);
    return 0;
}

int cachestore_remove(const char *path, struct wfs_error *err)
{
    autoclose int directory = open_directory(path, false, err);
    if (directory < 0)
        return directory;
    return unlinkat(directory, file_name, 0) == 0 || errno == ENOENT
               ? 0
               : wfs_fail(err, errno, "cannot remove '%s/%s': %s", wfs_quote(path).text, file_name,
                          strerror(errno));
}

/* ---- entries ---- */

static uint64_t sum_of(const uint8_t bytes[ENTRY])
{
    return hash_bytes(bytes, N_HASHED, sizeof(magic));
}

static struct entry decode(const uint8_t bytes[ENTRY])
{
    struct entry entry = {.seed = load_le64(bytes),
                          .n_bytes = load_le64(bytes + 8),
                          .base = load_le64(bytes + 16),
                          .opened = load_le64(bytes + 24),
                          .url = load_le64(bytes + 32)};
    struct cachefile cache;
    if (load_le64(bytes + N_HASHED) != sum_of(bytes) || entry.base < OBJECTS_AT ||
        cachefile_init(&cache, -1, entry.base, entry.n_bytes, entry.seed) < 0)
        entry.n_bytes = UINT64_MAX;
    return entry;
}

static bool is_free(const struct entry *entry)
{
    return entry->n_bytes == UINT64_MAX;
}

static int load_entries(int fd, struct entry **out)
{
    const size_t n_bytes = CACHESTORE_ENTRIES * ENTRY;
    autofree uint8_t *bytes = malloc(n_bytes);
    struct entry *entries = calloc(CACHESTORE_ENTRIES, sizeof(*entries));
    const ssize_t n_read =
        bytes == NULL || entries == NULL ? -ENOMEM : io_read_at(fd, bytes, n_bytes, ENTRIES_AT);
    if (n_read != (ssize_t)n_bytes) {
        free(entries);
        return n_read < 0 ? (int)n_read : -EIO;
    }
    for (size_t i = 0; i < CACHESTORE_ENTRIES; i++)
        entries[i] = decode(bytes + i * ENTRY);
    *out = entries;
    return 0;
}

/* Writes an entry, or frees it. */
static int store_entry(int fd, size_t i, const struct entry *entry)
{
    uint8_t bytes[ENTRY] = {0};
    size_t n_written;
    if (!is_free(entry)) {
        store_le64(bytes, entry->seed);
        store_le64(bytes + 8, entry->n_bytes);
        store_le64(bytes + 16, entry->base);
        store_le64(bytes + 24, entry->opened);
        store_le64(bytes + 32, entry->url);
        store_le64(bytes + N_HASHED, sum_of(bytes));
    }
    return io_write_at(fd, bytes, ENTRY, ENTRIES_AT + i * ENTRY, &n_written);
}

static struct cachefile cache_of(int fd, const struct entry *entry)
{
    struct cachefile cache = {0};
    (void)cachefile_init(&cache, fd, entry->base, entry->n_bytes, entry->seed);
    return cache;
}

static int drop(int fd, struct entry *entries, size_t i)
{
    const struct cachefile cache = cache_of(fd, &entries[i]);
    entries[i].n_bytes = UINT64_MAX;
    const int code = store_entry(fd, i, &entries[i]);
    cachefile_clear(&cache);
    return code;
}

/* Finds a place that no object has. */
static int find_room(const struct entry *entries, struct cachefile *cache)
{
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (size_t i = 0; i < CACHESTORE_ENTRIES; i++) {
            const struct cachefile other = cache_of(-1, &entries[i]);
            if (is_free(&entries[i]) || cachefile_end(cache) <= other.base ||
                cachefile_end(&other) <= cache->base)
                continue;
            if (cachefile_init(cache, cache->fd, cachefile_end(&other), cache->n_bytes,
                               cache->seed) < 0)
                return -EFBIG;
            has_moved = true;
        }
    }
    return 0;
}

/* Returns the entry that was opened longest ago, of those with n_bytes or more; a free one goes
 * before all where `takes_free`. CACHESTORE_ENTRIES: there is none. */
static size_t choose(const struct entry *entries, uint64_t n_bytes, bool takes_free)
{
    size_t chosen = CACHESTORE_ENTRIES;
    for (size_t i = 0; i < CACHESTORE_ENTRIES; i++) {
        if (is_free(&entries[i])) {
            if (takes_free)
                return i;
        } else if (entries[i].n_bytes >= n_bytes &&
                   (chosen == CACHESTORE_ENTRIES || entries[i].opened < entries[chosen].opened))
            chosen = i;
    }
    return chosen;
}

/* Makes the file longer, never shorter. */
static int extend(const struct cachefile *cache)
{
    struct stat st;
    if (fstat(cache->fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size < cachefile_end(cache) ? cachefile_make(cache) : 0;
}

/* Finds a place, and drops another object as large where the file cannot be longer: one that only
 * claimed its size has no room for ever, and drops no smaller one. */
static int make_room(struct entry *entries, struct cachefile *cache)
{
    const struct cachefile first = *cache;
    for (;;) {
        int code = find_room(entries, cache);
        if (code == 0)
            code = extend(cache);
        const size_t i =
            code == -EFBIG ? choose(entries, cache->n_bytes, false) : CACHESTORE_ENTRIES;
        if (i == CACHESTORE_ENTRIES)
            return code;
        code = drop(cache->fd, entries, i);
        if (code < 0)
            return code;
        *cache = first;
    }
}

static int store_text(int fd, size_t i, const char *url)
{
    char text[CACHESTORE_TEXT] = {0};
    autofree char *shown = url_shown(url);
    size_t n_written;
    if (shown == NULL)
        return -ENOMEM;
    snprintf(text, sizeof(text), "%s", shown);
    return io_write_at(fd, text, sizeof(text), TEXTS_AT + i * sizeof(text), &n_written);
}

/* Makes an entry for an object that has none. */
static int add(int fd, struct entry *entries, const char *url, struct entry *entry,
               struct cachefile *ret)
{
    int code = cachefile_init(ret, fd, OBJECTS_AT, entry->n_bytes, entry->seed);
    for (size_t i = 0; code == 0 && i < CACHESTORE_ENTRIES; i++) {
        if (!is_free(&entries[i]) && entries[i].url == entry->url)
            code = drop(fd, entries, i);
    }
    if (code == 0)
        code = make_room(entries, ret);
    const size_t chosen = choose(entries, 0, true);
    if (code == 0 && !is_free(&entries[chosen]))
        code = drop(fd, entries, chosen);
    if (code == 0)
        code = store_text(fd, chosen, url);
    entry->base = ret->base;
    return code < 0 ? code : store_entry(fd, chosen, entry);
}

static int place(int fd, const char *url, struct entry *entry, struct cachefile *ret)
{
    autofree struct entry *entries = NULL;
    int code = load_entries(fd, &entries);
    for (size_t i = 0; code == 0 && i < CACHESTORE_ENTRIES; i++) {
        if (entries[i].seed != entry->seed || entries[i].n_bytes != entry->n_bytes ||
            entries[i].url != entry->url)
            continue;
        entry->base = entries[i].base;
        *ret = cache_of(fd, entry);
        code = extend(ret);
        return code < 0 ? code : store_entry(fd, i, entry);
    }
    return code < 0 ? code : add(fd, entries, url, entry, ret);
}

int cachestore_place(int fd, const char *url, uint64_t digest, uint64_t n_bytes, uint64_t now,
                     struct cachefile *ret)
{
    struct entry entry = {.seed = cachefile_hash(url, digest),
                          .n_bytes = n_bytes,
                          .opened = now,
                          .url = cachefile_hash(url, 0)};
    int code = lock(fd);
    if (code < 0)
        return code;
    code = place(fd, url, &entry, ret);
    (void)flock(fd, LOCK_UN);
    return code;
}

int cachestore_entry(int fd, unsigned i, struct cachefile *ret, uint64_t *ret_opened,
                     char text[CACHESTORE_TEXT])
{
    uint8_t bytes[ENTRY];
    if (io_read_at(fd, bytes, ENTRY, ENTRIES_AT + (uint64_t)i * ENTRY) != ENTRY ||
        io_read_at(fd, text, CACHESTORE_TEXT, TEXTS_AT + (uint64_t)i * CACHESTORE_TEXT) !=
            CACHESTORE_TEXT)
        return -EIO;
    text[CACHESTORE_TEXT - 1] = '\0';
    const struct entry entry = decode(bytes);
    if (is_free(&entry))
        return 0;
    *ret = cache_of(fd, &entry);
    *ret_opened = entry.opened;
    return 1;
}

/* ---- size ---- */

struct block {
    uint64_t time, number;
    size_t entry;
};

struct blocks {
    struct block *items;
    size_t n, n_room;
};

static int compare(const void *a, const void *b)
{
    const uint64_t x = ((const struct block *)a)->time, y = ((const struct block *)b)->time;
    return (x > y) - (x < y);
}

static int list_blocks(const struct cachefile *cache, size_t entry, struct blocks *blocks)
{
    enum { SOME = 512 };
    uint64_t times[SOME], first = 0;
    ssize_t n;
    while ((n = cachefile_times(cache, &first, SOME, times)) > 0) {
        if (array_reserve(&blocks->items, sizeof(*blocks->items), blocks->n, (size_t)n,
                          &blocks->n_room) < 0)
            return -ENOMEM;
        for (size_t i = 0; i < (size_t)n; i++, first++) {
            if (times[i] != 0)
                blocks->items[blocks->n++] = (struct block){times[i], first, entry};
        }
    }
    return (int)n;
}

static bool is_larger(int fd, uint64_t n_bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_blocks * 512 > n_bytes;
}

int cachestore_trim(int fd, uint64_t n_bytes)
{
    autofree struct entry *entries = NULL;
    struct blocks blocks = {0};
    int code = is_larger(fd, n_bytes) ? load_entries(fd, &entries) : 0;
    for (size_t i = 0; code == 0 && entries != NULL && i < CACHESTORE_ENTRIES; i++) {
        const struct cachefile cache = cache_of(fd, &entries[i]);
        if (!is_free(&entries[i]))
            code = list_blocks(&cache, i, &blocks);
    }
    if (blocks.n > 0)
        qsort(blocks.items, blocks.n, sizeof(*blocks.items), compare);
    for (size_t i = 0; code == 0 && i < blocks.n && is_larger(fd, n_bytes - n_bytes / 8); i++) {
        const struct cachefile cache = cache_of(fd, &entries[blocks.items[i].entry]);
        code = cachefile_remove(&cache, blocks.items[i].number);
    }
    free(blocks.items);
    return code;
}
