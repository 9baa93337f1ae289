/* SPDX-License-Identifier: MIT */
/*
 * Opening a zip: its end records, found backwards from the end and checked against each other and
 * the file; the directory, and the checks that make it the only authority. Then finding in it, and
 * the checksums, which opening leaves alone.
 */
#include "archive/zip.h"

#include <weightfs/cleanup.h>
#include "archive/derived.h"
#include "base/bytes.h"
#include "base/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * End record: "PK\5\6", u16 disk, disk of the directory, entries here, entries in all, u32 bytes
 * and offset of the directory, u16 bytes of comment. Before it, for large archives, a locator:
 * "PK\6\7", u32 disk, u64 offset of "PK\6\6", u32 disks; and there: u64 size, u16 made by, needed,
 * u32 disks, u64 entries here, in all, u64 bytes and offset of the directory.
 */
enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    TAIL_MAX = 65535 + END_BYTES,
    ENTRY_BYTES = 46,
    HEADER_BYTES = 30,
};

struct zip_end {
    uint64_t n_entries;
    uint64_t n_directory; /* bytes */
    uint64_t directory;   /* offset in the archive */
    uint64_t limit;       /* where the directory must end at the latest */
    uint64_t n_trailing;  /* bytes after the end record */
    uint64_t n_between;   /* bytes between the directory and the end record that are neither */
};

/* Signatures are "PK\1\2", "PK\3\4" and so on. */
static bool has_signature(const uint8_t *bytes, uint8_t third)
{
    return bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == third && bytes[3] == third + 1;
}

static struct wfs_quoted name_of(const struct zip_entry *entry)
{
    return wfs_quote_n(entry->name, entry->n_name);
}

/* Compares a number of the classic record with that of zip64: all ones refer to the latter. */
static bool agrees(uint64_t classic, uint64_t all_ones, uint64_t large)
{
    return classic == all_ones || classic == large;
}

/* at is the position of the end record in the archive. */
static int parse_end64(const struct source *source, uint64_t start, const uint8_t *record,
                       uint64_t at, struct zip_end *end, struct wfs_error *err)
{
    uint8_t locator[LOCATOR_BYTES], large[END64_BYTES];
    if (at < LOCATOR_BYTES)
        return 0;
    const uint64_t locator_at = at - LOCATOR_BYTES;
    int code = source_read(source, start + locator_at, locator, sizeof(locator));
    if (code < 0)
        return wfs_fail(err, -code, "cannot read the end of the zip");
    if (!has_signature(locator, 6))
        return 0;
    const uint64_t offset = load_le64(locator + 8);
    if (load_le32(locator + 4) != 0 || load_le32(locator + 16) > 1)
        return wfs_fail(err, EOPNOTSUPP, "multi-part zips are not supported");
    if (locator_at < END64_BYTES || offset > locator_at - END64_BYTES)
        return wfs_fail(err, EBADMSG, "zip: the zip64 end record at %llu is beyond %llu",
                        (unsigned long long)offset, (unsigned long long)locator_at);
    if ((code = source_read(source, start + offset, large, sizeof(large))) < 0)
        return wfs_fail(err, -code, "cannot read the end of the zip");
    if (memcmp(large, "PK\6\6", 4) != 0)
        return wfs_fail(err, EBADMSG, "zip: no zip64 end record at %llu",
                        (unsigned long long)offset);
    end->n_entries = load_le64(large + 32);
    end->n_directory = load_le64(large + 40);
    end->directory = load_le64(large + 48);
    end->limit = offset;
    uint64_t after;
    if (checked_add(load_le64(large + 4), offset + 12, &after) && after < locator_at)
        end->n_between = locator_at - after;
    if (load_le32(large + 16) != 0 || load_le32(large + 20) != 0 ||
        load_le64(large + 24) != end->n_entries)
        return wfs_fail(err, EOPNOTSUPP, "multi-part zips are not supported");
    if (!agrees(load_le16(record + 10), 0xffff, end->n_entries) ||
        !agrees(load_le32(record + 12), 0xffffffff, end->n_directory) ||
        !agrees(load_le32(record + 16), 0xffffffff, end->directory))
        return wfs_fail(err, EBADMSG, "zip: its two end records disagree");
    return 0;
}

static int parse_end(const struct source *source, uint64_t start, const uint8_t *record,
                     uint64_t at, struct zip_end *end, struct wfs_error *err)
{
    *end = (struct zip_end){.n_entries = load_le16(record + 10),
                            .n_directory = load_le32(record + 12),
                            .directory = load_le32(record + 16),
                            .limit = at};
    if (load_le16(record + 4) != load_le16(record + 6) ||
        load_le16(record + 8) != load_le16(record + 10) ||
        (load_le16(record + 4) != 0 && load_le16(record + 4) != 0xffff))
        return wfs_fail(err, EOPNOTSUPP, "multi-part zips are not supported");
    const int code = parse_end64(source, start, record, at, end, err);
    if (code < 0)
        return code;
    uint64_t stop;
    if (!checked_add(end->directory, end->n_directory, &stop) || stop > end->limit)
        return wfs_fail(err, EBADMSG, "zip: the directory of %s at %llu does not end before %llu",
                        wfs_count(end->n_directory, "byte").text,
                        (unsigned long long)end->directory, (unsigned long long)end->limit);
    end->n_between += end->limit - stop;
    if (end->n_entries > end->n_directory / ENTRY_BYTES)
        return wfs_fail(err, EBADMSG, "zip: a directory of %s cannot have %s",
                        wfs_count(end->n_directory, "byte").text,
                        wfs_count(end->n_entries, "entry").text);
    return 0;
}

/* Takes the last valid end record of the last n_tail bytes; without one the error is that of the
 * last invalid one. */
static int find_in_tail(const struct source *source, uint64_t start, uint64_t n_bytes,
                        size_t n_tail, struct zip_end *end, struct wfs_error *err)
{
    autofree uint8_t *tail = malloc(n_tail + 1);
    struct wfs_error last = {0};
    if (tail == NULL)
        return wfs_fail_memory(err);
    int code = source_read(source, start + n_bytes - n_tail, tail, n_tail);
    if (code < 0)
        return wfs_fail(err, -code, "cannot read the end of the zip");
    for (size_t i = n_tail; i-- > 0;) {
        if (n_tail - i < END_BYTES || !has_signature(tail + i, 5) ||
            load_le16(tail + i + 20) > n_tail - i - END_BYTES)
            continue;
        struct wfs_error found = {0};
        code = parse_end(source, start, tail + i, n_bytes - n_tail + i, end, &found);
        if (code == 0) {
            end->n_trailing = n_tail - i - END_BYTES - load_le16(tail + i + 20);
            return 0;
        }
        if (code != -EBADMSG && code != -EOPNOTSUPP)
            return wfs_fail(err, -code, "%s", found.text);
        if (last.code == 0)
            last = found;
    }
    if (last.code != 0)
        return wfs_fail(err, last.code, "%s", last.text);
    return wfs_fail(err, EBADMSG, "the zip has no directory: it was cut off at %s",
                    wfs_count(n_bytes, "byte").text);
}

/*
 * Finds the last valid end record: its directory is before it and large enough for its entries.
 * Most zips have no comment: their record is the very end. -EBADMSG, -EOPNOTSUPP, -EIO, -ENOMEM.
 */
static int find_end(const struct source *source, uint64_t start, uint64_t n_bytes,
                    struct zip_end *end, struct wfs_error *err)
{
    struct wfs_error first = {0};
    const int code = n_bytes < END_BYTES
                         ? -EBADMSG
                         : find_in_tail(source, start, n_bytes, END_BYTES, end, &first);
    if (code == -EBADMSG || code == -EOPNOTSUPP)
        return find_in_tail(source, start, n_bytes, n_bytes < TAIL_MAX ? (size_t)n_bytes : TAIL_MAX,
                            end, err);
    return code < 0 ? wfs_fail(err, -code, "%s", first.text) : 0;
}

/* Reads the 64-bit sizes of an entry, for the fields that are all ones, in this order. */
static int parse_extra(struct zip_entry *entry, const uint8_t *extra, size_t n_extra,
                       struct wfs_error *err)
{
    struct cursor cursor = cursor_of(extra, n_extra), numbers = {0};
    uint64_t *const fields[] = {&entry->n_bytes, &entry->n_packed, &entry->header};
    uint16_t id = 0, n;
    const uint8_t *block;
    while (id != 1 && cursor_le16(&cursor, &id) && cursor_le16(&cursor, &n) &&
           cursor_take(&cursor, n, &block))
        numbers = id == 1 ? cursor_of(block, n) : numbers;
    for (size_t i = 0; i < 3; i++)
        if (*fields[i] == 0xffffffff && !cursor_le64(&numbers, fields[i]))
            return wfs_fail(err, EBADMSG, "zip: entry %s lacks its 64-bit sizes",
                            name_of(entry).text);
    return 0;
}

static int check_entry(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err)
{
    uint64_t end;
    if (entry->method == ZIP_STORED && entry->n_packed != entry->n_bytes)
        return wfs_fail(err, EBADMSG, "zip: entry %s is stored with %s, but has %llu",
                        name_of(entry).text, wfs_count(entry->n_packed, "byte").text,
                        (unsigned long long)entry->n_bytes);
    if (!checked_add(entry->header, (uint64_t)HEADER_BYTES + entry->n_name, &end) ||
        !checked_add(end, entry->n_packed, &end) || end > zip->directory)
        return wfs_fail(err, EBADMSG, "zip: entry %s of %s at %llu runs past the directory at %llu",
                        name_of(entry).text, wfs_count(entry->n_packed, "byte").text,
                        (unsigned long long)entry->header, (unsigned long long)zip->directory);
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
        return wfs_fail(err, E2BIG, "zip: a name of %s is above the limit (limit zip_name)",
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
            return wfs_fail(err, EBADMSG, "zip: entries %s and %s overlap", name_of(a).text,
                            name_of(b).text);
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
                            name_of(&zip->entries[twin]).text, name_of(entry).text);
        (void)map_add(&zip->names, hash, i); /* there is room */
    }
    return 0;
}

int zip_open(struct zip *zip, const struct source *source, uint64_t start, uint64_t n_bytes,
             const struct limits *limits, struct wfs_error *err)
{
    *zip = (struct zip){.source = source, .start = start};
    struct zip_end end;
    int code = find_end(source, start, n_bytes, &end, err);
    if (code < 0)
        return code;
    if (end.n_entries > limits->zip_entries)
        return wfs_fail(err, E2BIG, "zip: %s above the limit of %llu (limit zip_entries)",
                        wfs_count_as(end.n_entries, "entry is", "entries are").text,
                        (unsigned long long)limits->zip_entries);
    if (end.n_directory > limits->zip_directory)
        return wfs_fail(
            err, E2BIG, "zip: a directory of %s is above the limit of %llu (limit zip_directory)",
            wfs_count(end.n_directory, "byte").text, (unsigned long long)limits->zip_directory);
    zip->directory = end.directory;
    zip->n_trailing = end.n_trailing;
    zip->n_between = end.n_between;
    if ((code = read_directory(zip, &end, limits, err)) < 0 ||
        (code = check_overlaps(zip, err)) < 0)
        return code;
    return index_names(zip, err);
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
            return wfs_fail(err, E2BIG, "zip: the name %s is too long", name_of(entry).text);
        /* The pickle is read later, which checks that the file has not changed. */
        const int code =
            source_read_unchecked(NULL, zip->source, zip->start + entry->header, zip->window, n);
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
        return wfs_fail(err, EOPNOTSUPP, "zip: entry %s %s", name_of(entry).text, trouble);
    const int code = read_header(zip, entry, &header, err);
    if (code < 0)
        return code;
    trouble = disagreement(entry, header);
    if (trouble != NULL)
        return wfs_fail(err, EBADMSG, "zip: entry %s %s", name_of(entry).text, trouble);
    const uint64_t data = entry->header + HEADER_BYTES + entry->n_name + load_le16(header + 28);
    const uint64_t next =
        entry + 1 < zip->entries + zip->n_entries ? entry[1].header : zip->directory;
    if (data > next || entry->n_packed > next - data)
        return wfs_fail(err, EBADMSG, "zip: entry %s of %s at %llu runs into the next one at %llu",
                        name_of(entry).text, wfs_count(entry->n_packed, "byte").text,
                        (unsigned long long)data, (unsigned long long)next);
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

int zip_verify(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err)
{
    const struct wfs_quoted name = name_of(entry);
    const struct deflated member = {entry->data, entry->n_packed, entry->n_bytes};
    struct inflated found = {.n_bytes = entry->n_bytes};
    const int code = entry->method == ZIP_DEFLATED
                         ? inflate_all(zip->source, &member, &found)
                         : stored_crc(zip->source, entry->data, entry->n_bytes, &found.crc);
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG, "zip: the compressed data of entry %s is damaged", name.text);
    if (code < 0)
        return wfs_fail(err, -code, "cannot read entry %s", name.text);
    if (found.n_bytes != entry->n_bytes)
        return wfs_fail(err, EBADMSG, "zip: entry %s inflates to %s than %s", name.text,
                        found.n_bytes < entry->n_bytes ? "fewer" : "more",
                        wfs_count(entry->n_bytes, "byte").text);
    /* PyTorch has an option not to compute any. */
    if (entry->crc != found.crc && entry->crc != 0)
        return wfs_fail(err, EBADMSG, "zip: entry %s has the checksum %08x, expected %08x",
                        name.text, found.crc, entry->crc);
    return 0;
}
