/* SPDX-License-Identifier: MIT */
/*
 * The text of a journal record: a letter, then words with a space before each. In a word, "%XX"
 * stands for a byte that is a control character, a space or '%'; an empty word is "%".
 *
 *   O RUN                                  a process begins to write
 *   C PATH · K PATH                        an empty file, a directory is made
 *   E N PATH DTYPE SHAPE ORIGIN            data/N is the content of PATH from now on, and has
 *                                          writes that were not synced; the rest is what the
 *                                          source has there, "-" where it has nothing
 *   S N BYTES PATH                         data/N is synced
 *   R FROM TO FLAGS                        renamed, flags of renameat2
 *   D PATH · L PATH NEW                    a name is removed, made
 *   X PATH NAME [VALUE]                    an attribute is set, removed
 *   U PATHS                                the edits of paths are taken back
 *   B OUTPUT TEMPORARY                     a commit begins
 *   P DEVICE INODE BYTES MTIME DIGEST      its file is complete
 *   F                                      and is the output
 */
#ifndef WFS_TREE_RECORD_H
#define WFS_TREE_RECORD_H

#include <weightfs/stage.h>
#include <weightfs/strbuf.h>

#include "tree/stage/journal.h"

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
