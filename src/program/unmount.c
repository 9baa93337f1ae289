/* SPDX-License-Identifier: MIT */
/*
 * umount2 works for root and inside an own user namespace; everybody else needs the setuid helper,
 * whose message is read to distinguish "busy" from other errors.
 */
#include "program/unmount.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/io.h>
#include <weightfs/stage.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define HELPER "fusermount3"

/*
 * Returns its exit status, or a negative errno. Its messages go to fd; no signal is blocked in it.
 */
static int run_helper(char *const argv[], int fd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int rc = posix_spawn_file_actions_adddup2(&actions, fd, STDERR_FILENO);
    pid_t pid = -1;
    if (rc == 0)
        rc = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return -rc;
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* It mounts without the table, but refuses to unmount what is not in it. */
const char *unmount_find_trouble(void)
{
    if (access("/etc/mtab", F_OK) == 0)
        return NULL;
    return HELPER " cannot unmount without /etc/mtab; to make it, run as root: "
                  "ln -s ../proc/self/mounts /etc/mtab";
}

/* The helper fails with 1 in any case; the reason is at the end of its message, after the path. */
static int unmount_with_helper(const char *path, bool is_lazy, struct wfs_error *err)
{
    char *const plain[] = {HELPER, "-u", "--", (char *)path, NULL};
    char *const lazy[] = {HELPER, "-u", "-z", "--", (char *)path, NULL};
    autoclose int fd = memfd_create(HELPER, MFD_CLOEXEC);
    if (fd < 0)
        return wfs_fail(err, errno, "cannot run " HELPER ": %s", strerror(errno));
    const int status = run_helper(is_lazy ? lazy : plain, fd);
    if (status == 0)
        return 0;
    if (status < 0)
        return wfs_fail(err, -status, "cannot run " HELPER ": %s", strerror(-status));
    const char *trouble = unmount_find_trouble();
    if (trouble != NULL)
        return wfs_fail(err, EPERM, "%s", trouble);
    char text[WFS_ERROR_TEXT_MAX] = "";
    const ssize_t n = io_read_at(fd, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    const int code = ends_with(text, strerror(EBUSY)) ? EBUSY : EPERM;
    return wfs_fail(err, code, "%s", code == EBUSY ? strerror(EBUSY) : text);
}

int unmount_path(const char *path, bool is_lazy, struct wfs_error *err)
{
    if (umount2(path, UMOUNT_NOFOLLOW | (is_lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return unmount_with_helper(path, is_lazy, err);
    return wfs_fail(err, errno, "%s", strerror(errno));
}

bool unmount_is_root(const char *path)
{
    struct wfs_control_reply hello;
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? ioctl(fd, WFS_IOC_HELLO, &hello) == 0 || errno == ENOTCONN : errno == ENOTCONN;
}

/* stat may be answered from the cache of the kernel, statfs never is. */
bool unmount_is_dead(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) < 0 && errno == ENOTCONN;
}

/* ---- other mounts of the filesystem ---- */

/* One line of a list of mounts. */
struct mount_line {
    int id;
    dev_t device;
    const char *place; /* as the list has it, with octal codes */
};

/* Calls visit with each mount in the namespace of a process until it returns true. */
static bool each_mount(pid_t pid, bool (*visit)(void *ctx, const struct mount_line *line),
                       void *ctx)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    FILE *file = fopen(path, "re");
    autofree char *line = NULL;
    size_t n_room = 0;
    bool is_found = false;
    while (file != NULL && !is_found && getline(&line, &n_room, file) > 0) {
        unsigned major_number, minor_number;
        autofree char *place = NULL;
        struct mount_line found = {0};
        if (sscanf(line, "%d %*d %u:%u %*s %ms", &found.id, &major_number, &minor_number, &place) !=
            4)
            continue;
        found.device = makedev(major_number, minor_number);
        found.place = place;
        is_found = visit(ctx, &found);
    }
    if (file != NULL)
        fclose(file);
    return is_found;
}

/* Calls it with those of all processes, our own first. Returns the process where it returned true,
 * or 0. */
static pid_t each_mount_of_all(bool (*visit)(void *ctx, const struct mount_line *line), void *ctx)
{
    pid_t pid = getpid();
    if (each_mount(pid, visit, ctx))
        return pid;
    DIR *dir = opendir("/proc");
    bool is_found = false;
    for (const struct dirent *found; dir != NULL && !is_found && (found = readdir(dir)) != NULL;) {
        pid = (pid_t)strtol(found->d_name, NULL, 10);
        is_found = pid > 0 && each_mount(pid, visit, ctx);
    }
    if (dir != NULL)
        closedir(dir);
    return is_found ? pid : 0;
}

/* The kernel has the connection for as long as the filesystem is mounted anywhere; no other gets
 * its inode number. */
static ino_t connection_of(dev_t device)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", minor(device));
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static int mount_id_of(int fd)
{
    char path[64], line[128];
    int id = -1;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file != NULL && id < 0 && fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "mnt_id: %d", &id);
    if (file != NULL)
        fclose(file);
    return id;
}

static bool has_id(const struct unmount_others *others, int id)
{
    for (size_t i = 0; i < others->n_ids; i++) {
        if (others->ids[i] == id)
            return true;
    }
    return false;
}

struct noting {
    struct unmount_others *others;
    int own;
};

static bool note(void *ctx, const struct mount_line *line)
{
    const struct noting *noting = ctx;
    struct unmount_others *others = noting->others;
    if (line->device == others->device && line->id != noting->own && !has_id(others, line->id) &&
        array_reserve(&others->ids, sizeof(*others->ids), others->n_ids, 1, &others->n_room) == 0)
        others->ids[others->n_ids++] = line->id;
    return false;
}

void unmount_others_find(struct unmount_others *others, int fd)
{
    struct stat st;
    struct noting noting = {others, mount_id_of(fd)};
    *others = (struct unmount_others){0};
    if (fstat(fd, &st) < 0 || noting.own < 0)
        return;
    others->device = st.st_dev;
    others->connection = connection_of(st.st_dev);
    (void)each_mount_of_all(note, &noting);
}

void unmount_others_done(struct unmount_others *others)
{
    free(others->ids);
}

struct search {
    const struct unmount_others *others;
    char *place;
};

static bool is_other(void *ctx, const struct mount_line *line)
{
    struct search *search = ctx;
    if (line->device != search->others->device || !has_id(search->others, line->id))
        return false;
    search->place = strdup(line->place);
    return search->place != NULL;
}

bool unmount_is_elsewhere(const struct unmount_others *others, pid_t *ret_pid, char **ret_place)
{
    struct search search = {.others = others};
    *ret_pid = others->n_ids == 0 ? 0 : each_mount_of_all(is_other, &search);
    *ret_place = search.place;
    return *ret_place != NULL ||
           (others->connection != 0 && connection_of(others->device) == others->connection);
}

/* ---- a driver that is ending ---- */

/* Returns whether the process has a connection to the kernel open. */
static bool has_device(pid_t pid)
{
    enum { FUSE_MAJOR = 10, FUSE_MINOR = 229 };
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    bool is_found = dir == NULL; /* that of another user is not known to end */
    for (const struct dirent *found; !is_found && (found = readdir(dir)) != NULL;)
        is_found = fstatat(dirfd(dir), found->d_name, &st, 0) == 0 && S_ISCHR(st.st_mode) &&
                   st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
    if (dir != NULL)
        closedir(dir);
    return is_found;
}

/* Returns a handle of the parent of a process when it runs the same program, or -1. */
static int open_supervisor(pid_t pid)
{
    char path[64], names[2][32] = {"", "-"};
    int parents[2] = {0, 0};
    pid_t at = pid;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)at);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            (void)fscanf(file, "%*d %31s %*c %d", names[i], &parents[i]);
            fclose(file);
        }
        at = parents[i];
    }
    return strcmp(names[0], names[1]) == 0 ? (int)syscall(SYS_pidfd_open, parents[0], 0) : -1;
}

bool unmount_wait_for_driver(const char *stage)
{
    enum { N_SERVING = 50 }; /* a driver has its connection for a moment after its mount is gone */
    static const struct timespec pause = {.tv_nsec = 10000000};
    pid_t holder = wfs_stage_holder(stage);
    if (holder == 0)
        return false;
    autoclose int supervisor = open_supervisor(holder);
    for (unsigned n = 0; holder != 0; holder = wfs_stage_holder(stage)) {
        n = has_device(holder) ? n + 1 : 0;
        if (n == N_SERVING)
            return false;
        nanosleep(&pause, NULL);
    }
    struct pollfd wanted = {.fd = supervisor, .events = POLLIN};
    while (supervisor >= 0 && poll(&wanted, 1, -1) < 0 && errno == EINTR)
        ;
    return true;
}
