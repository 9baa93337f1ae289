/* SPDX-License-Identifier: MIT */
/*
 * What goes between the processes of a mount: the channel between supervisor and worker, and the
 * keeper, a thread outside of the sandbox that gives a new output its mode and owner. The
 * confined process may not set any, because it could do the same to a source that it has open. The
 * keeper does it to the temporary file of an output only, which it opens by itself, and gives no
 * owner but that of the file that is about to be replaced.
 */
#ifndef WFS_KEEPER_H
#define WFS_KEEPER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Single bytes over a socket, one of them with a descriptor. It is closed when either process ends.
 */
enum channel_word {
    CHANNEL_READY = 'r',   /* worker: the source is loaded */
    CHANNEL_DEVICE = 'd',  /* supervisor: the device to serve */
    CHANNEL_SERVING = 's', /* worker: the mount answers */
    CHANNEL_STOP = 'e',    /* worker: it was asked to end */
};

/* Makes two connected ends; -1 with errno. */
int channel_new(int ret_ends[2]);

/* Sends a word, with a descriptor unless fd is -1. Returns false when the other side is gone. */
bool channel_send(int channel, enum channel_word word, int fd);

/* Waits for that word; false for another one, or the end. Unless ret_fd is NULL a descriptor must
 * come with it, which the caller closes. */
bool channel_receive(int channel, enum channel_word word, int *ret_fd);

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
