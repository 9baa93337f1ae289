/* SPDX-License-Identifier: MIT */
/*
 * The order is: prepare the process, confine it, read the source, and only then ask for the device.
 * No byte of a source is examined outside the sandbox.
 */
#include "fuse/process.h"

#include <weightfs/cleanup.h>
#include "fuse/keeper.h"
#include "fuse/log.h"
#include "fuse/publication.h"
#include "fuse/request.h"
#include "program/print.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>

/* ---- signals ---- */

/* For the signal handler, which takes no argument of ours. */
static struct {
    struct fuse_session *volatile session;
    volatile pid_t supervisor;
    volatile int channel;
} signalled;

/*
 * A signal from the supervisor ends the loop. One from any other process is passed to the
 * supervisor, which unmounts first, unless it has died.
 */
static void on_signal(int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    const pid_t supervisor = signalled.supervisor;
    if (getppid() == supervisor && info->si_pid != supervisor)
        (void)channel_send(signalled.channel, CHANNEL_STOP, -1);
    else if (signalled.session != NULL)
        fuse_session_exit(signalled.session);
    errno = saved;
}

static void catch_signals(const struct driver *driver)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    signalled.supervisor = driver->supervisor;
    signalled.channel = driver->channel;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction old;
        sigaction(numbers[i], NULL, &old);
        if (old.sa_handler != SIG_IGN || driver->is_background)
            sigaction(numbers[i], &action, NULL);
    }
}

/* ---- messages ---- */

/* The last error that libfuse reported: its functions return no reason. */
static char last_message[WFS_ERROR_TEXT_MAX];

static void log_of_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
    char text[sizeof(last_message)];
    if (level == FUSE_LOG_DEBUG) {
        vfprintf(stderr, format, args);
        return;
    }
    wfs_format(text, sizeof(text), format, args);
    text[strcspn(text, "\n")] = '\0';
    if (level <= FUSE_LOG_ERR) {
        strcpy(last_message, text);
        log_error("%s", text);
    } else
        log_note("%s", text);
}

/* ---- the session ---- */

/* Reads of pages that the kernel passes on at a time, each of which may take long; while there are
 * more, it lets all readers wait, also those of other files. */
enum { N_BACKGROUND = 1024 };

static void want(struct fuse_conn_info *connection, unsigned flags)
{
    connection->want |= flags & connection->capable;
}

/*
 * Without FUSE_CAP_ATOMIC_O_TRUNC, truncation is a request of its own, which a mount without opens
 * needs. "Auto" readdirplus gives up in large directories.
 *
 * The kernel must not drop cached pages because mtime or size have changed: a page that is dropped
 * while a write to it is on its way is read again with its old bytes, and stays like that.
 */
static void op_init(void *userdata, struct fuse_conn_info *connection)
{
    const struct driver *driver = userdata;
    want(connection, FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_IOCTL_DIR |
                         FUSE_CAP_EXPORT_SUPPORT);
    connection->want &=
        ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA);
    /* Only a generated header changes a size without the kernel's knowledge. */
    if (driver->options->files != WFS_FILES_NPY)
        want(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
    /* A process that waits for such a read could not be killed. */
    if (driver->target->remote != NULL)
        connection->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    /* Changes take setuid away here; without this the kernel sends a request before every write. */
    want(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    connection->max_write = DRIVER_TRANSFER_MAX;
    connection->max_background = N_BACKGROUND;
}

/* Address space is limited: libfuse would take 8 MiB for the stack of each thread. */
enum { N_STACK = 4 << 20 };

/* Threads get half of the address space where that is limited. */
static unsigned most_threads(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT_MAX;
    const rlim_t n = limit.rlim_cur / 2 / (N_STACK + 3 * DRIVER_TRANSFER_MAX);
    return n < 1 ? 1 : n < UINT_MAX ? (unsigned)n : UINT_MAX;
}

/* Threads that work long, or wait for a commit or for the network, answer no other request, so
 * there are more of them. One runs the commit. */
static unsigned count_threads(const struct driver *driver)
{
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned n = PARKING_N_LONG + (n_cpus < 2 ? 2 : n_cpus > 8 ? 8 : (unsigned)n_cpus);
    const unsigned wanted = n + (driver->target->remote != NULL ? PARKING_N_FETCHING : 0) +
                            (wfs_tree_is_writable(driver->tree) ? PARKING_N_WAITING : 0);
    const unsigned most = most_threads();
    return wanted < most ? wanted : most;
}

/*
 * The first request is the kernel's greeting. The mount can be used once it is answered; only then
 * does the worker leave the terminal.
 */
static int greet(struct driver *driver)
{
    struct fuse_buf buffer = {0};
    int n;
    do
        n = fuse_session_receive_buf(driver->session, &buffer);
    while (n == -EINTR && !fuse_session_exited(driver->session));
    if (n > 0)
        fuse_session_process_buf(driver->session, &buffer);
    free(buffer.mem);
    if (n <= 0)
        return n;
    if (driver->is_background)
        process_detach();
    if (!channel_send(driver->channel, CHANNEL_SERVING, -1))
        log_warning("the supervisor is gone; nobody will unmount at the end");
    if (driver->sandbox == SANDBOX_STATE_NONE)
        log_note(
            "the driver runs without a sandbox: this system offers neither seccomp nor Landlock");
    return 0;
}

/*
 * A device descriptor for each thread needs the right to open the device, and spare descriptors.
 * From 3.17 on, libfuse does not make one where requests are received by a function of ours.
 */
static bool can_clone_device(void)
{
    enum { N_ENOUGH = 64, SINCE_CUSTOM = 317 };
    if (fuse_version() >= SINCE_CUSTOM)
        return false;
    struct rlimit limit;
    autoclose int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    return device >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= N_ENOUGH;
}

/* Takes, for a moment, the memory that a thread needs while it answers, and a little more. */
static void *hold_buffers(void *ret_is_good)
{
    char *request = malloc(2 * DRIVER_TRANSFER_MAX), *reply = malloc(2 * DRIVER_TRANSFER_MAX);
    *(bool *)ret_is_good = request != NULL && reply != NULL;
    free(request);
    free(reply);
    return NULL;
}

/* Fails where no thread could serve, as long as this can still be reported. */
static int rehearse(const struct driver *driver)
{
    bool is_good = false;
    pthread_t thread;
    pthread_attr_t attributes;
    if (driver->options->is_single_threaded) {
        hold_buffers(&is_good);
        return is_good ? 0 : -ENOMEM;
    }
    if (pthread_attr_init(&attributes) != 0)
        return -ENOMEM;
    pthread_attr_setstacksize(&attributes, N_STACK);
    const int code = pthread_create(&thread, &attributes, hold_buffers, &is_good);
    pthread_attr_destroy(&attributes);
    if (code == 0)
        pthread_join(thread, NULL);
    return code != 0 ? -code : is_good ? 0 : -ENOMEM;
}

static int loop(struct driver *driver)
{
    char stack[16];
    const int rehearsed = rehearse(driver);
    if (rehearsed < 0)
        return rehearsed;
    const int greeted = greet(driver);
    if (greeted < 0 || fuse_session_exited(driver->session))
        return greeted;
    if (driver->options->is_single_threaded)
        return fuse_session_loop(driver->session);
    snprintf(stack, sizeof(stack), "%d", N_STACK);
    setenv("FUSE_THREAD_STACK", stack, false);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (config == NULL)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, can_clone_device());
    fuse_loop_cfg_set_max_threads(config, count_threads(driver));
    const int rc = fuse_session_loop_mt(driver->session, config);
    fuse_loop_cfg_destroy(config);
    return rc;
}

static ssize_t receive(int device, void *request, size_t n_room, void *ctx)
{
    struct driver *driver = ctx;
    return parking_receive(&driver->parking, device, request, n_room);
}

static ssize_t reply(int device, struct iovec *parts, int n_parts, void *ctx)
{
    struct driver *driver = ctx;
    return parking_answer(&driver->parking, device, parts, n_parts);
}

static int serve(struct driver *driver, int device)
{
    const struct fuse_custom_io io = {.writev = reply, .read = receive};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    int rc = -ENOMEM;
    fuse_set_log_func(log_of_libfuse);
    if (fuse_opt_add_arg(&args, "weightfs") == 0 &&
        (!driver->options->is_debug || fuse_opt_add_arg(&args, "-d") == 0)) {
        const bool is_writable = wfs_tree_is_writable(driver->tree);
        struct fuse_lowlevel_ops ops = {.init = op_init};
        ops_names_add(&ops, is_writable);
        ops_content_add(&ops, is_writable);
        ops_commit_add(&ops, is_writable);
        driver->session = fuse_session_new(&args, &ops, sizeof(ops), driver);
    }
    fuse_opt_free_args(&args);
    if (driver->session != NULL && fuse_session_custom_io(driver->session, &io, device) == 0) {
        signalled.session = driver->session;
        rc = loop(driver);
        signalled.session = NULL;
    }
    parking_clear(&driver->parking, device);
    notices_wait(&driver->notices);
    if (driver->session != NULL)
        fuse_session_destroy(driver->session);
    else
        close(device);
    driver->session = NULL;
    if (rc >= 0)
        return 0;
    const char *reason = last_message[0] != '\0' ? last_message : strerror(-rc);
    return log_failure(EXIT_MOUNT, "cannot serve the mount: %s", reason);
}

static int run(struct driver *driver)
{
    int device;
    struct wfs_error err = {0};
    char summary[COMMIT_TEXT_MAX];
    catch_signals(driver);
    if (!channel_send(driver->channel, CHANNEL_READY, -1) ||
        !channel_receive(driver->channel, CHANNEL_DEVICE, &device))
        return EXIT_DONE; /* the supervisor reports why */
    const int exit_code = serve(driver, device);
    /* The last chance for pending edits: only the log and the exit code report it. */
    return wfs_tree_is_writable(driver->tree) &&
                   publication_run(driver, false, NULL, summary, &err) < 0
               ? EXIT_OUTPUT
               : exit_code;
}

int worker_run(const struct mount_options *options, struct target *target, int channel, int keeper,
               bool is_background)
{
    struct driver driver = {0};
    int exit_code = process_prepare(options);
    if (exit_code == 0)
        exit_code = loading_run(&driver, options, target);
    driver.channel = channel;
    driver.keeper = keeper;
    driver.is_background = is_background;
    if (exit_code == 0) {
        loading_tell(driver.tree);
        exit_code = run(&driver);
    }
    driver_done(&driver);
    return exit_code;
}
