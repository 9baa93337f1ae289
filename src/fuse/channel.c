/* SPDX-License-Identifier: MIT */
/*
 * Packets: no message is split or joined, and each keeps its descriptor.
 */
#include "fuse/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int channel_new(int ret_ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends);
}

static ssize_t send_with(int channel, struct iovec *data, int fd)
{
    union control control;
    struct msghdr message = {.msg_iov = data, .msg_iovlen = 1};
    memset(&control, 0, sizeof(control));
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(int));
    return sendmsg(channel, &message, MSG_NOSIGNAL);
}

bool channel_send(int channel, enum channel_word word, int fd)
{
    char byte = (char)word;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    ssize_t n;
    do
        n = fd >= 0 ? send_with(channel, &data, fd) : send(channel, &byte, 1, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

bool channel_receive(int channel, enum channel_word word, int *ret_fd)
{
    char byte = 0;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    union control control;
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    do
        n = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != 1 || byte != (char)word)
        return false;
    if (ret_fd == NULL)
        return true;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header == NULL || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
        return false;
    memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    return true;
}
