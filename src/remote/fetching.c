/* SPDX-License-Identifier: MIT */
/*
 * Both sides parse with the same bounds: either may have been taken over by a stranger.
 */
#include <weightfs/fetching.h>
#include "base/bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int fetching_encode(const struct fetching *message, uint8_t ret[FETCHING_MAX])
{
    if (message->n_text > FETCHING_TEXT_MAX)
        return -EMSGSIZE;
    memset(ret, 0, FETCHING_HEAD);
    ret[0] = (uint8_t)message->kind;
    store_le32(ret + 4, message->request);
    store_le32(ret + 8, message->object);
    store_le32(ret + 12, (uint32_t)message->code);
    store_le64(ret + 16, message->offset);
    store_le64(ret + 24, message->n_bytes);
    store_le64(ret + 32, message->n_fetched);
    store_le64(ret + 40, message->n_needed);
    store_le64(ret + 48, message->digest);
    if (message->n_text > 0)
        memcpy(ret + FETCHING_HEAD, message->text, message->n_text);
    return (int)(FETCHING_HEAD + message->n_text);
}

static bool is_kind(uint8_t kind)
{
    static const char kinds[] = {FETCHING_OPEN,   FETCHING_WANT,   FETCHING_AHEAD,  FETCHING_HEADER,
                                 FETCHING_BESIDE, FETCHING_CANCEL, FETCHING_CLOSE,  FETCHING_OPENED,
                                 FETCHING_DONE,   FETCHING_FAILED, FETCHING_STARTED};
    return memchr(kinds, kind, sizeof(kinds)) != NULL;
}

int fetching_decode(const uint8_t *bytes, size_t n_bytes, struct fetching *ret)
{
    struct cursor in = cursor_of(bytes, n_bytes);
    const uint8_t *kind, *text;
    uint32_t code;
    uint64_t end;
    struct fetching m = {0};
    if (n_bytes > FETCHING_MAX || !cursor_take(&in, 4, &kind) || !cursor_le32(&in, &m.request) ||
        !cursor_le32(&in, &m.object) || !cursor_le32(&in, &code) || !cursor_le64(&in, &m.offset) ||
        !cursor_le64(&in, &m.n_bytes) || !cursor_le64(&in, &m.n_fetched) ||
        !cursor_le64(&in, &m.n_needed) || !cursor_le64(&in, &m.digest) || !is_kind(kind[0]) ||
        code > INT32_MAX || !checked_add(m.offset, m.n_bytes, &end) || end > INT64_MAX)
        return -EBADMSG;
    m.n_text = in.n_left;
    if (!cursor_take(&in, m.n_text, &text) || memchr(text, '\0', m.n_text) != NULL)
        return -EBADMSG;
    m.kind = (enum fetching_kind)kind[0];
    m.code = (int32_t)code;
    m.text = (const char *)text;
    *ret = m;
    return 0;
}

/* Room for one descriptor, aligned. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* Without a descriptor by send: a confined process may make no other call. */
ssize_t packet_send(int socket, const void *bytes, size_t n_bytes, int fd, int flags)
{
    union control control = {0};
    struct iovec data = {(void *)(uintptr_t)bytes, n_bytes};
    const struct msghdr header = {.msg_iov = &data,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
    do
        n = fd < 0 ? send(socket, bytes, n_bytes, MSG_NOSIGNAL | flags)
                   : sendmsg(socket, &header, MSG_NOSIGNAL | flags);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t packet_receive(int socket, void *buf, size_t n_room, int *ret_fd, int flags)
{
    union control control = {0};
    struct iovec data = {buf, n_room};
    struct msghdr header = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = ret_fd == NULL ? NULL : control.bytes,
                            .msg_controllen = ret_fd == NULL ? 0 : sizeof(control.bytes)};
    ssize_t n;
    do
        n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (ret_fd == NULL)
        return n;
    const struct cmsghdr *with = n < 0 ? NULL : CMSG_FIRSTHDR(&header);
    *ret_fd = -1;
    if (with != NULL && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS &&
        with->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(with), sizeof(int));
    if (n >= 0 && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        errno = EMSGSIZE;
        return -1;
    }
    return n;
}

int fetching_send(int socket, const struct fetching *message, int fd)
{
    uint8_t bytes[FETCHING_MAX];
    const int n = fetching_encode(message, bytes);
    if (n < 0)
        return n;
    if (packet_send(socket, bytes, (size_t)n, fd, MSG_DONTWAIT) >= 0)
        return 0;
    return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -EPIPE;
}

int fetching_receive(int socket, uint8_t buf[FETCHING_MAX], struct fetching *ret, int *ret_fd)
{
    const ssize_t n = packet_receive(socket, buf, FETCHING_MAX, ret_fd, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN ? -EAGAIN : errno == EMSGSIZE ? -EBADMSG : -EPIPE;
    return n == 0 ? -EPIPE : fetching_decode(buf, (size_t)n, ret);
}
