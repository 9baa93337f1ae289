/* SPDX-License-Identifier: MIT */
/*
 * Messages for files that are not checkpoints, written for the person who downloaded them.
 */
#include "format/signatures.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/utf8.h"

struct magic {
    const char *bytes;
    uint8_t n_bytes;
    uint8_t offset;
    const char *what;
};

#define MAGIC(offset, bytes, what)                                                                 \
    {                                                                                              \
        bytes, sizeof(bytes) - 1, offset, what                                                     \
    }

static const struct magic magics[] = {
    MAGIC(0, "\x1f\x8b", "is gzip data: decompress it first"),
    MAGIC(0, "BZh", "is bzip2 data: decompress it first"),
    MAGIC(0,
          "\xfd"
          "7zXZ\0",
          "is xz data: decompress it first"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "is zstd data: decompress it first"),
    MAGIC(0, "\x04\x22\x4d\x18", "is lz4 data: decompress it first"),
    MAGIC(0, "7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it first"),
    MAGIC(0, "Rar!\x1a\x07", "is a RAR archive: unpack it first"),
    MAGIC(0, "PK\5\6", "is an empty zip archive, not a checkpoint"),
    MAGIC(0, "FUGG", "is a GGUF file with a swapped magic number, which no program reads"),
    MAGIC(0, "lmgg", "is a GGML file (old llama.cpp), a format that weightfs does not read"),
    MAGIC(0, "fmgg", "is a GGML file (old llama.cpp), a format that weightfs does not read"),
    MAGIC(0, "tjgg", "is a GGML file (old llama.cpp), a format that weightfs does not read"),
    MAGIC(0, "\x89HDF\r\n\x1a\n", "is an HDF5 file (Keras?), a format that weightfs does not read"),
    MAGIC(0, "\x93NUMPY", "is a single NumPy array (.npy), not a checkpoint"),
    MAGIC(4, "TFL3", "is a TensorFlow Lite model, a format that weightfs does not read"),
    MAGIC(0, "PAR1", "is a Parquet file, not a checkpoint"),
    MAGIC(0, "ARROW1", "is an Arrow file, not a checkpoint"),
    MAGIC(0, "SQLite format 3", "is an SQLite database, not a checkpoint"),
    MAGIC(0, "\x89PNG\r\n\x1a\n", "is a PNG picture, not a checkpoint"),
    MAGIC(0, "\xff\xd8\xff", "is a JPEG picture, not a checkpoint"),
    MAGIC(0, "GIF8", "is a GIF picture, not a checkpoint"),
    MAGIC(0, "%PDF-", "is a PDF document, not a checkpoint"),
    MAGIC(0,
          "\x7f"
          "ELF",
          "is a program or library (ELF), not a checkpoint"),
};

/* The text at the front of a file, to be compared without regard to case and leading white space.
 */
struct opening {
    const char *at;
    size_t n_bytes;
};

static struct opening opening_of(const uint8_t *head, size_t n_head)
{
    struct opening opening = {(const char *)head, n_head};
    if (n_head >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) {
        opening.at += 3;
        opening.n_bytes -= 3;
    }
    while (opening.n_bytes > 0 && strchr(" \t\r\n", *opening.at) != NULL && *opening.at != '\0') {
        opening.at++;
        opening.n_bytes--;
    }
    return opening;
}

static bool begins(struct opening opening, const char *word)
{
    const size_t n = strlen(word);
    return opening.n_bytes >= n && strncasecmp(opening.at, word, n) == 0;
}

static int foreign(struct wfs_error *err, const char *what)
{
    return wfs_fail(err, EMEDIUMTYPE, "%s", what);
}

static int check_zeros(const uint8_t *head, size_t n_head, const struct source *source,
                       struct wfs_error *err)
{
    if (n_head == 0)
        return foreign(err, "is empty (0 bytes)");
    for (size_t i = 0; i < n_head; i++) {
        if (head[i] != 0)
            return 0;
    }
    if (n_head == source->n_bytes)
        return wfs_fail(err, EMEDIUMTYPE, "is all zeros (%s): a failed download?",
                        wfs_count(n_head, "byte").text);
    return wfs_fail(err, EMEDIUMTYPE,
                    "begins with %s where a header should be: an unfinished download?",
                    wfs_count(n_head, "zero").text);
}

/* "version https://git-lfs.github.com/spec/v1", then lines of which one is "size N". */
static int check_lfs(struct opening opening, struct wfs_error *err)
{
    if (!begins(opening, "version https://git-lfs") && !begins(opening, "version https://hawser"))
        return 0;
    const char *size = memmem(opening.at, opening.n_bytes, "\nsize ", 6);
    char digits[21] = "";
    if (size != NULL) {
        const size_t n_left = opening.n_bytes - (size_t)(size + 6 - opening.at);
        for (size_t i = 0; i < n_left && i < 20 && isdigit((unsigned char)size[6 + i]); i++)
            digits[i] = size[6 + i];
    }
    return wfs_fail(err, EMEDIUMTYPE,
                    "is a Git LFS pointer, not the file itself%s%s%s: run 'git lfs pull'",
                    *digits ? " (real size " : "", digits, *digits ? " bytes)" : "");
}

static int check_markup(struct opening opening, struct wfs_error *err)
{
    if (begins(opening, "<!doctype html") || begins(opening, "<html") || begins(opening, "<head") ||
        begins(opening, "<body"))
        return foreign(err, "is an HTML page, possibly the error page of a download");
    if (begins(opening, "<?xml") || begins(opening, "<error"))
        return foreign(err, "is an XML document, possibly the error page of a download");
    return 0;
}

/* A protobuf of field 1 (the version, small) and field 2 (the producer) or 7 (the graph). */
static bool is_onnx(const uint8_t *head, size_t n_head)
{
    return n_head >= 4 && head[0] == 0x08 && head[1] >= 1 && head[1] <= 32 &&
           (head[2] == 0x3a || (head[2] == 0x12 && head[3] > 0 && head[3] < 64 &&
                                n_head > 4u + head[3] && isalpha(head[4])));
}

/* A map of a few pairs, or of 16 bits' worth, whose first key is a short string. */
static bool is_msgpack(const uint8_t *head, size_t n_head)
{
    const size_t n_map = n_head > 0 && head[0] == 0xde ? 3 : 1;
    return n_head > n_map + 1 && ((head[0] >= 0x81 && head[0] <= 0x8f) || head[0] == 0xde) &&
           head[n_map] >= 0xa1 && head[n_map] <= 0xbf && isgraph(head[n_map + 1]);
}

/* Printable UTF-8 with the usual white space, as far as the head goes; a character that is
 * cut at its end is allowed. */
static bool is_text(const uint8_t *head, size_t n_head)
{
    for (size_t i = 0; i < n_head; i++) {
        if ((head[i] < 0x20 && strchr("\t\n\r\f", head[i]) == NULL) || head[i] == 0x7f ||
            head[i] == 0)
            return false;
    }
    const size_t n_valid = utf8_valid(head, n_head);
    return n_valid == n_head || (n_head - n_valid < 4 && head[n_valid] >= 0xc2);
}

static int check_text(const uint8_t *head, size_t n_head, struct wfs_error *err)
{
    const struct opening opening = opening_of(head, n_head);
    if (!is_text(head, n_head))
        return 0;
    if (begins(opening, "{") || begins(opening, "["))
        return foreign(err, "is a JSON document, possibly the error message of a download");
    if (begins(opening, "#!") || begins(opening, "import ") || begins(opening, "from "))
        return foreign(err, "is source code, not a checkpoint");
    const size_t n = opening.n_bytes < 32 ? opening.n_bytes : 32;
    return wfs_fail(err, EMEDIUMTYPE, "is text, not a checkpoint: it begins with '%s'",
                    wfs_quote_n(opening.at, n).text);
}

/* Signatures of at least n_least bytes. */
static int compare_magics(const uint8_t *head, size_t n_head, uint8_t n_least,
                          struct wfs_error *err)
{
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        const struct magic *magic = &magics[i];
        if (magic->n_bytes >= n_least && n_head >= (size_t)magic->offset + magic->n_bytes &&
            memcmp(head + magic->offset, magic->bytes, magic->n_bytes) == 0)
            return foreign(err, magic->what);
    }
    return 0;
}

int signatures_compare(const uint8_t *head, size_t n_head, struct wfs_error *err)
{
    return compare_magics(head, n_head, 4, err);
}

int signatures_guess(const uint8_t *head, size_t n_head, const struct source *source,
                     struct wfs_error *err)
{
    const struct opening opening = opening_of(head, n_head);
    int code = check_zeros(head, n_head, source, err);
    if (code == 0)
        code = check_lfs(opening, err);
    if (code == 0)
        code = check_markup(opening, err);
    if (code == 0)
        code = compare_magics(head, n_head, 0, err);
    if (code == 0 && is_onnx(head, n_head))
        code = foreign(err, "is an ONNX model, a format that weightfs does not read");
    if (code == 0 && is_msgpack(head, n_head))
        code = foreign(err, "is a msgpack file (Flax?), a format that weightfs does not read");
    if (code == 0)
        code = check_text(head, n_head, err);
    return code;
}
