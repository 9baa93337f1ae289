/* SPDX-License-Identifier: MIT */
/*
 * The destination is the output as the user asks for it: one file or several, in which format, what
 * may be replaced there, and whether a backup of that can be kept. Decided once, before anything is
 * read or written, and the same for verbs, mounts and callers of the library: these ask in another
 * order, and each in its words.
 */
#ifndef WFS_DESTINATION_H
#define WFS_DESTINATION_H

#include "program/print.h"
#include "program/settings.h"

#include <sys/stat.h>

enum destination_speaker { DESTINATION_OF_VERB, DESTINATION_OF_MOUNT, DESTINATION_OF_CALLER };

struct destination {
    /* Given; borrowed. */
    const char *typed;
    const struct settings *settings;
    enum destination_speaker speaker;
    bool is_source; /* the source itself is replaced */

    /* Decided. */
    char *index;                     /* path of the index of several files; NULL: one file */
    const struct wfs_format *format; /* NULL: that of the source */
    bool is_taken;                   /* a file exists that may not be replaced */
    enum wfs_replace replace;
    struct wfs_identity known; /* of what may be replaced */
    struct wfs_backup backup;  /* of that */
};

/*
 * Each returns EXIT_DONE, or what to exit with, and err has the sentence. What is about the file
 * itself, rather than the command line, has EXIT_OUTPUT with a verb, which prints the path before
 * it.
 */

/* Finds out whether several files are asked for. The name of the source implies a format, too. */
enum exit_code destination_find(struct destination *destination, const char *source,
                                struct wfs_error *err);

/* Chooses the format of one file by its name, where no other is given; can_keep: that of the source
 * is as good. */
enum exit_code destination_choose_format(struct destination *destination, bool can_keep,
                                         struct wfs_error *err);

/* Checks the options that not every output has, once the format is known. */
enum exit_code destination_check_options(const struct destination *destination,
                                         struct wfs_error *err);
enum exit_code destination_check_size(const struct destination *destination, struct wfs_error *err);

/* Checks the links that a path leads through. */
enum exit_code destination_check_links(const struct destination *destination, const char *path,
                                       struct wfs_error *err);

/* Decides what may be replaced, which is the file that exists now and no other; NULL: none does. A
 * verb fails where that is not allowed; a mount may still find that it has written the file. */
enum exit_code destination_choose_replacement(struct destination *destination,
                                              const struct stat *there, struct wfs_error *err);

/* Checks that a backup of what is at the path replaces no file that the catalog reads. */
enum exit_code destination_check_backup(const struct destination *destination, const char *path,
                                        const struct wfs_catalog *read, struct wfs_error *err);

/* Returns what was decided, for a save that replaces what may be replaced. */
struct wfs_save_options destination_save_options(const struct destination *destination);

/* Returns the permission bits of a new file by the umask of the user. */
mode_t destination_mode(void);

void destination_done(struct destination *destination);

#endif
