/* SPDX-License-Identifier: MIT */
/*
 * Records as text, and back.
 */
#include "tree/stage/journal.h"
#include <weightfs/percent.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct kind {
    enum wfs_record_kind kind;
    enum journal_claim claim;
    unsigned n_words_min, n_words_max;
};

static const struct kind kinds[] = {
    {WFS_RECORD_RUN, JOURNAL_COMMIT, 1, 1},       {WFS_RECORD_FILE, JOURNAL_GROWTH, 1, 1},
    {WFS_RECORD_DIRECTORY, JOURNAL_GROWTH, 1, 1}, {WFS_RECORD_EDIT, JOURNAL_CHANGE, 5, 5},
    {WFS_RECORD_SYNC, JOURNAL_COMMIT, 3, 3},      {WFS_RECORD_MOVE, JOURNAL_CHANGE, 3, 3},
    {WFS_RECORD_REMOVE, JOURNAL_CHANGE, 1, 1},    {WFS_RECORD_LINK, JOURNAL_GROWTH, 2, 2},
    {WFS_RECORD_ATTR, JOURNAL_CHANGE, 2, 3},      {WFS_RECORD_REVERT, JOURNAL_CHANGE, 1, 1},
    {WFS_RECORD_COMMIT, JOURNAL_COMMIT, 2, 2},    {WFS_RECORD_COMPLETE, JOURNAL_COMMIT, 5, 5},
    {WFS_RECORD_PUBLISHED, JOURNAL_COMMIT, 0, 0},
};

/* NULL: not a kind. */
static const struct kind *find_kind(enum wfs_record_kind kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (kinds[i].kind == kind)
            return &kinds[i];
    }
    return NULL;
}

bool record_is_change(enum wfs_record_kind kind)
{
    return record_claim(kind) != JOURNAL_COMMIT;
}

enum journal_claim record_claim(enum wfs_record_kind kind)
{
    return find_kind(kind)->claim;
}

bool record_is_complete(const struct wfs_record *record)
{
    const struct kind *kind = find_kind(record->kind);
    return record->n_words >= kind->n_words_min && record->n_words <= kind->n_words_max;
}

void record_begin(struct strbuf *text, enum wfs_record_kind kind)
{
    const char letter = (char)kind;
    strbuf_add(text, &letter, 1);
}

void record_word(struct strbuf *text, const char *word, size_t n_bytes)
{
    strbuf_puts(text, n_bytes == 0 ? " %" : " ");
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)word[i];
        char code[PERCENT_N + 1];
        const bool is_coded = c <= ' ' || c == 0x7f || c == '%';
        if (is_coded)
            percent_encode(c, code);
        strbuf_add(text, is_coded ? code : &word[i], is_coded ? PERCENT_N : 1);
    }
}

void record_puts(struct strbuf *text, const char *word)
{
    record_word(text, word, strlen(word));
}

void record_number(struct strbuf *text, uint64_t number)
{
    strbuf_printf(text, " %" PRIu64, number);
}

/* Decodes up to the end, in place. */
static int decode(char *word)
{
    char *out = word;
    if (strcmp(word, "%") == 0)
        *word = '\0';
    for (const char *in = word; *in != '\0'; in++) {
        if (*in != '%')
            *out++ = *in;
        else if (percent_decode(in, strnlen(in, PERCENT_N), out++))
            in += PERCENT_N - 1;
        else
            return -EBADMSG;
    }
    *out = '\0';
    return 0;
}

int record_parse(char *text, struct wfs_record *ret)
{
    enum { N_WORDS = sizeof(ret->words) / sizeof(*ret->words) };
    char *at = text + 1;
    *ret = (struct wfs_record){.kind = (enum wfs_record_kind)text[0]};
    if (find_kind(ret->kind) == NULL || (*at != ' ' && *at != '\0'))
        return -EBADMSG;
    for (bool has_more = *at == ' '; has_more;) {
        char *word = ++at;
        at += strcspn(at, " ");
        has_more = *at == ' ';
        *at = '\0';
        if (at == word || ret->n_words == N_WORDS || decode(word) < 0)
            return -EBADMSG;
        ret->words[ret->n_words++] = word;
    }
    return 0;
}

int record_to_number(const struct wfs_record *record, unsigned i, uint64_t *ret)
{
    uint64_t number = 0;
    const char *at = i < record->n_words ? record->words[i] : "";
    if (*at == '\0')
        return -EBADMSG;
    for (; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return -EBADMSG;
    }
    *ret = number;
    return 0;
}
