/* SPDX-License-Identifier: MIT */
/*
 * Fields are moved together in place: a field is never longer than what it is read from.
 */
#include "cli/manifest.h"

#include <weightfs/array.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES_MAX = 1 << 30 }; /* 5 million lines */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* ---- one line ---- */

/* A line, which what continues it belongs to, and where its next field goes. */
struct cursor {
    char *at, *end;
    size_t number;
    struct wfs_error *err;
};

static void skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_blank(*cursor->at))
        cursor->at++;
}

/* Takes n hexadecimal digits, among which a terminal may have broken the line. */
static const char *take_digits(struct cursor *cursor, size_t n)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    skip_blanks(cursor);
    char *start = cursor->at;
    for (size_t i = 0; i < n; i++) {
        skip_blanks(cursor);
        if (cursor->at == cursor->end || strchr(digits, *cursor->at) == NULL)
            return NULL;
        start[i] = *cursor->at++;
        start[i] |= start[i] >= 'A' ? 0x20 : 0;
    }
    if (cursor->at == cursor->end || !is_blank(*cursor->at))
        return NULL;
    start[n] = '\0';
    cursor->at++;
    return start;
}

/* Takes all up to the character `last`, which stays, without blanks; *ret_end is behind it. */
static char *take_until(struct cursor *cursor, char last, char **ret_end)
{
    char *start = cursor->at, *to = start;
    for (; cursor->at < cursor->end && *cursor->at != last; cursor->at++) {
        if (!is_blank(*cursor->at))
            *to++ = *cursor->at;
    }
    *ret_end = to;
    return start;
}

static int fail_line(const struct cursor *cursor, const char *expected)
{
    return wfs_fail(cursor->err, EBADMSG,
                    "line %zu: %s; lines are those that 'weightfs sum' prints", cursor->number,
                    expected);
}

static bool take_dtype(struct cursor *cursor, struct manifest_line *ret)
{
    char *end;
    ret->dtype = take_until(cursor, '[', &end);
    if (end == ret->dtype || end == cursor->at || cursor->at == cursor->end)
        return false;
    *end = '\0';
    return true;
}

/* What stands for the bracket and the blank behind it can be overwritten. */
static bool take_shape(struct cursor *cursor, struct manifest_line *ret)
{
    char *end;
    ret->shape = take_until(cursor, ']', &end);
    if (cursor->end - cursor->at < 2 || !is_blank(cursor->at[1]))
        return false;
    cursor->at += 2;
    memcpy(end, "]", 2);
    return true;
}

/* The byte behind the line can be overwritten. */
static int parse_line(struct cursor *cursor, struct manifest_line *ret)
{
    char *end;
    *ret = (struct manifest_line){.number = cursor->number};
    ret->sha256 = take_digits(cursor, MANIFEST_N_SHA256);
    if (ret->sha256 == NULL)
        return fail_line(cursor, "expected 64 hexadecimal digits");
    ret->xxh3 = take_digits(cursor, MANIFEST_N_XXH3);
    if (ret->xxh3 == NULL)
        return fail_line(cursor, "expected 16 hexadecimal digits after the first 64");
    if (!take_dtype(cursor, ret))
        return fail_line(cursor, "expected a dtype after the digits, and a shape such as [2,3]");
    if (!take_shape(cursor, ret))
        return fail_line(cursor, "expected a key after the shape");
    char *key = take_until(cursor, '\0', &end);
    *end = '\0';
    wfs_unescape(key);
    ret->key = key;
    return 0;
}

/* ---- all of them ---- */

static int add_line(struct manifest *manifest, struct cursor *cursor)
{
    if (array_reserve(&manifest->lines, sizeof(*manifest->lines), manifest->n_lines, 1,
                      &manifest->n_lines_room) < 0)
        return wfs_fail_memory(cursor->err);
    const int code = parse_line(cursor, &manifest->lines[manifest->n_lines]);
    if (code == 0)
        manifest->parts[manifest->n_parts - 1].end = ++manifest->n_lines;
    return code;
}

static int add_part(struct manifest *manifest, const char *source, struct wfs_error *err)
{
    if (array_reserve(&manifest->parts, sizeof(*manifest->parts), manifest->n_parts, 1,
                      &manifest->n_parts_room) < 0)
        return wfs_fail_memory(err);
    manifest->parts[manifest->n_parts++] =
        (struct manifest_part){source, manifest->n_lines, manifest->n_lines};
    return 0;
}

static bool skip_word(struct cursor *cursor, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(cursor);
    const bool has_word =
        (size_t)(cursor->end - cursor->at) >= n && memcmp(cursor->at, word, n) == 0;
    cursor->at += has_word ? n : 0;
    return has_word;
}

/* Reads a heading, a comment or a line. */
static int parse_one(struct manifest *manifest, struct cursor *cursor)
{
    char *end;
    if (*cursor->at != '#') {
        const int code = manifest->n_parts == 0 ? add_part(manifest, NULL, cursor->err) : 0;
        return code < 0 ? code : add_line(manifest, cursor);
    }
    if (!skip_word(cursor, "#") || !skip_word(cursor, "weightfs") || !skip_word(cursor, "sum") ||
        cursor->at == cursor->end || !is_blank(*cursor->at))
        return 0;
    char *source = take_until(cursor, '\0', &end);
    *end = '\0';
    wfs_unescape(source);
    return add_part(manifest, source, cursor->err);
}

/* Finds the end of the line at the cursor, with those that continue it. Returns how many there are.
 */
static size_t find_end(struct cursor *cursor, char *text_end)
{
    size_t n_lines = 0;
    char *end = cursor->at;
    do {
        end = memchr(end, '\n', (size_t)(text_end - end));
        n_lines++;
        end = end == NULL ? text_end : end + 1;
    } while (end < text_end && (*end == ' ' || *end == '\t'));
    cursor->end = end == text_end ? end : end - 1;
    return n_lines;
}

static int parse_all(struct manifest *manifest, size_t n_bytes, struct wfs_error *err)
{
    struct cursor cursor = {.at = manifest->text, .number = 1, .err = err};
    char *text_end = manifest->text + n_bytes;
    int code = 0;
    if (memchr(manifest->text, '\0', n_bytes) != NULL)
        return wfs_fail(err, EBADMSG, "it contains a NUL: it is not a text");
    while (cursor.at < text_end && code == 0) {
        const size_t n_lines = find_end(&cursor, text_end);
        char *next = cursor.end < text_end ? cursor.end + 1 : text_end;
        skip_blanks(&cursor);
        if (cursor.at < cursor.end)
            code = parse_one(manifest, &cursor);
        cursor.at = next;
        cursor.number += n_lines;
    }
    return code;
}

static int by_key(const void *a, const void *b)
{
    const struct manifest_line *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static int sort_parts(struct manifest *manifest, struct wfs_error *err)
{
    for (size_t i = 0; i < manifest->n_parts; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        struct manifest_line *lines = manifest->lines;
        if (part->start < part->end)
            qsort(lines + part->start, part->end - part->start, sizeof(*lines), by_key);
        for (size_t k = part->start + 1; k < part->end; k++) {
            if (strcmp(lines[k - 1].key, lines[k].key) == 0)
                return wfs_fail(err, EBADMSG, "duplicate key in lines %zu and %zu: '%s'",
                                lines[k - 1].number, lines[k].number, wfs_quote(lines[k].key).text);
        }
    }
    return 0;
}

int manifest_parse(char *text, size_t n_bytes, struct manifest *ret, struct wfs_error *err)
{
    *ret = (struct manifest){.text = text};
    const int code = parse_all(ret, n_bytes, err);
    return code < 0 ? code : sort_parts(ret, err);
}

void manifest_done(struct manifest *manifest)
{
    free(manifest->text);
    free(manifest->lines);
    free(manifest->parts);
    *manifest = (struct manifest){0};
}

struct manifest_line *manifest_find(const struct manifest *manifest,
                                    const struct manifest_part *part, const char *key)
{
    const struct manifest_line wanted = {.key = key};
    if (part->start == part->end)
        return NULL;
    return bsearch(&wanted, manifest->lines + part->start, part->end - part->start,
                   sizeof(*manifest->lines), by_key);
}

/* ---- the file ---- */

static int read_all(FILE *file, struct strbuf *text, struct wfs_error *err)
{
    char piece[1 << 16];
    for (size_t n; (n = fread(piece, 1, sizeof(piece), file)) > 0;) {
        strbuf_add(text, piece, n);
        if (text->n_bytes > N_BYTES_MAX)
            return wfs_fail(err, E2BIG, "it has more than %d bytes", N_BYTES_MAX);
    }
    if (ferror(file))
        return wfs_fail(err, errno, "cannot read: %s", strerror(errno));
    strbuf_puts(text, "");
    return text->has_failed ? wfs_fail_memory(err) : 0;
}

int manifest_read(const char *path, struct manifest *ret, struct wfs_error *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    autostrbuf struct strbuf text = {0};
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (file == NULL)
        return wfs_fail(err, errno, "cannot open: %s", strerror(errno));
    const int code = read_all(file, &text, err);
    if (!is_stdin)
        fclose(file);
    return code < 0 ? code : manifest_parse(steal(&text.bytes), text.n_bytes, ret, err);
}
