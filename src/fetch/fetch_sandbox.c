/* SPDX-License-Identifier: MIT */
/*
 * Sanitizers and measurements of coverage do more than the sandbox allows: such a build has none.
 */
#include "fetch/fetch_sandbox.h"

#include <weightfs/cleanup.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "fetch/fetch_syscalls.h"
#include "sandbox/capability.h"
#include "sandbox/landlock.h"

/* glibc loads a module for each way to look up a host at the first search, by this name. */
static void load_modules(void)
{
    char line[1024], path[128];
    FILE *file = fopen("/etc/nsswitch.conf", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *rest, *word = strtok_r(line, " \t\n", &rest);
        if (word == NULL || strcmp(word, "hosts:") != 0)
            continue;
        while ((word = strtok_r(NULL, " \t\n", &rest)) != NULL) {
            if (word[0] == '[' || strchr(word, '/') != NULL)
                continue;
            snprintf(path, sizeof(path), "libnss_%s.so.2", word);
            (void)dlopen(path, RTLD_NOW);
        }
    }
    if (file != NULL)
        fclose(file);
    (void)dlopen("libgcc_s.so.1", RTLD_NOW); /* for the end of a thread */
}

static void allow(const struct landlock *landlock, const char *path)
{
    autoclose int fd = path == NULL || *path == '\0' ? -1 : open(path, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        landlock_allow(landlock, fd, LANDLOCK_READ);
}

static void allow_files(const struct landlock *landlock)
{
    static const char *const paths[] = {
        /* how hosts are found */
        "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
        "/etc/services", "/etc/protocols", "/etc/localtime",
        /* certificates of authorities */
        "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf",
        "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/pki/tls/certs",
        "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted"};
    static const char *const variables[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        allow(landlock, paths[i]);
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        allow(landlock, getenv(variables[i]));
}

void fetch_sandbox_enter(void)
{
    struct landlock landlock;
    if (WFS_INSTRUMENTED)
        return;
    load_modules();
    landlock_init(&landlock, LANDLOCK_CONNECTS);
    allow_files(&landlock);
    if (capability_set(0, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        (void)landlock_enter(&landlock);
        landlock_done(&landlock);
        (void)fetch_syscalls_restrict();
    }
    landlock_done(&landlock);
}
