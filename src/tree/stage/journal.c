/* SPDX-License-Identifier: MIT */
/*
 * When a write or an fdatasync of the file has failed, its good part is copied and the copy takes
 * its place: the same descriptor could later report success for data that is not on the disk.
 */
#include "tree/stage/journal.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/percent.h>
#include <weightfs/stage.h>
#include <weightfs/strbuf.h>
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME "journal"
#define TEMPORARY "journal.tmp"

enum {
    N_PREFIX = 40,       /* bytes that are enough for CRC and sequence number */
    N_RESERVE = 1 << 16, /* unless more are asked for */
    N_STEP = 1 << 16,    /* bytes by which the room grows at least */
    N_COMMIT = 1 << 14,  /* bytes that are enough for the records of a commit */
    N_RESERVE_MAX = 16 << 20,
};

static uint32_t crc32c(const char *bytes, size_t n_bytes)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= (unsigned char)bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

void journal_init(struct journal *journal, int dir_fd)
{
    *journal = (struct journal){.dir_fd = dir_fd, .fd = -1, .n_reserve = N_RESERVE};
    pthread_mutex_init(&journal->lock, NULL);
}

void journal_done(struct journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = -1;
    pthread_mutex_destroy(&journal->lock);
}

/* ---- reading ---- */

struct reader {
    int fd;
    char *buffer; /* JOURNAL_LINE_MAX bytes and one more */
    size_t begin, end;
    uint64_t offset; /* in the file, of what follows the buffer */
};

static int fill(struct reader *reader)
{
    memmove(reader->buffer, reader->buffer + reader->begin, reader->end - reader->begin);
    reader->end -= reader->begin;
    reader->begin = 0;
    const ssize_t n = io_read_at(reader->fd, reader->buffer + reader->end,
                                 JOURNAL_LINE_MAX - reader->end, reader->offset);
    if (n < 0)
        return (int)n;
    reader->end += (size_t)n;
    reader->offset += (uint64_t)n;
    return n > 0;
}

/* Returns the length of the next line, which is ended by NUL instead of a line feed; 0 at the end.
 */
static ssize_t next_line(struct reader *reader, char **ret_line, bool *ret_is_whole)
{
    for (;;) {
        char *line = reader->buffer + reader->begin;
        const size_t n_there = reader->end - reader->begin;
        char *end = memchr(line, '\n', n_there);
        const int more = end != NULL || n_there == JOURNAL_LINE_MAX ? 0 : fill(reader);
        if (more < 0)
            return more;
        if (more > 0)
            continue;
        line = reader->buffer + reader->begin;
        const size_t n = end != NULL ? (size_t)(end - line) + 1 : n_there;
        *ret_is_whole = end != NULL;
        line[end != NULL ? n - 1 : n] = '\0';
        *ret_line = line;
        reader->begin += n;
        return (ssize_t)n;
    }
}

/* Returns the text of an undamaged line, or NULL. */
static char *check_line(char *line, size_t n_bytes, uint64_t sequence)
{
    char prefix[N_PREFIX];
    if (n_bytes < 10 || memchr(line, '\0', n_bytes) != NULL)
        return NULL;
    snprintf(prefix, sizeof(prefix), "%08" PRIx32 " ", crc32c(line + 9, n_bytes - 9));
    if (strncmp(line, prefix, 9) != 0)
        return NULL;
    snprintf(prefix, sizeof(prefix), "%" PRIu64 " ", sequence);
    const size_t n = strlen(prefix);
    return strncmp(line + 9, prefix, n) == 0 ? line + 9 + n : NULL;
}

/* Reads from the beginning and notes how far the file is good. */
static int read_all(struct journal *journal, journal_visit visit, void *ctx, uint64_t *ret_bad)
{
    autofree char *buffer = malloc(JOURNAL_LINE_MAX + 1);
    struct reader reader = {.fd = journal->fd, .buffer = buffer};
    uint64_t sequence = 0, n_bytes = 0;
    char *line;
    bool is_whole;
    ssize_t n;
    if (buffer == NULL)
        return -ENOMEM;
    *ret_bad = 0;
    while ((n = next_line(&reader, &line, &is_whole)) > 0) {
        char *text = is_whole ? check_line(line, (size_t)n - 1, sequence + 1) : NULL;
        if (text == NULL) {
            const ssize_t n_more = next_line(&reader, &line, &is_whole);
            *ret_bad = n_more > 0 ? sequence + 1 : 0;
            n = n_more < 0 ? n_more : 0;
            break;
        }
        const int code = visit(ctx, text, strlen(text));
        if (code != 0)
            return code;
        sequence++;
        n_bytes += (uint64_t)n;
    }
    if (n < 0)
        return (int)n;
    journal->sequence = sequence;
    journal->n_bytes = n_bytes;
    journal->n_last = 0;
    return 0;
}

int journal_open(struct journal *journal, journal_visit visit, void *ctx, uint64_t *ret_bad)
{
    *ret_bad = 0;
    unlinkat(journal->dir_fd, TEMPORARY, 0);
    const int fd =
        openat(journal->dir_fd, NAME, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    journal->fd = fd;
    if (!io_is_plain_file(fd))
        return -EPERM;
    const off_t n_file = lseek(fd, 0, SEEK_END);
    const int code = n_file < 0 ? -errno : read_all(journal, visit, ctx, ret_bad);
    journal->has_tail = code == 0 && (uint64_t)n_file != journal->n_bytes;
    return code;
}

int journal_each(struct journal *journal, journal_visit visit, void *ctx)
{
    uint64_t bad;
    return journal->fd < 0 ? 0 : read_all(journal, visit, ctx, &bad);
}

/* ---- writing; the lock is held ---- */

static int copy_good(const struct journal *journal, int fd)
{
    enum { N_PIECE = 1 << 16 };
    autofree char *piece = malloc(N_PIECE);
    if (piece == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < journal->n_bytes;) {
        const uint64_t n_left = journal->n_bytes - offset;
        const ssize_t n =
            io_read_at(journal->fd, piece, n_left < N_PIECE ? (size_t)n_left : N_PIECE, offset);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        const int code = io_write(fd, piece, (size_t)n);
        if (code < 0)
            return code;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Replaces the file by a copy of its good part; without a file, makes an empty one. */
static int renew(struct journal *journal)
{
    unlinkat(journal->dir_fd, TEMPORARY, 0);
    autoclose int fd = openat(journal->dir_fd, TEMPORARY,
                              O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int code = fd < 0 ? -errno : 0;
    if (code == 0 && journal->fd >= 0)
        code = copy_good(journal, fd);
    if (code == 0 && fsync(fd) < 0)
        code = -errno;
    if (code == 0 && renameat(journal->dir_fd, TEMPORARY, journal->dir_fd, NAME) < 0)
        code = -errno;
    if (code < 0) {
        if (fd >= 0)
            unlinkat(journal->dir_fd, TEMPORARY, 0);
        return code;
    }
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = steal_fd(&fd);
    journal->n_allocated = 0;
    journal->has_tail = false;
    journal->is_suspect = fsync(journal->dir_fd) < 0;
    return journal->is_suspect ? -errno : 0;
}

/* This also gives back the room behind the records. */
static void cut(struct journal *journal)
{
    journal->has_tail = false;
    journal->n_allocated = 0;
    if (ftruncate(journal->fd, (off_t)journal->n_bytes) < 0)
        journal->is_suspect = true;
}

static int make_ready(struct journal *journal)
{
    if (journal->fd >= 0 && journal->has_tail)
        cut(journal);
    return journal->fd < 0 || journal->is_suspect ? renew(journal) : 0;
}

static int allocate(const struct journal *journal, uint64_t n_bytes)
{
    int code;
    do
        code =
            fallocate(journal->fd, FALLOC_FL_KEEP_SIZE, (off_t)journal->n_bytes, (off_t)n_bytes) < 0
                ? -errno
                : 0;
    while (code == -EINTR);
    return code;
}

static uint64_t count_allocated(const struct journal *journal)
{
    struct stat st;
    return fstat(journal->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* Takes as much room as there is. Where a filesystem cannot allocate, that is not known to fail. */
static void take_room(struct journal *journal)
{
    bool has_more = true;
    journal->full = 0;
    journal->n_allocated = count_allocated(journal);
    for (uint64_t n = journal->n_reserve + N_STEP;
         has_more && n >= IO_BLOCK && journal->n_allocated < journal->n_bytes + n; n /= 2) {
        const int code = allocate(journal, n);
        has_more = code == -ENOSPC || code == -EDQUOT;
        if (code < 0)
            journal->full = has_more ? code : 0;
    }
    journal->n_allocated = count_allocated(journal);
}

/* Returns the error of the disk when a record of that size would use what is not its own. */
static int claim_room(struct journal *journal, size_t n_bytes, enum journal_claim claim)
{
    const uint64_t n_all = journal->n_bytes + n_bytes;
    const uint64_t n_kept = claim == JOURNAL_GROWTH   ? journal->n_reserve + n_bytes
                            : claim == JOURNAL_CHANGE ? N_COMMIT
                                                      : 0;
    if (journal->n_allocated < n_all + journal->n_reserve + n_bytes)
        take_room(journal);
    return n_kept == 0 || journal->n_allocated >= n_all + n_kept ? 0 : journal->full;
}

static int write_line(struct journal *journal, char *line, size_t n_bytes)
{
    ssize_t n;
    do
        n = write(journal->fd, line, n_bytes);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)n_bytes) {
        journal->n_bytes += n_bytes;
        journal->n_last = n_bytes;
        journal->sequence++;
        return 0;
    }
    /* A file that took a part has no room for the rest. */
    const int code = n < 0 ? -errno : -ENOSPC;
    if (n > 0)
        cut(journal);
    return code;
}

static void add_to_reserve(struct journal *journal, uint64_t n_bytes)
{
    const uint64_t n_left = N_RESERVE_MAX - journal->n_reserve;
    journal->n_reserve += n_bytes < n_left ? n_bytes : n_left;
}

void journal_reserve(struct journal *journal, uint64_t n_more)
{
    pthread_mutex_lock(&journal->lock);
    add_to_reserve(journal, n_more);
    if ((journal->fd >= 0 && journal->has_tail) || make_ready(journal) == 0)
        take_room(journal);
    pthread_mutex_unlock(&journal->lock);
}

int journal_append(struct journal *journal, const char *text, size_t n_bytes,
                   enum journal_claim claim)
{
    if (n_bytes + N_PREFIX > JOURNAL_LINE_MAX)
        return -E2BIG;
    autofree char *line = malloc(n_bytes + N_PREFIX);
    if (line == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&journal->lock);
    int code = make_ready(journal);
    if (code == 0) {
        const size_t n_number = (size_t)sprintf(line + 9, "%" PRIu64 " ", journal->sequence + 1);
        memcpy(line + 9 + n_number, text, n_bytes);
        char crc[16];
        snprintf(crc, sizeof(crc), "%08" PRIx32 " ", crc32c(line + 9, n_number + n_bytes));
        memcpy(line, crc, 9);
        line[9 + n_number + n_bytes] = '\n';
        const size_t n_line = 9 + n_number + n_bytes + 1;
        code = claim_room(journal, n_line, claim);
        if (code == 0)
            code = write_line(journal, line, n_line);
        if (code == 0 && claim == JOURNAL_GROWTH)
            add_to_reserve(journal, n_line); /* to remove the name again */
    }
    pthread_mutex_unlock(&journal->lock);
    return code;
}

void journal_undo(struct journal *journal)
{
    const int saved = errno;
    pthread_mutex_lock(&journal->lock);
    if (journal->n_last > 0) {
        journal->n_bytes -= journal->n_last;
        journal->n_last = 0;
        journal->sequence--;
        cut(journal);
        take_room(journal);
    }
    pthread_mutex_unlock(&journal->lock);
    errno = saved;
}

int journal_remove(struct journal *journal)
{
    if (unlinkat(journal->dir_fd, NAME, 0) < 0 && errno != ENOENT)
        return -errno;
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = -1;
    journal->n_bytes = journal->n_last = journal->sequence = journal->n_allocated = 0;
    journal->has_tail = journal->is_suspect = false;
    return 0;
}

int journal_sync(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    int code = journal->fd < 0 ? 0 : make_ready(journal);
    autoclose int fd = code == 0 && journal->fd >= 0 ? dup(journal->fd) : -1;
    if (code == 0 && journal->fd >= 0 && fd < 0)
        code = -errno;
    pthread_mutex_unlock(&journal->lock);
    if (fd < 0 || fdatasync(fd) == 0)
        return code;
    code = -errno;
    pthread_mutex_lock(&journal->lock);
    journal->is_suspect = true;
    pthread_mutex_unlock(&journal->lock);
    return code;
}

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
    const char *word = i < record->n_words ? record->words[i] : "";
    return digits_parse(word, strlen(word), ret) ? 0 : -EBADMSG;
}
