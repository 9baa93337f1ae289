/* SPDX-License-Identifier: MIT */
/*
 * A file that is missing says nothing; one that cannot be read is an error.
 */
#include "fetch/textfile.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20 };

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || *value == '\0' ? NULL : value;
}

char *home_path(const char *name)
{
    const char *home = environment("HOME");
    char *path;
    return home == NULL || asprintf(&path, "%s/%s", home, name) < 0 ? NULL : path;
}

int textfile_read(const char *path, char **ret, struct wfs_error *err)
{
    struct stat st;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *ret = NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot read '%s': %s", wfs_quote(path).text, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return wfs_fail(err, EINVAL, "'%s' is not a file of at most 1 MiB", wfs_quote(path).text);
    autofree char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(err, (int)-n, "cannot read '%s': %s", wfs_quote(path).text,
                        strerror((int)-n));
    text[n] = '\0';
    *ret = steal(&text);
    return 0;
}
