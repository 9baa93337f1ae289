/* SPDX-License-Identifier: MIT */
/*
 * Files in the cache of Hugging Face: a large one is called by the SHA-256 that its content should
 * have.
 */
#include "program/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weightfs/cleanup.h>

enum { N_DIGEST = SHA256_DIGEST_SIZE, N_PIECE = 1 << 20 };

/* Returns the name of a blob in its path, which no links lead through; NULL: it is none. */
static const char *name_in(const char *path)
{
    static const char folder[] = "/blobs/";
    const char *slash = strrchr(path, '/');
    const size_t n_folder = sizeof(folder) - 1;
    if (slash == NULL || slash - path + 1 < (ptrdiff_t)n_folder ||
        memcmp(slash + 1 - n_folder, folder, n_folder) != 0)
        return NULL;
    const char *name = slash + 1;
    return strlen(name) == (size_t)2 * N_DIGEST && strspn(name, "0123456789abcdef") == strlen(name)
               ? name
               : NULL;
}

static int digest_of(int fd, char text[2 * N_DIGEST + 1])
{
    struct sha256_ctx sha256;
    unsigned char digest[N_DIGEST];
    autofree unsigned char *piece = malloc(N_PIECE);
    if (piece == NULL)
        return -ENOMEM;
    sha256_init(&sha256);
    for (ssize_t n; (n = read(fd, piece, N_PIECE)) != 0;) {
        if (n < 0 && errno != EINTR)
            return -errno;
        sha256_update(&sha256, n < 0 ? 0 : (size_t)n, piece);
    }
    sha256_digest(&sha256, N_DIGEST, digest);
    for (size_t i = 0; i < N_DIGEST; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

int blob_check(const char *path)
{
    struct stat st;
    char digest[2 * N_DIGEST + 1];
    autofree char *target = realpath(path, NULL);
    const char *name = target == NULL ? NULL : name_in(target);
    if (name == NULL)
        return 0;
    autoclose int fd = open(target, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    const int code = S_ISREG(st.st_mode) ? digest_of(fd, digest) : 0;
    return code < 0 || !S_ISREG(st.st_mode) ? code : strcmp(digest, name) != 0;
}
