/* SPDX-License-Identifier: MIT */
/*
 * A view: options that change how a checkpoint is shown. They become rules; applying them rewrites
 * a catalog (keys, order of dimensions, dtypes, the selection of tensors) and reads no tensor data.
 * A report keeps what was done and why. Views know catalogs; they do not know files, trees or who
 * applies them.
 */
#ifndef WFS_VIEW_H
#define WFS_VIEW_H

#include <weightfs/catalog.h>

struct wfs_view;
struct wfs_report;
struct wfs_condition;

struct wfs_view_option {
    const char *name;
    const char *argument; /* placeholder of the value in a help text; NULL: it takes none */
    const char *help;     /* one line */
};

enum wfs_report_form {
    WFS_REPORT_TEXT, /* for people: lists are cut at ten */
    WFS_REPORT_JSON, /* complete */
    WFS_REPORT_PLAN, /* a table with tabs: one row for each tensor of the source */
    WFS_REPORT_TSV,  /* the same for a file: cells that a spreadsheet would run are guarded */
    WFS_REPORT_NULL, /* the same without a title, unescaped, each row with a NUL after it */
};

/* What a commit wrote. */
struct wfs_report_commit {
    const char *output; /* path */
    int64_t at;         /* seconds since the epoch */
    uint64_t n_edits, n_tensors, n_files, n_bytes;
};

/* What loads the other checkpoints that a view needs. */
struct wfs_view_loader {
    /* *out is taken over. Returns 0, or a negative errno with the report in err. */
    int (*load)(void *ctx, const char *path, struct wfs_catalog **out, struct wfs_error *err);
    void *ctx;
    struct wfs_remote *remote; /* reads URLs; NULL: there are none */
};

#pragma GCC visibility push(default)

/* Returns the i-th option, from 0; NULL after the last. */
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
 * Adds one option, "NAME=VALUE" or "NAME". Returns 1, or 0 if no option of views has that name;
 * -EINVAL for a wrong value, such as a regex that does not compile; the errno of open for a rules
 * file.
 */
int wfs_view_add(struct wfs_view *view, const char *text, struct wfs_error *err);

/* Shows blocks and floats that are narrower than F32 as F32, but for codes that have scales and
 * what cannot be cast. As wfs_view_add. */
int wfs_view_widen(struct wfs_view *view, struct wfs_error *err);

/* Returns two parts as the value of an option has them, such as s/FIRST/SECOND/, malloc'ed; NULL
 * when out of memory. */
char *wfs_view_pair(const char *first, const char *second);

/* Returns true if applying it would change nothing. */
bool wfs_view_is_empty(const struct wfs_view *view);

/* Returns true if the source is one of the ranks that it reads as one. */
bool wfs_view_joins(const struct wfs_view *view);

/* Returns the path, as typed, of the i-th of the other checkpoints that rules need: the one that
 * `like` names, and overlays; NULL after the last. */
const char *wfs_view_other(const struct wfs_view *view, size_t i);

/*
 * Rewrites the catalog in place; each of the others is loaded when its turn comes. -EINVAL if the
 * rules refuse (keys that collide, nothing left, a filter of an overlay that matches nothing, a
 * guess under `strict`, a tensor that `like` requires), -E2BIG for a regex that takes too many
 * steps, or what the loader returned; the catalog can then only be freed. *out is the report, also
 * after an error of a rule for keys or tensors; NULL when another checkpoint could not be taken, or
 * without memory. It borrows from the catalog: free it first.
 */
int wfs_view_apply(const struct wfs_view *view, struct wfs_catalog *catalog,
                   const struct wfs_view_loader *loader, struct wfs_report **out,
                   struct wfs_error *err);

void wfs_report_free(struct wfs_report *report);

/* Tells that the catalog of the view stays as it is while the report is used: what the view did not
 * change is not kept twice. Casts are not counted after that. */
void wfs_report_borrow(struct wfs_report *report, const struct wfs_catalog *catalog);

/* For a variable that owns a report. */
#define auto_report __attribute__((__cleanup__(wfs_report_cleanup)))

static inline void wfs_report_cleanup(struct wfs_report **report)
{
    wfs_report_free(*report);
}

/* Returns one line about guesses and undecided tensors, or NULL. */
const char *wfs_report_notice(const struct wfs_report *report);

/* Returns the text of the i-th warning and what it is about; NULL after the last. */
const char *wfs_report_warning(const struct wfs_report *report, size_t i, const char **ret_about);

/*
 * Reads every cast tensor once and counts the elements that overflow or are NaN. -EFBIG as
 * wfs_workload_check, unless it allows_large.
 */
int wfs_report_count_casts(struct wfs_report *report, bool allows_large, struct wfs_error *err);

/* Adds what an output cannot store: its kind ("value"), its name, and the reason. Texts are copied.
 * -ENOMEM. */
int wfs_report_leave_out(struct wfs_report *report, const char *kind, const char *name,
                         const char *why);

/* Adds a file of the tree whose dtype and shape are those of another one. -ENOMEM. */
int wfs_report_describe(struct wfs_report *report, const char *path, const char *other);

/* Replaces the commit in the report, and removes what an earlier one left out. -ENOMEM. */
int wfs_report_commit(struct wfs_report *report, const struct wfs_report_commit *commit);

/* Writes the report to *ret, malloc'ed, with a NUL after its *ret_n bytes. -ENOMEM. */
int wfs_report_write(const struct wfs_report *report, enum wfs_report_form form, char **ret,
                     size_t *ret_n);

/*
 * A condition on tensors: `rank == 2 && dtype == F32 && !(key =~ norm)`. The fields are key, leaf,
 * dtype and class (texts), rank and bytes (numbers, bytes also with a unit), and shape (a list such
 * as [2,3], where * is any number). Texts and shapes compare with == and !=, and as a regex with =~
 * and !~; numbers with == != < <= > >=. Comparisons are combined with && || ! and parentheses. A
 * value is a word, a number, or anything between quotes. -EINVAL states what is expected where.
 */
int wfs_condition_new(const char *text, struct wfs_condition **out, struct wfs_error *err);
void wfs_condition_free(struct wfs_condition *condition);

/*
 * Clears the marks, one for each tensor of the catalog, of those that do not fit; the others stay
 * as they are. Classes are those that the catalog is evidence of. -E2BIG for a regex that takes too
 * many steps, -ENOMEM.
 */
int wfs_condition_select(const struct wfs_condition *condition, const struct wfs_catalog *catalog,
                         bool *marks, struct wfs_error *err);

#pragma GCC visibility pop

#endif
