/* SPDX-License-Identifier: MIT */
/*
 * Random operations on a tree and on a directory of this machine: the same errors, the same names,
 * links and bytes.
 */
#include "treekit.h"

#include <ftw.h>

enum { N_OPERATIONS = 20000, N_NAMES = 5 };

struct both {
    struct kit kit;
    char dir[64];
    char paths[3][200]; /* of the operation that runs */
};

static uint64_t state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 11) % n;
}

/* The same place on the machine. */
static const char *real(struct both *both, int i, const char *path)
{
    snprintf(both->paths[i], sizeof(both->paths[i]), "%s/%s", both->dir, path);
    return both->paths[i];
}

/* A path of up to three names whose directories are there. */
static void random_path(const struct both *both, char *path)
{
    const uint32_t depth = random_below(3);
    *path = '\0';
    for (uint32_t i = 0; i <= depth; i++) {
        char longer[100];
        snprintf(longer, sizeof(longer), "%s%s%c", path, i == 0 ? "" : "/",
                 'a' + (char)random_below(N_NAMES));
        if (i > 0) {
            const struct wfs_node *dir = kit_at(&both->kit, path);
            if (dir == NULL || !wfs_node_is_dir(dir))
                return;
        }
        strcpy(path, longer);
    }
}

static int errno_of(int result)
{
    return result < 0 ? -errno : 0;
}

static int real_write(const char *path, uint64_t offset, const char *bytes, size_t n_bytes)
{
    const int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -errno;
    const ssize_t n = pwrite(fd, bytes, n_bytes, (off_t)offset);
    close(fd);
    return n == (ssize_t)n_bytes ? 0 : -EIO;
}

static int write_at(struct both *both, const char *path, uint64_t offset, const char *bytes,
                    size_t n_bytes)
{
    struct wfs_node *node = kit_at(&both->kit, path);
    if (node == NULL)
        return -ENOENT;
    const int code = wfs_node_open(both->kit.tree, node, O_WRONLY);
    if (code < 0)
        return code;
    const ssize_t n = wfs_node_write(both->kit.tree, node, offset, bytes, n_bytes, false);
    return n == (ssize_t)n_bytes ? 0 : (int)n;
}

static int truncate_to(struct both *both, const char *path, uint64_t n_bytes)
{
    struct wfs_node *node = kit_at(&both->kit, path);
    return node == NULL ? -ENOENT : wfs_node_truncate(both->kit.tree, node, n_bytes);
}

static int create(struct both *both, const char *path)
{
    const char *name;
    struct wfs_node *node, *dir = kit_dir(&both->kit, path, &name);
    return wfs_node_create(both->kit.tree, dir, name, 0644, &node);
}

static int real_create(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int link_to(struct both *both, const char *from, const char *to)
{
    const char *name;
    struct wfs_node *node = kit_at(&both->kit, from), *dir = kit_dir(&both->kit, to, &name);
    return node == NULL ? -ENOENT : wfs_node_link(both->kit.tree, node, dir, name);
}

static void do_one(struct both *both, int i)
{
    static const unsigned flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    struct kit *kit = &both->kit;
    char a[100], b[100];
    random_path(both, a);
    random_path(both, b);
    const char *ra = real(both, 0, a), *rb = real(both, 1, b);
    const uint64_t offset = random_below(200);
    const unsigned how = flags[random_below(5)];
    int want, got;
    const uint32_t what = random_below(16);
    if (what < 3) {
        want = real_create(ra);
        got = create(both, a);
    } else if (what < 5) {
        want = errno_of(mkdir(ra, 0755));
        got = kit_mkdir(kit, a);
    } else if (what < 10) {
        want = errno_of(renameat2(AT_FDCWD, ra, AT_FDCWD, rb, how));
        got = kit_mv(kit, a, b, how);
    } else if (what == 10) {
        want = errno_of(unlink(ra));
        got = kit_rm(kit, a);
    } else if (what == 11) {
        want = errno_of(rmdir(ra));
        got = kit_rmdir(kit, a);
    } else if (what == 12) {
        want = errno_of(link(ra, rb));
        got = link_to(both, a, b);
    } else if (what == 13) {
        want = errno_of(truncate(ra, (off_t)offset));
        got = truncate_to(both, a, offset);
    } else {
        want = real_write(ra, offset, (const char *)kit_bytes + i % 1000, 30);
        got = write_at(both, a, offset, (const char *)kit_bytes + i % 1000, 30);
    }
    if (!check_int(got, want))
        printf("# operation %d: kind %u, '%s' '%s', flags %u\n", i, what, a, b, how);
}

/* ---- comparing ---- */

static struct both *compared;
static unsigned n_compared;

static int compare_one(const char *path, const struct stat *want, int type, struct FTW *place)
{
    (void)type;
    (void)place;
    const char *relative = path + strlen(compared->dir);
    const struct wfs_node *node = kit_at(&compared->kit, relative);
    struct stat got;
    n_compared++;
    if (!check(node != NULL)) {
        printf("# %s is missing\n", relative);
        return 1;
    }
    wfs_node_stat(compared->kit.tree, node, &got);
    check_int(got.st_mode & S_IFMT, want->st_mode & S_IFMT);
    check_uint(got.st_nlink, want->st_nlink);
    if (S_ISREG(want->st_mode) && check_int(got.st_size, want->st_size)) {
        char bytes[1000], real_bytes[1000];
        const int fd = open(path, O_RDONLY);
        const ssize_t n = read(fd, real_bytes, sizeof(real_bytes));
        close(fd);
        check_int(wfs_node_read(compared->kit.tree, node, 0, bytes, sizeof(bytes)), n);
        check_bytes(bytes, real_bytes, (size_t)n);
    }
    return 0;
}

static unsigned count_nodes(const struct kit *kit, const struct wfs_node *dir)
{
    uint64_t cookie = 0;
    struct wfs_dirent found;
    unsigned n = 1;
    while (wfs_dir_next(kit->tree, dir, &cookie, &found) == 1)
        n += wfs_node_is_dir(found.node) ? count_nodes(kit, found.node) : 1;
    return n;
}

static void compare_all(struct both *both)
{
    compared = both;
    n_compared = 0;
    check_int(nftw(both->dir, compare_one, 16, FTW_PHYS), 0);
    check_uint(count_nodes(&both->kit, wfs_tree_root(both->kit.tree)), n_compared);
}

static void a_tree_does_what_a_filesystem_does(void)
{
    struct both both;
    kit_open(&both.kit, kit_catalog(), kit_options(), true);
    /* Beside the staging directory: the same kind of filesystem, removed with it. */
    snprintf(both.dir, sizeof(both.dir), "%.50s-real", both.kit.stage);
    if (mkdir(both.dir, 0755) < 0)
        abort();
    for (int i = 0; i < N_OPERATIONS; i++) {
        do_one(&both, i);
        if (i % 500 == 0)
            compare_all(&both);
    }
    compare_all(&both);
    kit_close(&both.kit);
}

int main(void)
{
    check_run(a_tree_does_what_a_filesystem_does);
    return check_done();
}
