/* SPDX-License-Identifier: MIT */
/*
 * Attempts to break out, each in a process of its own that has entered the sandbox as the worker of
 * a mount does. Outside of it the same attempts succeed, which shows that they are real.
 */
#include "fuse/sandbox/sandbox.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <unistd.h>

/* The working directory is DIR/in. Beside it: DIR/blobs, DIR/other; below it: out. */
enum { SUCCEEDED = 0, REFUSED = 1, SETUP = 2, KILLED = 128 + SIGSYS };

static char top[] = "/tmp/wfs-sandbox-XXXXXX";

static void write_file(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!check(fd >= 0))
        return;
    check(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void make_files(void)
{
    check(mkdtemp(top) != NULL && chdir(top) == 0);
    check(mkdir("in", 0700) == 0 && mkdir("blobs", 0700) == 0 && mkdir("other", 0700) == 0);
    write_file("blobs/1", "shard");
    write_file("other/like", "other checkpoint");
    write_file("secret", "secret");
    check(chdir("in") == 0 && mkdir("out", 0700) == 0);
    write_file("source", "source");
    write_file("neighbour", "neighbour");
    write_file("index.json", " {}");
    check(symlink("../blobs/1", "shard") == 0);
}

static void remove_files(void)
{
    static const char *const paths[] = {
        "in/out/new", "in/out", "in/source",  "in/neighbour", "in/index.json", "in/shard", "in",
        "blobs/1",    "blobs",  "other/like", "other",        "secret",        "x",        "in/x"};
    check(chdir(top) == 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        remove(paths[i]);
    check(rmdir(top) == 0);
}

static int enter(enum sandbox_mode mode, const char *source, enum sandbox_state *ret)
{
    struct sandbox sandbox;
    sandbox_init(&sandbox, mode);
    sandbox_allow_source(&sandbox, source, false);
    sandbox_allow_source(&sandbox, "../other/like", false);
    sandbox_allow_output(&sandbox, strcat(strcpy((char[256]){0}, top), "/in/out/new"));
    const int rc = sandbox_enter(&sandbox, ret);
    sandbox_done(&sandbox);
    return rc;
}

/* How it ends for a child. */
static int attempt_from(enum sandbox_mode mode, const char *source, bool (*attempt)(void))
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        enum sandbox_state state;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        if (enter(mode, source, &state) < 0)
            _exit(SETUP);
        _exit(attempt() ? SUCCEEDED : REFUSED);
    }
    int status = 0;
    check(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- what is on here ---- */

static bool has_landlock, has_seccomp;

static bool tell_name(enum sandbox_mode mode, char *text)
{
    int ends[2];
    enum sandbox_state state;
    fflush(stdout);
    if (pipe(ends) < 0)
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        const int rc = enter(mode, "source", &state);
        _exit(write(ends[1], sandbox_state_name(state), strlen(sandbox_state_name(state)) + 1) >
                          0 &&
                      rc == 0
                  ? 0
                  : 1);
    }
    int status = 0;
    const bool is_told = read(ends[0], text, 64) > 0;
    close(ends[0]);
    close(ends[1]);
    return check(waitpid(pid, &status, 0) == pid) && check(is_told) && status == 0;
}

static void tells_what_is_on(void)
{
    char text[64] = "";
    check(tell_name(SANDBOX_OFF, text));
    check_str(text, "off");
    check(tell_name(SANDBOX_AUTO, text));
    printf("# sandbox: %s\n", text);
    has_landlock = strstr(text, "landlock") != NULL;
    has_seccomp = strstr(text, "seccomp") != NULL;
    check(tell_name(SANDBOX_REQUIRE, text) == (has_landlock && has_seccomp));
}

/* ---- attempts on files ---- */

static bool can_open(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool open_passwd(void)
{
    return can_open("/etc/passwd", O_RDONLY);
}

static bool open_secret(void)
{
    return can_open("../secret", O_RDONLY);
}

static bool open_neighbour(void)
{
    return can_open("neighbour", O_RDONLY);
}

static bool open_memory(void)
{
    return can_open("/proc/self/mem", O_RDWR);
}

static bool create_above(void)
{
    return can_open("../x", O_WRONLY | O_CREAT);
}

static bool make_directory_beside(void)
{
    return mkdir("x", 0700) == 0 && rmdir("x") == 0;
}

static bool write_source(void)
{
    return can_open("source", O_WRONLY);
}

static bool cut_source(void)
{
    return truncate("source", 6) == 0;
}

static bool link_source_into_output(void)
{
    return link("source", "out/x") == 0 && unlink("out/x") == 0;
}

static bool move_source_away(void)
{
    return rename("source", "x") == 0 && rename("x", "source") == 0;
}

static bool list_root(void)
{
    return can_open("/", O_RDONLY | O_DIRECTORY);
}

static bool make_link_in_output(void)
{
    return symlink("/etc/passwd", "out/x") == 0 && unlink("out/x") == 0;
}

static bool make_set_uid_file(void)
{
    const int fd = open("out/x", O_WRONLY | O_CREAT | O_CLOEXEC, 04700);
    return fd >= 0 && close(fd) == 0 && unlink("out/x") == 0;
}

static bool make_set_gid_file(void)
{
    const int fd = openat(AT_FDCWD, "out/x", O_WRONLY | O_CREAT | O_CLOEXEC, 02700);
    return fd >= 0 && close(fd) == 0 && unlink("out/x") == 0;
}

static bool make_set_uid_file_without_name(void)
{
    const int fd = open("out", O_TMPFILE | O_WRONLY | O_CLOEXEC, 04700);
    return (fd >= 0 && close(fd) == 0) || errno == EOPNOTSUPP;
}

static bool make_sticky_directory(void)
{
    return mkdir("out/x", 01777) == 0 && rmdir("out/x") == 0;
}

static bool make_sticky_directory_there(void)
{
    return mkdirat(AT_FDCWD, "out/x", 01777) == 0 && rmdir("out/x") == 0;
}

/* Through a descriptor that was opened for reading, which is what the worker has. */
static bool change_mode_of(const char *path, int flags)
{
    struct stat st;
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    return fd >= 0 && fstat(fd, &st) == 0 && fchmod(fd, st.st_mode) == 0 && close(fd) == 0;
}

static bool change_mode_of_source(void)
{
    return change_mode_of("source", O_RDONLY);
}

static bool change_mode_of_like(void)
{
    return change_mode_of("../other/like", O_RDONLY);
}

static bool change_mode_of_directory(void)
{
    return change_mode_of("out", O_RDONLY | O_DIRECTORY);
}

static bool change_mode_of_output(void)
{
    const bool is_changed = change_mode_of("out/x", O_RDWR | O_CREAT);
    return unlink("out/x") == 0 && is_changed;
}

static bool change_mode_by_name(void)
{
    return chmod("source", 0600) == 0;
}

static bool change_owner_of_source(void)
{
    const int fd = open("source", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fchown(fd, (uid_t)-1, getgid()) == 0 && close(fd) == 0;
}

static bool change_times_of_source(void)
{
    const int fd = open("source", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && futimens(fd, NULL) == 0 && close(fd) == 0;
}

static bool change_attribute_of_source(void)
{
    const int fd = open("source", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && (fsetxattr(fd, "user.x", "1", 1, 0) == 0 || errno == EOPNOTSUPP) &&
           close(fd) == 0;
}

/* Asks the kernel to send signals to another process when something can be read. */
static bool own_signals(void)
{
    const int fd = open("source", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fcntl(fd, F_SETOWN, getppid()) == 0 && close(fd) == 0;
}

static const struct attempt {
    const char *name;
    bool (*run)(void);
} on_files[] = {
    {"read /etc/passwd", open_passwd},
    {"read a file above", open_secret},
    {"read a file beside the source", open_neighbour},
    {"open its memory", open_memory},
    {"create ../x", create_above},
    {"make a directory beside the source", make_directory_beside},
    {"write the source", write_source},
    {"truncate the source", cut_source},
    {"link the source into the output's directory", link_source_into_output},
    {"rename the source", move_source_away},
    {"list the root", list_root},
    {"make a link in the output's directory", make_link_in_output},
};

/* What Landlock does not refuse. */
static const struct attempt on_properties[] = {
    {"make a set-uid file", make_set_uid_file},
    {"make a set-gid file", make_set_gid_file},
    {"make a set-uid file without a name", make_set_uid_file_without_name},
    {"make a sticky directory", make_sticky_directory},
    {"make a sticky directory with mkdirat", make_sticky_directory_there},
    {"change the mode of the source", change_mode_of_source},
    {"change the mode of what is to be like", change_mode_of_like},
    {"change the mode of the output's directory", change_mode_of_directory},
    {"change the mode of a file of its own", change_mode_of_output},
    {"change the mode of the source by its name", change_mode_by_name},
    {"change the owner of the source", change_owner_of_source},
    {"change the times of the source", change_times_of_source},
    {"change an attribute of the source", change_attribute_of_source},
    {"have signals sent", own_signals},
};

static void files_elsewhere_are_out_of_reach(void)
{
    for (size_t i = 0; i < sizeof(on_files) / sizeof(on_files[0]); i++) {
        printf("# %s\n", on_files[i].name);
        check_int(attempt_from(SANDBOX_OFF, "source", on_files[i].run), SUCCEEDED);
        const int got = attempt_from(SANDBOX_AUTO, "source", on_files[i].run);
        if (has_landlock && !WFS_INSTRUMENTED)
            check(got == REFUSED || got == KILLED);
    }
}

/* ---- attempts on the kernel ---- */

static bool make_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static bool run_program(void)
{
    char *const argv[] = {"true", NULL};
    char *const none[] = {NULL};
    execve("/bin/true", argv, none); /* its exit code says that it ran */
    return false;
}

static bool make_process(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

static bool be_traced(void)
{
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
}

static bool signal_parent(void)
{
    return kill(getppid(), 0) == 0;
}

static bool map_code(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code != MAP_FAILED;
}

static bool make_code(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code != MAP_FAILED && mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool change_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool ask_terminal(void)
{
    const int number = 0x5413; /* TIOCGWINSZ */
    return syscall(SYS_ioctl, 0, number, NULL) == 0 || errno != ENOSYS;
}

static bool leave_namespace(void)
{
    return syscall(SYS_unshare, 0) == 0;
}

static const struct attempt on_kernel[] = {
    {"make a socket", make_socket},
    {"run a program", run_program},
    {"make a process", make_process},
    {"be traced", be_traced},
    {"signal the supervisor", signal_parent},
    {"map code", map_code},
    {"make data code", make_code},
    {"change a limit", change_limit},
    {"use another ioctl", ask_terminal},
    {"call unshare", leave_namespace},
};

static void calls_that_serving_does_not_need_end_the_process(void)
{
    for (size_t i = 0; i < sizeof(on_kernel) / sizeof(on_kernel[0]); i++) {
        printf("# %s\n", on_kernel[i].name);
        check_int(attempt_from(SANDBOX_OFF, "source", on_kernel[i].run), SUCCEEDED);
        const int got = attempt_from(SANDBOX_AUTO, "source", on_kernel[i].run);
        if (has_seccomp)
            check_int(got, on_kernel[i].run == make_socket ? REFUSED : KILLED);
    }
}

static void properties_of_files_stay_as_they_are(void)
{
    for (size_t i = 0; i < sizeof(on_properties) / sizeof(on_properties[0]); i++) {
        printf("# %s\n", on_properties[i].name);
        check_int(attempt_from(SANDBOX_OFF, "source", on_properties[i].run), SUCCEEDED);
        const int got = attempt_from(SANDBOX_AUTO, "source", on_properties[i].run);
        unlink("out/x");
        rmdir("out/x");
        if (has_seccomp)
            check_int(got, KILLED);
    }
}

static bool call_by_number(void)
{
    return syscall(SYS_bpf, 0, NULL, 0) >= 0;
}

static bool set_up_ring(void)
{
    return syscall(SYS_io_uring_setup, 0, NULL) >= 0;
}

static bool trace_parent(void)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0;
}

static void calls_that_fail_anyway_end_the_process_too(void)
{
    static bool (*const attempts[])(void) = {call_by_number, set_up_ring, trace_parent};
    for (size_t i = 0; has_seccomp && i < 3; i++)
        check_int(attempt_from(SANDBOX_AUTO, "source", attempts[i]), KILLED);
}

/* ---- what must work ---- */

static bool read_source(void)
{
    return can_open("source", O_RDONLY) && can_open("../other/like", O_RDONLY);
}

static bool read_shards(void)
{
    return can_open("index.json", O_RDONLY) && can_open("shard", O_RDONLY) &&
           can_open("neighbour", O_RDONLY) && can_open(".", O_RDONLY | O_DIRECTORY);
}

static bool change_output(void)
{
    return mkdir("out/d", 0700) == 0 && can_open("out/d/a", O_RDWR | O_CREAT | O_EXCL) &&
           rename("out/d/a", "out/new") == 0 && can_open("out/new", O_RDWR | O_TRUNC) &&
           unlink("out/new") == 0 && rmdir("out/d") == 0 && can_open("out", O_RDONLY | O_DIRECTORY);
}

static void *return_at_once(void *ctx)
{
    return ctx;
}

static bool use_threads(void)
{
    pthread_t thread;
    void *result = NULL;
    return pthread_create(&thread, NULL, return_at_once, &result) == 0 &&
           pthread_join(thread, &result) == 0 && result != NULL;
}

static bool write_to_log(void)
{
    syslog(LOG_DEBUG, "a test of the sandbox"); /* not connected before: it gets lost */
    return true;
}

static void what_serving_needs_works(void)
{
    check_int(attempt_from(SANDBOX_AUTO, "source", read_source), SUCCEEDED);
    check_int(attempt_from(SANDBOX_AUTO, "index.json", read_shards), SUCCEEDED);
    check_int(attempt_from(SANDBOX_AUTO, ".", read_shards), SUCCEEDED);
    check_int(attempt_from(SANDBOX_AUTO, "source", change_output), SUCCEEDED);
    check_int(attempt_from(SANDBOX_AUTO, "source", use_threads), SUCCEEDED);
    check_int(attempt_from(SANDBOX_AUTO, "source", write_to_log), SUCCEEDED);
}

int main(void)
{
    make_files();
    check_run(tells_what_is_on);
    check_run(files_elsewhere_are_out_of_reach);
    check_run(calls_that_serving_does_not_need_end_the_process);
    check_run(properties_of_files_stay_as_they_are);
    check_run(calls_that_fail_anyway_end_the_process_too);
    check_run(what_serving_needs_works);
    remove_files();
    return check_done();
}
