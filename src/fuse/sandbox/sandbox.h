/* SPDX-License-Identifier: MIT */
/*
 * The sandbox of a process that reads untrusted files: no capabilities, no new privileges, Landlock
 * and seccomp. The process first lists what it may reach, then enters, for good. This room knows
 * the kernel's means of confinement, not what mounts are.
 */
#ifndef WFS_SANDBOX_H
#define WFS_SANDBOX_H

#include "sandbox/confinement.h"

#include <stdbool.h>

enum sandbox_mode {
    SANDBOX_AUTO, /* what the kernel and the build offer */
    SANDBOX_OFF,
    SANDBOX_REQUIRE, /* all of it or not at all */
};

/* Which parts are in force. */
enum sandbox_state {
    SANDBOX_STATE_OFF, /* nothing was asked for */
    SANDBOX_STATE_NONE,
    SANDBOX_STATE_SECCOMP,
    SANDBOX_STATE_LANDLOCK,
    SANDBOX_STATE_WHOLE,
};

struct sandbox {
    enum sandbox_mode mode;
    struct landlock landlock;
    bool serves_others; /* files of another user, so that root keeps some rights */
};

void sandbox_init(struct sandbox *sandbox, enum sandbox_mode mode);
void sandbox_done(struct sandbox *sandbox);

/*
 * Allows reading the file; for a directory or an index of shards the files in it or beside it, and
 * the targets of links there. has_siblings: the files beside any file. Missing files are ignored.
 */
void sandbox_allow_source(struct sandbox *sandbox, const char *path, bool has_siblings);

/* Allows everything in the directory and below, except devices and links. */
void sandbox_allow_directory(struct sandbox *sandbox, const char *path);

/* Allows replacing the file, which may be missing, and everything else in its directory. */
void sandbox_allow_output(struct sandbox *sandbox, const char *path);

/*
 * Enters the sandbox, before any thread is started; *ret is what is in force. -EOPNOTSUPP when all
 * of it is required and not available; *ret is set then too.
 */
int sandbox_enter(const struct sandbox *sandbox, enum sandbox_state *ret);

/* Returns true when only the files that were allowed can be reached. */
bool sandbox_confines_files(enum sandbox_state state);

/* Returns "off", "none", "seccomp", "landlock" or "seccomp+landlock". */
const char *sandbox_state_name(enum sandbox_state state);

#endif
