/* SPDX-License-Identifier: MIT */
/*
 * Places are found once: absolute, whatever was typed, and the same wherever the process goes.
 */
#include "program/place.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static char top[] = "/tmp/wfs-place-XXXXXX";

/* DIR/real/file, DIR/link -> real, DIR/real/other -> file, DIR/real/lost -> nowhere */
static void make_files(void)
{
    check(mkdtemp(top) != NULL && chdir(top) == 0 && mkdir("real", 0700) == 0);
    const int fd = open("real/file", O_WRONLY | O_CREAT, 0640);
    check(fd >= 0 && write(fd, "abc", 3) == 3);
    close(fd);
    check(symlink("real", "link") == 0 && symlink("file", "real/other") == 0 &&
          symlink("nowhere", "real/lost") == 0);
}

static void remove_files(void)
{
    static const char *const names[] = {"real/file", "real/other", "real/lost", "real", "link"};
    check(chdir(top) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        remove(names[i]);
    check(rmdir(top) == 0);
}

static void place_is_absolute_and_its_directory_without_links(void)
{
    static const struct {
        const char *typed, *followed, *kept;
        bool is_there;
    } cases[] = {
        {"real/file", "/real/file", "/real/file", true},
        {"link/file", "/real/file", "/real/file", true},
        {"./link/../real//file", "/real/file", "/real/file", true},
        {"link/other", "/real/file", "/real/other", true},
        {"link/lost", "/real/nowhere", "/real/lost", false},
        {"link/new", "/real/new", "/real/new", false},
        {"link/", "/real", "/real", true},
        {".", "", "", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (int keeps = 0; keeps < 2; keeps++) {
            struct place place;
            char expected[PATH_MAX];
            snprintf(expected, sizeof(expected), "%s%s", top,
                     keeps ? cases[i].kept : cases[i].followed);
            check_int(
                place_find(&place, cases[i].typed, keeps ? PLACE_KEEP_LINK : PLACE_FOLLOW_LINK), 0);
            check_str(place.path, expected);
            check_str(place.opened, expected);
            check(place.is_there == cases[i].is_there);
            place_done(&place);
        }
    }
}

static void place_without_a_directory_is_opened_as_typed(void)
{
    struct place place;
    check_int(place_find(&place, "nowhere/file", PLACE_KEEP_LINK), -ENOENT);
    check(place.path == NULL);
    check_str(place.opened, "nowhere/file");
    place_done(&place);
    place_done(&place);
}

static void descriptor_is_opened_by_number_and_known_by_path(void)
{
    struct place place, file;
    char typed[32], expected[PATH_MAX];
    const int fd = open("real/file", O_RDONLY);
    snprintf(typed, sizeof(typed), "/dev/fd/%d", fd);
    snprintf(expected, sizeof(expected), "%s/real/file", top);
    check_int(place_find(&place, typed, PLACE_KEEP_LINK), 0);
    check_str(place.opened, typed);
    check_str(place.path, expected);
    check_int(place_find(&file, "real/other", PLACE_KEEP_LINK), 0);
    check(place_is_same(&place, &file));
    place_done(&file);
    place_done(&place);
    close(fd);
}

static void place_notices_that_its_directory_was_replaced(void)
{
    struct place place;
    check_int(place_find(&place, "link/file", PLACE_KEEP_LINK), 0);
    check(!place_has_moved(&place));
    check(rename("real", "moved") == 0);
    check(!place_has_moved(&place)); /* nothing is there now */
    check(mkdir("real", 0700) == 0);
    check(place_has_moved(&place));
    check(rmdir("real") == 0 && rename("moved", "real") == 0);
    check(!place_has_moved(&place));
    place_done(&place);
}

static void staging_directory_is_named_after_the_output(void)
{
    char output[NAME_MAX + 2] = "/", *path = place_stage_path("/a/b.pth", NULL);
    check_str(path, "/a/.b.pth.weightfs");
    free(path);
    path = place_stage_path("/a/b.pth", "/c");
    check_str(path, "/c/.b.pth.weightfs");
    check(place_is_stage_name(path_name(path)));
    free(path);
    memset(output + 1, 'x', NAME_MAX);
    path = place_stage_path(output, NULL);
    check_uint(strlen(path_name(path)), NAME_MAX);
    check(place_is_stage_name(path_name(path)));
    free(path);
    check(!place_is_stage_name("b.weightfs") && !place_is_stage_name("..weightfs") &&
          !place_is_stage_name(".weightfs") && !place_is_stage_name(".b.weightfs.tmp"));
}

int main(void)
{
    make_files();
    check_run(place_is_absolute_and_its_directory_without_links);
    check_run(place_without_a_directory_is_opened_as_typed);
    check_run(descriptor_is_opened_by_number_and_known_by_path);
    check_run(place_notices_that_its_directory_was_replaced);
    check_run(staging_directory_is_named_after_the_output);
    remove_files();
    return check_done();
}
