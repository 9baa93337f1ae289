/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of a tree's life fails once. Each time the operation says -ENOMEM and the tree
 * is as good as before; a sanitizer counts what is left behind.
 */
#include "treekit.h"

#include "failing_each.h"

enum { N_STEPS = 18 };

static const char npy[] = "\x93NUMPY\x01\x00\x39\x00"
                          "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }xy";

/* One step of a life: 0 or more, or a negative errno. */
static int do_step(struct kit *kit, int step)
{
    struct wfs_tree *tree = kit->tree;
    struct wfs_node *root = wfs_tree_root(tree), *node = NULL;
    struct wfs_catalog *snapshot = NULL;
    struct wfs_error err = {0};
    char buf[200];
    struct stat st;
    int code = 0;
    const bool has_new = wfs_node_lookup(tree, root, "new.npy", &node) == 0;
    struct wfs_node *w = kit_at(kit, "a/w");
    switch (step) {
    case 0:
        return wfs_node_mkdir(tree, root, "dir", 0700, &node);
    case 1:
        return wfs_node_create(tree, root, "new.npy", 0600, &node);
    case 2:
        return has_new ? (int)wfs_node_write(tree, node, 0, npy, sizeof(npy) - 1, false) : 0;
    case 3:
        return (int)wfs_node_write(tree, w, 1, "abc", 3, false);
    case 4:
        return kit_mv(kit, "a/b", "moved", 0);
    case 5:
        return wfs_node_set_xattr(tree, w, "user.weightfs.shape", "[3, 2]", 6, 0);
    case 6:
        return wfs_node_set_xattr(tree, w, "user.weightfs.param_id", "p", 1, 0);
    case 7:
        return wfs_node_set_xattr(tree, w, "user.other", "value", 5, 0);
    case 8:
        return wfs_node_set_xattr(tree, root, "user.weightfs.metadata.who", "me", 2, 0);
    case 9:
        return wfs_node_link(tree, w, root, "tie");
    case 10:
        return (int)wfs_node_list_xattr(tree, w, buf, sizeof(buf));
    case 11:
        code = (int)wfs_node_get_xattr(tree, w, "user.weightfs.xxh3", buf, sizeof(buf));
        return code;
    case 12:
        code = (int)wfs_node_get_xattr(tree, w, "user.weightfs.stats", buf, sizeof(buf));
        return code == -ERANGE ? 0 : code;
    case 16:
        code = wfs_node_open(tree, kit_at(kit, ".weightfs/tensors.csv"), O_RDONLY);
        if (code < 0)
            return code;
        wfs_node_stat(tree, kit_at(kit, ".weightfs/tensors.csv"), &st);
        wfs_tree_set_status(tree, &(struct wfs_status){.state = WFS_MOUNT_FAILED, .text = "why"});
        return (int)wfs_node_read(tree, kit_at(kit, ".weightfs/status.json"), 0, buf, 200);
    case 14:
        code = wfs_node_create(tree, root, ".tmp", 0600, &node);
        return code < 0 ? code : kit_mv(kit, ".tmp", "c", 0);
    case 15:
        return kit_rm(kit, "big");
    case 13:
        return wfs_node_open(tree, kit_at(kit, ".weightfs/tensors.csv"), O_RDONLY);
    default:
        code = wfs_tree_snapshot(tree, NULL, &snapshot, &err);
        wfs_catalog_free(snapshot);
        check(code == 0 || err.code == -code);
        /* What an earlier failure left out makes a file that cannot be committed. */
        return code == -EINVAL || code == -EBADMSG ? 0 : code;
    }
}

static struct wfs_catalog *make_catalog(void)
{
    char key[400];
    struct wfs_catalog *catalog = kit_catalog();
    memset(key, 'k', sizeof(key));
    key[399] = '\0';
    kit_add(catalog, "a.w", WFS_U8, 2, 3, 0);
    kit_add(catalog, "a.b", WFS_F32, 3, 0, 24);
    kit_add(catalog, "a", WFS_F32, 3, 0, 24);
    kit_add(catalog, "c", WFS_U8, 0, 0, 36);
    kit_add(catalog, key, WFS_U8, 2, 0, 40);
    kit_add(catalog, "%%", WFS_U8, 2, 0, 42);
    kit_add(catalog, "big", WFS_U8, 60000, 0, 48);
    if (catalog_add_meta(catalog, "format", "pt") < 0)
        abort();
    return catalog;
}

static unsigned long n_calls; /* of the last life, until its end was looked at */

static int live(struct kit *kit, unsigned long countdown)
{
    struct wfs_tree_options options = kit_options();
    options.base_text = "base";
    kit->err = (struct wfs_error){0};
    failing_countdown = countdown;
    options.stage = kit_stage(kit->stage, &kit->err);
    int code = options.stage == NULL ? -kit->err.code : 0;
    if (code == 0)
        code = wfs_tree_new(kit->catalog, &options, &kit->tree, &kit->err);
    check(code == 0 || (code == -ENOMEM && kit->err.code == ENOMEM));
    int n_failed = code < 0;
    for (int i = 0; i < N_STEPS && code == 0; i++) {
        const int result = do_step(kit, i);
        if (!check(result >= 0 || result == -ENOMEM))
            printf("# allocation %lu, step %d: %d\n", countdown, i, result);
        n_failed += result < 0;
    }
    check(n_failed <= 1);
    n_calls = failing_n_calls;
    failing_countdown = 0;
    if (code < 0)
        return code;
    /* It is whole: what is there can be listed, read and described. */
    size_t n = 0;
    char *text = kit_read(kit, ".weightfs/tensors.csv", &n);
    check(text != NULL && strncmp(text, "key,", 4) == 0);
    free(text);
    check(strstr(kit_ls(kit, ""), "a ") != NULL);
    wfs_tree_committed(kit->tree, wfs_tree_generation(kit->tree));
    wfs_tree_free(kit->tree);
    return n_failed > 0 ? -ENOMEM : 0;
}

static void every_allocation_fails_once(void)
{
    struct kit kit = {.catalog = make_catalog(), .stage = "/tmp/wfs-unit-XXXXXX"};
    if (mkdtemp(kit.stage) == NULL)
        abort();
    strcat(kit.stage, "/stage");
    unsigned long n = 0, n_needed, n_told = 0;
    check_int(live(&kit, 0), 0);
    failing_n_calls = 0;
    check_int(live(&kit, 0), 0);
    n_needed = n_calls;
    while (n < n_needed)
        n_told += live(&kit, ++n) == -ENOMEM;
    /* Few may be missed without a word: what is only kept to be quicker, or is a second try. */
    check(n_told > 50 && n_told + 12 > n_needed);
    printf("# %lu allocations, %lu of them told\n", n_needed, n_told);
    check(access(kit.stage, F_OK) < 0);
    wfs_catalog_free(kit.catalog);
    kit_remove_stage(kit.stage);
}

/* ---- a snapshot: nothing in it may do without an allocation ---- */

static struct kit edited;

static int snapshot(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = wfs_tree_snapshot(edited.tree, NULL, &catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static int read_table(struct wfs_error *err)
{
    /* A change of names makes the table old. */
    const int code = kit_mv(&edited, "c.npy", "u.npy", RENAME_EXCHANGE);
    const int opened =
        code < 0 ? code
                 : wfs_node_open(edited.tree, kit_at(&edited, ".weightfs/tensors.csv"), O_RDONLY);
    return opened < 0 ? wfs_fail(err, -opened, "out of memory") : 0;
}

static void a_snapshot_and_the_table_of_tensors_need_every_allocation(void)
{
    static const char same[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, "
                               "'shape': (2, 3), }";
    struct wfs_tree_options options = kit_options();
    char text[134] = {0};
    options.files = WFS_FILES_NPY;
    kit_open(&edited, kit_small_catalog(), options, true);
    memset(text, ' ', 127);
    text[127] = '\n';
    memcpy(text, same, sizeof(same) - 1);
    check_int(kit_write(&edited, "u.npy", text, sizeof(text)), 0);
    /* BF16 has no name in numpy: the header is compared with the one that the tensor had. */
    char *bytes = calloc(1, 200);
    const ssize_t n = wfs_node_read(edited.tree, kit_at(&edited, "c.npy"), 0, bytes, 200);
    check_int(kit_write(&edited, "c.npy", bytes, (size_t)n), 0);
    free(bytes);
    check_int(wfs_node_link(edited.tree, kit_at(&edited, "c.npy"), kit_at(&edited, ""), "d.npy"),
              0);
    check_int(kit_set_attr(&edited, "c.npy", "param_id", "7"), 0);
    check_int(wfs_node_set_xattr(edited.tree, kit_at(&edited, ""), "user.weightfs.metadata.who",
                                 "me", 2, 0),
              0);
    check_str(kit_commit(&edited), "a.w a.b c big d u ");
    check_each_allocation(snapshot);
    /* The first exchange gives the new file a description, and needs more than the others. */
    check_int(kit_mv(&edited, "c.npy", "u.npy", RENAME_EXCHANGE), 0);
    check_each_allocation(read_table);
    kit_close(&edited);
}

int main(void)
{
    check_run(a_snapshot_and_the_table_of_tensors_need_every_allocation);
    check_run(every_allocation_fails_once);
    return check_done();
}
