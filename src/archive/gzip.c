/* SPDX-License-Identifier: MIT */
/*
 * A gzip file: members, each a header, raw deflate, and a trailer of CRC-32 and length.
 */
#include "archive/gzip.h"

#include <weightfs/cleanup.h>
#include "archive/derived.h"
#include "base/bytes.h"
#include "base/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <zlib.h>

enum { HEADER = 10, TRAILER = 8, N_MEMBERS_MAX = 65536 };
enum { FLAG_CRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FLAGS_RESERVED = 0xe0 };

bool gzip_probe(const uint8_t *head, size_t n_head)
{
    return n_head >= HEADER && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8 &&
           (head[3] & FLAGS_RESERVED) == 0;
}

size_t gzip_peek(const uint8_t *head, size_t n_head, void *buf, size_t n_bytes)
{
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)head,
                  .avail_in = (uInt)n_head,
                  .next_out = buf,
                  .avail_out = (uInt)n_bytes};
    /* 16 more: with the header of gzip. */
    if (!gzip_probe(head, n_head) || inflateInit2(&z, MAX_WBITS + 16) != Z_OK)
        return 0;
    inflate(&z, Z_SYNC_FLUSH);
    inflateEnd(&z);
    return n_bytes - z.avail_out;
}

static int skip_text(struct stream *stream)
{
    const uint8_t *byte;
    int code;
    do
        code = stream_take(stream, 1, &byte);
    while (code == 0 && *byte != 0);
    return code;
}

/* Moves to the deflated data. -EBADMSG: no member begins here. */
static int skip_header(struct stream *stream)
{
    const uint8_t *bytes;
    int code = stream_take(stream, HEADER, &bytes);
    if (code < 0)
        return code;
    if (!gzip_probe(bytes, HEADER))
        return -EBADMSG;
    const uint8_t flags = bytes[3];
    if ((flags & FLAG_EXTRA) != 0 && (code = stream_take(stream, 2, &bytes)) == 0)
        code = stream_skip(stream, load_le16(bytes));
    if (code == 0 && (flags & FLAG_NAME) != 0)
        code = skip_text(stream);
    if (code == 0 && (flags & FLAG_COMMENT) != 0)
        code = skip_text(stream);
    if (code == 0 && (flags & FLAG_CRC) != 0)
        code = stream_skip(stream, 2);
    return code;
}

/* Finds the deflated data of the member at the offset. -ENODATA: the file ends before it. */
static int find_data(const struct source *file, uint64_t offset, uint64_t *ret)
{
    cleanup(stream_done) struct stream stream = {0};
    int code = stream_init(&stream, file, offset, file->n_bytes);
    if (code == 0)
        code = skip_header(&stream);
    *ret = stream_offset(&stream);
    return code;
}

static int check_trailer(const struct source *file, uint64_t offset, const struct inflated *member,
                         struct gzip_facts *facts)
{
    uint8_t trailer[TRAILER];
    if (file->n_bytes - offset < TRAILER) {
        facts->lacks_trailer = true;
        return 0;
    }
    const int code = source_read(file, offset, trailer, TRAILER);
    if (code < 0)
        return code;
    facts->has_other_crc = facts->has_other_crc || load_le32(trailer) != member->crc;
    facts->has_other_size =
        facts->has_other_size || load_le32(trailer + 4) != (uint32_t)member->n_bytes;
    return 0;
}

/* Adds the member at the offset, and moves behind it. */
static int add_member(struct source *content, const struct source *file, uint64_t *offset,
                      struct gzip_facts *facts)
{
    struct deflated member = {.n_bytes = UINT64_MAX};
    struct inflated inflated;
    int code = find_data(file, *offset, &member.offset);
    if (code < 0)
        return code == -ENODATA ? -EBADMSG : code;
    member.n_packed = file->n_bytes - member.offset;
    if ((code = inflate_all(file, &member, &inflated)) < 0)
        return code;
    member.n_bytes = inflated.n_bytes;
    member.n_packed = inflated.n_packed;
    if ((code = derived_append_deflated(content, &member)) < 0)
        return code;
    *offset = member.offset + member.n_packed;
    code = check_trailer(file, *offset, &inflated, facts);
    *offset += file->n_bytes - *offset < TRAILER ? file->n_bytes - *offset : TRAILER;
    facts->n_members++;
    return code;
}

static bool has_member(const struct source *file, uint64_t offset)
{
    uint8_t head[HEADER];
    return file->n_bytes - offset >= HEADER && source_read(file, offset, head, HEADER) == 0 &&
           gzip_probe(head, HEADER);
}

static int fail_member(uint64_t number, uint64_t offset, int code, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code == -EIO)
        return wfs_fail(err, EIO, "cannot read its gzip data");
    return wfs_fail(err, EBADMSG,
                    "the gzip data is damaged or cut: member %" PRIu64 ", at byte %" PRIu64
                    ", cannot be decompressed to its end",
                    number, offset);
}

static int add_members(struct source *content, const struct source *file, struct gzip_facts *facts,
                       struct wfs_error *err)
{
    uint64_t offset = 0;
    do {
        const uint64_t start = offset, number = facts->n_members + 1;
        if (number > N_MEMBERS_MAX)
            return wfs_fail(err, E2BIG, "the gzip data has more than %d members", N_MEMBERS_MAX);
        const int code = add_member(content, file, &offset, facts);
        if (code < 0)
            return fail_member(number, start, code, err);
    } while (has_member(file, offset));
    facts->n_trailing = file->n_bytes - offset;
    return 0;
}

int gzip_open(struct source *file, struct source **out, struct gzip_facts *facts,
              struct wfs_error *err)
{
    struct source *content;
    *facts = (struct gzip_facts){0};
    if (derived_new(file, &content) < 0)
        return wfs_fail_memory(err);
    const int code = add_members(content, file, facts, err);
    if (code < 0)
        source_free(content);
    else
        *out = content;
    return code;
}
