/* SPDX-License-Identifier: MIT */
/*
 * Whatever a process needs later is acquired before it is confined.
 */
#include "fuse/confine.h"

#include "program/checkpoint.h"
#include "program/print.h"
#include "fuse/log.h"
#include "program/place.h"

#include <weightfs/cleanup.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void *sleep_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/*
 * glibc loads a library at the first cancellation, which libfuse does at the very end, when
 * descriptors or the permission to open files may be missing. It aborts where that fails, so the
 * library is loaded by hand first.
 */
static int load_cancellation(void)
{
    pthread_t thread;
    if (dlopen("libgcc_s.so.1", RTLD_NOW) == NULL)
        return log_failure(EXIT_MOUNT, "cannot load a library: %s", dlerror());
    const int code = pthread_create(&thread, NULL, sleep_for_ever, NULL);
    if (code != 0)
        return log_failure(EXIT_MOUNT, "cannot start a thread: %s", strerror(code));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    return 0;
}

/* Where a stack cannot grow the process gets SIGSEGV, so too little is found out before. */
static int check_address_space(void)
{
    enum { N_NEEDED = 16 << 20 }; /* bytes, for libraries, buffers and the stacks of threads */
    void *probe = mmap(NULL, N_NEEDED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED)
        return log_failure(EXIT_MOUNT, "cannot start the driver: %s; 'ulimit -v' limits its memory",
                           strerror(errno));
    munmap(probe, N_NEEDED);
    return 0;
}

int confine_prepare(const struct mount_options *options)
{
    memory_limit(&options->settings.load);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    log_open();
    const int rc = check_address_space();
    return rc == 0 ? load_cancellation() : rc;
}

/* Starts the process that fetches, which has a sandbox of its own. */
static int connect_remote(const struct mount_options *options, struct target *target,
                          const struct wfs_view *view)
{
    struct wfs_error err = {0};
    struct checkpoint_options connected = {0};
    struct fetcher_settings settings = options->settings.fetcher;
    settings.is_unconfined = options->sandbox == SANDBOX_OFF;
    const enum exit_code exit_code =
        checkpoint_connect(target->source.opened, &settings, view, &connected, &err);
    target->remote = connected.load.remote;
    return exit_code == EXIT_DONE ? 0 : log_failure((int)exit_code, "%s", err.text);
}

int confine(const struct mount_options *options, struct target *target, const struct wfs_view *view,
            enum sandbox_state *ret)
{
    struct sandbox sandbox;
    const int connected = connect_remote(options, target, view);
    if (connected != 0)
        return connected;
    sandbox_init(&sandbox, options->sandbox);
    const bool has_siblings = options->settings.load.shards;
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
