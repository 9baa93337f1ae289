/* SPDX-License-Identifier: MIT */
/*
 * The escapes of URLs mean nothing in a name of the Hub, but in a revision, which may have a slash.
 */
#include <weightfs/hub.h>

#include <weightfs/cleanup.h>
#include <weightfs/percent.h>
#include <weightfs/url.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_COMMIT = 40 };

/* How long a revision is; those of pull requests and conversions have slashes. */
static size_t revision_length(const char *revision)
{
    static const char *const refs[] = {"refs/pr/", "refs/convert/"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(refs) / sizeof(*refs); i++) {
        if (strncasecmp(revision, refs[i], strlen(refs[i])) == 0)
            n = strlen(refs[i]);
    }
    return n + strcspn(revision + n, "/");
}

/* Returns true for what the Hub has in place of an owner: other kinds of repositories. */
static bool is_reserved(const char *owner, size_t n)
{
    static const char *const words[] = {"datasets", "spaces", "models"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (n == strlen(words[i]) && strncasecmp(owner, words[i], n) == 0)
            return true;
    }
    return false;
}

bool hub_name_parse(const char *name, struct hub_name *ret)
{
    static const char scheme[] = "hf://";
    if (strncasecmp(name, scheme, strlen(scheme)) != 0)
        return false;
    const char *at = name + strlen(scheme);
    const size_t n_owner = url_word_length(at);
    *ret = (struct hub_name){.repository = at};
    if (n_owner == 0 || at[n_owner] != '/' || is_reserved(at, n_owner))
        return false;
    const size_t n_name = url_word_length(at + n_owner + 1);
    ret->n_repository = n_owner + 1 + n_name;
    at += ret->n_repository;
    if (*at == '@') {
        ret->revision = at + 1;
        ret->n_revision = revision_length(ret->revision);
        at = ret->revision + ret->n_revision;
        if (ret->n_revision == 0 || at[-1] == '/')
            return false;
    }
    ret->path = *at == '/' && at[1] != '\0' ? at + 1 : NULL;
    return n_name > 0 && (*at == '\0' || *at == '/') &&
           (ret->path == NULL || !url_path_is_odd(ret->path, false));
}

char *hub_name_revision(const struct hub_name *name)
{
    if (name->revision == NULL)
        return strdup("main");
    char *plain = calloc(1, name->n_revision + 1), *out = plain;
    for (size_t i = 0; plain != NULL && i < name->n_revision; i++, out++) {
        const bool is_code = percent_decode(name->revision + i, name->n_revision - i, out);
        if (!is_code)
            *out = name->revision[i];
        i += is_code ? PERCENT_N - 1 : 0;
    }
    return plain;
}

bool hub_is_commit(const char *revision)
{
    return strlen(revision) == N_COMMIT && strspn(revision, "0123456789abcdef") == N_COMMIT;
}

/* Reads the commit that a file of refs/ names. Returns false where it names none. */
static bool read_ref(const char *entry, const char *revision, char ret[N_COMMIT + 1])
{
    autofree char *path = NULL;
    if (url_path_is_odd(revision, false) || asprintf(&path, "%s/refs/%s", entry, revision) < 0)
        return false;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ret[N_COMMIT] = '\0';
    return fd >= 0 && read(fd, ret, N_COMMIT) == N_COMMIT && hub_is_commit(ret);
}

char *hub_snapshot(const char *entry, const char *revision)
{
    char commit[N_COMMIT + 1];
    struct stat st;
    autofree char *path = NULL;
    if (!hub_is_commit(revision) && !read_ref(entry, revision, commit))
        return NULL;
    if (asprintf(&path, "%s/snapshots/%s", entry, hub_is_commit(revision) ? revision : commit) < 0)
        path = NULL;
    return path != NULL && stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? steal(&path) : NULL;
}
