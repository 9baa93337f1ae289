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
    bool is_suspect;      /* the file must be written anew before it can be trusted */
};

/* A record without its line feed, ended by NUL; may be changed. Not 0 stops. */
typedef int (*journal_visit)(void *ctx, char *text, size_t n_bytes);

void journal_init(struct journal *journal, int dir_fd);
void journal_done(struct journal *journal);

/*
 * Opens the file if there is one and visits its records. Appending goes on behind the last good
 * one; what follows it is lost then, so look at *ret_bad first: the number of a record that is
 * damaged and not just the torn last one, or 0.
 */
int journal_open(struct journal *journal, journal_visit visit, void *ctx, uint64_t *ret_bad);

/* Visits the records again. */
int journal_each(struct journal *journal, journal_visit visit, void *ctx);

/* Makes the file when there is none. All of the text is in the file when it returns 0. */
int journal_append(struct journal *journal, const char *text, size_t n_bytes);

/* Takes the record back that was appended last. */
void journal_undo(struct journal *journal);

/* Removes the file. */
int journal_remove(struct journal *journal);

/* fdatasync. A failure is final for the file, and the next try is made with a copy of it. */
int journal_sync(struct journal *journal);

#endif
