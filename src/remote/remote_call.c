/* SPDX-License-Identifier: MIT */
/*
 * One of the threads that wait receives the answers of all, and when it has its own
 * answer another one takes over. Every wait is short, so that a thread notices soon that its caller
 * was killed.
 */
#include "remote/remote_call.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 50 };

/* A question that was asked. */
struct call {
    uint32_t request, object;
    char *url; /* of one for which nobody waits yet; malloc'ed */
    bool is_done;
    bool is_awaited; /* a thread waits for news */
    pthread_cond_t news;
    int code;
    struct remote_answer answer;
    struct wfs_error err; /* its text is empty where code says it all */
    struct call *next;
};

struct wfs_remote {
    int socket;
    pid_t owner;                  /* 0: any process */
    const struct wfs_io *opening; /* NULL: none */
    atomic_uint n_users;
    wfs_remote_gate *gate; /* NULL: none */
    void *gate_ctx;
    atomic_uint_fast64_t n_fetched, n_needed;
    pthread_mutex_t lock; /* of all below */
    struct call *calls;
    uint32_t last_request, last_object;
    uint32_t generation; /* of the process that fetches */
    bool is_receiving;   /* a thread receives for all */
    bool is_dead;
    uint8_t buf[FETCHING_MAX]; /* of the one that receives */
};

int wfs_remote_new(int socket, struct wfs_remote **out)
{
    struct wfs_remote *remote = calloc(1, sizeof(*remote));
    if (remote == NULL) {
        close(socket);
        return -ENOMEM;
    }
    remote->socket = socket;
    atomic_store(&remote->n_users, 1);
    pthread_mutex_init(&remote->lock, NULL);
    *out = remote;
    return 0;
}

void wfs_remote_bind(struct wfs_remote *remote, const struct wfs_io *opening)
{
    remote->owner = getpid();
    remote->opening = opening;
}

/* Returns -EINTR when the reader is to stop, or 0. */
static int check(const struct wfs_io *io, const struct wfs_remote *remote)
{
    return wfs_io_check(wfs_io_can_stop(io) ? io : remote->opening);
}

static bool is_of_other(const struct wfs_remote *remote)
{
    return remote->owner != 0 && remote->owner != getpid();
}

struct wfs_remote *remote_share(struct wfs_remote *remote)
{
    atomic_fetch_add(&remote->n_users, 1);
    return remote;
}

static void call_init(struct call *call)
{
    pthread_condattr_t attributes;
    *call = (struct call){.answer.fd = -1};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&call->news, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void call_done(struct call *call)
{
    pthread_cond_destroy(&call->news);
    free(call->answer.text);
    if (call->answer.fd >= 0)
        close(call->answer.fd);
    free(call->url);
}

void wfs_remote_free(struct wfs_remote *remote)
{
    if (remote == NULL || atomic_fetch_sub(&remote->n_users, 1) > 1)
        return;
    while (remote->calls != NULL) { /* that nobody waited for */
        struct call *call = remote->calls;
        remote->calls = call->next;
        call_done(call);
        free(call);
    }
    close(remote->socket);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}

void wfs_remote_set_gate(struct wfs_remote *remote, wfs_remote_gate *gate, void *ctx)
{
    remote->gate = gate;
    remote->gate_ctx = ctx;
}

int remote_pass(const struct wfs_io *io, const struct wfs_remote *remote,
                const struct source *source, uint64_t offset, uint64_t end)
{
    return wfs_io_can_stop(io) || remote->gate == NULL
               ? 0
               : remote->gate(remote->gate_ctx, source, offset, end);
}

void wfs_remote_progress(const struct wfs_remote *remote, uint64_t *ret_fetched,
                         uint64_t *ret_needed)
{
    *ret_fetched = atomic_load(&remote->n_fetched);
    *ret_needed = atomic_load(&remote->n_needed);
    if (*ret_needed < *ret_fetched)
        *ret_needed = *ret_fetched;
}

/* ---- answers ---- */

static int fail_dead(struct wfs_error *err)
{
    return wfs_fail(err, EIO, "the process that fetches it has ended");
}

static void fill(struct call *call, const struct fetching *message, int *fd)
{
    call->is_done = true;
    call->answer = (struct remote_answer){
        message->offset, message->n_bytes, message->digest, message->code, NULL, -1};
    if (message->kind == FETCHING_FAILED) {
        const int code = message->code > 0 && message->code < 4096 ? message->code : EIO;
        call->code = wfs_fail(&call->err, code, "%.*s", (int)message->n_text, message->text);
    } else if (message->kind == FETCHING_OPENED) {
        call->answer.text = strndup(message->text, message->n_text);
        call->answer.fd = steal_fd(fd);
        call->code = call->answer.text == NULL ? -ENOMEM : 0;
    }
}

/* Ends all calls: the process that they were asked of is gone. The lock is held. */
static void start_over(struct wfs_remote *remote)
{
    remote->generation++;
    for (struct call *call = remote->calls; call != NULL; call = call->next) {
        if (call->is_done)
            continue;
        call->is_done = true;
        call->code = -ENOTCONN;
        pthread_cond_signal(&call->news);
    }
}

/* Gives the answer to the one that waits for it; nobody may any more. The lock is held. */
static void deliver(struct wfs_remote *remote, const struct fetching *message, int *fd)
{
    if (message->kind == FETCHING_STARTED) {
        start_over(remote);
        return;
    }
    atomic_store(&remote->n_fetched, message->n_fetched);
    atomic_store(&remote->n_needed, message->n_needed);
    for (struct call *call = remote->calls; call != NULL; call = call->next) {
        if (call->request == message->request && !call->is_done) {
            fill(call, message, fd);
            pthread_cond_signal(&call->news);
        }
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
}

/* Waits until something may have changed for the call. The lock is held, but not meanwhile. */
static void wait(struct wfs_remote *remote, struct call *call)
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
    call->is_awaited = true;
    pthread_cond_timedwait(&call->news, &remote->lock, &until);
    call->is_awaited = false;
}

/* Wakes a thread that receives from now on, where none does; all, when there is nothing to receive
 * any more. The lock is held. */
static void hand_over(struct wfs_remote *remote)
{
    bool is_over = remote->is_receiving;
    for (struct call *call = remote->calls; call != NULL && !is_over; call = call->next) {
        if (call->is_awaited && !call->is_done) {
            pthread_cond_signal(&call->news);
            is_over = !remote->is_dead;
        }
    }
}

/* ---- questions ---- */

/* Sends, and waits while the socket is full. The lock is held, but not meanwhile. */
static int send_patiently(const struct wfs_io *io, struct wfs_remote *remote,
                          const struct fetching *message)
{
    int code;
    while ((code = fetching_send(remote->socket, message, -1)) == -EAGAIN && !remote->is_dead) {
        struct pollfd room = {.fd = remote->socket, .events = POLLOUT};
        pthread_mutex_unlock(&remote->lock);
        (void)poll(&room, 1, WAIT_MS);
        code = check(io, remote);
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
static int await(const struct wfs_io *io, struct wfs_remote *remote, struct call *call)
{
    int code = 0;
    while (!call->is_done && !remote->is_dead && code == 0) {
        wait(remote, call);
        pthread_mutex_unlock(&remote->lock);
        code = check(io, remote);
        pthread_mutex_lock(&remote->lock);
    }
    hand_over(remote);
    if (code < 0 && !call->is_done)
        return code;
    return call->is_done ? call->code : fail_dead(&call->err);
}

/* Asks, without waiting for the answer. The lock is held. */
static int begin(const struct wfs_io *io, struct wfs_remote *remote, struct call *call,
                 struct fetching *message)
{
    call->request = message->request = ++remote->last_request;
    call->object = message->object;
    call->next = remote->calls;
    remote->calls = call;
    if (is_of_other(remote))
        return wfs_fail(&call->err, EIO,
                        "cannot be fetched in a child of the process that opened it");
    const int code = send_patiently(io, remote, message);
    return code == 0 || code == -EINTR || code == -EMSGSIZE ? code : fail_dead(&call->err);
}

/* Ends a call that returned code, and reports it. The lock is held. */
static int finish(struct wfs_remote *remote, struct call *call, int code, struct wfs_error *err)
{
    unlink_call(remote, call);
    if (code == -EINTR) {
        const struct fetching message = {
            .kind = FETCHING_CANCEL, .request = call->request, .object = call->object};
        remote_tell(remote, &message);
    }
    return code == 0 ? 0
                     : wfs_fail(err, -code, "%s",
                                call->err.text[0] != '\0' ? call->err.text : strerror(-code));
}

int remote_want(const struct wfs_io *io, struct wfs_remote *remote,
                const struct remote_range *range, struct wfs_error *err)
{
    struct call call;
    struct fetching message = {.kind = FETCHING_WANT,
                               .object = range->object,
                               .offset = range->offset,
                               .n_bytes = range->n_bytes,
                               .n_needed = range->n_more};
    call_init(&call);
    pthread_mutex_lock(&remote->lock);
    int code = begin(io, remote, &call, &message);
    code = finish(remote, &call, code == 0 ? await(io, remote, &call) : code, err);
    pthread_mutex_unlock(&remote->lock);
    call_done(&call);
    return code;
}

/* ---- objects ---- */

static int begin_open(struct wfs_remote *remote, struct call *call, const char *url,
                      uint64_t n_bytes)
{
    struct fetching message = {.kind = FETCHING_OPEN,
                               .object = ++remote->last_object,
                               .n_bytes = n_bytes,
                               .text = url,
                               .n_text = strlen(url)};
    return begin(NULL, remote, call, &message);
}

static struct call *find_early(const struct wfs_remote *remote, const char *url)
{
    struct call *call = remote->calls;
    while (call != NULL && (call->url == NULL || strcmp(call->url, url) != 0))
        call = call->next;
    return call;
}

void remote_open_early(struct wfs_remote *remote, const char *url, uint64_t n_bytes)
{
    struct call *call = malloc(sizeof(*call));
    if (call == NULL)
        return;
    call_init(call);
    call->url = strdup(url);
    pthread_mutex_lock(&remote->lock);
    if (call->url == NULL || begin_open(remote, call, url, n_bytes) < 0) {
        if (call->request != 0)
            unlink_call(remote, call);
        call_done(call);
        free(call);
    }
    pthread_mutex_unlock(&remote->lock);
}

int remote_open(struct wfs_remote *remote, const char *url, uint32_t *ret_number,
                struct remote_answer *ret, struct wfs_error *err)
{
    struct call own;
    int code = 0;
    call_init(&own);
    pthread_mutex_lock(&remote->lock);
    struct call *early = find_early(remote, url), *call = early != NULL ? early : &own;
    if (early != NULL) {
        free(early->url); /* so that no other thread finds it */
        early->url = NULL;
    } else
        code = begin_open(remote, call, url, 0);
    code = finish(remote, call, code == 0 ? await(NULL, remote, call) : code, err);
    pthread_mutex_unlock(&remote->lock);
    *ret_number = call->object;
    if (code == 0) {
        *ret = call->answer;
        call->answer = (struct remote_answer){.fd = -1};
    }
    if (early != NULL)
        call_done(early);
    free(early);
    call_done(&own);
    return code;
}

int remote_reopen(const struct wfs_io *io, struct wfs_remote *remote, uint32_t number,
                  const char *url, struct remote_answer *ret, struct wfs_error *err)
{
    enum { N_HEAD = 4096 };
    struct call call;
    struct fetching message = {.kind = FETCHING_OPEN,
                               .object = number,
                               .n_bytes = N_HEAD,
                               .text = url,
                               .n_text = strlen(url)};
    call_init(&call);
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CLOSE, .object = number});
    pthread_mutex_lock(&remote->lock);
    int code = begin(io, remote, &call, &message);
    code = finish(remote, &call, code == 0 ? await(io, remote, &call) : code, err);
    pthread_mutex_unlock(&remote->lock);
    if (code == 0) {
        *ret = call.answer;
        call.answer = (struct remote_answer){.fd = -1};
    }
    call_done(&call);
    return code;
}

uint32_t remote_generation(struct wfs_remote *remote)
{
    pthread_mutex_lock(&remote->lock);
    const uint32_t generation = remote->generation;
    pthread_mutex_unlock(&remote->lock);
    return generation;
}

void remote_tell(struct wfs_remote *remote, const struct fetching *message)
{
    if (!is_of_other(remote))
        (void)fetching_send(remote->socket, message, -1);
}
