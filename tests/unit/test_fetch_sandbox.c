/* SPDX-License-Identifier: MIT */
/*
 * Attempts to break out of the sandbox of the process that fetches, each in a process of its own.
 * Outside of it the same attempts succeed, which shows that they are real.
 */
#include "fetch/fetch_sandbox.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/confinement.h"

enum { SUCCEEDED = 0, REFUSED = 1, KILLED = 128 + SIGSYS };

static char file[] = "/tmp/wfs-fetch-XXXXXX";
static char socket_path[64];
static int opened;

static bool open_it(const char *path, int flags)
{
    return open(path, flags | O_CLOEXEC, 0600) >= 0;
}

static bool read_another_file(void)
{
    return open_it(file, O_RDONLY);
}

static bool list_a_directory(void)
{
    return open_it("/tmp", O_RDONLY | O_DIRECTORY);
}

static bool write_a_file(void)
{
    return open_it(file, O_WRONLY);
}

static bool create_a_file(void)
{
    return open_it("/tmp/wfs-fetch-new", O_WRONLY | O_CREAT);
}

static bool make_an_unnamed_file(void)
{
    return open_it("/tmp", O_TMPFILE | O_RDWR);
}

static bool open_by_handle(void)
{
    return syscall(SYS_openat2, AT_FDCWD, file, NULL, 0) >= 0 || errno == EINVAL;
}

static bool remove_a_file(void)
{
    return unlink(file) == 0 || errno == EACCES;
}

static bool run_a_program(void)
{
    char *const words[] = {"/bin/true", NULL};
    return execv(words[0], words) == 0;
}

static bool fork_a_process(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static bool kill_its_parent(void)
{
    return kill(getppid(), 0) == 0;
}

static bool listen_to_others(void)
{
    return listen(socket(AF_INET, SOCK_STREAM, 0), 1) == 0;
}

/* As of a bus, an agent or a container runtime of the same user. */
static bool connect_to_a_program(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    return fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

/* One half of a pair of this kind may be connected to another place. */
static bool turn_a_pair_around(void)
{
    int pair[2];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 &&
           connect(pair[0], (const struct sockaddr *)&address, sizeof(address)) == 0;
}

static bool send_raw_packets(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0) >= 0;
}

static bool map_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
}

static bool change_a_mode(void)
{
    return fchmod(opened, 0644) == 0;
}

/* ---- what it is for ---- */

static bool find_a_host(void)
{
    struct addrinfo *found = NULL;
    return getaddrinfo("localhost", "80", NULL, &found) == 0;
}

/* libcurl wakes a thread with it. */
static bool make_a_pair(void)
{
    int pair[2];
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
}

static bool make_a_connection(void)
{
    return socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 || errno == EAFNOSUPPORT;
}

static bool read_certificates(void)
{
    return access("/etc/ssl/certs", F_OK) < 0 || open_it("/etc/ssl/certs", O_PATH);
}

static bool fill_the_cache(void)
{
    return pwrite(opened, "x", 1, 4096) == 1 && ftruncate(opened, 1 << 20) == 0 &&
           fallocate(opened, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
}

/* ---- how it ends ---- */

static int end_of(bool is_confined, bool (*attempt)(void))
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        if (is_confined)
            fetch_sandbox_enter();
        _exit(attempt() ? SUCCEEDED : REFUSED);
    }
    int status = 0;
    check(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Builds with sanitizers enter no sandbox. */
static bool has_landlock(void)
{
    struct landlock landlock;
    landlock_init(&landlock, LANDLOCK_CONNECTS);
    const bool has = landlock.fd >= 0 && !WFS_INSTRUMENTED;
    landlock_done(&landlock);
    return has;
}

static bool has_filter(void)
{
    return end_of(true, fork_a_process) == KILLED;
}

static void other_files_are_out_of_reach(void)
{
    check(end_of(false, read_another_file) == SUCCEEDED);
    check(end_of(false, list_a_directory) == SUCCEEDED);
    if (!has_landlock())
        return;
    check(end_of(true, read_another_file) == REFUSED);
    check(end_of(true, list_a_directory) == REFUSED);
}

static void calls_that_fetching_does_not_need_end_it(void)
{
    static bool (*const attempts[])(void) = {
        write_a_file,   create_a_file,   make_an_unnamed_file, remove_a_file, run_a_program,
        fork_a_process, kill_its_parent, listen_to_others,     map_code,      change_a_mode};
    for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++) {
        const int end = end_of(true, attempts[i]);
        if (attempts[i] != remove_a_file)
            check(end_of(false, attempts[i]) == SUCCEEDED);
        if (has_filter() && !check(end == KILLED))
            printf("# attempt %zu ended with %d\n", i, end);
    }
    unlink("/tmp/wfs-fetch-new");
    if (has_filter()) {
        check(end_of(true, send_raw_packets) == KILLED);
        check(end_of(true, open_by_handle) == REFUSED);
    }
}

static void programs_of_this_machine_are_out_of_reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    snprintf(socket_path, sizeof(socket_path), "/tmp/wfs-fetch-%d", (int)getpid());
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    check(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    check(end_of(false, connect_to_a_program) == SUCCEEDED);
    check(end_of(false, turn_a_pair_around) == SUCCEEDED);
    if (has_filter()) {
        check(end_of(true, connect_to_a_program) == REFUSED);
        check(end_of(true, turn_a_pair_around) == KILLED);
    }
    check(end_of(true, make_a_pair) == SUCCEEDED);
    unlink(socket_path);
}

static void what_fetching_needs_goes_on(void)
{
    /* A machine without /etc/hosts may have none. */
    check(end_of(true, find_a_host) == end_of(false, find_a_host));
    check(end_of(true, make_a_connection) == SUCCEEDED);
    check(end_of(true, read_certificates) == SUCCEEDED);
    check(end_of(true, fill_the_cache) == SUCCEEDED);
}

int main(void)
{
    opened = mkstemp(file);
    printf("# landlock: %d, seccomp: %d\n", has_landlock(), has_filter());
    check_run(other_files_are_out_of_reach);
    check_run(calls_that_fetching_does_not_need_end_it);
    check_run(programs_of_this_machine_are_out_of_reach);
    check_run(what_fetching_needs_goes_on);
    unlink(file);
    return check_done();
}
