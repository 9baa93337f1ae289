/* SPDX-License-Identifier: MIT */
/*
 * Names of the Hugging Face Hub, "hf://OWNER/NAME[@REVISION][/PATH]", and the folders of its own
 * cache. Shared by library and programs, not installed.
 */
#ifndef WFS_HUB_H
#define WFS_HUB_H

#include <stdbool.h>
#include <stddef.h>

struct hub_name {
    const char *repository; /* "OWNER/NAME" */
    size_t n_repository;
    const char *revision; /* as it is written; NULL: none */
    size_t n_revision;
    const char *path; /* NULL: none */
};

/* Takes a name apart, which it borrows. Returns false for another scheme and a malformed one. */
bool hub_name_parse(const char *name, struct hub_name *ret);

/* Returns the revision, "main" where none is written, with "%2F" in it as a slash. malloc'ed; NULL:
 * out of memory. */
char *hub_name_revision(const struct hub_name *name);

/* Returns true for the 40 digits of a commit, which no revision but itself has. */
bool hub_is_commit(const char *revision);

/*
 * Returns the folder of a revision in an entry of the cache, "models--OWNER--NAME", as its refs/
 * and snapshots/ say. malloc'ed; NULL: there is none.
 */
char *hub_snapshot(const char *entry, const char *revision);

#endif
