/* SPDX-License-Identifier: MIT */
/*
 * An append-only file of records that survives its writer: one line a record, "CRC SEQUENCE TEXT",
 * where CRC is the CRC32C of the rest of the line in 8 hex digits and SEQUENCE counts from 1. A
 * record is written by one write. One that could not be written whole is taken back before
 * anything else is written, so only the last line can be torn.
 */
#ifndef WFS_TREE_JOURNAL_H
#define WFS_TREE_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOURNAL_LINE_MAX = 1 << 20 };

struct journal {
    int dir_fd;           /* borrowed */
    pthread_mutex_t lock; /* guards what follows */
    int fd;               /* -1: there is none yet */
    uint64_t n_bytes;     /* of whole records */
    uint64_t n_last;      /* of these, the last record's */
    uint64_t sequence;    /* of the last record */
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

/* Appends a record, to a new file if there is none. All of it is in the file when this returns 0.
 */
int journal_append(struct journal *journal, const char *text, size_t n_bytes);

/* Removes the record that was appended last. */
void journal_undo(struct journal *journal);

/* Removes the file. */
int journal_remove(struct journal *journal);

/* Calls fdatasync. After a failure, the file is never trusted again: the next try uses a copy. */
int journal_sync(struct journal *journal);

#endif
