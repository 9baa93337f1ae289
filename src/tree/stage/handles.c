/* SPDX-License-Identifier: MIT */
/*
 * The slots are few enough to be searched one by one.
 */
#include "tree/stage/handles.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

struct handles_name handles_name(uint64_t number)
{
    struct handles_name name;
    snprintf(name.text, sizeof(name.text), "%" PRIu64, number);
    return name;
}

void handles_init(struct handles *handles)
{
    enum { SHARE = 4, SLOTS_MIN = 4 };
    struct rlimit limit;
    *handles = (struct handles){.dir_fd = -1, .n_slots = HANDLES_MAX};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / SHARE < HANDLES_MAX)
        handles->n_slots =
            limit.rlim_cur / SHARE < SLOTS_MIN ? SLOTS_MIN : (size_t)limit.rlim_cur / SHARE;
    pthread_mutex_init(&handles->lock, NULL);
}

/* The slot of the file, else the one to give it: free, or unused for the longest time. */
static struct handles_slot *find_slot(struct handles *handles, uint64_t number)
{
    struct handles_slot *best = NULL;
    for (size_t i = 0; i < handles->n_slots; i++) {
        struct handles_slot *slot = &handles->slots[i];
        if (slot->number == number)
            return slot;
        if (slot->n_users == 0 && (best == NULL || slot->used_at < best->used_at))
            best = slot;
    }
    return best;
}

static void fill_slot(struct handles *handles, struct handles_slot *slot, uint64_t number, int fd)
{
    if (slot->number != 0)
        close(slot->fd);
    *slot = (struct handles_slot){.number = number, .used_at = ++handles->clock, .fd = fd};
}

static int acquire(struct handles *handles, uint64_t number, struct handle *ret)
{
    struct handles_slot *slot = find_slot(handles, number);
    if (slot == NULL || slot->number != number) {
        const int fd =
            openat(handles->dir_fd, handles_name(number).text, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        *ret = (struct handle){NULL, fd};
        if (slot == NULL)
            return 0;
        fill_slot(handles, slot, number, fd);
    }
    slot->used_at = ++handles->clock;
    slot->n_users++;
    *ret = (struct handle){slot, slot->fd};
    return 0;
}

int handles_acquire(struct handles *handles, uint64_t number, struct handle *ret)
{
    pthread_mutex_lock(&handles->lock);
    const int code = acquire(handles, number, ret);
    pthread_mutex_unlock(&handles->lock);
    return code;
}

void handles_release(struct handles *handles, const struct handle *handle)
{
    if (handle->slot == NULL) {
        close(handle->fd);
        return;
    }
    pthread_mutex_lock(&handles->lock);
    handle->slot->n_users--;
    pthread_mutex_unlock(&handles->lock);
}

void handles_adopt(struct handles *handles, uint64_t number, int fd)
{
    pthread_mutex_lock(&handles->lock);
    struct handles_slot *slot = find_slot(handles, number);
    if (slot != NULL)
        fill_slot(handles, slot, number, fd);
    else
        close(fd);
    pthread_mutex_unlock(&handles->lock);
}

void handles_drop(struct handles *handles, uint64_t number)
{
    pthread_mutex_lock(&handles->lock);
    struct handles_slot *slot = find_slot(handles, number);
    if (slot != NULL && slot->number == number) {
        close(slot->fd);
        *slot = (struct handles_slot){0};
    }
    pthread_mutex_unlock(&handles->lock);
}

void handles_done(struct handles *handles)
{
    for (size_t i = 0; i < handles->n_slots; i++) {
        if (handles->slots[i].number != 0)
            close(handles->slots[i].fd);
    }
    pthread_mutex_destroy(&handles->lock);
}
