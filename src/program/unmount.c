/* SPDX-License-Identifier: MIT */
/*
 * umount2 works for root and inside an own user namespace; everybody else needs the setuid helper,
 * whose message is read to distinguish "busy" from other errors.
 */
#include "program/unmount.h"

#include <weightfs/cleanup.h>
#include <weightfs/control.h>
#include <weightfs/io.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
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

/* Returns where the namespace of a process has the filesystem, malloc'ed, or NULL. */
static char *place_of(pid_t pid, dev_t device)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    FILE *file = fopen(path, "re");
    autofree char *line = NULL;
    size_t n_room = 0;
    char *place = NULL;
    while (file != NULL && place == NULL && getline(&line, &n_room, file) > 0) {
        unsigned major_number, minor_number;
        if (sscanf(line, "%*d %*d %u:%u %*s %ms", &major_number, &minor_number, &place) == 3 &&
            makedev(major_number, minor_number) == device)
            break;
        free(place);
        place = NULL;
    }
    if (file != NULL)
        fclose(file);
    return place;
}

bool unmount_is_elsewhere(dev_t device, pid_t *ret_pid, char **ret_place)
{
    char path[64];
    DIR *dir = opendir("/proc");
    *ret_place = place_of(getpid(), device);
    *ret_pid = getpid();
    for (const struct dirent *found; dir != NULL && *ret_place == NULL && (found = readdir(dir));) {
        *ret_pid = (pid_t)strtol(found->d_name, NULL, 10);
        if (*ret_pid > 0)
            *ret_place = place_of(*ret_pid, device);
    }
    if (dir != NULL)
        closedir(dir);
    /* The kernel has the connection for as long as the filesystem is mounted anywhere. */
    snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", minor(device));
    return *ret_place != NULL || access(path, F_OK) == 0;
}
