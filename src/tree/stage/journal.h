/* SPDX-License-Identifier: MIT */
/*
 * An append-only file of records that survives its writer: one line a record, "CRC SEQUENCE TEXT",
 * where CRC is the CRC32C of the rest of the line in 8 hex digits and SEQUENCE counts from 1. A
 * record is written by one write. One that could not be written whole is taken back before
 * anything else is written, so only the last line can be torn.
 *
 * The file has room on the disk for records to come: the reserve. On a full disk it is used by
 * those that make nothing new, and its end by those that finish a commit.
 */
#ifndef WFS_TREE_JOURNAL_H
#define WFS_TREE_JOURNAL_H

#include <weightfs/stage.h>
#include <weightfs/strbuf.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOURNAL_LINE_MAX = 8 << 20 }; /* 2 MiB of paths with escapes */

/* How much of the reserve a record may use. */
enum journal_claim {
    JOURNAL_GROWTH, /* nothing: it makes a name */
    JOURNAL_CHANGE, /* all but what a commit needs */
    JOURNAL_COMMIT, /* all */
};

struct journal {
    int dir_fd;           /* borrowed */
    pthread_mutex_t lock; /* guards what follows */
    int fd;               /* -1: there is none yet */
    uint64_t n_bytes;     /* of whole records */
    uint64_t n_last;      /* of these, the last record's */
    uint64_t sequence;    /* of the last record */
    uint64_t n_reserve;   /* bytes that the disk is to have for further records */
    uint64_t n_allocated; /* that it has for all of the file */
    int full;             /* negative errno of taking more; 0: not known to be full */
    bool has_tail;        /* bytes after the last good record must be cut off first */
    bool is_suspect;      /* the file must be rewritten before it can be trusted */
};

/* Gets a record without its line feed, ended by NUL, which it may change. Not 0 stops. */
typedef int (*journal_visit)(void *ctx, char *text, size_t n_bytes);

void journal_init(struct journal *journal, int dir_fd);
void journal_done(struct journal *journal);

/*
 * Opens the file if it exists and visits its records. Appending continues after the last good one
 * and discards what follows it, so check *ret_bad first: the number of a damaged record other than
 * a torn last one, or 0.
 */
int journal_open(struct journal *journal, journal_visit visit, void *ctx, uint64_t *ret_bad);

/* Visits the records again. */
int journal_each(struct journal *journal, journal_visit visit, void *ctx);

/*
 * Makes the file if there is none, adds to the reserve, and takes room for it on the disk. Where
 * that fails, the next record tries again.
 */
void journal_reserve(struct journal *journal, uint64_t n_more);

/* Appends a record, to a new file if there is none. All of it is in the file when this returns 0.
 */
int journal_append(struct journal *journal, const char *text, size_t n_bytes,
                   enum journal_claim claim);

/* Removes the record that was appended last. */
void journal_undo(struct journal *journal);

/* Removes the file. */
int journal_remove(struct journal *journal);

/* Calls fdatasync. After a failure, the file is never trusted again: the next try uses a copy. */
int journal_sync(struct journal *journal);

/* ---- the text of a record ---- */

/*
 * A letter, then words with a space before each. In a word, "%XX" stands for a byte that is a
 * control character, a space or '%'; an empty word is "%". See enum wfs_record_kind.
 */

/* Returns true for kinds that may change what a commit writes. */
bool record_is_change(enum wfs_record_kind kind);

/* Returns how much of the reserve of the journal a record of the kind may use. */
enum journal_claim record_claim(enum wfs_record_kind kind);

/* Returns true when the record has as many words as its kind needs. */
bool record_is_complete(const struct wfs_record *record);

/* Adds the letter of a record. */
void record_begin(struct strbuf *text, enum wfs_record_kind kind);

/* Adds a word in its spelling, with a space before it. */
void record_word(struct strbuf *text, const char *word, size_t n_bytes);
void record_puts(struct strbuf *text, const char *word);
void record_number(struct strbuf *text, uint64_t number);

/* Decodes the words in place. -EBADMSG: malformed, or of an unknown kind. */
int record_parse(char *text, struct wfs_record *ret);

/* Parses a word as a number. -EBADMSG. */
int record_to_number(const struct wfs_record *record, unsigned i, uint64_t *ret);

#endif
