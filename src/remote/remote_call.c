/* SPDX-License-Identifier: MIT */
/*
 * No thread is there to receive: one of those that wait does it for all, and when it has its own
 * answer another one takes over. Every wait is short, so that a thread notices soon that its caller
 * was killed.
 */
#include "remote/remote_call.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 50 };

/* One that waits, on the stack of its thread. */
struct call {
    uint32_t request;
    bool is_done;
    int code;
    struct remote_answer answer;
    struct wfs_error err;
    struct call *next;
};

struct wfs_remote {
    int socket;
    atomic_uint n_users;
    atomic_uint_fast64_t n_fetched, n_needed;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct call *calls;
    uint32_t last_request, last_object;
    bool is_receiving; /* a thread receives for all */
    bool is_dead;
    uint8_t buf[FETCHING_MAX]; /* of the one that receives */
};

int wfs_remote_new(int socket, struct wfs_remote **out)
{
    struct wfs_remote *remote = calloc(1, sizeof(*remote));
    pthread_condattr_t attributes;
    if (remote == NULL) {
        close(socket);
        return -ENOMEM;
    }
    remote->socket = socket;
    atomic_store(&remote->n_users, 1);
    pthread_mutex_init(&remote->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&remote->news, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = remote;
    return 0;
}

struct wfs_remote *remote_share(struct wfs_remote *remote)
{
    atomic_fetch_add(&remote->n_users, 1);
    return remote;
}

void wfs_remote_free(struct wfs_remote *remote)
{
    if (remote == NULL || atomic_fetch_sub(&remote->n_users, 1) > 1)
        return;
    close(remote->socket);
    pthread_mutex_destroy(&remote->lock);
    pthread_cond_destroy(&remote->news);
    free(remote);
}

void wfs_remote_progress(const struct wfs_remote *remote, uint64_t *ret_fetched,
                         uint64_t *ret_needed)
{
    *ret_fetched = atomic_load(&remote->n_fetched);
    *ret_needed = atomic_load(&remote->n_needed);
}

uint32_t remote_number(struct wfs_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    const uint32_t number = ++remote->last_object;
    pthread_mutex_unlock(&remote->lock);
    return number;
}

/* ---- answers ---- */

static int fail_dead(struct wfs_error *err)
{
    return wfs_fail(err, EIO, "the process that fetches it has ended");
}

static void fill(struct call *call, const struct fetching *message, int *fd)
{
    call->is_done = true;
    call->answer = (struct remote_answer){message->n_bytes, message->code, NULL, -1};
    if (message->kind == FETCHING_FAILED) {
        const int code = message->code > 0 && message->code < 4096 ? message->code : EIO;
        call->code = wfs_fail(&call->err, code, "%.*s", (int)message->n_text, message->text);
    } else if (message->kind == FETCHING_OPENED) {
        call->answer.text = strndup(message->text, message->n_text);
        call->answer.fd = steal_fd(fd);
        call->code = call->answer.text == NULL ? -ENOMEM : 0;
    }
}

/* Gives the answer to the one that waits for it; nobody may any more. The lock is held. */
static void deliver(struct wfs_remote *remote, const struct fetching *message, int *fd)
{
    atomic_store(&remote->n_fetched, message->n_fetched);
    atomic_store(&remote->n_needed, message->n_needed);
    for (struct call *call = remote->calls; call != NULL; call = call->next) {
        if (call->request == message->request && !call->is_done)
            fill(call, message, fd);
    }
}

/* Receives all that has arrived; waits a little for the first. The lock is held, but not meanwhile.
 */
static void receive(struct wfs_remote *remote)
{
    struct pollfd news = {.fd = remote->socket, .events = POLLIN};
    int code = 0;
    remote->is_receiving = true;
    pthread_mutex_unlock(&remote->lock);
    (void)poll(&news, 1, WAIT_MS);
    pthread_mutex_lock(&remote->lock);
    while (code == 0) {
        struct fetching message;
        autoclose int fd = -1;
        code = fetching_receive(remote->socket, remote->buf, &message, &fd);
        if (code == 0)
            deliver(remote, &message, &fd);
    }
    remote->is_dead = remote->is_dead || code != -EAGAIN;
    remote->is_receiving = false;
    pthread_cond_broadcast(&remote->news);
}

/* Waits until something may have changed. The lock is held, but not meanwhile. */
static void wait(struct wfs_remote *remote)
{
    struct timespec until;
    if (!remote->is_receiving) {
        receive(remote);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L)
        until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000L};
    pthread_cond_timedwait(&remote->news, &remote->lock, &until);
}

/* ---- questions ---- */

/* Sends, and waits while the socket is full. The lock is held, but not meanwhile. */
static int send_patiently(struct wfs_remote *remote, const struct fetching *message)
{
    int code;
    while ((code = fetching_send(remote->socket, message, -1)) == -EAGAIN && !remote->is_dead) {
        struct pollfd room = {.fd = remote->socket, .events = POLLOUT};
        pthread_mutex_unlock(&remote->lock);
        (void)poll(&room, 1, WAIT_MS);
        code = wfs_interruption_check();
        pthread_mutex_lock(&remote->lock);
        if (code < 0)
            return code;
    }
    return code;
}

static void unlink_call(struct wfs_remote *remote, const struct call *call)
{
    struct call **at = &remote->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

/* Waits for the answer. The lock is held. */
static int await(struct wfs_remote *remote, struct call *call)
{
    while (!call->is_done && !remote->is_dead) {
        wait(remote);
        pthread_mutex_unlock(&remote->lock);
        const int code = wfs_interruption_check();
        pthread_mutex_lock(&remote->lock);
        if (code < 0 && !call->is_done)
            return code;
    }
    return call->is_done ? call->code : fail_dead(&call->err);
}

int remote_ask(struct wfs_remote *remote, const struct fetching *question,
               struct remote_answer *ret, struct wfs_error *err)
{
    struct call call = {.answer = {.fd = -1}};
    struct fetching message = *question;
    pthread_mutex_lock(&remote->lock);
    call.request = message.request = ++remote->last_request;
    call.next = remote->calls;
    remote->calls = &call;
    int code = send_patiently(remote, &message);
    if (code == 0)
        code = await(remote, &call);
    else if (code != -EINTR && code != -EMSGSIZE)
        code = fail_dead(&call.err);
    unlink_call(remote, &call);
    pthread_mutex_unlock(&remote->lock);
    if (code == -EINTR) {
        message = (struct fetching){
            .kind = FETCHING_CANCEL, .request = call.request, .object = question->object};
        remote_tell(remote, &message);
    }
    if (code == 0 && ret != NULL) {
        *ret = call.answer;
        return 0;
    }
    free(call.answer.text);
    if (call.answer.fd >= 0)
        close(call.answer.fd);
    return code == 0 ? 0
                     : wfs_fail(err, -code, "%s",
                                call.err.text[0] != '\0' ? call.err.text : strerror(-code));
}

void remote_tell(struct wfs_remote *remote, const struct fetching *message)
{
    (void)fetching_send(remote->socket, message, -1);
}
