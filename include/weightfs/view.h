/* SPDX-License-Identifier: MIT */
/*
 * A view: what the user wants to see of a checkpoint. Options become rules; applying them rewrites
 * a catalog (keys, order of dimensions, dtypes, which tensors are there at all) and reads no tensor
 * byte. What was done and why is kept in a report.
 */
#ifndef WFS_VIEW_H
#define WFS_VIEW_H

#include <weightfs/catalog.h>

struct wfs_view;
struct wfs_report;

struct wfs_view_option {
    const char *name;
    const char *argument; /* what stands for the value in a help text; NULL: takes none */
    const char *help;     /* one line */
};

enum wfs_report_form {
    WFS_REPORT_TEXT, /* for people: lists are cut at ten */
    WFS_REPORT_JSON, /* complete */
    WFS_REPORT_PLAN, /* tab-separated: one row for each tensor of the source */
};

/* What a commit wrote. */
struct wfs_report_commit {
    const char *output; /* path */
    int64_t at;         /* seconds since the epoch */
    uint64_t n_edits, n_tensors, n_files, n_bytes;
};

#pragma GCC visibility push(default)

/* The options there are, counted from 0; NULL behind the last. */
const struct wfs_view_option *wfs_view_option(size_t i);

int wfs_view_new(struct wfs_view **out);
void wfs_view_free(struct wfs_view *view);

/* For a variable that owns a view. */
#define auto_view __attribute__((__cleanup__(wfs_view_cleanup)))

static inline void wfs_view_cleanup(struct wfs_view **view)
{
    wfs_view_free(*view);
}

/*
 * Takes one option, "NAME=VALUE" or "NAME", as mounts and verbs both get it. 1: taken, 0: no option
 * of views has that name. -EINVAL says what is wrong with the value, among it a regex that the
 * engine refuses; the errno of open for a rules file.
 */
int wfs_view_add(struct wfs_view *view, const char *text, struct wfs_error *err);

/* True when applying it would change nothing. */
bool wfs_view_is_empty(const struct wfs_view *view);

/* Path of the file that `like=` names, which the caller loads; NULL: none. */
const char *wfs_view_like(const struct wfs_view *view);

/* Path of the i-th file that `overlay=` names, which the caller loads; NULL behind the last. */
const char *wfs_view_overlay(const struct wfs_view *view, size_t i);

/*
 * Lays that file's tensors over those of the catalog, one overlay after the other and before
 * wfs_view_apply. A key that is there already keeps its place; the others come behind. over belongs
 * to the catalog, or is freed on failure. -EINVAL when its filter takes none, -E2BIG for a regex
 * that takes too long.
 */
int wfs_view_lay(const struct wfs_view *view, size_t i, struct wfs_catalog *catalog,
                 struct wfs_catalog *over, struct wfs_error *err);

/*
 * Rewrites the catalog in place. like is the catalog of wfs_view_like's file, or NULL; it may be
 * freed afterwards. -EINVAL when the rules refuse (keys that collide, nothing left, a guess under
 * `strict`, what a `like=` demands), -E2BIG for a regex that takes too long; the catalog is then
 * only good to be freed. *out is written whenever it is not NULL afterwards, also beside an error;
 * it borrows from the catalog: free it first.
 */
int wfs_view_apply(const struct wfs_view *view, struct wfs_catalog *catalog,
                   const struct wfs_catalog *like, struct wfs_report **out, struct wfs_error *err);

void wfs_report_free(struct wfs_report *report);

/* For a variable that owns a report. */
#define auto_report __attribute__((__cleanup__(wfs_report_cleanup)))

static inline void wfs_report_cleanup(struct wfs_report **report)
{
    wfs_report_free(*report);
}

/* One line about what was decided by guess or needs a look, or NULL. */
const char *wfs_report_notice(const struct wfs_report *report);

/* Reads every cast tensor once, to say how many elements overflow and are NaN. -EIO. */
int wfs_report_count_casts(struct wfs_report *report, const struct wfs_catalog *catalog);

/* Adds what an output has no room for: its kind (as wfs_fit_item has it), name, and why. Texts
 * are copied. -ENOMEM. */
int wfs_report_leave_out(struct wfs_report *report, const char *kind, const char *name,
                         const char *why);

/* The report tells of this commit and no more of an earlier one, what that left out included.
 * -ENOMEM. */
int wfs_report_commit(struct wfs_report *report, const struct wfs_report_commit *commit);

/* *ret is malloc'ed, with a NUL behind its *ret_n bytes. -ENOMEM. */
int wfs_report_write(const struct wfs_report *report, enum wfs_report_form form, char **ret,
                     size_t *ret_n);

#pragma GCC visibility pop

#endif
