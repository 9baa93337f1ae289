/* SPDX-License-Identifier: MIT */
/*
 * Any path here may be a mount whose driver is dead, and the mount that is being set up must not be
 * touched before it answers.
 */
#include "fuse/mountpoint.h"

#include "fuse/log.h"
#include "fuse/mount_id.h"
#include "program/place.h"
#include "program/unmount.h"

#include <weightfs/cleanup.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool clear_dead(const struct mountpoint *mountpoint)
{
    struct wfs_error err = {0};
    if (!unmount_is_dead(mountpoint->path) || unmount_path(mountpoint->path, true, &err) == 0)
        return true;
    log_error("cannot clear the dead mount at '%s': %s", wfs_quote(mountpoint->path).text,
              err.text);
    return false;
}

bool mountpoint_init(struct mountpoint *mountpoint, const char *path)
{
    *mountpoint = (struct mountpoint){.path = path_resolve(path)};
    if (mountpoint->path == NULL) {
        log_error("cannot mount on '%s': %s", wfs_quote(path).text, strerror(errno));
        return false;
    }
    if (!clear_dead(mountpoint))
        return false;
    struct stat st;
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

void mountpoint_done(struct mountpoint *mountpoint)
{
    free(mountpoint->path);
    *mountpoint = (struct mountpoint){0};
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool mountpoint_hides(const struct mountpoint *mountpoint, const char *directory)
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

bool mountpoint_make(struct mountpoint *mountpoint)
{
    if (!mountpoint->is_missing)
        return true;
    mountpoint->is_made = mkdir(mountpoint->path, 0755) == 0;
    if (!mountpoint->is_made)
        log_error("cannot make the mount point '%s': %s", wfs_quote(mountpoint->path).text,
                  strerror(errno));
    return mountpoint->is_made;
}

void mountpoint_remove(struct mountpoint *mountpoint)
{
    if (mountpoint->is_made)
        (void)rmdir(mountpoint->path);
    mountpoint->is_made = false;
}

void mountpoint_remember(struct mountpoint *mountpoint)
{
    mountpoint->id = mount_id_at(mountpoint->path);
}

bool mountpoint_is_gone(const struct mountpoint *mountpoint)
{
    return mount_id_state(mountpoint->id) == MOUNT_GONE;
}

bool mountpoint_is_left(const struct mountpoint *mountpoint)
{
    const enum mount_state state = mount_id_state(mountpoint->id);
    return state == MOUNT_EXISTS || (state == MOUNT_UNKNOWN && unmount_is_dead(mountpoint->path));
}

bool mountpoint_unmount(const struct mountpoint *mountpoint)
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

void mountpoint_raise_readahead(const struct mountpoint *mountpoint)
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

void mountpoint_explain(const struct mountpoint *mountpoint, const struct mount_options *options,
                        const char *text)
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
        log_error("cannot mount on '%s': cannot open /dev/fuse: %s", path.text, strerror(code));
    else if (trouble != NULL)
        log_error("cannot mount on '%s': %s", path.text, trouble);
    else
        log_error("cannot mount on '%s': %s", path.text,
                  *text != '\0' ? wfs_prose(text).text : "libfuse gives no reason");
}
