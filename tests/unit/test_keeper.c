/* SPDX-License-Identifier: MIT */
/*
 * Requests to the keeper, honest ones and those of a process that has been taken over.
 */
#include "fuse/keeper.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/wfs-keeper-XXXXXX";

static void make_file(const char *path, mode_t mode)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    check(fd >= 0 && fchmod(fd, mode) == 0 && close(fd) == 0);
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* Starts one and returns the other end of its channel. */
static int start(struct keeper *keeper, int *ret_directory)
{
    *ret_directory = open("out", O_RDONLY | O_DIRECTORY);
    check_int(keeper_init(keeper, *ret_directory), 0);
    const int channel = dup(keeper->ends[1]);
    check_int(keeper_start(keeper), 0);
    return channel;
}

static void stop(struct keeper *keeper, int directory, int channel)
{
    close(channel);
    keeper_done(keeper);
    close(directory);
}

static void a_temporary_file_gets_mode_and_owner(void)
{
    struct keeper keeper;
    int directory;
    struct stat st;
    const int channel = start(&keeper, &directory);
    make_file("out/model", 0640);
    make_file("out/.model.weightfs.tmp", 0600);
    check_int(keeper_ask_mode(channel, "model", 0644), 0);
    check_uint(mode_of("out/.model.weightfs.tmp"), 0644);
    if (geteuid() == 0)
        check(chown("out/model", 1234, 2345) == 0);
    check_int(keeper_ask_owner(channel, "model"), 0);
    check(stat("out/.model.weightfs.tmp", &st) == 0);
    check_uint(st.st_uid, geteuid() == 0 ? 1234 : geteuid());
    check_uint(mode_of("out/model"), 0640);
    check_int(keeper_ask_mode(channel, "model", 07777), 0);
    check_uint(mode_of("out/.model.weightfs.tmp"), 0777);
    check_int(keeper_ask_owner(channel, "new"), -ENOENT);
    check_int(keeper_ask_mode(channel, "new", 0644), -ENOENT);
    stop(&keeper, directory, channel);
    check(unlink("out/model") == 0 && unlink("out/.model.weightfs.tmp") == 0);
}

static void nothing_else_gets_any(void)
{
    struct keeper keeper;
    int directory;
    const int channel = start(&keeper, &directory);
    make_file("source", 0600);
    make_file("alone", 0600);
    make_file(".source.weightfs.tmp", 0600);
    make_file("out/other", 0600);
    check(symlink("../alone", "out/.link.weightfs.tmp") == 0);
    check(link("source", "out/.twin.weightfs.tmp") == 0);
    check(mkdir("out/.dir.weightfs.tmp", 0700) == 0);
    check(mkfifo("out/.pipe.weightfs.tmp", 0600) == 0);
    static const char *const names[] = {"link", "twin", "dir",       "pipe",  "other",
                                        "",     ".",    "../source", "/etc/x"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check(keeper_ask_mode(channel, names[i], 0666) < 0);
        check(keeper_ask_owner(channel, names[i]) < 0);
    }
    check_uint(mode_of("source"), 0600);
    check_uint(mode_of("alone"), 0600);
    check_uint(mode_of(".source.weightfs.tmp"), 0600);
    check_uint(mode_of("out/other"), 0600);
    check_uint(mode_of("out/.dir.weightfs.tmp"), 0700);
    stop(&keeper, directory, channel);
    check(unlink("out/.link.weightfs.tmp") == 0 && unlink("out/.twin.weightfs.tmp") == 0 &&
          rmdir("out/.dir.weightfs.tmp") == 0 && unlink("out/.pipe.weightfs.tmp") == 0 &&
          unlink("out/other") == 0 && unlink("source") == 0 && unlink("alone") == 0 &&
          unlink(".source.weightfs.tmp") == 0);
}

static void the_owner_is_that_of_a_file_in_the_directory(void)
{
    struct keeper keeper;
    int directory;
    const int channel = start(&keeper, &directory);
    make_file("alone", 0600);
    make_file("out/.link.weightfs.tmp", 0600);
    check(symlink("../alone", "out/link") == 0);
    check_int(keeper_ask_owner(channel, "link"), -EPERM);
    check_int(keeper_ask_mode(channel, "link", 0640), 0);
    check_int(keeper_ask_owner(channel, "../out/link"), -EINVAL);
    check(rename("out/.link.weightfs.tmp", "out/.alone.weightfs.tmp") == 0);
    check_int(keeper_ask_owner(channel, "../alone"), -EINVAL);
    stop(&keeper, directory, channel);
    check(unlink("out/link") == 0 && unlink("out/.alone.weightfs.tmp") == 0 &&
          unlink("alone") == 0);
}

static void a_name_without_an_end_is_refused(void)
{
    struct keeper keeper;
    int directory;
    int32_t code = 0;
    char bytes[4096];
    const int channel = start(&keeper, &directory);
    memset(bytes, 'x', sizeof(bytes));
    check_int(send(channel, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    check_int(recv(channel, &code, sizeof(code), 0), sizeof(code));
    check_int(code, -EINVAL);
    stop(&keeper, directory, channel);
}

static void what_is_no_request_ends_it(void)
{
    static const size_t sizes[] = {1, 4, 100};
    char bytes[100];
    memset(bytes, 'x', sizeof(bytes));
    for (size_t i = 0; i < 3; i++) {
        struct keeper keeper;
        int directory;
        const int channel = start(&keeper, &directory);
        check_int(send(channel, bytes, sizes[i], MSG_NOSIGNAL), (int64_t)sizes[i]);
        check(shutdown(channel, SHUT_WR) == 0 && pthread_join(keeper.thread, NULL) == 0);
        keeper.is_started = false;
        check_int(recv(channel, bytes, sizeof(bytes), MSG_DONTWAIT), -1); /* no answer */
        keeper_done(&keeper);
        check_int(keeper_ask_mode(channel, "model", 0644), -EPIPE);
        close(channel);
        close(directory);
    }
}

static void without_a_directory_every_request_fails(void)
{
    struct keeper keeper;
    check_int(keeper_init(&keeper, -1), 0);
    check_int(keeper_ask_mode(keeper_attach(&keeper), "model", 0644), -EPIPE);
    check_int(keeper_start(&keeper), 0);
    keeper_done(&keeper);
}

int main(void)
{
    check(mkdtemp(top) != NULL && chdir(top) == 0 && mkdir("out", 0700) == 0);
    check_run(a_temporary_file_gets_mode_and_owner);
    check_run(nothing_else_gets_any);
    check_run(the_owner_is_that_of_a_file_in_the_directory);
    check_run(a_name_without_an_end_is_refused);
    check_run(what_is_no_request_ends_it);
    check_run(without_a_directory_every_request_fails);
    check(rmdir("out") == 0 && chdir("/") == 0 && rmdir(top) == 0);
    return check_done();
}
