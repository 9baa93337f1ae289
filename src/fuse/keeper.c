/* SPDX-License-Identifier: MIT */
/*
 * Packets: no message is split or joined, and each keeps its descriptor. The keeper is a thread,
 * because the process that it is in may wait for the confined one: an unmount waits for
 * writes, and these for a running commit.
 */
#include "fuse/keeper.h"

#include <weightfs/cleanup.h>
#include <weightfs/fetching.h>
#include <weightfs/output.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- the channel ---- */

int channel_new(int ret_ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends);
}

bool channel_send(int channel, enum channel_word word, int fd)
{
    const char byte = (char)word;
    return packet_send(channel, &byte, 1, fd, 0) == 1;
}

bool channel_receive(int channel, enum channel_word word, int *ret_fd)
{
    char byte = 0;
    return packet_receive(channel, &byte, 1, ret_fd, 0) == 1 && byte == (char)word &&
           (ret_fd == NULL || *ret_fd >= 0);
}

/* ---- the keeper ---- */

struct request {
    bool is_owner;
    uint32_t mode;
    char name[WFS_OUTPUT_NAME_MAX];
};

static int open_temporary(int directory, const char *output)
{
    struct stat st;
    char name[WFS_OUTPUT_NAME_MAX];
    wfs_output_temporary(output, name);
    autoclose int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && st.st_nlink == 1 ? steal_fd(&fd) : -EPERM;
}

static int give_owner(int directory, int fd, const char *output)
{
    struct stat st;
    if (fstatat(directory, output, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EPERM;
    return fchown(fd, st.st_uid, st.st_gid) == 0 || fchown(fd, (uid_t)-1, st.st_gid) == 0 ? 0
                                                                                          : -errno;
}

/* Opens the folder of an output that is in one of the directory, and cuts its name. */
static int open_folder(int directory, char *name, const char **ret)
{
    char *slash = strchr(name, '/');
    *ret = slash + 1;
    *slash = '\0';
    if (strchr(*ret, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EINVAL;
    const int fd = openat(directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int fulfil(int directory, struct request *request)
{
    const char *name = request->name;
    if (memchr(name, '\0', sizeof(request->name)) == NULL)
        return -EINVAL;
    autoclose int folder =
        strchr(name, '/') == NULL ? -1 : open_folder(directory, request->name, &name);
    if (folder < -1)
        return folder;
    directory = folder >= 0 ? folder : directory;
    autoclose int fd = open_temporary(directory, name);
    if (fd < 0)
        return fd;
    if (request->is_owner)
        return give_owner(directory, fd, name);
    return fchmod(fd, request->mode & 0777) == 0 ? 0 : -errno;
}

static void *serve(void *ctx)
{
    const struct keeper *keeper = ctx;
    const int channel = keeper->ends[0];
    struct request request;
    while (packet_receive(channel, &request, sizeof(request), NULL, 0) == sizeof(request)) {
        const int32_t code = fulfil(keeper->directory, &request);
        if (packet_send(channel, &code, sizeof(code), -1, 0) < 0)
            break;
    }
    return NULL;
}

/* ---- its life ---- */

int keeper_init(struct keeper *keeper, int directory)
{
    *keeper = (struct keeper){.ends = {-1, -1}, .directory = directory};
    if (directory < 0)
        return 0;
    return channel_new(keeper->ends) < 0 ? -errno : 0;
}

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* Signals are for the thread that waits for them. */
int keeper_start(struct keeper *keeper)
{
    enum { N_STACK = 1 << 17 };
    sigset_t all, before;
    pthread_attr_t attributes;
    close_end(&keeper->ends[1]);
    if (keeper->ends[0] < 0)
        return 0;
    if (pthread_attr_init(&attributes) != 0)
        return -ENOMEM;
    pthread_attr_setstacksize(&attributes, N_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&keeper->thread, &attributes, serve, keeper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    keeper->is_started = code == 0;
    return -code;
}

int keeper_attach(struct keeper *keeper)
{
    close_end(&keeper->ends[0]);
    return keeper->ends[1];
}

void keeper_done(struct keeper *keeper)
{
    if (keeper->is_started) {
        shutdown(keeper->ends[0], SHUT_RDWR);
        pthread_join(keeper->thread, NULL);
        keeper->is_started = false;
    }
    close_end(&keeper->ends[0]);
    close_end(&keeper->ends[1]);
}

/* ---- asking ---- */

static int ask(int channel, const char *name, struct request request)
{
    int32_t code;
    snprintf(request.name, sizeof(request.name), "%s", name);
    return channel >= 0 && packet_send(channel, &request, sizeof(request), -1, 0) >= 0 &&
                   packet_receive(channel, &code, sizeof(code), NULL, 0) == sizeof(code)
               ? code
               : -EPIPE;
}

int keeper_ask_mode(int channel, const char *name, uint32_t mode)
{
    return ask(channel, name, (struct request){.mode = mode});
}

int keeper_ask_owner(int channel, const char *name)
{
    return ask(channel, name, (struct request){.is_owner = true});
}
