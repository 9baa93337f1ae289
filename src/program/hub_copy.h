/* SPDX-License-Identifier: MIT */
/*
 * What the Hub's own programs have in their cache of what "hf://" names: HF_HUB_CACHE,
 * HUGGINGFACE_HUB_CACHE, hub/ in HF_HOME, else in huggingface/ of XDG_CACHE_HOME or ~/.cache. It is
 * only read.
 */
#ifndef WFS_HUB_COPY_H
#define WFS_HUB_COPY_H

#include <weightfs/error.h>
#include <weightfs/remote.h>

#include <stdbool.h>
#include <stdint.h>

struct hub_copy {
    char *path;      /* of the file or folder, malloc'ed; NULL: there is none */
    char commit[41]; /* which it is of */
    char *question;  /* a URL of its first file, malloc'ed, to ask whether the revision is another
                        commit now; NULL: it cannot be, or nothing is to be asked */
    uint64_t digest; /* of the entity tag of the one file that it is; 0: of several */
    bool is_unsure;  /* nobody knows whether the revision is another commit now */
    char notice[WFS_ERROR_TEXT_MAX]; /* which commit was taken, and why */
};

/* Copies that were looked for, before the process was confined. A zeroed struct has none. */
struct hub_copies {
    struct hub_found {
        char *url;
        struct hub_copy copy;
    } * list; /* malloc'ed */
    size_t n, n_room;
};

void hub_copies_done(struct hub_copies *copies);

/* Returns whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids to ask the Hub. */
bool hub_is_offline(void);

/* Looks for a copy. -ENOMEM. */
int hub_copy_find(const char *url, struct hub_copy *ret);

/* Decides whether the copy is what the URL names now, which costs one request where that may have
 * changed; remote may be NULL. Sets the notice. */
bool hub_copy_is_current(struct hub_copy *copy, struct wfs_remote *remote);

#endif
