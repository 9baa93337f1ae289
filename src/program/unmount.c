/* SPDX-License-Identifier: MIT */
/*
 * umount2 works for root and inside an own user namespace; everybody else needs the setuid helper,
 * whose message is read to distinguish "busy" from other errors.
 */
#include "program/unmount.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>

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
    char text[512] = "";
    const ssize_t n = io_read_at(fd, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    const int code = strstr(text, "busy") != NULL ? EBUSY : EPERM;
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

/* stat may be answered from the cache of the kernel, statfs never is. */
bool unmount_is_dead(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) < 0 && errno == ENOTCONN;
}
