/* SPDX-License-Identifier: MIT */
/*
 * A request is parked only while as many threads wait, or work, as may: each of them comes here for
 * its next request when that is over, and takes a parked one. So none is forgotten, and no thread
 * has to be woken. That a request takes long is known only to the thread that has it, which then
 * parks it again. The kernel expects each answer on the descriptor on which it gave the request
 * out, and each thread may have its own: answers of requests that another thread took find their
 * way back.
 */
#include "fuse/parking.h"

#include <weightfs/control.h>

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BYTES_MOST = 128 << 20 }; /* of parked requests: address space is limited */

struct parked {
    struct parked *next;
    uint64_t unique; /* the kernel's number of the request */
    int device;
    size_t n_bytes;
    char *bytes; /* malloc'ed: the request; NULL: a thread has taken it and has not answered yet */
};

static const unsigned works_most[] = {
    [PARKING_LONG] = PARKING_N_LONG,
    [PARKING_FETCHING] = PARKING_N_FETCHING,
};

/* The request that the thread answers, in the memory that it was received in. */
static _Thread_local struct {
    int device;
    const void *request;
    size_t n_bytes;
} current;

void parking_init(struct parking *parking)
{
    *parking = (struct parking){0};
    parking->parked.end = &parking->parked.first;
    for (size_t i = 0; i < PARKING_N_WORKS; i++)
        parking->later[i].end = &parking->later[i].first;
    parking->taken.end = &parking->taken.first;
    pthread_mutex_init(&parking->lock, NULL);
}

void parking_done(struct parking *parking)
{
    pthread_mutex_destroy(&parking->lock);
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

/* All others are answered at once, such as those by which programs look for a terminal. */
static bool is_long_command(uint32_t command)
{
    static const uint32_t commands[] = {WFS_IOC_COMMIT, WFS_IOC_DISCARD, WFS_IOC_REVERT,
                                        WFS_IOC_TRY};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (command == commands[i])
            return true;
    }
    return false;
}

/* Returns whether the request waits for the commit that runs. */
static bool is_change(const void *request, size_t n_bytes)
{
    struct fuse_ioctl_in ioctl_in;
    switch (header_of(request).opcode) {
    case FUSE_SETATTR:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_LINK:
    case FUSE_WRITE:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_SETXATTR:
    case FUSE_REMOVEXATTR:
    case FUSE_CREATE:
    case FUSE_FALLOCATE:
    case FUSE_COPY_FILE_RANGE:
        return true;
    case FUSE_IOCTL:
        if (n_bytes < sizeof(struct fuse_in_header) + sizeof(ioctl_in))
            return false;
        memcpy(&ioctl_in, (const char *)request + sizeof(struct fuse_in_header), sizeof(ioctl_in));
        return is_long_command(ioctl_in.cmd);
    default:
        return false;
    }
}

static void answer_interrupted(int device, uint64_t unique)
{
    const struct fuse_out_header reply = {.len = sizeof(reply), .error = -EINTR, .unique = unique};
    (void)!write(device, &reply, sizeof(reply));
}

/* ---- lists; the lock is held ---- */

static void append(struct parked_list *list, struct parked *parked)
{
    parked->next = NULL;
    *list->end = parked;
    list->end = &parked->next;
}

static struct parked *take_out(struct parked_list *list, struct parked **at)
{
    struct parked *found = *at;
    *at = found->next;
    if (found->next == NULL)
        list->end = at;
    return found;
}

static struct parked *take_by_number(struct parked_list *list, uint64_t unique)
{
    struct parked **at = &list->first;
    while (*at != NULL && (*at)->unique != unique)
        at = &(*at)->next;
    return *at == NULL ? NULL : take_out(list, at);
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
        append(&parking->parked, parked);
        parking->n_bytes += n_bytes;
    }
    pthread_mutex_unlock(&parking->lock);
    return parked != NULL;
}

static bool has_first(const struct parked_list *list, size_t n_room)
{
    return list->first != NULL && list->first->n_bytes <= n_room;
}

/* The list of which a request may be taken now, or NULL. The lock is held. */
static struct parked_list *find_list(struct parking *parking, size_t n_room)
{
    for (size_t i = 0; i < PARKING_N_WORKS; i++) {
        if (parking->n_working[i] < works_most[i] && has_first(&parking->later[i], n_room))
            return &parking->later[i];
    }
    return parking->n_waiting < PARKING_N_WAITING && has_first(&parking->parked, n_room)
               ? &parking->parked
               : NULL;
}

/* Returns the size of a request that has waited longest, or 0. */
static ssize_t take_first(struct parking *parking, void *request, size_t n_room)
{
    char *bytes = NULL;
    size_t n = 0;
    pthread_mutex_lock(&parking->lock);
    struct parked_list *list = find_list(parking, n_room);
    if (list != NULL) {
        struct parked *taken = take_out(list, &list->first);
        bytes = taken->bytes;
        taken->bytes = NULL;
        n = taken->n_bytes;
        parking->n_bytes -= n;
        append(&parking->taken, taken);
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
    for (size_t i = 0; dropped == NULL && i < PARKING_N_WORKS; i++)
        dropped = take_by_number(&parking->later[i], unique);
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

ssize_t parking_receive(struct parking *parking, int device, void *request, size_t n_room)
{
    ssize_t n;
    do {
        n = take_first(parking, request, n_room);
        if (n > 0)
            break;
        n = read(device, request, n_room);
    } while (n >= 0 && is_settled(parking, device, request, (size_t)n));
    current.device = device;
    current.request = request;
    current.n_bytes = n > 0 ? (size_t)n : 0;
    return n;
}

/* ---- long work ---- */

/* The lock is held. The kernel expects the answer where it gave the request out, whoever has parked
 * it last. */
static bool park_current(struct parking *parking, enum parking_work work)
{
    struct parked *later = new_parked(current.device, current.request, current.n_bytes);
    if (later == NULL)
        return false;
    struct parked *taken = take_by_number(&parking->taken, later->unique);
    if (taken != NULL) {
        later->device = taken->device;
        atomic_fetch_sub(&parking->n_taken, 1);
    }
    free_parked(taken);
    append(&parking->later[work], later);
    parking->n_bytes += later->n_bytes;
    return true;
}

/* The number is copied first: another thread may have taken the request when the lock is free. */
bool parking_begin_work(struct parking *parking, enum parking_work work,
                        bool (*is_given_up)(void *ctx), void *ctx)
{
    const uint64_t unique = header_of(current.request).unique;
    pthread_mutex_lock(&parking->lock);
    const bool is_parked =
        parking->n_working[work] >= works_most[work] && park_current(parking, work);
    if (!is_parked)
        parking->n_working[work]++;
    pthread_mutex_unlock(&parking->lock);
    if (is_parked && is_given_up(ctx))
        drop_interrupted(parking, unique);
    return !is_parked;
}

void parking_end_work(struct parking *parking, enum parking_work work)
{
    pthread_mutex_lock(&parking->lock);
    parking->n_working[work]--;
    pthread_mutex_unlock(&parking->lock);
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
    struct parked_list *lists[] = {&parking->parked, &parking->later[PARKING_LONG],
                                   &parking->later[PARKING_FETCHING]};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        while (lists[i]->first != NULL) {
            struct parked *left = take_out(lists[i], &lists[i]->first);
            if (left->device == device)
                answer_interrupted(device, left->unique);
            free_parked(left);
        }
    }
    while (parking->taken.first != NULL)
        free_parked(take_out(&parking->taken, &parking->taken.first));
}
