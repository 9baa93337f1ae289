/* SPDX-License-Identifier: MIT */
/*
 * The supervisor keeps no descriptor of the device: when the worker dies the kernel must see the
 * last one closed, or every client of the mount would wait forever.
 */

#include "fuse/process.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>
#include "fuse/keeper.h"
#include "fuse/log.h"
#include "fuse/target.h"
#include "program/place.h"
#include "program/print.h"
#include "program/unmount.h"

#include <fuse_lowlevel.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- the mount point ---- */

/*
 * Any path here may be a mount whose driver is dead, and the mount that is being set up must not be
 * touched before it answers.
 *
 * The number of a mount is never used again (since Linux 6.8; older numbers, and those of devices,
 * are). It shows whether the mount still exists without touching the path, where another mount may
 * be by then that its user would find busy. System calls by number, with constants of our own:
 * kernels offer more than the headers of a distribution declare.
 */
enum mount_state { MOUNT_UNKNOWN, MOUNT_GONE, MOUNT_EXISTS };

enum { CALL_STATMOUNT = 457, ASK_UNIQUE_ID = 0x4000, ASK_BASICS = 1 };
enum { OFFSET_OF_ID = 0x90 }; /* stx_mnt_id, which older headers have no name for */

/* The first version of struct mnt_id_req. */
struct statmount_request {
    uint32_t n_bytes, unused;
    uint64_t id, wanted;
};

/* Returns the number of the mount at the path, without a request to its driver. 0: the kernel has
 * no such numbers. */
static uint64_t mount_id_at(const char *path)
{
    struct statx st;
    uint64_t id;
    const int flags = AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC;
    if (statx(AT_FDCWD, path, flags, ASK_UNIQUE_ID, &st) < 0 || (st.stx_mask & ASK_UNIQUE_ID) == 0)
        return 0;
    memcpy(&id, (const char *)&st + OFFSET_OF_ID, sizeof(id));
    return id;
}

/* Returns the state of the mount in this mount namespace. */
static enum mount_state mount_id_state(uint64_t id)
{
    const struct statmount_request request = {
        .n_bytes = sizeof(request), .id = id, .wanted = ASK_BASICS};
    uint64_t answer[128];
    if (id == 0)
        return MOUNT_UNKNOWN;
    if (syscall(CALL_STATMOUNT, &request, answer, sizeof(answer), 0) == 0)
        return MOUNT_EXISTS;
    return errno == ENOENT ? MOUNT_GONE : MOUNT_UNKNOWN;
}

struct mountpoint {
    char *path;      /* absolute, links resolved */
    bool is_missing; /* did not exist before the mount; removed again after it */
    bool is_made;
    uint64_t id; /* of the mount; 0: not known */
};

/*
 * Finds the directory and clears a dead mount. Returns false when a line was printed. A missing
 * directory is only noted.
 */
static bool mountpoint_init(struct mountpoint *mountpoint, const char *path)
{
    *mountpoint = (struct mountpoint){.path = path_resolve(path)};
    if (mountpoint->path == NULL) {
        log_error("cannot mount on '%s': %s", wfs_quote(path).text, strerror(errno));
        return false;
    }
    struct stat st;
    struct wfs_error err = {0};
    if (unmount_is_dead(mountpoint->path) && unmount_path(mountpoint->path, true, &err) < 0) {
        log_error("cannot clear the dead mount at '%s': %s", wfs_quote(mountpoint->path).text,
                  err.text);
        return false;
    }
    if (stat(mountpoint->path, &st) < 0) {
        mountpoint->is_missing = errno == ENOENT;
        if (!mountpoint->is_missing)
            log_error("cannot mount on '%s': %s", wfs_quote(path).text, strerror(errno));
        return mountpoint->is_missing;
    }
    if (!S_ISDIR(st.st_mode)) {
        log_error("cannot mount on '%s': not a directory", wfs_quote(path).text);
        return false;
    }
    if (unmount_is_root(mountpoint->path)) { /* a second mount would hide it and its edits */
        log_error(
            "cannot mount on '%s': it is a weightfs mount already; first 'weightfs umount %s'",
            wfs_quote(path).text, wfs_quote(path).text);
        return false;
    }
    return true;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Returns true when the directory is the mount point or below it, by following "..". */
static bool mountpoint_hides(const struct mountpoint *mountpoint, const char *directory)
{
    struct stat top, st, above;
    if (mountpoint->is_missing || stat(mountpoint->path, &top) < 0)
        return false;
    autoclose int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return false;
    while (!is_same(&st, &top)) {
        const int parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (parent < 0)
            return false;
        close(fd);
        fd = parent;
        if (fstat(fd, &above) < 0 || is_same(&st, &above))
            return false;
        st = above;
    }
    return true;
}

/* Makes a missing one, or one that another driver has removed since it was found. Returns false
 * when a line was printed. */
static bool mountpoint_make(struct mountpoint *mountpoint)
{
    mountpoint->is_made = mkdir(mountpoint->path, 0755) == 0;
    if (!mountpoint->is_made && !mountpoint->is_missing)
        return true; /* it exists, or the mount says what is wrong with it */
    if (!mountpoint->is_made)
        log_error("cannot make the mount point '%s': %s", wfs_quote(mountpoint->path).text,
                  strerror(errno));
    return mountpoint->is_made;
}

/* Removes the directory if mountpoint_make made it. */
static void mountpoint_remove(struct mountpoint *mountpoint)
{
    if (mountpoint->is_made)
        (void)rmdir(mountpoint->path);
    mountpoint->is_made = false;
}

/* Returns true when the mount still exists after its driver has ended. */
static bool mountpoint_is_left(const struct mountpoint *mountpoint)
{
    const enum mount_state state = mount_id_state(mountpoint->id);
    return state == MOUNT_EXISTS || (state == MOUNT_UNKNOWN && unmount_is_dead(mountpoint->path));
}

/* Unmounts, lazily when it is in use. Returns true when it was not. */
static bool mountpoint_unmount(const struct mountpoint *mountpoint)
{
    struct wfs_error err = {0};
    if (unmount_path(mountpoint->path, false, NULL) == 0)
        return true;
    if (unmount_path(mountpoint->path, true, &err) < 0)
        log_error("cannot unmount '%s': %s", wfs_quote(mountpoint->path).text, err.text);
    return false;
}

/* A line is "ID PARENT MAJOR:MINOR ROOT PLACE ...", with \NNN in the place for white space. */
static bool is_line_of(const char *line, const char *place, char *ret_device)
{
    int n_before = 0;
    if (sscanf(line, "%*d %*d %23s %*s %n", ret_device, &n_before) != 1 || n_before == 0)
        return false;
    const char *at = line + n_before;
    for (; *place != '\0'; place++) {
        char octal[8];
        snprintf(octal, sizeof(octal), "\\%03o", (unsigned char)*place);
        const bool is_escaped = strncmp(at, octal, 4) == 0;
        if (!is_escaped && *at != *place)
            return false;
        at += is_escaped ? 4 : 1;
    }
    return *at == ' ';
}

/* Finds the device, "MAJOR:MINOR", of the last mount at the place. */
static bool find_device(const char *place, char ret_device[24])
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    autofree char *line = NULL;
    size_t n_room = 0;
    bool is_found = false;
    char device[24];
    while (file != NULL && getline(&line, &n_room, file) >= 0) {
        if (is_line_of(line, place, device)) {
            strcpy(ret_device, device);
            is_found = true;
        }
    }
    if (file != NULL)
        fclose(file);
    return is_found;
}

/*
 * Raises the kernel's read-ahead above its default; only root can. The kernel sets the default when
 * the driver answers its greeting, so call this afterwards. Does not touch the mount, which would
 * make it busy.
 */
static void mountpoint_raise_readahead(const struct mountpoint *mountpoint)
{
    char path[64], device[24];
    if (!find_device(mountpoint->path, device))
        return;
    snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device);
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "1024", 4) < 0)
        log_note("cannot raise the read-ahead: %s", strerror(errno));
}

static bool allows_other_users(void)
{
    FILE *file = fopen("/etc/fuse.conf", "re");
    if (file == NULL)
        return false;
    char line[256];
    bool is_allowed = false;
    while (!is_allowed && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, " \t\r\n")] = '\0';
        is_allowed = strcmp(line, "user_allow_other") == 0;
    }
    fclose(file);
    return is_allowed;
}

/* Returns why an ordinary user cannot mount anything here, or NULL. */
static const char *find_user_trouble(const struct mount_options *options)
{
    struct stat st;
    if (geteuid() == 0)
        return NULL;
    if (stat("/usr/bin/fusermount3", &st) < 0 && stat("/bin/fusermount3", &st) < 0)
        return "fusermount3 is not installed (package fuse3)";
    if ((st.st_mode & S_ISUID) == 0 || st.st_uid != 0)
        return "fusermount3 is not setuid root";
    if (options->allow_other && !allows_other_users())
        return "allow_other needs the line 'user_allow_other' in /etc/fuse.conf";
    return NULL;
}

/* Returns what a container lacks where the kernel, or its rules, refuse a mount. */
static const char *remedy_of(const char *text)
{
    return strstr(text, strerror(EPERM)) != NULL || strstr(text, strerror(EACCES)) != NULL
               ? " (give the container that right: docker run --device /dev/fuse --cap-add "
                 "SYS_ADMIN --security-opt apparmor=unconfined, or mount in 'unshare -rm'); the "
                 "verbs that only read or convert work without it"
               : "";
}

/* Prints one line on why mounting failed; text is the message of libfuse, may be empty. */
static void mountpoint_explain(const struct mountpoint *mountpoint,
                               const struct mount_options *options, const char *text)
{
    const struct wfs_quoted path = wfs_quote(mountpoint->path);
    autoclose int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const int code = fd < 0 ? errno : 0;
    const char *trouble = find_user_trouble(options);
    if (code == ENOENT || code == ENODEV || code == ENXIO)
        log_error("cannot mount on '%s': there is no /dev/fuse (try 'modprobe fuse', or give the "
                  "container that device); the verbs that only read or convert work without it",
                  path.text);
    else if (code != 0)
        log_error("cannot mount on '%s': cannot open /dev/fuse: %s%s", path.text, strerror(code),
                  code == EPERM ? " (give the container that device: docker run --device /dev/fuse "
                                  "--cap-add SYS_ADMIN)"
                  : code == EACCES
                      ? " (it needs mode 0666, or membership of the group that owns it)"
                      : "");
    else if (trouble != NULL)
        log_error("cannot mount on '%s': %s", path.text, trouble);
    else
        log_error("cannot mount on '%s': %s%s", path.text,
                  *text != '\0' ? wfs_prose(text).text : "libfuse gives no reason",
                  remedy_of(text));
}

/* ---- the supervisor ---- */

struct supervisor {
    const struct mount_options *options;
    struct target target;
    struct mountpoint mountpoint;
    pid_t worker;
    struct keeper keeper;
    int channel, report;
    int signals;      /* signalfd; -1 until the mount exists */
    bool is_stopping; /* the worker was asked to end */
};

/* ---- checks before anything is started ---- */

static bool is_hidden(const struct supervisor *supervisor, const char *what, const char *path)
{
    autofree char *directory = path != NULL ? path_directory(path) : NULL;
    if (directory == NULL || !mountpoint_hides(&supervisor->mountpoint, directory))
        return false;
    log_error("cannot mount on '%s': the %s is inside it",
              wfs_quote(supervisor->mountpoint.path).text, what);
    return true;
}

static int prepare(struct supervisor *supervisor)
{
    const int rc = target_init(&supervisor->target, supervisor->options);
    if (rc != 0)
        return rc;
    log_set_path(supervisor->target.source.path);
    if (!mountpoint_init(&supervisor->mountpoint, supervisor->options->mountpoint) ||
        is_hidden(supervisor, "source", supervisor->target.source.path) ||
        is_hidden(supervisor, "output", supervisor->target.path) ||
        is_hidden(supervisor, "staging directory", supervisor->target.stage_path))
        return EXIT_MOUNT;
    return 0;
}

/* ---- mounting ---- */

static bool add_mount_options(const struct supervisor *supervisor, struct fuse_args *args)
{
    const struct mount_options *options = supervisor->options;
    autofree char *name = NULL;
    char *list = NULL;
    /* The source as lists of mounts show it: fstab's has to be found there again. */
    const char *path = supervisor->target.source.path;
    const char *shown = path != NULL              ? path
                        : url_is(options->source) ? options->source
                                                  : "weightfs";
    if (asprintf(&name, "fsname=%s", shown) < 0) {
        name = NULL;
        return false;
    }
    const bool is_good =
        fuse_opt_add_opt_escaped(&list, name) == 0 &&
        fuse_opt_add_opt(&list, "subtype=weightfs,default_permissions,nosuid,nodev,noexec") == 0 &&
        (supervisor->target.path != NULL || fuse_opt_add_opt(&list, "ro") == 0) &&
        (options->syncs != MOUNT_SYNCS_ALL || fuse_opt_add_opt(&list, "sync") == 0) &&
        (options->syncs != MOUNT_SYNCS_NAMES || fuse_opt_add_opt(&list, "dirsync") == 0) &&
        (!options->allow_other || fuse_opt_add_opt(&list, "allow_other") == 0) &&
        (!options->auto_unmount || fuse_opt_add_opt(&list, "auto_unmount") == 0) &&
        fuse_opt_add_arg(args, "weightfs") == 0 && fuse_opt_add_arg(args, "-o") == 0 &&
        fuse_opt_add_arg(args, list) == 0;
    free(list);
    return is_good;
}

/*
 * Mounts, with everything that libfuse prints going to `messages`. Returns the device, or -1.
 * libfuse frees a session with a mount only by unmounting, so the session lives as long as the
 * process, and its descriptor is taken from it.
 */
static int mount_quietly(const struct supervisor *supervisor, struct fuse_args *args, int messages)
{
    static const struct fuse_lowlevel_ops none;
    static struct fuse_session *session;
    autoclose int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (messages >= 0)
        dup2(messages, STDERR_FILENO);
    int device = -1;
    session = fuse_session_new(args, &none, sizeof(none), NULL);
    if (session != NULL && fuse_session_mount(session, supervisor->mountpoint.path) == 0)
        device = fuse_session_fd(session);
    else if (session != NULL)
        fuse_session_destroy(session);
    if (saved >= 0)
        dup2(saved, STDERR_FILENO);
    return device;
}

/* Reads the last line that libfuse or fusermount3 printed, without the name of the program. */
static void read_messages(int messages, char *ret_text, size_t n_bytes)
{
    char text[WFS_ERROR_TEXT_MAX];
    const ssize_t n = messages >= 0 ? io_read_at(messages, text, sizeof(text) - 1, 0) : 0;
    text[n > 0 ? n : 0] = '\0';
    while (*text != '\0' && text[strlen(text) - 1] == '\n')
        text[strlen(text) - 1] = '\0';
    const char *line = strrchr(text, '\n') != NULL ? strrchr(text, '\n') + 1 : text;
    static const char *const prefixes[] = {"fusermount3: ", "fuse: "};
    for (size_t i = 0; i < 2; i++)
        line += strncmp(line, prefixes[i], strlen(prefixes[i])) == 0 ? strlen(prefixes[i]) : 0;
    snprintf(ret_text, n_bytes, "%s", line);
}

static int mount_device(struct supervisor *supervisor)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    autoclose int messages = memfd_create("messages", MFD_CLOEXEC);
    if (!mountpoint_make(&supervisor->mountpoint))
        return -1;
    int device = -1;
    if (add_mount_options(supervisor, &args))
        device = mount_quietly(supervisor, &args, messages);
    fuse_opt_free_args(&args);
    if (device < 0) {
        char text[WFS_ERROR_TEXT_MAX];
        read_messages(messages, text, sizeof(text));
        mountpoint_explain(&supervisor->mountpoint, supervisor->options, text);
    } else if (geteuid() != 0 && unmount_find_trouble() != NULL) {
        log_warning("%s", unmount_find_trouble());
    }
    return device;
}

/* ---- the worker ---- */

static int start_worker(struct supervisor *supervisor)
{
    int ends[2];
    const int directory = supervisor->target.path != NULL ? supervisor->target.place.directory : -1;
    const int rc = keeper_init(&supervisor->keeper, directory);
    if (rc < 0)
        return rc;
    if (channel_new(ends) < 0)
        return -errno;
    fflush(NULL);
    supervisor->worker = fork();
    if (supervisor->worker < 0) {
        const int code = -errno;
        close(ends[0]);
        close(ends[1]);
        return code;
    }
    const bool is_worker = supervisor->worker == 0;
    close(ends[is_worker ? 0 : 1]);
    if (is_worker && supervisor->report >= 0)
        close(supervisor->report);
    supervisor->channel = ends[is_worker ? 1 : 0];
    return 0;
}

/* Returns true when the worker has ended; *ret_status is then that of waitpid. */
static bool reap_worker(const struct supervisor *supervisor, bool is_waiting, int *ret_status)
{
    pid_t pid;
    do
        pid = waitpid(supervisor->worker, ret_status, is_waiting ? 0 : WNOHANG);
    while (pid < 0 && errno == EINTR);
    return pid != 0;
}

static int end_of_worker(const struct supervisor *supervisor, int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    const char *stage = supervisor->target.stage_path;
    log_error("the driver was killed by signal %d (%s)%s%s", number, strsignal(number),
              stage != NULL ? "; uncommitted edits are in " : "",
              stage != NULL ? wfs_quote(stage).text : "");
    return 128 + number;
}

/* After a failure to mount: ends the worker and removes what was made. */
static int give_up(struct supervisor *supervisor, int exit_code)
{
    int status = 0;
    close(supervisor->channel);
    supervisor->channel = -1;
    reap_worker(supervisor, true, &status);
    if (mountpoint_is_left(&supervisor->mountpoint))
        mountpoint_unmount(&supervisor->mountpoint);
    mountpoint_remove(&supervisor->mountpoint);
    target_abandon(&supervisor->target);
    return exit_code != 0 ? exit_code : end_of_worker(supervisor, status);
}

/* ---- while the mount exists ---- */

/*
 * Ends in good order: unmounting writes back mapped pages and ends the worker's loop. Where another
 * process has unmounted, what is at the path now is not ours. A mount in use is only detached, and
 * the worker gets signals until it ends: one can arrive just before it waits.
 */
static void stop(struct supervisor *supervisor)
{
    if (!supervisor->is_stopping && mount_id_state(supervisor->mountpoint.id) != MOUNT_GONE &&
        mountpoint_unmount(&supervisor->mountpoint))
        return;
    supervisor->is_stopping = true;
    kill(supervisor->worker, SIGTERM);
}

/*
 * Returns true when this process or the worker, which reports it, got a signal to end. Returns
 * every second while the worker is ending.
 */
static bool wait_for_news(struct supervisor *supervisor)
{
    struct signalfd_siginfo info = {0};
    struct pollfd news[] = {{.fd = supervisor->signals, .events = POLLIN},
                            {.fd = supervisor->channel, .events = POLLIN}};
    if (poll(news, 2, supervisor->is_stopping ? 1000 : -1) <= 0)
        return false;
    if ((news[0].revents & POLLIN) != 0 &&
        read(supervisor->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        return info.ssi_signo != SIGCHLD;
    if (news[1].revents == 0)
        return false;
    if (channel_receive(supervisor->channel, CHANNEL_STOP, NULL))
        return true;
    close(supervisor->channel); /* the worker is ending */
    supervisor->channel = -1;
    return false;
}

static int wait_for_end(struct supervisor *supervisor)
{
    int status = 0;
    while (!reap_worker(supervisor, false, &status)) {
        if (wait_for_news(supervisor) || supervisor->is_stopping)
            stop(supervisor);
    }
    if (mountpoint_is_left(&supervisor->mountpoint))
        mountpoint_unmount(&supervisor->mountpoint);
    mountpoint_remove(&supervisor->mountpoint);
    return end_of_worker(supervisor, status);
}

/* A signal that was ignored at the start in the foreground stays ignored, as nohup expects. */
static int block_signals(struct supervisor *supervisor)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction action;
        sigaction(numbers[i], NULL, &action);
        if (numbers[i] == SIGCHLD || supervisor->report >= 0 || action.sa_handler != SIG_IGN)
            sigaddset(&signals, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &signals, NULL);
    supervisor->signals = signalfd(-1, &signals, SFD_CLOEXEC);
    if (supervisor->signals < 0)
        return log_failure(EXIT_MOUNT, "cannot wait for signals: %s", strerror(errno));
    return 0;
}

static int supervise(struct supervisor *supervisor)
{
    const int kept = keeper_start(&supervisor->keeper);
    if (kept < 0)
        return give_up(supervisor,
                       log_failure(EXIT_MOUNT, "cannot start a thread: %s", strerror(-kept)));
    if (!channel_receive(supervisor->channel, CHANNEL_READY, NULL))
        return give_up(supervisor, 0);
    const int rc = block_signals(supervisor);
    if (rc != 0)
        return give_up(supervisor, rc);
    const int device = mount_device(supervisor);
    if (device < 0)
        return give_up(supervisor, EXIT_MOUNT);
    supervisor->mountpoint.id = mount_id_at(supervisor->mountpoint.path);
    const bool is_sent = channel_send(supervisor->channel, CHANNEL_DEVICE, device);
    close(device);
    if (!is_sent || !channel_receive(supervisor->channel, CHANNEL_SERVING, NULL))
        return give_up(supervisor, 0);
    mountpoint_raise_readahead(&supervisor->mountpoint);
    if (supervisor->report >= 0 && !process_leave(supervisor->report))
        stop(supervisor);
    return wait_for_end(supervisor);
}

int supervisor_run(const struct mount_options *options, int report)
{
    struct supervisor supervisor = {
        .options = options,
        .keeper = {.ends = {-1, -1}},
        .channel = -1,
        .signals = -1,
        .report = report,
    };
    int rc = prepare(&supervisor);
    if (rc != 0) {
        target_abandon(&supervisor.target);
    } else {
        const int code = start_worker(&supervisor);
        if (code < 0)
            rc = log_failure(EXIT_MOUNT, "cannot start the driver: %s", strerror(-code));
        else if (supervisor.worker == 0)
            rc = worker_run(options, &supervisor.target, supervisor.channel,
                            keeper_attach(&supervisor.keeper), report >= 0);
        else
            rc = supervise(&supervisor);
    }
    if (supervisor.channel >= 0)
        close(supervisor.channel);
    keeper_done(&supervisor.keeper);
    if (supervisor.signals >= 0)
        close(supervisor.signals);
    free(supervisor.mountpoint.path);
    log_set_path(NULL);
    target_done(&supervisor.target);
    return rc;
}
