/* SPDX-License-Identifier: MIT */
/*
 * The pickle of a checkpoint: the input becomes data.pkl of a zip that has storages 0 to 2, so that
 * tensors can be made of them. One of a length that is 3 more than a multiple of 4 is a bare
 * pickle.
 */
#include "pytorch.h"

#include "base/bytes.h"

enum { ROOM = 1 << 17, N_STORAGE = 64 };

struct archive {
    uint8_t bytes[ROOM];
    size_t n;
    uint8_t directory[1024];
    size_t n_directory;
    unsigned n_entries;
};

static void put16(uint8_t *to, size_t value)
{
    store_le16(to, (uint16_t)value);
}

static void put32(uint8_t *to, size_t value)
{
    store_le32(to, (uint32_t)value);
}

static void add(struct archive *archive, const char *name, const void *data, size_t n_bytes)
{
    const size_t n_name = strlen(name), offset = archive->n;
    uint8_t *header = archive->bytes + offset, *entry = archive->directory + archive->n_directory;
    memset(header, 0, 30);
    memset(entry, 0, 46);
    memcpy(header, "PK\3\4", 4);
    memcpy(entry, "PK\1\2", 4);
    put32(header + 18, n_bytes);
    put32(header + 22, n_bytes);
    put16(header + 26, n_name);
    put32(entry + 20, n_bytes);
    put32(entry + 24, n_bytes);
    put16(entry + 28, n_name);
    put32(entry + 42, offset);
    memcpy(header + 30, name, n_name);
    memcpy(entry + 46, name, n_name);
    memcpy(header + 30 + n_name, data, n_bytes);
    archive->n += 30 + n_name + n_bytes;
    archive->n_directory += 46 + n_name;
    archive->n_entries++;
}

static void finish(struct archive *archive)
{
    const size_t start = archive->n;
    uint8_t *end = archive->bytes + start + archive->n_directory;
    memcpy(archive->bytes + start, archive->directory, archive->n_directory);
    memset(end, 0, 22);
    memcpy(end, "PK\5\6", 4);
    put16(end + 8, archive->n_entries);
    put16(end + 10, archive->n_entries);
    put32(end + 12, archive->n_directory);
    put32(end + 16, start);
    archive->n = start + archive->n_directory + 22;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const uint8_t storage[N_STORAGE] = {1, 2, 3, 4, 5, 6, 7, 8};
    static struct archive archive;
    if (n_bytes > ROOM / 2)
        return 0;
    if (n_bytes % 4 == 3) {
        load_and_look(data, n_bytes);
        return 0;
    }
    archive.n = archive.n_directory = archive.n_entries = 0;
    add(&archive, "m/data.pkl", data, n_bytes);
    add(&archive, "m/data/0", storage, sizeof(storage));
    add(&archive, "m/data/1", storage, 16);
    add(&archive, "m/data/2", storage, 0);
    add(&archive, "m/version", "3\n", 2);
    finish(&archive);
    load_and_look(archive.bytes, archive.n);
    return 0;
}
