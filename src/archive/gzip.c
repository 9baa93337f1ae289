/* SPDX-License-Identifier: MIT */
/*
 * A gzip file: members, each a header, raw deflate, and a trailer of CRC-32 and length.
 */
#include "archive/gzip.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "archive/inflate.h"
#include "base/bytes.h"
#include "base/search.h"
#include "base/stream.h"

enum { HEADER = 10, TRAILER = 8, N_MEMBERS_MAX = 65536 };
enum { FLAG_CRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FLAGS_RESERVED = 0xe0 };

struct member {
    uint64_t start; /* in the content */
    struct deflated deflated;
};

struct gzip {
    struct member *members; /* malloc'ed */
    size_t n_members, n_room;
    struct inflater *inflater;
};

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

/* ---- members ---- */

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

static int check_trailer(const struct source *file, uint64_t offset, uint32_t crc, uint64_t n_bytes,
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
    facts->has_other_crc = facts->has_other_crc || load_le32(trailer) != crc;
    facts->has_other_size = facts->has_other_size || load_le32(trailer + 4) != (uint32_t)n_bytes;
    return 0;
}

/* Adds the member at the offset, and moves behind it. */
static int add_member(struct source *content, const struct source *file, uint64_t *offset,
                      struct gzip_facts *facts)
{
    struct gzip *gzip = content->ctx;
    struct member member = {.start = content->n_bytes, .deflated = {.n_bytes = UINT64_MAX}};
    uint64_t n_bytes, n_packed, end;
    uint32_t crc;
    int code = find_data(file, *offset, &member.deflated.offset);
    if (code < 0)
        return code == -ENODATA ? -EBADMSG : code;
    member.deflated.n_packed = file->n_bytes - member.deflated.offset;
    code = inflate_measure(file, &member.deflated, &crc, &n_bytes, &n_packed);
    if (code < 0)
        return code;
    member.deflated.n_bytes = n_bytes;
    member.deflated.n_packed = n_packed;
    if (!checked_add(content->n_bytes, n_bytes, &end) || end > INT64_MAX)
        return -EOVERFLOW;
    if (array_reserve(&gzip->members, sizeof(*gzip->members), gzip->n_members, 1, &gzip->n_room) <
        0)
        return -ENOMEM;
    gzip->members[gzip->n_members++] = member;
    content->n_bytes = end;
    *offset = member.deflated.offset + n_packed;
    code = check_trailer(file, *offset, crc, n_bytes, facts);
    *offset += file->n_bytes - *offset < TRAILER ? file->n_bytes - *offset : TRAILER;
    return code;
}

static bool has_member(const struct source *file, uint64_t offset)
{
    uint8_t head[HEADER];
    return file->n_bytes - offset >= HEADER && source_read(file, offset, head, HEADER) == 0 &&
           gzip_probe(head, HEADER);
}

static int fail_member(const struct gzip *gzip, uint64_t offset, int code, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code == -EIO)
        return wfs_fail(err, EIO, "cannot read its gzip data");
    return wfs_fail(err, EBADMSG,
                    "the gzip data is damaged or cut: member %zu, at byte %" PRIu64
                    ", cannot be decompressed to its end",
                    gzip->n_members + 1, offset);
}

static int add_members(struct source *content, const struct source *file, struct gzip_facts *facts,
                       struct wfs_error *err)
{
    const struct gzip *gzip = content->ctx;
    uint64_t offset = 0;
    do {
        const uint64_t start = offset;
        if (gzip->n_members == N_MEMBERS_MAX)
            return wfs_fail(err, E2BIG, "the gzip data has more than %d members", N_MEMBERS_MAX);
        const int code = add_member(content, file, &offset, facts);
        if (code < 0)
            return fail_member(gzip, start, code, err);
    } while (has_member(file, offset));
    facts->n_members = gzip->n_members;
    facts->n_trailing = file->n_bytes - offset;
    return 0;
}

/* ---- the source ---- */

/* Returns the last member that begins at or before the offset. */
static size_t member_at(const struct gzip *gzip, uint64_t offset)
{
    return search_starts(gzip->members, gzip->n_members, sizeof(*gzip->members),
                         offsetof(struct member, start), offset) -
           1;
}

static int read_content(const struct source *content, uint64_t offset, void *buf, size_t n_bytes)
{
    const struct gzip *gzip = content->ctx;
    uint8_t *at = buf;
    int code = 0;
    while (n_bytes > 0 && code == 0) {
        const size_t i = member_at(gzip, offset);
        const struct member *member = &gzip->members[i];
        const uint64_t from = offset - member->start, n_left = member->deflated.n_bytes - from;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        code = inflater_read(gzip->inflater, (uint32_t)i, &member->deflated, from, at, n);
        at += n;
        offset += n;
        n_bytes -= n;
    }
    return code;
}

static void free_content(struct source *content)
{
    struct gzip *gzip = content->ctx;
    inflater_free(gzip->inflater);
    free(gzip->members);
    free(gzip);
}

int gzip_open(struct source *file, struct source **out, struct gzip_facts *facts,
              struct wfs_error *err)
{
    struct source *content;
    struct gzip *gzip = calloc(1, sizeof(*gzip));
    *facts = (struct gzip_facts){0};
    if (gzip == NULL || inflater_new(file, &gzip->inflater) < 0 ||
        source_new_memory(file->path, NULL, 0, &content) < 0) {
        if (gzip != NULL)
            inflater_free(gzip->inflater);
        free(gzip);
        return wfs_fail_memory(err);
    }
    content->ctx = gzip;
    content->read = read_content;
    content->done = free_content;
    content->origin = file;
    const int code = add_members(content, file, facts, err);
    if (code < 0)
        source_free(content);
    else
        *out = content;
    return code;
}
