/* SPDX-License-Identifier: MIT */
/*
 * Who may read what was made of several files: only those whom every one of them lets.
 */
#include "check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <weightfs/output.h>
#include <weightfs/cleanup.h>

#include "base/outfile.h"

enum { OURS = 100, THEIRS = 200 };

static char folder[] = "/tmp/weightfs-unit-XXXXXX";

struct file {
    uint32_t mode, group;
};

/* Of up to three files; mode 0 ends the list. */
static const struct {
    struct file files[3];
    uint32_t ours, others; /* for a file of group OURS, and of a group that none has */
} cases[] = {
    {{{0600, OURS}}, 0600, 0600},
    {{{0640, OURS}}, 0640, 0600},
    {{{0644, OURS}}, 0644, 0644},
    {{{0660, OURS}}, 0660, 0600},
    /* A group that is shut out: who else is in it is not known. */
    {{{0604, OURS}}, 0604, 0600},
    {{{0644, OURS}, {0600, OURS}}, 0600, 0600},
    {{{0644, OURS}, {0640, OURS}}, 0640, 0600},
    {{{0600, OURS}, {0640, OURS}, {0644, OURS}}, 0600, 0600},
    {{{0640, OURS}, {0640, THEIRS}}, 0600, 0600},
    {{{0640, OURS}, {0644, THEIRS}}, 0600, 0600},
    {{{0644, THEIRS}, {0644, OURS}, {0640, OURS}}, 0600, 0600},
    {{{0640, OURS}, {0644, THEIRS}, {0644, OURS}}, 0600, 0600},
    {{{0644, OURS}, {0644, THEIRS}}, 0644, 0644},
    {{{0640, THEIRS}}, 0600, 0600},
    {{{0400, OURS}, {0644, OURS}}, 0400, 0400},
};

static void access_is_what_every_file_grants(void)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct wfs_access access = {0};
        for (size_t j = 0; j < 3 && cases[i].files[j].mode != 0; j++) {
            const struct wfs_access file = {
                .is_known = true, .mode = cases[i].files[j].mode, .group = cases[i].files[j].group};
            wfs_access_merge(&access, &file);
        }
        check_uint(wfs_access_mode(&access, OURS), cases[i].ours);
        check_uint(wfs_access_mode(&access, OURS + 1), cases[i].others);
    }
}

static void access_of_nothing_is_everything(void)
{
    struct wfs_access access = {0};
    wfs_access_merge(&access, &(struct wfs_access){0});
    check_uint(wfs_access_mode(&access, OURS), 0777);
}

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int make_file(const char *name, mode_t mode)
{
    const int fd = open(in_folder(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && fchmod(fd, mode) == 0);
    return fd;
}

static uint32_t mode_of(int fd)
{
    struct wfs_access access = {0};
    wfs_access_add(&access, fd);
    return wfs_access_mode(&access, getegid());
}

static void access_of_a_directory_needs_both_rights(void)
{
    autoclose int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(chown(folder, (uid_t)-1, getegid()) == 0);
    check(fchmod(fd, 0754) == 0);
    check_uint(mode_of(fd) & 0444, 0440);
    check(fchmod(fd, 0711) == 0);
    check_uint(mode_of(fd) & 0444, 0400);
    check(fchmod(fd, 0700) == 0);
}

static void what_cannot_be_examined_grants_nothing(void)
{
    check_uint(mode_of(-1), 0);
}

/* The owner everything, the user 1 reading, the group nothing, others nothing. */
static void group_bits_of_an_access_list_are_not_the_groups(void)
{
    struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } entries[5];
    } list = {2,
              {{1, 6, UINT32_MAX},
               {2, 4, 1},
               {4, 0, UINT32_MAX},
               {16, 4, UINT32_MAX},
               {32, 0, UINT32_MAX}}};
    autoclose int fd = make_file("listed", 0640);
    check_uint(mode_of(fd), 0640);
    if (fsetxattr(fd, "system.posix_acl_access", &list, sizeof(list), 0) < 0)
        return; /* a filesystem without them */
    struct stat st;
    check(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
    check_uint(mode_of(fd), 0600);
}

static uint32_t mode_of_output(const struct wfs_save_options *options)
{
    struct outfile *outfile = NULL;
    struct stat st = {0};
    check_int(outfile_new(in_folder("out"), 0, options, &outfile, NULL), 0);
    check_int(outfile_sync(outfile, NULL), 0);
    struct wfs_save_report report = {0};
    check_int(outfile_publish(outfile, &report, NULL), 0);
    outfile_free(outfile);
    check_int(stat(in_folder("out"), &st), 0);
    return st.st_mode & 0777;
}

static void new_output_gets_what_is_granted_to_its_group(void)
{
    struct wfs_save_options options = {
        .mode = 0664, .access = {.is_known = true, .mode = 0640, .group = getegid()}};
    check_uint(mode_of_output(&options), 0640);
    unlink(in_folder("out"));
    options.access.group++;
    check_uint(mode_of_output(&options), 0600);
}

static void replaced_output_keeps_its_mode_unless_it_is_a_source(void)
{
    autoclose int fd = make_file("out", 0644);
    struct wfs_save_options options = {
        .replace = WFS_REPLACE_ANY,
        .mode = 0664,
        .access = {.is_known = true, .mode = 0600, .group = getegid()}};
    check_uint(mode_of_output(&options), 0644);
    options.narrows_replaced = true;
    check_uint(mode_of_output(&options), 0600);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    umask(022);
    check_run(access_is_what_every_file_grants);
    check_run(access_of_nothing_is_everything);
    check_run(access_of_a_directory_needs_both_rights);
    check_run(what_cannot_be_examined_grants_nothing);
    check_run(group_bits_of_an_access_list_are_not_the_groups);
    check_run(new_output_gets_what_is_granted_to_its_group);
    check_run(replaced_output_keeps_its_mode_unless_it_is_a_source);
    unlink(in_folder("out"));
    unlink(in_folder("listed"));
    rmdir(folder);
    return check_done();
}
