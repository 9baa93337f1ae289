/* SPDX-License-Identifier: MIT */
/*
 * Opening a zip: the directory, the checks that make it the only authority, and finding in it.
 */
#include "archive/zip.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/stream.h"
#include "archive/zip_end.h"

enum { ENTRY_BYTES = 46, HEADER_BYTES = 30 };

static bool has_signature(const uint8_t *bytes, uint8_t third)
{
    return bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == third && bytes[3] == third + 1;
}

/* Reads the 64-bit sizes of an entry, for the fields that are all ones, in this order. */
static int parse_extra(struct zip_entry *entry, const uint8_t *extra, size_t n_extra,
                       struct wfs_error *err)
{
    struct cursor cursor = cursor_of(extra, n_extra);
    uint64_t *const fields[] = {&entry->n_bytes, &entry->n_packed, &entry->header};
    bool is_needed = false;
    for (size_t i = 0; i < 3; i++)
        is_needed = is_needed || *fields[i] == 0xffffffff;
    uint16_t id, n;
    const uint8_t *block;
    while (is_needed && cursor_le16(&cursor, &id) && cursor_le16(&cursor, &n) &&
           cursor_take(&cursor, n, &block)) {
        if (id != 1)
            continue;
        struct cursor numbers = cursor_of(block, n);
        for (size_t i = 0; i < 3; i++)
            if (*fields[i] == 0xffffffff && !cursor_le64(&numbers, fields[i]))
                return wfs_fail(err, EBADMSG, "zip: entry %s lacks its 64-bit sizes",
                                wfs_quote_n(entry->name, entry->n_name).text);
        return 0;
    }
    return !is_needed ? 0
                      : wfs_fail(err, EBADMSG, "zip: entry %s lacks its 64-bit sizes",
                                 wfs_quote_n(entry->name, entry->n_name).text);
}

static int check_entry(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err)
{
    uint64_t end;
    if (entry->method == ZIP_STORED && entry->n_packed != entry->n_bytes)
        return wfs_fail(err, EBADMSG, "zip: entry %s is stored with %s, but has %llu",
                        wfs_quote_n(entry->name, entry->n_name).text,
                        wfs_count(entry->n_packed, "byte").text,
                        (unsigned long long)entry->n_bytes);
    if (!checked_add(entry->header, (uint64_t)HEADER_BYTES + entry->n_name, &end) ||
        !checked_add(end, entry->n_packed, &end) || end > zip->directory)
        return wfs_fail(err, EBADMSG, "zip: entry %s of %s at %llu runs past the directory at %llu",
                        wfs_quote_n(entry->name, entry->n_name).text,
                        wfs_count(entry->n_packed, "byte").text, (unsigned long long)entry->header,
                        (unsigned long long)zip->directory);
    return 0;
}

/* Fails because the directory ends too early or cannot be read. */
static int fail_directory(int code, struct wfs_error *err)
{
    return code == -ENODATA ? wfs_fail(err, EBADMSG, "zip: the directory ends inside an entry")
                            : wfs_fail(err, -code, "cannot read the directory of the zip");
}

static int read_entry(struct zip *zip, struct stream *stream, const struct limits *limits,
                      struct zip_entry *entry, struct wfs_error *err)
{
    const uint8_t *b, *name, *extra;
    int code = stream_take(stream, ENTRY_BYTES, &b);
    if (code < 0)
        return fail_directory(code, err);
    if (!has_signature(b, 1))
        return wfs_fail(err, EBADMSG, "zip: a directory entry has no signature");
    const uint16_t n_extra = load_le16(b + 30), n_comment = load_le16(b + 32),
                   disk = load_le16(b + 34);
    *entry = (struct zip_entry){.flags = load_le16(b + 8),
                                .method = load_le16(b + 10),
                                .crc = load_le32(b + 16),
                                .n_packed = load_le32(b + 20),
                                .n_bytes = load_le32(b + 24),
                                .n_name = load_le16(b + 28),
                                .header = load_le32(b + 42)};
    if (entry->n_name > limits->zip_name)
        return wfs_fail(err, E2BIG, "zip: a name of %s is above the limit (zip_name)",
                        wfs_count(entry->n_name, "byte").text);
    if ((code = stream_take(stream, entry->n_name, &name)) < 0)
        return fail_directory(code, err);
    entry->name = arena_copy(&zip->arena, (const char *)name, entry->n_name);
    if (entry->name == NULL)
        return wfs_fail_memory(err);
    if ((code = stream_take(stream, n_extra, &extra)) < 0)
        return fail_directory(code, err);
    if ((code = parse_extra(entry, extra, n_extra, err)) < 0)
        return code;
    if (disk != 0 && disk != 0xffff)
        return wfs_fail(err, EOPNOTSUPP, "multi-part zips are not supported");
    if ((code = stream_skip(stream, n_comment)) < 0)
        return fail_directory(code, err);
    return check_entry(zip, entry, err);
}

static int read_directory(struct zip *zip, const struct zip_end *end, const struct limits *limits,
                          struct wfs_error *err)
{
    cleanup(stream_done) struct stream stream;
    const uint64_t start = zip->start + end->directory;
    if (stream_init(&stream, zip->source, start, start + end->n_directory) < 0)
        return wfs_fail_memory(err);
    zip->entries = calloc(end->n_entries + 1, sizeof(*zip->entries));
    if (zip->entries == NULL)
        return wfs_fail_memory(err);
    for (; zip->n_entries < end->n_entries; zip->n_entries++) {
        const int code = read_entry(zip, &stream, limits, &zip->entries[zip->n_entries], err);
        if (code < 0)
            return code;
    }
    return 0;
}

static int by_header(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return (x->header > y->header) - (x->header < y->header);
}

static int check_overlaps(struct zip *zip, struct wfs_error *err)
{
    qsort(zip->entries, zip->n_entries, sizeof(*zip->entries), by_header);
    for (uint32_t i = 1; i < zip->n_entries; i++) {
        const struct zip_entry *a = &zip->entries[i - 1], *b = &zip->entries[i];
        if (a->header + HEADER_BYTES + a->n_name + a->n_packed > b->header)
            return wfs_fail(err, EBADMSG, "zip: entries %s and %s overlap",
                            wfs_quote_n(a->name, a->n_name).text,
                            wfs_quote_n(b->name, b->n_name).text);
    }
    return 0;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static uint64_t hash_name(const char *name, size_t n)
{
    char folded[256];
    uint64_t hash = hash_seed();
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        while (k < sizeof(folded) && i < n)
            folded[k++] = lower(name[i++]);
        hash = hash_bytes(folded, k, hash);
    }
    return hash;
}

struct wanted {
    const struct zip *zip;
    const char *name;
    size_t n_name;
    bool is_exact;
};

static bool is_wanted(const void *ctx, uint32_t i)
{
    const struct wanted *wanted = ctx;
    const struct zip_entry *entry = &wanted->zip->entries[i];
    if (entry->n_name != wanted->n_name)
        return false;
    if (wanted->is_exact)
        return memcmp(entry->name, wanted->name, entry->n_name) == 0;
    for (size_t k = 0; k < entry->n_name; k++)
        if (lower(entry->name[k]) != lower(wanted->name[k]))
            return false;
    return true;
}

/* PyTorch ignores the case of names, and takes either of two that differ only in it. */
static int index_names(struct zip *zip, struct wfs_error *err)
{
    if (map_reserve(&zip->names, zip->n_entries) < 0)
        return wfs_fail_memory(err);
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        const struct wanted wanted = {zip, entry->name, entry->n_name, false};
        const uint64_t hash = hash_name(entry->name, entry->n_name);
        uint32_t twin;
        if (map_find(&zip->names, hash, is_wanted, &wanted, &twin))
            return wfs_fail(err, EBADMSG, "zip: duplicate entry: %s and %s",
                            wfs_quote_n(zip->entries[twin].name, zip->entries[twin].n_name).text,
                            wfs_quote_n(entry->name, entry->n_name).text);
        (void)map_add(&zip->names, hash, i); /* there is room */
    }
    return 0;
}

int zip_open(struct zip *zip, const struct source *source, uint64_t start, uint64_t n_bytes,
             const struct limits *limits, struct wfs_error *err)
{
    *zip = (struct zip){.source = source, .start = start};
    struct zip_end end;
    int code = zip_end_find(source, start, n_bytes, &end, err);
    if (code < 0)
        return code;
    if (end.n_entries > limits->zip_entries)
        return wfs_fail(err, E2BIG, "zip: %s above the limit of %llu (zip_entries)",
                        wfs_count_as(end.n_entries, "entry is", "entries are").text,
                        (unsigned long long)limits->zip_entries);
    if (end.n_directory > limits->zip_directory)
        return wfs_fail(
            err, E2BIG, "zip: a directory of %s is above the limit of %llu (zip_directory)",
            wfs_count(end.n_directory, "byte").text, (unsigned long long)limits->zip_directory);
    zip->directory = end.directory;
    zip->n_trailing = end.n_trailing;
    zip->n_between = end.n_between;
    if ((code = read_directory(zip, &end, limits, err)) < 0 ||
        (code = check_overlaps(zip, err)) < 0 || (code = index_names(zip, err)) < 0)
        return code;
    return 0;
}

void zip_close(struct zip *zip)
{
    const int saved = errno;
    free(zip->entries);
    map_done(&zip->names);
    arena_done(&zip->arena);
    *zip = (struct zip){0};
    errno = saved;
}

struct zip_entry *zip_find(struct zip *zip, const char *name, size_t n_name)
{
    const struct wanted wanted = {zip, name, n_name, true};
    uint32_t i = zip->next;
    if ((i >= zip->n_entries || !is_wanted(&wanted, i)) &&
        !map_find(&zip->names, hash_name(name, n_name), is_wanted, &wanted, &i))
        return NULL;
    zip->next = i + 1;
    return &zip->entries[i];
}

/* Reads the local header with its name through the window. */
static int read_header(struct zip *zip, const struct zip_entry *entry, const uint8_t **ret,
                       struct wfs_error *err)
{
    const size_t n_wanted = HEADER_BYTES + entry->n_name;
    if (entry->header < zip->window_offset ||
        entry->header + n_wanted > zip->window_offset + zip->n_window) {
        const uint64_t n_left = zip->directory - entry->header;
        zip->n_window = 0;
        const size_t n = n_left < ZIP_HEADER_WINDOW ? (size_t)n_left : ZIP_HEADER_WINDOW;
        if (n_wanted > n)
            return wfs_fail(err, E2BIG, "zip: the name %s is too long",
                            wfs_quote_n(entry->name, entry->n_name).text);
        /* The pickle is read later, which checks that the file has not changed. */
        const int code =
            source_read_unchecked(zip->source, zip->start + entry->header, zip->window, n);
        if (code < 0)
            return wfs_fail(err, -code, "cannot read the zip at byte %llu",
                            (unsigned long long)entry->header);
        zip->window_offset = entry->header;
        zip->n_window = n;
    }
    *ret = zip->window + (entry->header - zip->window_offset);
    return 0;
}

/* Checks the sizes in the local header, which are right unless a data descriptor follows the
 * data. */
static bool has_same_sizes(const struct zip_entry *entry, const uint8_t *header)
{
    const uint32_t n_packed = load_le32(header + 18), n_bytes = load_le32(header + 22);
    if ((load_le16(header + 6) & 8) != 0)
        return true;
    return (n_packed == 0xffffffff || n_packed == entry->n_packed) &&
           (n_bytes == 0xffffffff || n_bytes == entry->n_bytes);
}

/* Returns why an entry cannot be read; NULL: it can. */
static const char *unreadable(const struct zip_entry *entry)
{
    if ((entry->flags & 0x2061) != 0) /* encrypted, patched, strongly encrypted, masked */
        return "is encrypted";
    return entry->method != ZIP_STORED && entry->method != ZIP_DEFLATED
               ? "uses an unsupported compression method"
               : NULL;
}

/* Returns how the local header differs from the directory; NULL: it does not. */
static const char *disagreement(const struct zip_entry *entry, const uint8_t *header)
{
    if (!has_signature(header, 3))
        return "has no local header at its offset";
    if (load_le16(header + 26) != entry->n_name ||
        memcmp(header + HEADER_BYTES, entry->name, entry->n_name) != 0)
        return "has a different name in its local header";
    if (load_le16(header + 8) != entry->method ||
        ((load_le16(header + 6) ^ entry->flags) & 1) != 0 || !has_same_sizes(entry, header))
        return "differs from its local header";
    return NULL;
}

int zip_locate(struct zip *zip, struct zip_entry *entry, struct wfs_error *err)
{
    const uint8_t *header = NULL;
    if (entry->data != 0)
        return 0;
    const char *trouble = unreadable(entry);
    if (trouble != NULL)
        return wfs_fail(err, EOPNOTSUPP, "zip: entry %s %s",
                        wfs_quote_n(entry->name, entry->n_name).text, trouble);
    const int code = read_header(zip, entry, &header, err);
    if (code < 0)
        return code;
    trouble = disagreement(entry, header);
    if (trouble != NULL)
        return wfs_fail(err, EBADMSG, "zip: entry %s %s",
                        wfs_quote_n(entry->name, entry->n_name).text, trouble);
    const uint64_t data = entry->header + HEADER_BYTES + entry->n_name + load_le16(header + 28);
    const uint64_t next =
        entry + 1 < zip->entries + zip->n_entries ? entry[1].header : zip->directory;
    if (data > next || entry->n_packed > next - data)
        return wfs_fail(err, EBADMSG, "zip: entry %s of %s at %llu runs into the next one at %llu",
                        wfs_quote_n(entry->name, entry->n_name).text,
                        wfs_count(entry->n_packed, "byte").text, (unsigned long long)data,
                        (unsigned long long)next);
    entry->data = zip->start + data;
    entry->has_other_crc = (load_le16(header + 6) & 8) == 0 && load_le32(header + 14) != entry->crc;
    return 0;
}

uint64_t zip_count_loose(const struct zip *zip)
{
    enum { DESCRIPTOR_MAX = 24 };
    uint64_t n_loose = zip->n_between, stop = 0;
    for (uint32_t i = 0; i <= zip->n_entries; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        const uint64_t next = i < zip->n_entries ? entry->header : zip->directory;
        n_loose += next - stop;
        if (i == zip->n_entries)
            break;
        stop = i + 1 < zip->n_entries ? entry[1].header : zip->directory;
        if (entry->data == 0 || entry->is_derived)
            continue;
        const uint64_t end = entry->data - zip->start + entry->n_packed;
        if ((entry->flags & 8) == 0 || stop - end > DESCRIPTOR_MAX)
            stop = end;
    }
    return n_loose;
}
