/* SPDX-License-Identifier: MIT */
/*
 * Whatever a process needs later is acquired before it is confined.
 */
#include "fuse/confine.h"

#include "program/exit.h"
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

/* Returns what the loaders may take for an index, plus room for buffers and stacks. */
static rlim_t memory_limit(const struct mount_options *options)
{
    static const char name[] = "index_memory=";
    uint64_t n_bytes = 2ull << 30;
    for (size_t i = 0; i < options->n_limits; i++) {
        if (strncmp(options->limits[i], name, strlen(name)) == 0)
            n_bytes = strtoull(options->limits[i] + strlen(name), NULL, 10);
    }
    n_bytes += 512ull << 20;
    return n_bytes < RLIM_INFINITY && n_bytes >= 512ull << 20 ? n_bytes : RLIM_INFINITY;
}

void confine_prepare(const struct mount_options *options)
{
    struct rlimit limit;
    const rlim_t memory = memory_limit(options);
    if (!WFS_INSTRUMENTED && getrlimit(RLIMIT_AS, &limit) == 0 && memory < limit.rlim_cur) {
        limit.rlim_cur = memory;
        setrlimit(RLIMIT_AS, &limit);
    }
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
