/* SPDX-License-Identifier: MIT */
/*
 * The command line of a mount: two operands, a few flags, and lists of options after -o, from a
 * user or from mount(8).
 */
#ifndef WFS_MOUNT_OPTIONS_H
#define WFS_MOUNT_OPTIONS_H

#include <weightfs/format.h>
#include <weightfs/tree.h>
#include "fuse/sandbox/sandbox.h"
#include "program/settings.h"

#include <stdbool.h>

enum mount_access {
    MOUNT_ACCESS_UNSAID,
    MOUNT_ACCESS_RO,
    MOUNT_ACCESS_RW, /* a commit replaces the source */
};

/* What is durable when a call returns. */
enum mount_syncs {
    MOUNT_SYNCS_NOTHING,
    MOUNT_SYNCS_NAMES, /* dirsync */
    MOUNT_SYNCS_ALL,   /* sync: contents and attributes too */
};

/* All strings are borrowed from argv or from texts. */
struct mount_options {
    const char *source, *mountpoint; /* as typed */
    const char *output, *stage;      /* NULL: not given */
    struct settings settings;
    enum mount_access access;
    enum mount_syncs syncs;
    enum wfs_tree_layout layout;
    enum wfs_tree_files files;
    enum sandbox_mode sandbox;
    unsigned is_foreground, is_debug, is_verbose, is_single_threaded;
    unsigned allow_other, auto_unmount, redact;
    unsigned uid, gid;
    unsigned umask;
    unsigned process_umask; /* as inherited */
    const char **limits;    /* of the settings; owned */
    const char **views;     /* options of the view, "NAME=VALUE" or "NAME" */
    size_t n_views;
    char **texts; /* copies of the -o arguments, cut into options; owned */
    size_t n_texts;
    bool is_from_mount; /* by mount(8), whose "rw" is only the opposite of "ro" */
    unsigned is_remount;
    const char *of_kernel; /* an option that the kernel shows of a mount; NULL: none */
};

/* Returns false when a line about the mistake was printed. mount_options_done is due either way. */
bool mount_options_parse(struct mount_options *options, int argc, char **argv);
void mount_options_done(struct mount_options *options);

#endif
