/* SPDX-License-Identifier: MIT */
/*
 * What supervisor and worker say to each other: single bytes over a socket, one of them with a
 * descriptor. The end of either process is the end of the talk.
 */
#ifndef WFS_CHANNEL_H
#define WFS_CHANNEL_H

#include <stdbool.h>

enum channel_word {
    CHANNEL_READY = 'r',   /* worker: the source is loaded, give me the device */
    CHANNEL_DEVICE = 'd',  /* supervisor: here it is */
    CHANNEL_SERVING = 's', /* worker: the mount answers */
    CHANNEL_STOP = 'e',    /* worker: somebody wants an end */
};

/* Two connected ends; -1 with errno. */
int channel_new(int ret_ends[2]);

/* fd: sent along, or -1. False when the other side is gone. */
bool channel_send(int channel, enum channel_word word, int fd);

/* Waits for that word. ret_fd may be NULL; otherwise a descriptor must come along, and it is yours.
 */
bool channel_receive(int channel, enum channel_word word, int *ret_fd);

#endif
