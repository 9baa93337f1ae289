/* SPDX-License-Identifier: MIT */
/*
 * Headers of a new zip. Local: PK 3 4, version, flags, method, time, date, crc, two sizes, lengths
 * of name and extra, then the name, a zip64 block if the size needs one, and a block 'FB' that pads
 * to the data. Central: PK 1 2 and the same with place and without padding.
 */
#include "format/core/zip_layout.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"

enum {
    ALIGNMENT = 64,
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 56 + 20 + 22,
    CRC_LOCAL = 14,
    CRC_CENTRAL = 16,
    PAD_HEADER = 4,
    FLAG_UTF8 = 0x0800,
    DATE = 0x21, /* the first day there is */
    VERSION_ZIP64 = 45,
};

#define ALL_ONES UINT64_C(0xffffffff)

uint32_t zip_crc(uint32_t crc, const void *bytes, size_t n_bytes)
{
    return (uint32_t)crc32_z(crc, bytes, n_bytes);
}

static uint32_t saturate(uint64_t number)
{
    return number < ALL_ONES ? (uint32_t)number : UINT32_MAX;
}

static int add_record(struct zip_writer *zip, const struct zip_record *record)
{
    if (array_reserve(&zip->records, sizeof(*zip->records), zip->n_records, 1, &zip->n_room) < 0)
        return -ENOMEM;
    zip->records[zip->n_records] = *record;
    zip->records[zip->n_records++].header = zip->offset - zip->start;
    return 0;
}

/* What both headers have between the version and the length of the name. */
static void store_facts(uint8_t *at, const struct zip_record *record)
{
    store_le16(at, FLAG_UTF8);
    store_le16(at + 6, DATE);
    store_le32(at + 8, record->crc);
    store_le32(at + 12, saturate(record->n_bytes));
    store_le32(at + 16, saturate(record->n_bytes));
    store_le16(at + 20, (uint16_t)record->n_name);
}

int zip_begin(struct zip_writer *zip, const struct zip_record *record, uint64_t *ret_data)
{
    const bool is_wide = record->n_bytes >= ALL_ONES;
    const size_t n_wide = is_wide ? 20 : 0;
    const size_t n_fixed = LOCAL_BYTES + record->n_name + n_wide + PAD_HEADER;
    uint64_t data, end;
    if (!checked_round_up(zip->offset + n_fixed, ALIGNMENT, &data) ||
        !checked_add(data, record->n_bytes, &end) || end > INT64_MAX)
        return -EFBIG;
    const size_t n_all = (size_t)(data - zip->offset), n_pad = n_all - n_fixed;
    uint8_t *header = arena_calloc(&zip->layout->arena, 1, n_all);
    if (header == NULL || add_record(zip, record) < 0)
        return -ENOMEM;
    memcpy(header, "PK\3\4", 4);
    store_le16(header + 4, is_wide ? VERSION_ZIP64 : 0);
    store_facts(header + 6, record);
    store_le16(header + 28, (uint16_t)(n_wide + PAD_HEADER + n_pad));
    memcpy(header + LOCAL_BYTES, record->name, record->n_name);
    uint8_t *at = header + LOCAL_BYTES + record->n_name;
    if (is_wide) {
        store_le16(at, 1);
        store_le16(at + 2, 16);
        store_le64(at + 4, record->n_bytes);
        store_le64(at + 12, record->n_bytes);
    }
    memcpy(at + n_wide, "FB", 2);
    store_le16(at + n_wide + 2, (uint16_t)n_pad);
    memset(at + n_wide + PAD_HEADER, 'Z', n_pad);
    *ret_data = data;
    const uint64_t start = zip->offset;
    zip->offset = end;
    return layout_add_crc(zip->layout, start, header, n_all, record->lazy, CRC_LOCAL);
}

/* In the zip64 block only what does not fit: size, size, place. */
static size_t store_wide(uint8_t *at, const struct zip_record *record)
{
    size_t n = 4;
    if (record->n_bytes >= ALL_ONES) {
        store_le64(at + n, record->n_bytes);
        store_le64(at + n + 8, record->n_bytes);
        n += 16;
    }
    if (record->header >= ALL_ONES) {
        store_le64(at + n, record->header);
        n += 8;
    }
    if (n == 4)
        return 0;
    store_le16(at, 1);
    store_le16(at + 2, (uint16_t)(n - 4));
    return n;
}

static int add_central(struct zip_writer *zip, const struct zip_record *record)
{
    uint8_t wide[28];
    const size_t n_wide = store_wide(wide, record);
    const size_t n_all = CENTRAL_BYTES + record->n_name + n_wide;
    uint8_t *entry = arena_calloc(&zip->layout->arena, 1, n_all);
    if (entry == NULL)
        return -ENOMEM;
    memcpy(entry, "PK\1\2", 4);
    store_le16(entry + 6, n_wide > 0 ? VERSION_ZIP64 : 0);
    store_facts(entry + 8, record);
    store_le16(entry + 30, (uint16_t)n_wide);
    store_le32(entry + 42, saturate(record->header));
    memcpy(entry + CENTRAL_BYTES, record->name, record->n_name);
    memcpy(entry + CENTRAL_BYTES + record->n_name, wide, n_wide);
    const int code =
        layout_add_crc(zip->layout, zip->offset, entry, n_all, record->lazy, CRC_CENTRAL);
    zip->offset += n_all;
    return code;
}

int zip_finish(struct zip_writer *zip)
{
    const uint64_t directory = zip->offset - zip->start, n = zip->n_records;
    int code = 0;
    for (size_t i = 0; i < zip->n_records && code == 0; i++)
        code = add_central(zip, &zip->records[i]);
    uint8_t *end = arena_calloc(&zip->layout->arena, 1, END_BYTES);
    if (code < 0 || end == NULL)
        return code < 0 ? code : -ENOMEM;
    const uint64_t n_directory = zip->offset - zip->start - directory;
    memcpy(end, "PK\6\6", 4);
    store_le64(end + 4, 44);
    store_le16(end + 12, 0x031e);
    store_le16(end + 14, VERSION_ZIP64);
    store_le64(end + 24, n);
    store_le64(end + 32, n);
    store_le64(end + 40, n_directory);
    store_le64(end + 48, directory);
    memcpy(end + 56, "PK\6\7", 4);
    store_le64(end + 64, zip->offset - zip->start);
    store_le32(end + 72, 1);
    memcpy(end + 76, "PK\5\6", 4);
    store_le16(end + 84, n < UINT16_MAX ? (uint16_t)n : UINT16_MAX);
    store_le16(end + 86, n < UINT16_MAX ? (uint16_t)n : UINT16_MAX);
    store_le32(end + 88, saturate(n_directory));
    store_le32(end + 92, saturate(directory));
    return layout_add_bytes(zip->layout, zip->offset, end, END_BYTES);
}

void zip_writer_done(struct zip_writer *zip)
{
    free(zip->records);
    *zip = (struct zip_writer){.layout = zip->layout};
}
