/* SPDX-License-Identifier: MIT */
/*
 * Changes of names: what POSIX says of them, what no key gives, what stays while it is referred to.
 */
#include "treekit.h"

static void renames_follow_posix(void)
{
    struct kit kit;
    kit_open(&kit, kit_nested_catalog(), kit_options(), true);
    check_int(kit_mv(&kit, "head", "tail", 0), 0);
    check_int(kit_mv(&kit, "head", "tail", 0), -ENOENT);
    check_int(kit_mv(&kit, "encoder", "encoder/layer/x", 0), -EINVAL);
    check_int(kit_mv(&kit, "encoder/layer", "decoder", 0), 0);
    check_str(kit_ls(&kit, "encoder"), "%self ");
    check_str(kit_attr(&kit, "decoder/0/bias", "key"), "decoder.0.bias");
    check_str(kit_commit(&kit),
              "decoder.0.weight decoder.0.bias decoder.1.weight encoder tail nothing ");
    check_int(kit_mkdir(&kit, "empty"), 0);
    check_int(kit_mv(&kit, "decoder", "empty", 0), 0);
    check_int(kit_mv(&kit, "empty", "encoder", 0), -ENOTEMPTY);
    check_int(kit_mv(&kit, "tail", "encoder", 0), -EISDIR);
    check_int(kit_mv(&kit, "encoder", "tail", 0), -ENOTDIR);
    check_int(kit_mv(&kit, "tail", "nothing", RENAME_NOREPLACE), -EEXIST);
    check_int(kit_mv(&kit, "tail", "missing", RENAME_EXCHANGE), -ENOENT);
    check_int(kit_mv(&kit, "tail", "nothing", RENAME_EXCHANGE | RENAME_NOREPLACE), -EINVAL);
    check_int(kit_mv(&kit, "tail", "nothing", RENAME_EXCHANGE), 0);
    check_uint(kit_size(&kit, "nothing"), 5);
    check_str(kit_commit(&kit), "empty.0.weight empty.0.bias empty.1.weight encoder tail nothing ");
    check_int(kit_mv(&kit, "empty", "empty/0", RENAME_EXCHANGE), -EINVAL);
    check_int(kit_mv(&kit, "empty/0", "empty", RENAME_EXCHANGE), -EINVAL);
    check_int(kit_mv(&kit, "empty/0", "nothing", RENAME_EXCHANGE), 0);
    check_str(kit_commit(&kit), "nothing.weight nothing.bias empty.1.weight encoder tail empty.0 ");
    struct stat st;
    wfs_node_stat(kit.tree, kit_at(&kit, ""), &st);
    check_uint(st.st_nlink, 2 + 3);
    wfs_node_stat(kit.tree, kit_at(&kit, "empty"), &st);
    check_uint(st.st_nlink, 2 + 1);
    kit_close(&kit);
}

static void names_that_no_key_gives_are_refused(void)
{
    struct kit kit;
    struct wfs_tree_options options = kit_options();
    options.reserved_key = "__metadata__";
    kit_open(&kit, kit_nested_catalog(), options, true);
    static const struct {
        const char *name;
        int code;
    } cases[] = {
        {"%41", -EINVAL},
        {"a\nb", -EINVAL},
        {"%self", -EINVAL},
        {"%self.npy", -EINVAL},
        {"__metadata__", -EINVAL},
        {"__metadata__.npy", -EINVAL},
        {"__metadata___", 0},
        {"%2Fx", 0},
        {"%", 0},
        {"%.npy", 0},
        {".weight.XXXXXX", 0},
        {".%41", 0},
        {"a.b", 0},
        {"weight~", 0},
        {"4913", 0},
        {".weightfs", -EEXIST},
        {"encoder", -EEXIST},
        {"head", -EEXIST},
        {"\xff", -EINVAL},
        {"x%~0123456789abcdef", 0},
    };
    struct wfs_node *node;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (!check_int(
                wfs_node_create(kit.tree, wfs_tree_root(kit.tree), cases[i].name, 0644, &node),
                cases[i].code))
            printf("# %s\n", cases[i].name);
    }
    check_int(kit_mv(&kit, "head", "__metadata__", 0), -EINVAL);
    check_int(kit_mv(&kit, "encoder", "__metadata__", 0), -EINVAL);
    check_int(kit_mv(&kit, "encoder/layer", "%self", 0), -EINVAL);
    check_int(kit_mkdir(&kit, "__metadata__"), 0);
    check_int(kit_mv(&kit, "head", "__metadata__/%self", 0), -EINVAL);
    check_int(kit_mv(&kit, "head", "__metadata__/x", 0), 0);
    check_int(kit_mkdir(&kit, "%self"), -EINVAL);
    check_int(kit_mkdir(&kit, "encoder/%self"), -EEXIST);
    char name[300];
    memset(name, 'a', 256);
    name[256] = '\0';
    check_int(kit_mkdir(&kit, name), -ENAMETOOLONG);
    name[255] = '\0';
    check_int(kit_mkdir(&kit, name), 0);
    kit_close(&kit);
}

static void unlinked_nodes_live_while_referred_to(void)
{
    struct kit kit;
    struct stat st;
    kit_open(&kit, kit_nested_catalog(), kit_options(), true);
    struct wfs_node *node = kit_at(&kit, "head");
    wfs_node_ref(node, 2);
    check(!wfs_node_unref(node, 1));
    check_int(kit_rm(&kit, "head"), 0);
    check(kit_at(&kit, "head") == NULL);
    check(wfs_node_parent(kit.tree, node) == NULL);
    char buf[8];
    check_int(wfs_node_read(kit.tree, node, 0, buf, 8), 5);
    check_int(wfs_node_write(kit.tree, node, 5, "abc", 3, false), 3);
    wfs_node_stat(kit.tree, node, &st);
    check_uint(st.st_nlink, 0);
    check_int(st.st_size, 8);
    check_int(wfs_node_link(kit.tree, node, wfs_tree_root(kit.tree), "back"), -ENOENT);
    check(wfs_node_unref(node, 1));
    wfs_node_reap(kit.tree, node);
    wfs_node_reap(kit.tree, node);
    struct wfs_node *dir = kit_at(&kit, "encoder/layer/1");
    wfs_node_ref(dir, 1);
    check_int(kit_rmdir(&kit, "encoder/layer/1"), -ENOTEMPTY);
    check_int(kit_rm(&kit, "encoder/layer/1/weight"), 0);
    check_int(kit_rmdir(&kit, "encoder/layer/1"), 0);
    check_int(wfs_node_create(kit.tree, dir, "x", 0644, &node), -ENOENT);
    check(wfs_node_unref(dir, 1));
    wfs_node_reap(kit.tree, dir);
    /* A number is never used again. */
    check_int(kit_write(&kit, "a", "", 0), 0);
    wfs_node_stat(kit.tree, kit_at(&kit, "a"), &st);
    const ino_t ino = st.st_ino;
    check_int(kit_rm(&kit, "a"), 0);
    check_int(kit_write(&kit, "a", "", 0), 0);
    wfs_node_stat(kit.tree, kit_at(&kit, "a"), &st);
    check(st.st_ino != ino);
    kit_close(&kit);
}

static void a_read_only_tree_changes_nothing(void)
{
    struct kit kit;
    struct wfs_node *node;
    kit_open(&kit, kit_nested_catalog(), kit_options(), false);
    struct wfs_node *root = wfs_tree_root(kit.tree), *head = kit_at(&kit, "head");
    check(!wfs_tree_is_writable(kit.tree));
    check_int(wfs_node_open(kit.tree, head, O_WRONLY), -EROFS);
    check_int(wfs_node_open(kit.tree, head, O_RDONLY | O_TRUNC), -EROFS);
    check_int(wfs_node_open(kit.tree, root, O_RDWR), -EISDIR);
    check_int(wfs_node_open(kit.tree, head, O_RDONLY), 0);
    check_int(wfs_node_write(kit.tree, head, 0, "a", 1, false), -EROFS);
    check_int(wfs_node_truncate(kit.tree, head, 0), -EROFS);
    check_int(wfs_node_fallocate(kit.tree, head, 0, 0, 1), -EROFS);
    check_int(wfs_node_create(kit.tree, root, "n", 0644, &node), -EROFS);
    check_int(wfs_node_mkdir(kit.tree, root, "n", 0755, &node), -EROFS);
    check_int(wfs_node_unlink(kit.tree, root, "head"), -EROFS);
    check_int(wfs_node_rmdir(kit.tree, root, "encoder"), -EROFS);
    check_int(wfs_node_rename(kit.tree, root, "head", root, "h", 0), -EROFS);
    check_int(wfs_node_link(kit.tree, head, root, "h"), -EROFS);
    check_int(wfs_node_set_mode(kit.tree, head, 0600), -EROFS);
    check_int(wfs_node_set_times(kit.tree, head, NULL, &(struct timespec){1, 0}), -EROFS);
    check_uint(wfs_tree_generation(kit.tree), 0);
    check(!wfs_tree_has_pending(kit.tree));
    kit_close(&kit);
}

int main(void)
{
    check_run(renames_follow_posix);
    check_run(names_that_no_key_gives_are_refused);
    check_run(unlinked_nodes_live_while_referred_to);
    check_run(a_read_only_tree_changes_nothing);
    return check_done();
}
