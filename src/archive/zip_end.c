/* SPDX-License-Identifier: MIT */
/*
 * The end records of a zip: found backwards from the end, checked against each other and the file.
 */
#include "archive/zip_end.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"

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
};

static bool has_signature(const uint8_t *bytes, uint8_t third, uint8_t fourth)
{
    return bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == third && bytes[3] == fourth;
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
    if (!has_signature(locator, 6, 7))
        return 0;
    const uint64_t offset = load_le64(locator + 8);
    if (load_le32(locator + 4) != 0 || load_le32(locator + 16) > 1)
        return wfs_fail(err, EOPNOTSUPP, "multi-part zips are not supported");
    if (locator_at < END64_BYTES || offset > locator_at - END64_BYTES)
        return wfs_fail(err, EBADMSG, "zip: the zip64 end record at %llu is beyond %llu",
                        (unsigned long long)offset, (unsigned long long)locator_at);
    if ((code = source_read(source, start + offset, large, sizeof(large))) < 0)
        return wfs_fail(err, -code, "cannot read the end of the zip");
    if (!has_signature(large, 6, 6))
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
        if (n_tail - i < END_BYTES || !has_signature(tail + i, 5, 6) ||
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

/* Most zips have no comment: their record is the very end. */
int zip_end_find(const struct source *source, uint64_t start, uint64_t n_bytes, struct zip_end *end,
                 struct wfs_error *err)
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
