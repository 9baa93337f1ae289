/* SPDX-License-Identifier: MIT */
/*
 * A notice that the kernel refuses is about something that it does not know.
 */
#include "fuse/notices.h"

#include <weightfs/array.h>

#include <fuse_lowlevel.h>

#include <stdlib.h>
#include <string.h>

void notices_init(struct notices *notices)
{
    *notices = (struct notices){0};
    pthread_mutex_init(&notices->lock, NULL);
}

void notices_done(struct notices *notices)
{
    notices_wait(notices);
    for (size_t i = 0; i < notices->n_items; i++)
        free(notices->items[i].name);
    free(notices->items);
    pthread_mutex_destroy(&notices->lock);
}

void notices_add(void *ctx, uint64_t number, const char *name)
{
    struct notices *notices = ctx;
    char *copy = name == NULL ? NULL : strdup(name);
    pthread_mutex_lock(&notices->lock);
    if ((name != NULL && copy == NULL) || array_reserve(&notices->items, sizeof(*notices->items),
                                                        notices->n_items, 1, &notices->n_room) < 0)
        free(copy);
    else
        notices->items[notices->n_items++] = (struct notice){number, copy};
    pthread_mutex_unlock(&notices->lock);
}

/* Returns false when there is none left. */
static bool take(struct notices *notices, struct notice *ret)
{
    pthread_mutex_lock(&notices->lock);
    const bool has_one = notices->n_sent < notices->n_items;
    if (has_one)
        *ret = notices->items[notices->n_sent++];
    else
        notices->n_sent = notices->n_items = 0;
    notices->is_running = has_one;
    pthread_mutex_unlock(&notices->lock);
    return has_one;
}

static void *run(void *ctx)
{
    struct notices *notices = ctx;
    struct notice notice;
    while (take(notices, &notice)) {
        if (notice.name == NULL)
            (void)fuse_lowlevel_notify_inval_inode(notices->session, notice.number, 0, 0);
        else
            (void)fuse_lowlevel_notify_inval_entry(notices->session, notice.number, notice.name,
                                                   strlen(notice.name));
        free(notice.name);
    }
    return NULL;
}

void notices_send(struct notices *notices, struct fuse_session *session)
{
    pthread_mutex_lock(&notices->lock);
    if (!notices->is_running && notices->n_items > 0) {
        if (notices->is_joinable)
            pthread_join(notices->thread, NULL);
        notices->session = session;
        notices->is_joinable = notices->is_running =
            pthread_create(&notices->thread, NULL, run, notices) == 0;
    }
    pthread_mutex_unlock(&notices->lock);
}

bool notices_are_sent(struct notices *notices)
{
    pthread_mutex_lock(&notices->lock);
    const bool are_sent = !notices->is_running;
    pthread_mutex_unlock(&notices->lock);
    return are_sent;
}

void notices_wait(struct notices *notices)
{
    if (notices->is_joinable)
        pthread_join(notices->thread, NULL);
    notices->is_joinable = false;
}
