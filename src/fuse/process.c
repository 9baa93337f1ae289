/* SPDX-License-Identifier: MIT */
/*
 * Until the mount answers, the process in the background is an ordinary child: it prints to the
 * user's terminal and an interrupt from there ends it. Whatever a process needs later is acquired
 * before it is confined.
 */
#include "fuse/process.h"

#include <weightfs/cleanup.h>
#include "fuse/keeper.h"
#include "fuse/log.h"
#include "program/checkpoint.h"
#include "program/place.h"
#include "program/print.h"
#include "program/urls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- the background ---- */

static void close_range_between(int first, int last)
{
    if (first <= last)
        (void)close_range((unsigned)first, (unsigned)last, 0);
}

/* Closes all descriptors above the standard ones but these two. */
static void close_inherited(int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    close_range_between(STDERR_FILENO + 1, low - 1);
    close_range_between(low > STDERR_FILENO ? low + 1 : STDERR_FILENO + 1, high - 1);
    close_range_between(high > STDERR_FILENO ? high + 1 : STDERR_FILENO + 1, INT_MAX);
}

static int wait_for_report(int report, pid_t child)
{
    char byte;
    ssize_t n;
    do
        n = read(report, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        return EXIT_DONE;
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return EXIT_MOUNT;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int process_to_background(int kept, int *ret_report)
{
    int ends[2];
    *ret_report = -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return log_failure(EXIT_MOUNT, "cannot start the driver: %s", strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        const int code = errno;
        close(ends[0]);
        close(ends[1]);
        return log_failure(EXIT_MOUNT, "cannot start the driver: %s", strerror(code));
    }
    if (pid == 0) {
        close(ends[0]);
        close_inherited(kept, ends[1]);
        *ret_report = ends[1];
        return EXIT_DONE;
    }
    close(ends[1]);
    const int exit_code = wait_for_report(ends[0], pid);
    close(ends[0]);
    return exit_code;
}

void process_detach(void)
{
    log_to_syslog();
    setsid();
    if (chdir("/") < 0)
        log_note("cannot leave the directory: %s", strerror(errno));
    autoclose int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
}

bool process_leave(int report)
{
    process_detach();
    const bool is_told = write(report, "", 1) == 1;
    close(report);
    return is_told;
}

/* ---- confinement ---- */

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

int process_prepare(const struct mount_options *options)
{
    memory_limit(&options->settings.load);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
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
    struct checkpoint_options connected = urls_options();
    struct fetcher_settings settings = options->settings.fetcher;
    settings.is_unconfined = options->sandbox == SANDBOX_OFF;
    const enum exit_code exit_code =
        checkpoint_connect(target->source.opened, &settings, view, &connected, &err);
    target->remote = connected.load.remote;
    return exit_code == EXIT_DONE ? 0 : log_failure((int)exit_code, "%s", err.text);
}

/* Allows the ranks beside the source: files in its directory, or in those beside that. */
static void allow_ranks(struct sandbox *sandbox, const char *path)
{
    const char *mark = strstr(path, "/mp_rank_");
    autofree char *above =
        mark == NULL || mark == path ? NULL : strndup(path, (size_t)(mark - path));
    sandbox_allow_source(sandbox, above == NULL ? path : above, true);
}

int process_confine(const struct mount_options *options, struct target *target,
                    const struct wfs_view *view, enum sandbox_state *ret)
{
    struct sandbox sandbox;
    const int connected = connect_remote(options, target, view);
    if (connected != 0)
        return connected;
    sandbox_init(&sandbox, options->sandbox);
    const bool has_siblings = options->settings.load.shards;
    const char *other;
    const struct checkpoint_options urls = urls_options();
    const char *source = checkpoint_copy(&urls, target->source.opened);
    sandbox_allow_source(&sandbox, source, has_siblings);
    if (wfs_view_joins(view))
        allow_ranks(&sandbox, source);
    for (size_t i = 0; (other = wfs_view_other(view, i)) != NULL; i++)
        sandbox_allow_source(&sandbox, checkpoint_copy(&urls, other), has_siblings);
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

/* ---- a process for one task ---- */

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return log_failure(EXIT_OUTPUT, "cannot wait for the commit: %s", strerror(errno));
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return log_failure(128 + WTERMSIG(status), "the commit was killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
}

int process_run_child(const struct mount_options *options, const struct target *target,
                      process_task *task, void *ctx)
{
    struct keeper keeper;
    int rc = keeper_init(&keeper, target->place.directory);
    fflush(NULL);
    const pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0) {
        const int channel = keeper_attach(&keeper);
        rc = process_prepare(options);
        if (rc == 0)
            rc = task(ctx, channel);
        _exit(print_finish(rc));
    }
    if (pid < 0)
        rc =
            log_failure(EXIT_OUTPUT, "cannot start the commit: %s", strerror(rc < 0 ? -rc : errno));
    else if (keeper_start(&keeper) < 0)
        log_warning("cannot set owner and mode of '%s': out of memory",
                    wfs_quote(target->path).text);
    if (pid > 0)
        rc = wait_for(pid);
    keeper_done(&keeper);
    return rc;
}
