/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint that is a directory: files with its content, and one that describes them and is
 * published last. What a format that has such checkpoints does itself; how files are written and
 * published is left to sets.
 */
#ifndef WFS_DIRECTORY_H
#define WFS_DIRECTORY_H

#include "format/core/layout.h"

/* A planned one. The layouts are malloc'ed, and owned by whoever asked for the plan. */
struct directory {
    const struct wfs_format *format;
    const struct wfs_catalog *catalog;
    struct wfs_layout **layouts;
    size_t n_layouts, n_room;
    const char *const *left_out; /* names of empty containers that have no place in it */
    size_t n_left_out;
    const struct source *rewritten; /* file beside the checkpoint that the last layout takes the
                                       place of; NULL: all are copied */
    void *plan;                     /* the format's own, which owns those; NULL: none */
};

/* The files as they are on the disk before they have their names. */
struct directory_files {
    const char *folder;       /* path, with a slash at its end */
    int fd;                   /* of the folder */
    const char *const *names; /* that they will have, one for each layout */
};

struct directory_functions {
    const char *const *beside; /* names of files that go with those of the directory, NULL at the
                                  end; the first is read with them */
    /*
     * Lays the catalog out in files with at most max_bytes of tensors each, unless one has more; 0:
     * in one file. done is due in any case. Errors as those of a plan of one file.
     */
    int (*plan)(struct directory *directory, uint64_t max_bytes, struct wfs_error *err);
    void (*done)(struct directory *directory);
    /* Makes the number-th name that a file may get, in the arena; NULL without memory. */
    const char *(*name)(struct arena *arena, uint64_t number);
    /* Returns whether `name` makes such names. */
    bool (*is_name)(const char *name);
    /* Makes the content of the file that describes the others, in the arena. -ENOMEM. */
    int (*describe)(const struct directory *directory, const char *const *names,
                    struct arena *arena, const char **ret, size_t *ret_n, struct wfs_error *err);
    /*
     * Reads the names of the files in a description: *ret is malloc'ed, each name ends with a NUL,
     * and an empty one ends them. -EBADMSG and the like where it is not a description; -ENOMEM.
     */
    int (*list)(const struct source *description, char **ret, struct wfs_error *err);
    /*
     * Loads the checkpoint from files with temporary names, and compares it with what was planned.
     * -EIO: it is something else.
     */
    int (*read_back)(const struct directory *directory, const struct directory_files *files,
                     const struct wfs_save_options *options, struct wfs_catalog **out,
                     struct wfs_error *err);
};

#endif
