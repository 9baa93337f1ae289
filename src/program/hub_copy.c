/* SPDX-License-Identifier: MIT */
/*
 * A revision that is not a commit may be another one now. So the Hub is asked, as its own programs
 * do; when it does not answer, the copy is shown with a notice.
 */
#include "program/hub_copy.h"

#include <weightfs/cachefile.h>
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/hub.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || *value == '\0' ? NULL : value;
}

bool hub_is_offline(void)
{
    static const char *const names[] = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"};
    static const char *const words[] = {"1", "on", "yes", "true"};
    for (size_t i = 0; i < 2; i++) {
        const char *value = variable(names[i]);
        for (size_t j = 0; value != NULL && j < sizeof(words) / sizeof(*words); j++)
            if (strcasecmp(value, words[j]) == 0)
                return true;
    }
    return false;
}

/* Returns the folder of the cache, malloc'ed; NULL: there is none. */
static char *find_cache(void)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    const char *home = variable("HOME");
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        const char *value = variable(places[i].variable);
        char *path;
        const bool is_home = value != NULL && strncmp(value, "~/", 2) == 0 && home != NULL;
        if (value == NULL)
            continue;
        if (asprintf(&path, "%s%s%s", is_home ? home : "", is_home ? value + 1 : value,
                     places[i].below) < 0)
            return NULL;
        char *whole = realpath(path, NULL); /* the process may leave its directory */
        free(path);
        return whole;
    }
    return NULL;
}

/* Returns the folder in the cache of a repository, malloc'ed, or NULL. */
static char *entry_of(const struct hub_name *name)
{
    autofree char *cache = find_cache();
    const size_t n_owner = strcspn(name->repository, "/");
    char *entry;
    return cache == NULL || asprintf(&entry, "%s/models--%.*s--%.*s", cache, (int)n_owner,
                                     name->repository, (int)(name->n_repository - n_owner - 1),
                                     name->repository + n_owner + 1) < 0
               ? NULL
               : entry;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns the file of a folder by which it is read, as that of a URL, malloc'ed; NULL: none. */
static char *first_file(const char *folder)
{
    const char *name;
    for (size_t i = 0; (name = wfs_folder_file(i)) != NULL; i++) {
        autofree char *path = NULL;
        if (asprintf(&path, "%s/%s", folder, name) < 0)
            return path = NULL;
        if (access(path, R_OK) == 0)
            return strdup(name);
    }
    return NULL;
}

/* The name of a blob is its entity tag. An index says nothing of its files. */
static uint64_t digest_of(const char *path)
{
    char target[PATH_MAX], tag[PATH_MAX];
    const char *end = strrchr(path, '.');
    const ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0 || (end != NULL && (strcmp(end, ".json") == 0 || strcmp(end, ".metadata") == 0)))
        return 0;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    if (snprintf(tag, sizeof(tag), "\"%s\"", slash == NULL ? target : slash + 1) >= PATH_MAX)
        return 0;
    return cachefile_hash(tag, 0);
}

int hub_copy_find(const char *url, struct hub_copy *ret)
{
    struct hub_name name;
    *ret = (struct hub_copy){0};
    autofree char *plain = strdup(url);
    const size_t n = plain == NULL ? 0 : strlen(plain);
    if (n > 0 && plain[n - 1] == '/')
        plain[n - 1] = '\0';
    if (plain == NULL)
        return -ENOMEM;
    if (!hub_name_parse(plain, &name))
        return 0;
    autofree char *revision = hub_name_revision(&name), *entry = entry_of(&name);
    autofree char *folder =
        revision == NULL || entry == NULL ? NULL : hub_snapshot(entry, revision);
    autofree char *path = NULL, *file = NULL;
    if (folder == NULL)
        return revision == NULL ? -ENOMEM : 0;
    if (asprintf(&path, "%s%s%s", folder, name.path != NULL ? "/" : "",
                 name.path != NULL ? name.path : "") < 0) {
        path = NULL;
        return -ENOMEM;
    }
    const bool is_folder = is_directory(path);
    if (is_folder)
        file = first_file(path);
    if (access(path, R_OK) < 0 || (is_folder && file == NULL && !hub_is_offline()))
        return 0;
    if (!hub_is_commit(revision) && !hub_is_offline() &&
        asprintf(&ret->question, "%s%s%s", plain, is_folder ? "/" : "", is_folder ? file : "") <
            0) {
        ret->question = NULL;
        return -ENOMEM;
    }
    snprintf(ret->commit, sizeof(ret->commit), "%s", strrchr(folder, '/') + 1);
    ret->digest = is_folder ? 0 : digest_of(path);
    ret->path = steal(&path);
    return 0;
}

bool hub_copy_is_current(struct hub_copy *copy, struct wfs_remote *remote)
{
    struct wfs_error err = {0};
    autofree char *now = NULL;
    uint64_t digest;
    struct hub_name name;
    char *text = copy->notice;
    const size_t n_room = sizeof(copy->notice);
    copy->is_unsure = false;
    snprintf(text, n_room, "read from the cache of the Hub, commit %s", copy->commit);
    if (copy->question == NULL)
        return true;
    if (remote == NULL || wfs_remote_ask(remote, copy->question, &now, &digest, &err) < 0) {
        copy->is_unsure = true;
        snprintf(text, n_room,
                 "read from the cache of the Hub, commit %s; whether that is the newest was not "
                 "found out: %.1000s",
                 copy->commit, remote == NULL ? "URLs are not read here" : err.text);
        return true;
    }
    if (!hub_name_parse(now, &name) || name.revision == NULL)
        return false;
    const int n = (int)name.n_revision;
    if (strncmp(name.revision, copy->commit, name.n_revision) == 0)
        return true;
    const bool is_same = copy->digest != 0 && digest == copy->digest;
    snprintf(text, n_room,
             is_same ? "read from the cache of the Hub, commit %s; the file is the same in the "
                       "newest, %.*s"
                     : "the cache of the Hub has commit %s, the newest is %.*s",
             copy->commit, n, name.revision);
    return is_same;
}

void hub_copies_done(struct hub_copies *copies)
{
    for (size_t i = 0; i < copies->n; i++) {
        free(copies->list[i].url);
        free(copies->list[i].copy.path);
        free(copies->list[i].copy.question);
    }
    free(copies->list);
}
