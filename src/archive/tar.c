/* SPDX-License-Identifier: MIT */
/*
 * Headers of ustar: name 0-99, size in octal at 124-135, checksum at 148-155, type at 156, "ustar"
 * at 257.
 */
#include "archive/tar.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum { MAX_MEMBERS = 10000 };

bool tar_probe(const uint8_t *head, size_t n_head)
{
    return n_head >= TAR_BLOCK && memcmp(head + 257, "ustar", 5) == 0;
}

static bool parse_octal(const uint8_t *field, size_t n, uint64_t *ret)
{
    size_t i = 0;
    *ret = 0;
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        *ret = *ret * 8 + (uint64_t)(field[i] - '0');
    return i == n || field[i] == ' ' || field[i] == '\0';
}

/* Reads octal digits, or a large number in binary after a set bit. */
static bool parse_size(const uint8_t *field, uint64_t *ret)
{
    if (field[0] != 0x80)
        return parse_octal(field, 12, ret);
    *ret = 0;
    for (size_t i = 4; i < 12; i++)
        *ret = *ret << 8 | field[i];
    return load_le32(field) == 0x80 && *ret <= INT64_MAX;
}

/* Checks the sum of all bytes, in which its own field counts as spaces. */
static bool has_checksum(const uint8_t *header)
{
    uint64_t sum = 0, wanted;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : header[i];
    return parse_octal(header + 148, 8, &wanted) && sum == wanted;
}

/* Copies the name of a member without "./", and ends it with a NUL. */
static void copy_name(const uint8_t *header, char ret[TAR_NAME_MAX])
{
    const size_t n_front = memcmp(header, "./", 2) == 0 ? 2 : 0;
    memcpy(ret, header + n_front, 100 - n_front);
    ret[100 - n_front] = '\0';
}

int tar_each(const struct source *source, tar_visit *visit, void *ctx, struct wfs_error *err)
{
    uint8_t header[TAR_BLOCK];
    char name[TAR_NAME_MAX];
    uint64_t offset = 0, n_bytes, end;
    for (unsigned n_members = 0; n_members < MAX_MEMBERS; n_members++) {
        if (source->n_bytes - offset < TAR_BLOCK)
            break;
        const int code = source_read(source, offset, header, sizeof(header));
        if (code < 0)
            return wfs_fail(err, -code, "cannot read the archive at byte %llu",
                            (unsigned long long)offset);
        if (header[0] == '\0')
            break;
        if (!has_checksum(header) || !parse_size(header + 124, &n_bytes))
            return wfs_fail(err, EBADMSG, "tar: the header at %llu is damaged",
                            (unsigned long long)offset);
        offset += TAR_BLOCK;
        if (n_bytes > source->n_bytes - offset)
            return wfs_fail(err, EBADMSG, "tar: a member of %s at %llu, but the file ends at %llu",
                            wfs_count(n_bytes, "byte").text, (unsigned long long)offset,
                            (unsigned long long)source->n_bytes);
        copy_name(header, name);
        if (header[156] == '0' || header[156] == '\0')
            visit(ctx, name, offset, n_bytes);
        if (!checked_round_up(n_bytes, TAR_BLOCK, &end) || end > source->n_bytes - offset)
            break;
        offset += end;
    }
    return 0;
}

struct search {
    const char *name;
    struct tar_member *found;
};

static void compare(void *ctx, const char *name, uint64_t offset, uint64_t n_bytes)
{
    const struct search *search = ctx;
    if (strcmp(name, search->name) == 0)
        *search->found = (struct tar_member){offset, n_bytes, search->found->n_same + 1};
}

int tar_find(const struct source *source, const char *name, struct tar_member *ret,
             struct wfs_error *err)
{
    struct tar_member found = {0};
    struct search search = {name, &found};
    const int code = tar_each(source, compare, &search, err);
    if (code < 0 || found.n_same == 0)
        return code < 0 ? code : -ENOENT;
    *ret = found;
    return 0;
}
