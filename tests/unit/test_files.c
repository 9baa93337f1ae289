/* SPDX-License-Identifier: MIT */
/*
 * src/base with files: inputs that are watched for change, outputs that are complete or not there.
 */
#include <weightfs/cleanup.h>

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/outfile.h"
#include "base/source.h"

static char folder[] = "/tmp/weightfs-unit-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    autoclose int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static bool file_is(const char *name, const char *text)
{
    char got[256] = "";
    autoclose int fd = open(in_folder(name), O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0 && strcmp(got, text) == 0;
}

static bool is_there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static struct source *open_source(const char *name)
{
    struct source *source = NULL;
    struct wfs_error err = {0};
    check_int(source_open(in_folder(name), &source, &err), 0);
    return source;
}

static void source_reads_exact_amounts(void)
{
    write_file("a", "0123456789");
    struct source *source = open_source("a");
    char buf[11] = "";
    check_uint(source->n_bytes, 10);
    check_int(source_read(source, 2, buf, 3), 0);
    check_str(buf, "234");
    check_int(source_read(source, 10, buf, 0), 0);
    check_int(source_read(source, 8, buf, 3), -EIO);
    check_int(source_read(source, 11, buf, 0), -EIO);
    check_int(source_read(source, UINT64_MAX, buf, 2), -EIO);
    check_int(source_check(source), 0);
    source_free(source);
}

static void source_that_shrinks_fails_for_good(void)
{
    write_file("a", "0123456789");
    struct source *source = open_source("a");
    char buf[10];
    check_int(truncate(in_folder("a"), 5), 0);
    check_int(source_read(source, 0, buf, 10), -EIO);
    check_int(source_read(source, 0, buf, 2), -EIO);
    source_free(source);
}

static void source_that_changes_fails_for_good(void)
{
    write_file("a", "0123456789");
    struct source *source = open_source("a");
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char buf[2];
    check_int(source_read(source, 0, buf, 2), 0);
    check_int(utimensat(AT_FDCWD, in_folder("a"), old, 0), 0);
    check_int(source_read(source, 0, buf, 2), -EIO);
    check_int(source_check(source), -EIO);
    source_free(source);
}

static void source_outlives_its_name(void)
{
    write_file("a", "0123456789");
    struct source *source = open_source("a");
    write_file("b", "xxxxxxxxxx");
    check_int(rename(in_folder("b"), in_folder("a")), 0);
    char buf[3] = "";
    check_int(source_read(source, 4, buf, 2), 0);
    check_str(buf, "45");
    source_free(source);
}

static void source_refuses_what_is_no_file(void)
{
    struct source *source = NULL;
    struct wfs_error err = {0};
    check_int(source_open("/tmp/weightfs-unit-nothing", &source, &err), -ENOENT);
    check(err.text[0] != '\0');
    check_int(source_open("/tmp", &source, NULL), -EISDIR);
    check_int(source_open("/dev/null", &source, NULL), -ENXIO);
    mkfifo(in_folder("fifo"), 0600);
    check_int(source_open(in_folder("fifo"), &source, NULL), -ENXIO); /* and does not block */
    check(source == NULL);
}

static void source_of_a_memfd_by_number(void)
{
    autoclose int fd = memfd_create("x", 0);
    check(write(fd, "hello", 5) == 5);
    char path[32], buf[6] = "";
    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    struct source *source = NULL;
    check_int(source_open(path, &source, NULL), 0);
    check_int(source_read(source, 0, buf, 5), 0);
    check_str(buf, "hello");
    source_free(source);
}

static void source_in_memory(void)
{
    struct source *source = NULL;
    char buf[4] = "";
    check_int(source_new_memory("m", "abcdef", 6, &source), 0);
    check_int(source_read(source, 3, buf, 3), 0);
    check_str(buf, "def");
    check_int(source_read(source, 4, buf, 3), -EIO);
    source_free(source);
}

static int publish(const char *name, const char *text, const struct wfs_save_options *options,
                   struct wfs_error *err)
{
    struct outfile *outfile = NULL;
    int code = outfile_new(in_folder(name), strlen(text), options, &outfile, err);
    if (code < 0)
        return code;
    struct wfs_save_report report = {0};
    outfile_write(outfile, text, strlen(text));
    code = outfile_sync(outfile, err);
    if (code == 0)
        code = outfile_publish(outfile, &report, err);
    check(code < 0 || (report.is_durable && report.published.n_bytes == strlen(text)));
    outfile_free(outfile);
    return code;
}

static void output_is_published_under_its_name(void)
{
    const struct wfs_save_options options = {.mode = 0640};
    struct stat st;
    check_int(publish("out", "new", &options, NULL), 0);
    check(file_is("out", "new"));
    check(!is_there(".out.weightfs.tmp"));
    check(stat(in_folder("out"), &st) == 0 && (st.st_mode & 0777) == 0640);
}

static void output_that_exists_is_kept_unless_asked(void)
{
    write_file("out", "old");
    check_int(chmod(in_folder("out"), 0604), 0);
    struct wfs_error err = {0};
    check_int(publish("out", "new", &(struct wfs_save_options){.mode = 0644}, &err), -EEXIST);
    check(file_is("out", "old"));
    check_int(publish("out", "new",
                      &(struct wfs_save_options){.replace = WFS_REPLACE_ANY, .mode = 0644}, NULL),
              0);
    struct stat st;
    check(file_is("out", "new"));
    check(stat(in_folder("out"), &st) == 0 && (st.st_mode & 0777) == 0604);
}

static void output_that_somebody_changed_is_not_replaced(void)
{
    write_file("out", "old");
    struct stat st;
    check_int(stat(in_folder("out"), &st), 0);
    struct wfs_save_options options = {
        .replace = WFS_REPLACE_KNOWN, .known = wfs_identity_of(&st), .mode = 0644};
    check_int(publish("out", "new", &options, NULL), 0);
    check_int(publish("out", "newer", &options, NULL), -EBUSY);
    check(file_is("out", "new"));
    check(!is_there(".out.weightfs.tmp"));
}

static void output_given_up_leaves_nothing(void)
{
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0644};
    struct outfile *outfile = NULL;
    write_file("out", "old");
    write_file(".out.weightfs.tmp", "left over");
    check_int(outfile_new(in_folder("out"), 100, &options, &outfile, NULL), 0);
    outfile_write(outfile, "half", 4);
    check(is_there(".out.weightfs.tmp") && !file_is(".out.weightfs.tmp", "left over"));
    outfile_free(outfile);
    check(!is_there(".out.weightfs.tmp"));
    check(file_is("out", "old"));
}

static void planted_link_is_not_followed(void)
{
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0644};
    char target[256];
    write_file("victim", "precious");
    snprintf(target, sizeof(target), "%s", in_folder("victim"));
    check_int(symlink(target, in_folder(".out.weightfs.tmp")), 0);
    check_int(publish("out", "new", &options, NULL), 0);
    check(file_is("victim", "precious") && file_is("out", "new"));
}

static void output_copies_ranges_and_pads(void)
{
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0644};
    write_file("a", "0123456789");
    struct source *source = open_source("a");
    struct outfile *outfile = NULL;
    check_int(outfile_new(in_folder("out"), 8, &options, &outfile, NULL), 0);
    uint64_t n = 0;
    for (uint64_t done = 0; done < 4; done += n)
        check_int(outfile_copy(NULL, outfile, source, 3 + done, 4 - done, &n), 0);
    check_int(outfile_pad(outfile, 6), 0);
    check_int(outfile_write(outfile, "ab", 2), 0);
    check_uint(outfile_offset(outfile), 8);
    struct wfs_save_report report;
    check_int(outfile_sync(outfile, NULL), 0);
    check_int(outfile_publish(outfile, &report, NULL), 0);
    outfile_free(outfile);
    char got[9] = "";
    autoclose int fd = open(in_folder("out"), O_RDONLY | O_CLOEXEC);
    check(read(fd, got, 9) == 8);
    check_bytes(got, "3456\0\0ab", 8);
    source_free(source);
}

/* One piece of some size from some place: written, or copied as a range. */
static void add_piece(struct outfile *outfile, const struct source *source, const char *bytes,
                      size_t at, size_t n_bytes, bool is_copied)
{
    if (!is_copied) {
        check_int(outfile_write(outfile, bytes + at, n_bytes), 0);
        return;
    }
    for (uint64_t done = 0, n = 0; done < n_bytes; done += n)
        check_int(outfile_copy(NULL, outfile, source, at + done, n_bytes - done, &n), 0);
}

static void output_keeps_pieces_of_all_sizes_in_order(void)
{
    enum { N_BYTES = 3 << 20 };
    static const size_t sizes[] = {1,     7,      4095,   16383,  16384,  16385,
                                   65536, 262143, 262144, 262145, 1100000};
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0644};
    char *bytes = malloc(N_BYTES + 1), *want = malloc(8 * N_BYTES), *got = malloc(8 * N_BYTES);
    for (size_t i = 0; i < N_BYTES; i++)
        bytes[i] = (char)('a' + i * 7 % 26 + i / 4096 % 3);
    bytes[N_BYTES] = '\0';
    write_file("a", bytes);
    struct source *source = open_source("a");
    struct outfile *outfile = NULL;
    check_int(outfile_new(in_folder("out"), 0, &options, &outfile, NULL), 0);
    size_t n_want = 0;
    for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t n = sizes[i * 5 % (sizeof(sizes) / sizeof(sizes[0]))],
                     at = (i * 700001) % (N_BYTES - n);
        add_piece(outfile, source, bytes, at, n, i % 3 != 0);
        memcpy(want + n_want, bytes + at, n);
        n_want += n;
        check_uint(outfile_offset(outfile), n_want);
    }
    struct wfs_save_report report;
    check_int(outfile_sync(outfile, NULL), 0);
    check_int(outfile_publish(outfile, &report, NULL), 0);
    outfile_free(outfile);
    autoclose int fd = open(in_folder("out"), O_RDONLY | O_CLOEXEC);
    check_int(read(fd, got, 8 * N_BYTES), (ssize_t)n_want);
    check(memcmp(got, want, n_want) == 0);
    source_free(source);
    free(bytes);
    free(want);
    free(got);
}

static void output_remembers_its_first_error(void)
{
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0644};
    write_file("a", "0123456789");
    write_file("out", "old");
    struct source *source = open_source("a");
    struct outfile *outfile = NULL;
    struct wfs_error err = {0};
    uint64_t n;
    check_int(outfile_new(in_folder("out"), 8, &options, &outfile, NULL), 0);
    check_int(truncate(in_folder("a"), 2), 0);
    check_int(outfile_copy(NULL, outfile, source, 3, 4, &n), -EIO);
    check_int(outfile_write(outfile, "x", 1), -EIO);
    check_int(outfile_pad(outfile, 100), -EIO);
    check_int(outfile_sync(outfile, &err), -EIO);
    check(err.code == EIO);
    outfile_free(outfile);
    check(file_is("out", "old"));
    source_free(source);
}

static void cleanup_folder(void)
{
    for (const char *const *name =
             (const char *const[]){"a", "b", "out", "fifo", "victim", ".out.weightfs.tmp", NULL};
         *name != NULL; name++)
        unlink(in_folder(*name));
    rmdir(folder);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    check_run(source_reads_exact_amounts);
    check_run(source_that_shrinks_fails_for_good);
    check_run(source_that_changes_fails_for_good);
    check_run(source_outlives_its_name);
    check_run(source_refuses_what_is_no_file);
    check_run(source_of_a_memfd_by_number);
    check_run(source_in_memory);
    check_run(output_is_published_under_its_name);
    check_run(output_that_exists_is_kept_unless_asked);
    check_run(output_that_somebody_changed_is_not_replaced);
    check_run(output_given_up_leaves_nothing);
    check_run(planted_link_is_not_followed);
    check_run(output_copies_ranges_and_pads);
    check_run(output_keeps_pieces_of_all_sizes_in_order);
    check_run(output_remembers_its_first_error);
    cleanup_folder();
    return check_done();
}
