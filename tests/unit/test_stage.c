/* SPDX-License-Identifier: MIT */
/*
 * The staging directory: whose it is, how long it stays, and when the disk fails.
 */
#include "treekit.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void edits_need_few_descriptors(void)
{
    enum { N = 300 };
    struct rlimit limit, low;
    struct kit kit;
    char name[20];
    struct wfs_catalog *catalog = kit_catalog(), *snapshot = NULL;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "w%03d", i);
        kit_add(catalog, name, WFS_U8, 100, 0, (uint64_t)i * 100);
    }
    kit_open(&kit, catalog, kit_options(), true);
    getrlimit(RLIMIT_NOFILE, &limit);
    low = limit;
    low.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &low);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "w%03d", i);
        check_int(wfs_node_write(kit.tree, kit_at(&kit, name), 99, "x", 1, false), 1);
    }
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    for (int i = 0; i < N; i++) {
        char bytes[100];
        check_int(wfs_tensor_read(wfs_catalog_tensor(snapshot, (size_t)i), 0, bytes, 100), 100);
        check_bytes(bytes, kit_bytes + i * 100, 99);
        check_int(bytes[99], 'x');
    }
    wfs_catalog_free(snapshot);
    check_int(wfs_tree_sync(kit.tree, NULL), 0);
    setrlimit(RLIMIT_NOFILE, &limit);
    check_uint(wfs_tree_n_edits(kit.tree), N);
    check_uint(kit_n_staged(&kit), N);
    check_int(kit_rm(&kit, "w000"), 0);
    check_uint(kit_n_staged(&kit), N - 1);
    kit_close(&kit);
}

/* ---- the staging directory ---- */

static bool is_there(const char *directory, const char *name)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static int open_again(const struct kit *kit, const char *stage, struct wfs_error *err)
{
    struct wfs_tree_options options = kit_options();
    struct wfs_tree *tree = NULL;
    *err = (struct wfs_error){0};
    options.stage = kit_stage(stage, err);
    if (options.stage == NULL)
        return -err->code;
    const int code = wfs_tree_new(kit->catalog, &options, &tree, err);
    wfs_tree_free(tree);
    return code;
}

/* In place of the system's: fails with this errno, 0: does not. */
static int lock_errno;

int flock(int fd, int operation)
{
    errno = lock_errno;
    return lock_errno != 0 ? -1 : (int)syscall(SYS_flock, fd, operation);
}

static void a_lock_that_fails_says_why(void)
{
    static const int codes[] = {ENOLCK, EOPNOTSUPP, EIO};
    struct kit kit;
    struct wfs_error err;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        lock_errno = codes[i];
        check_int(open_again(&kit, kit.stage, &err), -codes[i]);
        check(strstr(err.text, "cannot lock staging directory") != NULL);
        check(strstr(err.text, strerror(codes[i])) != NULL);
    }
    lock_errno = 0;
    check_int(open_again(&kit, kit.stage, &err), -EBUSY);
    kit_close(&kit);
}

static void the_staging_directory_is_private_and_locked(void)
{
    struct kit kit;
    struct wfs_error err;
    struct stat st;
    char other[100], link_path[100];
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(stat(kit.stage, &st), 0);
    check_uint(st.st_mode & 07777, 0700);
    check_int(open_again(&kit, kit.stage, &err), -EBUSY);
    check(strstr(err.text, "is in use by ") != NULL);
    snprintf(other, sizeof(other), "%.60s-other", kit.stage);
    check_int(mkdir(other, 0755), 0);
    check_int(open_again(&kit, other, &err), -EPERM);
    check_int(chmod(other, 0700), 0);
    snprintf(link_path, sizeof(link_path), "%.60s-link", kit.stage);
    check_int(symlink(other, link_path), 0);
    check_int(open_again(&kit, link_path, &err), -EPERM);
    check_int(open_again(&kit, other, &err), 0);
    check(access(other, F_OK) < 0);
    check_int(open_again(&kit, "/nowhere/at/all", &err), -ENOENT);
    kit_close(&kit);
}

static void only_pending_edits_are_kept(void)
{
    struct kit kit;
    struct wfs_error err;
    char stage[64];
    /* Nothing edited, or all of it committed: the directory goes. */
    for (int is_edited = 0; is_edited < 2; is_edited++) {
        kit_open(&kit, kit_small_catalog(), kit_options(), true);
        strcpy(stage, kit.stage);
        check(is_there(stage, "base"));
        if (is_edited) {
            check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
            wfs_tree_set_status(kit.tree, &(struct wfs_status){.state = WFS_MOUNT_PUBLISHED});
            check(is_there(stage, "status.json"));
            wfs_tree_committed(kit.tree, wfs_tree_generation(kit.tree));
        }
        wfs_tree_free(kit.tree);
        check(access(stage, F_OK) < 0);
        wfs_catalog_free(kit.catalog);
        kit_remove_stage(stage);
    }
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    strcpy(stage, kit.stage);
    check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
    wfs_tree_free(kit.tree);
    check(is_there(stage, "data/1"));
    check(is_there(stage, "base"));
    check_int(open_again(&kit, stage, &err), 0);
    check(is_there(stage, "data/1"));
    wfs_catalog_free(kit.catalog);
    kit_remove_stage(stage);
}

static void a_full_disk_fails_the_call_and_changes_nothing(void)
{
    struct kit kit;
    size_t n = 0;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    const struct rlimit full = {1000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &full); /* SIGXFSZ is ignored below */
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "big"), 0, "x", 1, false), -EFBIG);
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "big"), 0, kit_bytes, 60000, false), -EFBIG);
    check(!wfs_tree_has_pending(kit.tree));
    check_uint(kit_n_staged(&kit), 0);
    setrlimit(RLIMIT_FSIZE, &none);
    char *bytes = kit_read(&kit, "big", &n);
    check_uint(n, 60000);
    check_bytes(bytes, kit_bytes + 48, 60000);
    free(bytes);
    check_str(kit_commit(&kit), "a.w a.b c big ");
    kit_close(&kit);
}

/* The C library's is not reached: a countdown says which call fails. */
static int n_syncs_to_failure;

int fdatasync(int fd)
{
    if (n_syncs_to_failure > 0 && --n_syncs_to_failure == 0) {
        errno = EIO;
        return -1;
    }
    return fsync(fd);
}

static void a_failed_sync_is_told_once_and_the_edit_is_written_anew(void)
{
    struct kit kit;
    size_t n = 0;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    struct wfs_node *node = kit_at(&kit, "big");
    check_int(wfs_node_write(kit.tree, node, 7, "x", 1, false), 1);
    n_syncs_to_failure = 1;
    check_int(wfs_node_sync(kit.tree, node), -EIO);
    wfs_tree_rescue(kit.tree);
    check_uint(kit_n_staged(&kit), 1);
    char path[100];
    snprintf(path, sizeof(path), "%s/data/2", kit.stage);
    check(access(path, F_OK) == 0);
    check_int(wfs_node_sync(kit.tree, node), 0);
    char *bytes = kit_read(&kit, "big", &n);
    check_int(bytes[7], 'x');
    check_bytes(bytes + 8, kit_bytes + 56, n - 8);
    free(bytes);
    check_str(kit_commit(&kit), "a.w a.b c big ");
    /* The copy fails as well: the edit is lost, by name, and nothing else is. */
    check_int(wfs_node_write(kit.tree, node, 7, "y", 1, false), 1);
    check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
    check_int(wfs_node_sync(kit.tree, kit_at(&kit, "c")), 0);
    n_syncs_to_failure = 1;
    const struct rlimit full = {1000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &full);
    check_int(wfs_tree_sync(kit.tree, &kit.err), -EIO);
    wfs_tree_rescue(kit.tree);
    setrlimit(RLIMIT_FSIZE, &none);
    check_str(kit.err.text, "the staging directory cannot keep 'big': Input/output error");
    check_int(wfs_node_sync(kit.tree, node), -EIO);
    check_int(wfs_node_read(kit.tree, node, 0, path, 1), -EIO);
    check_int(wfs_node_write(kit.tree, node, 0, "x", 1, false), -EIO);
    check_str(kit_commit(&kit), "'big' is lost: the staging directory failed");
    check_int(kit_rm(&kit, "big"), 0);
    check_str(kit_commit(&kit), "a.w a.b c ");
    kit_close(&kit);
}

/* ---- what the system does not say ---- */

static bool has_mount_id = true;

int statx(int at_fd, const char *path, int flags, unsigned mask, struct statx *ret)
{
    const int code = (int)syscall(SYS_statx, at_fd, path, flags, mask, ret);
    if (!has_mount_id) {
        ret->stx_mask &= ~(unsigned)STATX_MNT_ID;
        ret->stx_mnt_id = 0;
    }
    return code;
}

/* Before Linux 5.8 nobody knows whether the filesystem was mounted again in between. */
static void edits_are_doubtful_where_mounts_have_no_numbers(void)
{
    struct wfs_replayed replayed;
    for (int is_known = 0; is_known < 2; is_known++) {
        struct kit kit;
        has_mount_id = is_known;
        kit_open(&kit, kit_small_catalog(), kit_options(), true);
        check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
        wfs_tree_free(kit.tree);
        struct wfs_tree_options options = kit_options();
        options.stage = kit_stage(kit.stage, &kit.err);
        check_int(wfs_tree_new(kit.catalog, &options, &kit.tree, &kit.err), 0);
        wfs_tree_replayed(kit.tree, &replayed);
        check_uint(replayed.n_unsynced, 1);
        check_uint(replayed.n_doubtful, is_known ? 0 : 1);
        kit_close(&kit);
    }
    has_mount_id = true;
}

static const char *unreadable; /* what a file begins with that cannot be read; NULL: none */

ssize_t pread(int fd, void *buf, size_t n_bytes, off_t offset)
{
    const ssize_t n = syscall(SYS_pread64, fd, buf, n_bytes, offset);
    if (unreadable == NULL || n < (ssize_t)strlen(unreadable) ||
        memcmp(buf, unreadable, strlen(unreadable)) != 0)
        return n;
    errno = EIO;
    return -1;
}

/* A base that cannot be read is not the same as none. */
static void what_the_edits_stand_on_must_be_readable(void)
{
    struct kit kit;
    struct wfs_error err;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
    wfs_tree_free(kit.tree);
    unreadable = "base\n";
    check_int(open_again(&kit, kit.stage, &err), -EIO);
    check(strstr(err.text, "cannot read the base in '") == err.text);
    unreadable = NULL;
    check_int(open_again(&kit, kit.stage, &err), 0);
    wfs_catalog_free(kit.catalog);
    kit_remove_stage(kit.stage);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    check_run(edits_need_few_descriptors);
    check_run(the_staging_directory_is_private_and_locked);
    check_run(a_lock_that_fails_says_why);
    check_run(only_pending_edits_are_kept);
    check_run(a_full_disk_fails_the_call_and_changes_nothing);
    check_run(a_failed_sync_is_told_once_and_the_edit_is_written_anew);
    check_run(edits_are_doubtful_where_mounts_have_no_numbers);
    check_run(what_the_edits_stand_on_must_be_readable);
    return check_done();
}
