/* SPDX-License-Identifier: MIT */
/*
 * A staging directory before a tree is made over it: locked, with what an earlier process left in
 * it. The tree then owns it and shows the edits again. For weightfs itself, not installed.
 */
#ifndef WFS_STAGE_H
#define WFS_STAGE_H

#include <weightfs/error.h>
#include <weightfs/output.h>

#include <sys/types.h>

struct wfs_stage;

/* How far the last commit in the journal came. */
enum wfs_commit_state {
    WFS_COMMIT_NONE,
    WFS_COMMIT_BEGUN,
    WFS_COMMIT_COMPLETE,  /* the file was written and was about to be renamed */
    WFS_COMMIT_PUBLISHED, /* and was renamed */
};

/* The file that a commit wrote. */
struct wfs_written {
    bool is_known;
    struct wfs_identity identity;
    uint64_t digest;    /* wfs_catalog_digest of it */
    uint64_t n_changes; /* how many changes it has: those noted before it */
};

struct wfs_leftover {
    const char *base;    /* what the edits are based on, as it was given; NULL: not known */
    uint64_t n_changes;  /* records of changes */
    uint64_t bad_record; /* number of a damaged one, after which nothing is known; 0: none */
    enum wfs_commit_state commit;
    struct wfs_written complete;  /* of the last commit that wrote one whole */
    struct wfs_written published; /* of the last one that noted that it was published */
};

/* Kinds of records of the journal: the letters that they begin with. */
enum wfs_record_kind {
    WFS_RECORD_RUN = 'O',       /* RUN: a process begins to write */
    WFS_RECORD_FILE = 'C',      /* PATH: an empty file is made */
    WFS_RECORD_DIRECTORY = 'K', /* PATH */
    WFS_RECORD_EDIT = 'E',      /* N PATH DTYPE SHAPE ORIGIN: data/N is the content of PATH from
                                   now on, and has writes that were not synced; the rest is what
                                   the source has there, "-" where it has nothing */
    WFS_RECORD_SYNC = 'S',      /* N BYTES PATH: data/N is synced */
    WFS_RECORD_MOVE = 'R',      /* FROM TO FLAGS */
    WFS_RECORD_REMOVE = 'D',    /* PATH */
    WFS_RECORD_LINK = 'L',      /* PATH NEW */
    WFS_RECORD_ATTR = 'X',      /* PATH NAME [VALUE] */
    WFS_RECORD_REVERT = 'U',    /* PATHS, with "//" between them: their edits are taken back */
    WFS_RECORD_COMMIT = 'B',    /* OUTPUT TEMPORARY: a commit begins */
    WFS_RECORD_COMPLETE = 'P',  /* DEVICE INODE BYTES MTIME DIGEST: its file is complete */
    WFS_RECORD_PUBLISHED = 'F', /* and is the output */
};

/* A record of the journal, as its words. */
struct wfs_record {
    enum wfs_record_kind kind;
    unsigned n_words;
    const char *words[6];
};

struct wfs_stage_options {
    const char *path;
    const char *boot; /* differs between runs of the machine; NULL: not known */
    bool is_found;    /* it must exist already */
};

#pragma GCC visibility push(default)

/*
 * Creates the directory, or opens the existing one, and locks it. -EBUSY: another process holds it;
 * -EPERM: it is not the user's own and private; -EBADMSG: its journal has unknown records.
 */
int wfs_stage_open(const struct wfs_stage_options *options, struct wfs_stage **out,
                   struct wfs_error *err);

/* Returns the process that holds the lock of the directory; 0: none, or it is not known. */
pid_t wfs_stage_holder(const char *path);

/* Unlocks the directory, and removes it when it has no edits. */
void wfs_stage_close(struct wfs_stage *stage);

/* Returns what the directory had when it was last opened or discarded; borrowed. */
const struct wfs_leftover *wfs_stage_leftover(const struct wfs_stage *stage);

/* Returns why the last commit failed, according to status.json, malloc'ed; NULL: it did not fail,
 * or that is not known. */
char *wfs_stage_failure(const struct wfs_stage *stage);

/* Calls visit with each record up to a damaged one. Stops when it does not return 0, and returns
 * that. */
int wfs_stage_each(struct wfs_stage *stage,
                   int (*visit)(void *ctx, const struct wfs_record *record), void *ctx);

/* Returns the size of the content of an edit in bytes, or -ENOENT. */
int64_t wfs_stage_n_bytes(const struct wfs_stage *stage, uint64_t number);

/* Returns true when the edits were written in this run of the machine, with the filesystem mounted
 * throughout: then those that were not synced are whole, too. */
bool wfs_stage_is_same_run(const struct wfs_stage *stage, const char *run);

/* Notes in the journal that the last commit is published. */
int wfs_stage_note_published(struct wfs_stage *stage);

/* Makes all changes count as not committed, because what was published no longer exists. */
void wfs_stage_forget_published(struct wfs_stage *stage);

/* Removes all edits. Nothing is left of them when this returns 0. */
int wfs_stage_discard(struct wfs_stage *stage);

/*
 * Keeps a file reachable as "source/NAME" in the directory when its own name is about to be given
 * to another file. -EXDEV, -EPERM: not possible here.
 */
int wfs_stage_keep_source(struct wfs_stage *stage, const char *path);

/* Returns a text that differs between runs of the machine, malloc'ed; NULL: not known. */
char *wfs_stage_boot(void);

#pragma GCC visibility pop

#endif
