/* SPDX-License-Identifier: MIT */
/*
 * A change is parked, as the kernel has sent it, only while as many threads wait as may: each of
 * them comes here for its next request when that is over, and takes a parked one. So none is
 * forgotten, and no thread has to be woken. The kernel expects each answer on the descriptor on
 * which it gave the request out, and each thread may have its own: answers of requests that another
 * thread took find their way back.
 *
 * That another request takes long is known only when it is looked at. It is kept as libfuse's, and
 * the thread that ends a turn passes it on to the first one that waits.
 */
#include "fuse/turns.h"

#include <weightfs/control.h>

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BYTES_MOST = 128 << 20 }; /* of parked requests: address space is limited */

struct parked {
    TAILQ_ENTRY(parked) link;
    uint64_t unique; /* the kernel's number of the request */
    int device;
    size_t n_bytes;
    char *bytes; /* malloc'ed: the request; NULL: a thread has taken it and has not answered yet */
};

static const unsigned works_most[] = {
    [PARKING_LONG] = PARKING_N_LONG,
    [PARKING_FETCHING] = PARKING_N_FETCHING,
};

struct kept_request {
    TAILQ_ENTRY(kept_request) link;
    struct parking_request request;
    char name[]; /* a copy */
};

void parking_init(struct parking *parking)
{
    *parking = (struct parking){0};
    TAILQ_INIT(&parking->parked);
    TAILQ_INIT(&parking->taken);
    for (size_t i = 0; i < PARKING_N_WORKS; i++)
        TAILQ_INIT(&parking->kept[i]);
    pthread_mutex_init(&parking->lock, NULL);
    door_init(&parking->door);
}

void parking_done(struct parking *parking)
{
    pthread_mutex_destroy(&parking->lock);
    door_done(&parking->door);
}

void parking_begin_wait(struct parking *parking)
{
    pthread_mutex_lock(&parking->lock);
    parking->n_waiting++;
    pthread_mutex_unlock(&parking->lock);
}

void parking_end_wait(struct parking *parking)
{
    pthread_mutex_lock(&parking->lock);
    parking->n_waiting--;
    pthread_mutex_unlock(&parking->lock);
}

/* ---- what the kernel asks for ---- */

static struct fuse_in_header header_of(const void *request)
{
    struct fuse_in_header header;
    memcpy(&header, request, sizeof(header));
    return header;
}

/* Returns whether the request waits for the commit that runs. All other commands are answered at
 * once, such as those by which programs look for a terminal. */
static bool is_change(const void *request, size_t n_bytes)
{
    static const uint32_t changes[] = {
        FUSE_SETATTR,  FUSE_MKNOD,       FUSE_MKDIR,     FUSE_UNLINK,
        FUSE_RMDIR,    FUSE_RENAME,      FUSE_RENAME2,   FUSE_LINK,
        FUSE_WRITE,    FUSE_FSYNC,       FUSE_CREATE,    FUSE_FSYNCDIR,
        FUSE_SETXATTR, FUSE_REMOVEXATTR, FUSE_FALLOCATE, FUSE_COPY_FILE_RANGE};
    static const uint32_t commands[] = {WFS_IOC_COMMIT, WFS_IOC_DISCARD, WFS_IOC_REVERT,
                                        WFS_IOC_TRY};
    const uint32_t opcode = header_of(request).opcode;
    struct fuse_ioctl_in ioctl_in;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (opcode == changes[i])
            return true;
    }
    if (opcode != FUSE_IOCTL || n_bytes < sizeof(struct fuse_in_header) + sizeof(ioctl_in))
        return false;
    memcpy(&ioctl_in, (const char *)request + sizeof(struct fuse_in_header), sizeof(ioctl_in));
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (ioctl_in.cmd == commands[i])
            return true;
    }
    return false;
}

static void answer_interrupted(int device, uint64_t unique)
{
    const struct fuse_out_header reply = {.len = sizeof(reply), .error = -EINTR, .unique = unique};
    (void)!write(device, &reply, sizeof(reply));
}

/* The lock is held. */
static struct parked *take_by_number(struct parked_list *list, uint64_t unique)
{
    struct parked *parked;
    TAILQ_FOREACH(parked, list, link)
    {
        if (parked->unique == unique)
            break;
    }
    if (parked != NULL)
        TAILQ_REMOVE(list, parked, link);
    return parked;
}

/* ---- requests ---- */

static void free_parked(struct parked *parked)
{
    if (parked != NULL)
        free(parked->bytes);
    free(parked);
}

static struct parked *new_parked(int device, const void *request, size_t n_bytes)
{
    struct parked *parked = calloc(1, sizeof(*parked));
    if (parked == NULL || (parked->bytes = malloc(n_bytes)) == NULL) {
        free(parked);
        return NULL;
    }
    memcpy(parked->bytes, request, n_bytes);
    parked->n_bytes = n_bytes;
    parked->unique = header_of(request).unique;
    parked->device = device;
    return parked;
}

/* Returns false where there is still a thread for it, or no memory. */
static bool park(struct parking *parking, int device, const void *request, size_t n_bytes)
{
    struct parked *parked = NULL;
    pthread_mutex_lock(&parking->lock);
    if (parking->n_waiting >= PARKING_N_WAITING && parking->n_bytes + n_bytes <= N_BYTES_MOST)
        parked = new_parked(device, request, n_bytes);
    if (parked != NULL) {
        TAILQ_INSERT_TAIL(&parking->parked, parked, link);
        parking->n_bytes += n_bytes;
    }
    pthread_mutex_unlock(&parking->lock);
    return parked != NULL;
}

/* Returns the size of a request that has waited longest, or 0. */
static ssize_t take_first(struct parking *parking, void *request, size_t n_room)
{
    char *bytes = NULL;
    size_t n = 0;
    pthread_mutex_lock(&parking->lock);
    struct parked *taken = TAILQ_FIRST(&parking->parked);
    if (parking->n_waiting < PARKING_N_WAITING && taken != NULL && taken->n_bytes <= n_room) {
        TAILQ_REMOVE(&parking->parked, taken, link);
        bytes = taken->bytes;
        taken->bytes = NULL;
        n = taken->n_bytes;
        parking->n_bytes -= n;
        TAILQ_INSERT_TAIL(&parking->taken, taken, link);
        atomic_fetch_add(&parking->n_taken, 1);
    }
    pthread_mutex_unlock(&parking->lock);
    if (bytes != NULL)
        memcpy(request, bytes, n);
    free(bytes);
    return (ssize_t)n;
}

/*
 * Answers and drops the parked request that the kernel interrupts, if there is one. The answer is
 * written without the lock: a thread may be cancelled while it writes.
 */
static bool drop_interrupted(struct parking *parking, uint64_t unique)
{
    pthread_mutex_lock(&parking->lock);
    struct parked *dropped = take_by_number(&parking->parked, unique);
    if (dropped != NULL)
        parking->n_bytes -= dropped->n_bytes;
    pthread_mutex_unlock(&parking->lock);
    if (dropped == NULL)
        return false;
    const int device = dropped->device;
    free_parked(dropped);
    answer_interrupted(device, unique);
    return true;
}

/* Returns whether the request needs no thread: it is parked, or interrupts one that was. */
static bool is_settled(struct parking *parking, int device, const void *request, size_t n_bytes)
{
    struct fuse_interrupt_in interrupt;
    if (n_bytes < sizeof(struct fuse_in_header))
        return false;
    if (header_of(request).opcode != FUSE_INTERRUPT)
        return is_change(request, n_bytes) && park(parking, device, request, n_bytes);
    if (n_bytes < sizeof(struct fuse_in_header) + sizeof(interrupt))
        return false;
    memcpy(&interrupt, (const char *)request + sizeof(struct fuse_in_header), sizeof(interrupt));
    return drop_interrupted(parking, interrupt.unique);
}

/* Returns whether the request is answered from memory, as a rule. */
static bool is_short(const void *request, ssize_t n_bytes)
{
    static const uint32_t opcodes[] = {FUSE_LOOKUP,   FUSE_FORGET,     FUSE_BATCH_FORGET,
                                       FUSE_GETATTR,  FUSE_STATFS,     FUSE_ACCESS,
                                       FUSE_GETXATTR, FUSE_LISTXATTR,  FUSE_OPENDIR,
                                       FUSE_READDIR,  FUSE_RELEASEDIR, FUSE_READDIRPLUS};
    if (n_bytes < (ssize_t)sizeof(struct fuse_in_header))
        return false;
    const uint32_t opcode = header_of(request).opcode;
    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
        if (opcode == opcodes[i])
            return true;
    }
    return false;
}

/* The next short request is near: to sleep and to be woken, on another processor above all, takes
 * longer than to look again. Nor does it yield: a thread that yields on a processor where others
 * compute gets it back last, with the request waiting. */
static void look_for_next(int device)
{
    enum { N_LOOKS = 100 };
    struct pollfd found = {.fd = device, .events = POLLIN};
    for (unsigned i = 0; i < N_LOOKS && poll(&found, 1, 0) == 0; i++)
        ;
}

ssize_t parking_receive(struct parking *parking, int device, void *request, size_t n_room)
{
    ssize_t n;
    do {
        n = take_first(parking, request, n_room);
        if (n > 0)
            break;
        if (door_enter(&parking->door))
            look_for_next(device);
        n = read(device, request, n_room);
        door_leave(&parking->door, is_short(request, n));
    } while (n >= 0 && is_settled(parking, device, request, (size_t)n));
    return n;
}

/* ---- turns ---- */

/* The kernel interrupts a request. One that another thread has taken meanwhile is answered there.
 */
static void drop_kept(fuse_req_t req, void *ctx)
{
    struct kept_request *kept = NULL;
    struct parking *parking = ctx;
    pthread_mutex_lock(&parking->lock);
    for (size_t i = 0; kept == NULL && i < PARKING_N_WORKS; i++) {
        TAILQ_FOREACH(kept, &parking->kept[i], link)
        {
            if (kept->request.req == req)
                break;
        }
        if (kept != NULL)
            TAILQ_REMOVE(&parking->kept[i], kept, link);
    }
    pthread_mutex_unlock(&parking->lock);
    if (kept != NULL)
        fuse_reply_err(req, EINTR);
    free(kept);
}

static struct kept_request *new_kept(const struct parking_request *request)
{
    const size_t n_name = request->name == NULL ? 0 : strlen(request->name) + 1;
    struct kept_request *kept = malloc(sizeof(*kept) + n_name);
    if (kept == NULL)
        return NULL;
    kept->request = *request;
    if (n_name > 0)
        kept->request.name = memcpy(kept->name, request->name, n_name);
    return kept;
}

/* As soon as it is in the list, the request may be taken or interrupted. drop_kept answers only
 * what is in the list: libfuse may call it from fuse_req_interrupt_func, where nothing may be
 * answered. */
bool parking_take_turn(struct parking *parking, struct parking_request *request,
                       enum parking_work work)
{
    if (request->has_turn)
        return true;
    request->work = work;
    struct kept_request *kept = new_kept(request);
    if (kept != NULL)
        fuse_req_interrupt_func(request->req, drop_kept, parking);
    pthread_mutex_lock(&parking->lock);
    request->has_turn = kept == NULL || parking->n_working[work] < works_most[work];
    const bool is_kept = !request->has_turn && !fuse_req_interrupted(request->req);
    if (is_kept)
        TAILQ_INSERT_TAIL(&parking->kept[work], kept, link);
    parking->n_working[work] += request->has_turn;
    pthread_mutex_unlock(&parking->lock);
    request->is_gone = !request->has_turn;
    if (is_kept)
        return false;
    fuse_req_interrupt_func(request->req, NULL, NULL);
    free(kept);
    if (request->is_gone)
        fuse_reply_err(request->req, EINTR);
    return request->has_turn;
}

/* Passes a turn on, or ends it: NULL. */
static struct kept_request *pass_turn(struct parking *parking, enum parking_work work)
{
    pthread_mutex_lock(&parking->lock);
    struct kept_request *next = TAILQ_FIRST(&parking->kept[work]);
    if (next != NULL)
        TAILQ_REMOVE(&parking->kept[work], next, link);
    else
        parking->n_working[work]--;
    pthread_mutex_unlock(&parking->lock);
    if (next != NULL) {
        fuse_req_interrupt_func(next->request.req, NULL, NULL);
        next->request.has_turn = true;
    }
    return next;
}

void parking_run(struct parking *parking, struct parking_request *request)
{
    struct kept_request *kept = NULL;
    do {
        request->answer(request);
        struct kept_request *next = request->has_turn ? pass_turn(parking, request->work) : NULL;
        free(kept);
        kept = next;
        request = kept == NULL ? NULL : &kept->request;
    } while (request != NULL);
}

/* ---- answers ---- */

static int device_of(struct parking *parking, int device, uint64_t unique)
{
    pthread_mutex_lock(&parking->lock);
    struct parked *answered = take_by_number(&parking->taken, unique);
    pthread_mutex_unlock(&parking->lock);
    if (answered != NULL) {
        atomic_fetch_sub(&parking->n_taken, 1);
        device = answered->device;
    }
    free_parked(answered);
    return device;
}

ssize_t parking_answer(struct parking *parking, int device, const struct iovec *parts, int n_parts)
{
    struct fuse_out_header header;
    if (atomic_load(&parking->n_taken) > 0 && n_parts > 0 && parts[0].iov_len >= sizeof(header)) {
        memcpy(&header, parts[0].iov_base, sizeof(header));
        device = device_of(parking, device, header.unique);
    }
    return writev(device, parts, n_parts);
}

/* Other descriptors than that of the mount are closed already, which ended their requests. */
void parking_clear(struct parking *parking, int device)
{
    struct parked *left;
    while ((left = TAILQ_FIRST(&parking->parked)) != NULL) {
        TAILQ_REMOVE(&parking->parked, left, link);
        if (left->device == device)
            answer_interrupted(device, left->unique);
        free_parked(left);
    }
    while ((left = TAILQ_FIRST(&parking->taken)) != NULL) {
        TAILQ_REMOVE(&parking->taken, left, link);
        free_parked(left);
    }
    for (size_t i = 0; i < PARKING_N_WORKS; i++) {
        struct kept_request *kept;
        while ((kept = TAILQ_FIRST(&parking->kept[i])) != NULL) {
            TAILQ_REMOVE(&parking->kept[i], kept, link);
            fuse_reply_err(kept->request.req, EINTR);
            free(kept);
        }
    }
}
