/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint as the user asks for it: loaded, with its overlays laid over it, shown through a
 * view. The same for verbs and mounts, which differ in how they report a failure.
 */
#ifndef WFS_CHECKPOINT_H
#define WFS_CHECKPOINT_H

#include "fetch/fetcher.h"
#include "program/hub_copy.h"
#include "program/print.h"

#include <weightfs/format.h>
#include <weightfs/view.h>

struct checkpoint_options {
    struct wfs_load_options load;            /* of the source, the overlays and `like` alike */
    struct hub_copies *copies;               /* that checkpoint_connect finds */
    const char *(*opened)(const char *name); /* returns what is opened in place of a name of one of
                                                them; NULL: the name */
    bool is_lasting; /* paths of the sources stay good when the process leaves its directory */
};

struct checkpoint_failure {
    const char
        *path; /* of the overlay or the `like` that it is about, as typed; NULL: the source */
    struct wfs_error err;
};

/* Makes a view of option texts, "NAME=VALUE" or "NAME". On failure err has the sentence. */
enum exit_code checkpoint_new_view(const char *const *texts, size_t n_texts, struct wfs_view **out,
                                   struct wfs_error *err);

/* Returns the name of the view option that a message begins with; NULL: it begins with none. */
const char *checkpoint_named_option(const char *text);

/*
 * Starts a process that fetches, where the source, an overlay or the `like` of the view is a URL,
 * and puts it into the options; checkpoint_disconnect lets go of it. To be called before there are
 * threads and before the process is confined.
 */
enum exit_code checkpoint_connect(const char *source, const struct fetcher_settings *settings,
                                  const struct wfs_view *view, struct checkpoint_options *options,
                                  struct wfs_error *err);
/* Returns the path of a copy that checkpoint_connect found of a source, else the source. */
const char *checkpoint_copy(const struct checkpoint_options *options, const char *source);

/* Returns what is to be said at once of the copy that was loaded of a source; NULL: nothing. */
const char *checkpoint_notice(const struct checkpoint_options *options, const char *source);
void checkpoint_disconnect(struct checkpoint_options *options);

/*
 * Loads the source ("-" is the standard input) and applies the view. The catalog, and the report,
 * which borrows from it, are the caller's; both may exist beside a failure. report may be NULL.
 */
enum exit_code checkpoint_load(const char *source, const struct checkpoint_options *options,
                               const struct wfs_view *view, struct wfs_catalog **out,
                               struct wfs_report **report, struct checkpoint_failure *failure);

/* Returns whether the elements are floats that numpy has as bytes only. */
bool checkpoint_is_unknown_to_numpy(const struct wfs_tensor *tensor);

/*
 * Limits the address space of the process to what the loaders may take for an index by their
 * limits, and room for buffers and stacks. A lower limit that the process has already stays.
 */
void memory_limit(const struct wfs_load_options *load);

#endif
