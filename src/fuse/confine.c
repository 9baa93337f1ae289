/* SPDX-License-Identifier: MIT */
/*
 * Whatever a process needs later is acquired before it is confined.
 */
#include "fuse/confine.h"

#include "program/exit.h"
#include "program/memory.h"
#include "fuse/log.h"
#include "program/place.h"

#include <weightfs/cleanup.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

static void *sleep_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/*
 * glibc loads a library at the first cancellation, which libfuse does at the very end, when
 * descriptors or the permission to open files may be missing.
 */
static void load_cancellation(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0)
        return;
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

void confine_prepare(const struct mount_options *options)
{
    memory_limit(options->limits, options->n_limits);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    log_open();
    load_cancellation();
}

int confine(const struct mount_options *options, const struct target *target,
            const struct wfs_view *view, enum sandbox_state *ret)
{
    struct sandbox sandbox;
    sandbox_init(&sandbox, options->sandbox);
    const bool has_siblings = options->settings.shards;
    const char *overlay;
    sandbox_allow_source(&sandbox, target->source.opened, has_siblings);
    if (wfs_view_like(view) != NULL)
        sandbox_allow_source(&sandbox, wfs_view_like(view), has_siblings);
    for (size_t i = 0; (overlay = wfs_view_overlay(view, i)) != NULL; i++)
        sandbox_allow_source(&sandbox, overlay, has_siblings);
    if (target->path != NULL) {
        autofree char *stage = path_directory(target->stage_path);
        sandbox_allow_output(&sandbox, target->path);
        if (stage != NULL)
            sandbox_allow_directory(&sandbox, stage);
    }
    const int rc = sandbox_enter(&sandbox, ret);
    sandbox_done(&sandbox);
    if (rc < 0)
        return log_failure(EXIT_MOUNT, "cannot enter the whole sandbox: this system offers '%s'",
                           sandbox_state_name(*ret));
    return 0;
}
