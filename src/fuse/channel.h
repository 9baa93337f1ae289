/* SPDX-License-Identifier: MIT */
/*
 * The channel between supervisor and worker: single bytes over a socket, one of them with a
 * descriptor. It is closed when either process ends.
 */
#ifndef WFS_CHANNEL_H
#define WFS_CHANNEL_H

#include <stdbool.h>

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

#endif
