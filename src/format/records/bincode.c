/* SPDX-License-Identifier: MIT */
/*
 * The metadata of a record in bincode: five texts, each a length and its bytes.
 */
#include "format/records/bincode.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

enum { N_TEXTS = 5, N_TYPE_MAX = 100, N_LENGTH_MAX = 250 };

enum { TEXT_FLOAT, TEXT_INT, TEXT_FORMAT, TEXT_VERSION, TEXT_SETTINGS };

struct text {
    const char *bytes;
    size_t n_bytes;
};

/* A length takes one byte up to 250; longer texts have not been seen, for names of recorders with
 * two bytes more. */
static bool take_text(struct cursor *cursor, struct text *ret)
{
    const uint8_t *bytes;
    uint8_t length;
    uint16_t n;
    if (!cursor_u8(cursor, &length))
        return false;
    n = length;
    if (length > N_LENGTH_MAX && (length != N_LENGTH_MAX + 1 || !cursor_le16(cursor, &n)))
        return false;
    if (!cursor_take(cursor, n, &bytes))
        return false;
    *ret = (struct text){(const char *)bytes, n};
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7e)
            return false;
    }
    return n > 0;
}

static bool take_texts(const uint8_t *head, size_t n_head, struct text texts[N_TEXTS])
{
    struct cursor cursor = cursor_of(head, n_head);
    for (int i = 0; i < N_TEXTS; i++) {
        if (!take_text(&cursor, &texts[i]))
            return false;
    }
    return texts[TEXT_FLOAT].n_bytes <= N_TYPE_MAX && texts[TEXT_INT].n_bytes <= N_TYPE_MAX;
}

bool bincode_probe(const uint8_t *head, size_t n_head)
{
    static const char module[] = "burn_core::record::";
    struct text texts[N_TEXTS];
    return take_texts(head, n_head, texts) &&
           memmem(texts[TEXT_FORMAT].bytes, texts[TEXT_FORMAT].n_bytes, module,
                  sizeof(module) - 1) != NULL;
}

/* The last component of a path of Rust without its parameters. */
static struct text name_of(struct text path)
{
    const char *end = memchr(path.bytes, '<', path.n_bytes);
    const size_t n = end == NULL ? path.n_bytes : (size_t)(end - path.bytes);
    size_t start = n;
    while (start > 0 && path.bytes[start - 1] != ':')
        start--;
    return (struct text){path.bytes + start, n - start};
}

int bincode_refuse(const uint8_t *head, size_t n_head, struct wfs_error *err)
{
    struct text texts[N_TEXTS];
    if (!take_texts(head, n_head, texts))
        return wfs_fail(err, EMEDIUMTYPE, "is not a record of Burn");
    const struct text name = name_of(texts[TEXT_FORMAT]);
    return wfs_fail(
        err, EOPNOTSUPP,
        "is a file of Burn's %s (Burn %s, %s), which has no names and no types: load it with that "
        "Burn and save it with NamedMpkFileRecorder",
        wfs_quote_n(name.bytes, name.n_bytes).text,
        wfs_quote_n(texts[TEXT_VERSION].bytes, texts[TEXT_VERSION].n_bytes).text,
        wfs_quote_n(texts[TEXT_SETTINGS].bytes, texts[TEXT_SETTINGS].n_bytes).text);
}
