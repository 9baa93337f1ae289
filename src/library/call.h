/* SPDX-License-Identifier: MIT */
/*
 * What a caller of the library asks for: its options as settings, a view and words, and its
 * callbacks; and errors, which name the file that they are about, as the program prints them.
 */
#ifndef WFS_CALL_H
#define WFS_CALL_H

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/strbuf.h>
#include <weightfs/view.h>
#include "catalog/catalog.h"
#include "program/settings.h"

#include <weightfs.h>

#include <pthread.h>

enum call_subject { CALL_SOURCE = 1, CALL_OUTPUT = 2 };

struct call {
    struct wfs_options options;
    struct settings settings;
    struct wfs_view *view; /* NULL unless a source is asked for */
    const char **limits;   /* that the settings have */
    unsigned words;        /* bit i: the i-th word of the function was given */
    struct wfs_io io;      /* asks the progress callback */
    bool is_stopped;       /* what it has answered to io */
};

#define auto_call cleanup(call_done)

/*
 * Reads options, which are borrowed; clears err. takes: enum call_subject; words: further
 * options without a value, up to a NULL. call_done is due in any case. -EINVAL, -ENOMEM.
 */
int call_init(struct call *call, const struct wfs_options *options, unsigned takes,
              const char *const *words, struct wfs_error *err);
void call_done(struct call *call);

/* Calls the progress callback. Returns -EINTR when it asks for an end. */
int call_step(const struct call *call, uint64_t n_done, uint64_t n_total);

/* Returns who reads, for what can be stopped; NULL: nobody asks for an end. */
static inline const struct wfs_io *call_io(const struct call *call)
{
    return call->io.is_stopped == NULL ? NULL : &call->io;
}

/* Gives a line to the notice callback. */
void call_notice(const struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Hands a text over to the caller, who frees it, or reports that memory ran out. */
int call_text(struct strbuf *text, char **out, struct wfs_error *err);

/* Reports what went wrong with a file: "FILE: text". path NULL: as it is. */
int call_fail(struct wfs_error *err, const char *path, const struct wfs_error *what);

/* Begins a report, which need not be initialised. */
void call_clear(struct wfs_error *err);

/*
 * A checkpoint as a caller of the library holds it. The room is the interface of weightfs.h: it
 * turns a caller's words into those of the rooms below, and what these know into texts. It knows no
 * format, and prints nothing.
 */

/* What is made when it is first asked for. */
struct handle_index {
    pthread_mutex_t lock;
    struct catalog_keys keys;
    bool has_keys;
    char *names; /* a NUL after each; NULL: not made yet */
    size_t n_names;
    pthread_mutex_t checking; /* of the findings, to which checksums that are wrong are added */
    bool is_verified;
};

struct wfs_checkpoint {
    struct wfs_catalog *catalog;
    char *source; /* as shown; NULL: it was made, not opened */
    struct handle_index *index;
};

/*
 * Opens a source with the settings and the view of a call, and gives its notices. report: gets the
 * report of the view, which borrows from the checkpoint, and may exist beside a failure; NULL:
 * nobody asks for it.
 */
int handle_open(const char *source, struct call *call, struct wfs_checkpoint **out,
                struct wfs_report **report, struct wfs_error *err);

#endif
