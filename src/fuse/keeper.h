/* SPDX-License-Identifier: MIT */
/*
 * The keeper: a thread outside of the sandbox that gives a new output its mode and owner. The
 * confined process may not set any, because it could do the same to a source that it has open. The
 * keeper does it to the temporary file of an output only, which it opens by itself, and gives no
 * owner but that of the file that is about to be replaced.
 */
#ifndef WFS_KEEPER_H
#define WFS_KEEPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct keeper {
    int ends[2]; /* of the channel between the two: the keeper's, the other; -1: closed */
    int directory;
    bool is_started;
    pthread_t thread;
};

/*
 * Prepares a keeper for outputs in the directory, which is borrowed, before the confined process is
 * forked. A negative errno; keeper_done is due in any case.
 */
int keeper_init(struct keeper *keeper, int directory);

/* Starts it, in the process that is not confined. */
int keeper_start(struct keeper *keeper);

/* Lets go of the keeper's end, in the process that will be confined, and returns the other one. */
int keeper_attach(struct keeper *keeper);

void keeper_done(struct keeper *keeper);

/*
 * Asks for what fchmod does, to the temporary file of the output `name`. 0, or a negative errno;
 * -EPIPE: the keeper is gone. For one thread at a time.
 */
int keeper_ask_mode(int channel, const char *name, uint32_t mode);

/* Asks in the same way for the owner of what has the name now, or where that fails its group. */
int keeper_ask_owner(int channel, const char *name);

#endif
