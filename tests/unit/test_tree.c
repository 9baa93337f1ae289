/* SPDX-License-Identifier: MIT */
/*
 * The tree as it is shown: names, listings, stat, content, attributes; and changes of names.
 */
#include "treekit.h"

#include <weightfs/value.h>

#include "tree/node/node.h"

static void a_tree_shows_what_the_catalog_has(void)
{
    struct kit kit;
    kit_open(&kit, kit_nested_catalog(), kit_options(), false);
    check_str(kit_ls(&kit, ""), "encoder head nothing ");
    check_str(kit_ls(&kit, "encoder"), "%self layer ");
    check_str(kit_ls(&kit, "encoder/layer/0"), "bias weight ");
    check_uint(kit_size(&kit, "encoder/layer/0/weight"), 24);
    check_uint(kit_size(&kit, "encoder/%self"), 8);
    check_uint(kit_size(&kit, "nothing"), 0);
    size_t n = 0;
    char *bytes = kit_read(&kit, "encoder/layer/0/bias", &n);
    check_uint(n, 12);
    check_bytes(bytes, kit_bytes + 24, 12);
    free(bytes);
    check_str(kit_attr(&kit, "encoder/%self", "key"), "encoder");
    check_str(kit_commit(&kit), "encoder.layer.0.weight encoder.layer.0.bias "
                                "encoder.layer.1.weight encoder head nothing ");
    struct wfs_node *node;
    check_int(wfs_node_lookup(kit.tree, kit_at(&kit, "head"), "x", &node), -ENOTDIR);
    check_int(wfs_node_lookup(kit.tree, kit_at(&kit, ""), "x", &node), -ENOENT);
    char name[300];
    memset(name, 'a', 299);
    name[299] = '\0';
    check_int(wfs_node_lookup(kit.tree, kit_at(&kit, ""), name, &node), -ENAMETOOLONG);
    kit_close(&kit);
}

static void stat_is_exact_and_inode_numbers_are_stable(void)
{
    struct kit kit;
    struct stat st, again;
    kit_open(&kit, kit_nested_catalog(), kit_options(), false);
    wfs_node_stat(kit.tree, kit_at(&kit, "encoder/layer/0/weight"), &st);
    check_uint(st.st_mode, S_IFREG | 0644);
    check_uint(st.st_nlink, 1);
    check_int(st.st_blocks, 1);
    check_uint(st.st_uid, 1000);
    check(st.st_ino > 1);
    wfs_node_stat(kit.tree, kit_at(&kit, ""), &again);
    check_uint(again.st_ino, 1);
    check_uint(again.st_mode, S_IFDIR | 0755);
    check_uint(again.st_nlink, 3);
    wfs_node_stat(kit.tree, kit_at(&kit, "nothing"), &again);
    check_int(again.st_blocks, 0);
    kit_close(&kit);
    kit_open(&kit, kit_nested_catalog(), kit_options(), true);
    wfs_node_stat(kit.tree, kit_at(&kit, "encoder/layer/0/weight"), &again);
    check_uint(again.st_ino, st.st_ino);
    check_uint(again.st_mode, S_IFREG | 0644);
    check(again.st_mtim.tv_sec == again.st_mtim.tv_sec && again.st_mtim.tv_sec != 0);
    struct statvfs fs;
    wfs_tree_statfs(kit.tree, &fs);
    check_uint(fs.f_namemax, 255);
    check_uint(fs.f_blocks - fs.f_bfree, 1);
    check(fs.f_bavail > 0 && fs.f_bavail <= fs.f_bfree);
    kit_close(&kit);
}

static void npy_files_have_a_header_that_numpy_reads(void)
{
    struct kit kit;
    struct wfs_tree_options options = kit_options();
    options.files = WFS_FILES_NPY;
    kit_open(&kit, kit_nested_catalog(), options, false);
    check_str(kit_ls(&kit, ""), "encoder head.npy nothing.npy ");
    check_str(kit_ls(&kit, "encoder"), "%self.npy layer ");
    size_t n = 0;
    char *bytes = kit_read(&kit, "encoder/layer/0/weight.npy", &n);
    check_uint(n, 128 + 24);
    check_bytes(bytes, "\x93NUMPY\x01\x00", 8);
    check(strstr(bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") !=
          NULL);
    check_bytes(bytes + 128, kit_bytes, 24);
    /* Any window of it is the same bytes. */
    for (size_t from = 100; from < 152; from++) {
        char window[40];
        const ssize_t n_read = wfs_node_read(kit.tree, kit_at(&kit, "encoder/layer/0/weight.npy"),
                                             from, window, sizeof(window));
        check_int(n_read, from + 40 > 152 ? (int64_t)(152 - from) : 40);
        check_bytes(window, bytes + from, (size_t)n_read);
    }
    free(bytes);
    check_str(kit_attr(&kit, "encoder/%self.npy", "key"), "encoder");
    check_str(kit_commit(&kit), "encoder.layer.0.weight encoder.layer.0.bias "
                                "encoder.layer.1.weight encoder head nothing ");
    kit_close(&kit);
}

static const char *const odd_keys[] = {
    "",
    ".",
    "..",
    "a..b",
    "a.",
    ".a",
    "a/b",
    "a.b",
    "/a",
    "a/",
    "%",
    "%self",
    "x.%self",
    "x",
    "%25",
    "x.%self.y",
    "-rf",
    "*",
    "a\nb",
    "caf\xc3\xa9",
    "cafe\xcc\x81",
    "Case",
    "case",
    "foo.npy",
    "foo",
    "\xed\xa0\x80",
    ".weightfs",
    "\xff.\xff",
    "w.absmax",
    "w",
    "__metadata___",
};

static void odd_keys_come_back_in_both_layouts_and_kinds_of_files(void)
{
    enum { N_KEYS = sizeof(odd_keys) / sizeof(*odd_keys) };
    char longest[3][1000];
    memset(longest, 'k', sizeof(longest));
    longest[0][999] = longest[1][300] = longest[2][253] = '\0';
    longest[0][500] = '.';
    char *deep = calloc(2100, 1);
    for (int i = 0; i < 1000; i++)
        strcat(deep, i % 3 == 0 ? "." : "d.");
    for (int variant = 0; variant < 4; variant++) {
        struct kit kit;
        struct wfs_tree_options options = kit_options();
        struct wfs_catalog *catalog = kit_catalog(), *snapshot = NULL;
        options.layout = variant & 1 ? WFS_LAYOUT_FLAT : WFS_LAYOUT_NESTED;
        options.files = variant & 2 ? WFS_FILES_NPY : WFS_FILES_RAW;
        for (size_t i = 0; i < N_KEYS; i++)
            kit_add(catalog, odd_keys[i], WFS_U8, 3, 0, i * 3);
        for (size_t i = 0; i < 3; i++)
            kit_add(catalog, longest[i], WFS_U8, 3, 0, 300 + i * 3);
        kit_add(catalog, deep, WFS_U8, 3, 0, 400);
        kit_open(&kit, catalog, options, false);
        check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, &kit.err), 0);
        check_uint(wfs_catalog_n_tensors(snapshot), N_KEYS + 4);
        for (size_t i = 0; i < wfs_catalog_n_tensors(snapshot); i++) {
            const struct wfs_tensor *tensor = wfs_catalog_tensor(snapshot, i);
            check_str(tensor->key, wfs_catalog_tensor(catalog, i)->key);
            check_uint(tensor->stored.offset, wfs_catalog_tensor(catalog, i)->stored.offset);
        }
        wfs_catalog_free(snapshot);
        kit_close(&kit);
    }
    free(deep);
}

static void twins_and_prefix_clashes(void)
{
    struct wfs_catalog *catalog = kit_catalog();
    struct wfs_tree_options options = kit_options();
    struct wfs_tree *tree;
    struct wfs_error err = {0};
    kit_add(catalog, "a.b", WFS_U8, 1, 0, 0);
    kit_add(catalog, "a.b", WFS_U8, 1, 0, 1);
    check_int(wfs_tree_new(catalog, &options, &tree, &err), -EBADMSG);
    check_str(err.text, "duplicate key 'a.b'");
    wfs_catalog_free(catalog);
}

static void listings_are_sorted_and_survive_changes(void)
{
    enum { N = 3000 };
    struct kit kit;
    struct wfs_catalog *catalog = kit_catalog();
    char name[32];
    for (int i = N; i-- > 0;) { /* not in order */
        snprintf(name, sizeof(name), "w%05d", i);
        kit_add(catalog, name, WFS_U8, 1, 0, (uint64_t)i);
    }
    kit_open(&kit, catalog, kit_options(), true);
    struct wfs_node *root = wfs_tree_root(kit.tree);
    uint64_t cookie = 0;
    struct wfs_dirent found;
    int n_seen = 0, n_before = -1;
    /* `rm` while listing: each is removed as soon as it is seen; others come and go. */
    while (wfs_dir_next(kit.tree, root, &cookie, &found) == 1) {
        int number = -1;
        char seen[32];
        snprintf(seen, sizeof(seen), "%s", found.name);
        if (sscanf(seen, "w%d", &number) != 1)
            continue; /* made meanwhile */
        check(number > n_before);
        n_before = number;
        n_seen++;
        check_int(wfs_node_unlink(kit.tree, root, seen), 0);
        if (n_seen % 7 == 0) {
            struct wfs_node *node;
            snprintf(name, sizeof(name), ".new%d", n_seen);
            check_int(wfs_node_create(kit.tree, root, name, 0644, &node), 0);
            if (n_seen % 2 == 0)
                check_int(wfs_node_unlink(kit.tree, root, name), 0);
        }
    }
    check_int(n_seen, N);
    check_str(kit_commit(&kit), "");
    kit_close(&kit);
}

static void the_control_directory_is_hidden_but_there(void)
{
    struct kit kit;
    size_t n = 0;
    kit_open(&kit, kit_nested_catalog(), kit_options(), false);
    check(strstr(kit_ls(&kit, ""), "weightfs") == NULL);
    check_str(kit_ls(&kit, ".weightfs"), "metadata.json status.json tensors.csv ");
    char *text = kit_read(&kit, ".weightfs/metadata.json", &n);
    check_str(text, "{\n  \"format\": \"pt\",\n  \"who\": \"me \\\"quoted\\\"\\n\"\n}\n");
    free(text);
    text = kit_read(&kit, ".weightfs/tensors.csv", &n);
    static const char *const want = "key,dtype,shape,bytes,file,offset,source_key,changes\n"
                                    "encoder.layer.0.weight,F32,\"[2, 3]\",24,model.bin,,"
                                    "encoder.layer.0.weight,\n";
    check(strncmp(text, want, strlen(want)) == 0);
    free(text);
    const struct wfs_status status = {.state = WFS_MOUNT_PUBLISHED,
                                      .step = "done",
                                      .text = "a \"b\"",
                                      .output = "/x",
                                      .committed_at = 7};
    wfs_tree_set_status(kit.tree, &status);
    text = kit_read(&kit, ".weightfs/status.json", &n);
    check(strstr(text, "\"state\": \"published\"") != NULL);
    check(strstr(text, "\"text\": \"a \\\"b\\\"\"") != NULL);
    check(strstr(text, "\"committed_at\": 7") != NULL);
    struct wfs_status *read_back = NULL;
    if (check_int(wfs_status_parse(text, n, &read_back), 0)) {
        check_int(read_back->state, WFS_MOUNT_PUBLISHED);
        check_str(read_back->step, "done");
        check_str(read_back->text, "a \"b\"");
        check_str(read_back->output, "/x");
        check(read_back->written == NULL && read_back->sandbox == NULL);
        check_int(read_back->committed_at, 7);
        check_int(read_back->pid, getpid());
    }
    free(read_back);
    check_int(wfs_status_parse("{\"state\": \"asleep\"}", 19, &read_back), -EBADMSG);
    check_int(wfs_status_parse("{", 1, &read_back), -EBADMSG);
    free(text);
    check_int(wfs_node_open(kit.tree, kit_at(&kit, ".weightfs/status.json"), O_RDWR), -EROFS);
    kit_close(&kit);
}

static void attributes_of_a_read_only_tree(void)
{
    struct kit kit;
    char list[4096];
    kit_open(&kit, kit_nested_catalog(), kit_options(), false);
    const char *path = "encoder/layer/1/weight";
    check_str(kit_attr(&kit, path, "dtype"), "BF16");
    check_str(kit_attr(&kit, path, "shape"), "[2, 3]");
    check_str(kit_attr(&kit, path, "key"), "encoder.layer.1.weight");
    check_str(kit_attr(&kit, path, "file"), "model.bin");
    check_str(kit_attr(&kit, path, "source_key"), "encoder.layer.1.weight");
    check_str(kit_attr(&kit, path, "source_dtype"), "BF16");
    check_str(kit_attr(&kit, path, "changes"), "");
    check_uint(strlen(kit_attr(&kit, path, "xxh3")), 16);
    check(strstr(kit_attr(&kit, "head", "stats"), "\"elements\": 5, \"finite\": 5") != NULL);
    check_str(kit_attr(&kit, "", "format"), "safetensors");
    check_str(kit_attr(&kit, "", "metadata.format"), "pt");
    const struct wfs_node *node = kit_at(&kit, path);
    const ssize_t n = wfs_node_list_xattr(kit.tree, node, list, sizeof(list));
    check_int(n, 22 - 2 + 21 - 1 + 18);
    check_bytes(list, "user.weightfs.dtype\0user.weightfs.shape\0user.weightfs.key\0", 58);
    check_int(wfs_node_list_xattr(kit.tree, node, list, 10), -ERANGE);
    check_int(wfs_node_get_xattr(kit.tree, node, "user.weightfs.dtype", list, 2), -ERANGE);
    check_int(wfs_node_get_xattr(kit.tree, node, "user.x", list, 2), -ENODATA);
    check_int(wfs_node_get_xattr(kit.tree, node, "security.selinux", list, 2), -EOPNOTSUPP);
    check_int(wfs_node_set_xattr(kit.tree, (struct wfs_node *)(uintptr_t)node,
                                 "user.weightfs.dtype", "F16", 3, 0),
              -EROFS);
    kit_close(&kit);
}

static void long_attributes_are_not_listed(void)
{
    struct kit kit;
    struct wfs_catalog *catalog = kit_catalog();
    char *key = malloc(70001), list[8192];
    memset(key, 'k', 70000);
    key[70000] = '\0';
    kit_add(catalog, key, WFS_U8, 1, 0, 0);
    key[5000] = '\0';
    kit_add(catalog, key, WFS_U8, 1, 0, 1);
    char *value = malloc(200001);
    memset(value, 'v', 200000);
    value[200000] = '\0';
    if (catalog_add_meta(catalog, "big", value) < 0 || catalog_add_meta(catalog, "a", "1") < 0)
        abort();
    kit_open(&kit, catalog, kit_options(), false);
    uint64_t cookie = 0;
    struct wfs_dirent found;
    check_int(wfs_dir_next(kit.tree, wfs_tree_root(kit.tree), &cookie, &found), 1);
    check_uint(strlen(found.name), 232 + 18);
    check_int(wfs_node_list_xattr(kit.tree, found.node, list, sizeof(list)), 40);
    check_int(wfs_dir_next(kit.tree, wfs_tree_root(kit.tree), &cookie, &found), 1);
    check_int(wfs_node_list_xattr(kit.tree, found.node, list, sizeof(list)), 40);
    const ssize_t one =
        wfs_node_get_xattr(kit.tree, kit_at(&kit, found.name), "user.weightfs.key", NULL, 0);
    check(one == 5000 || one == -E2BIG);
    const ssize_t n = wfs_node_list_xattr(kit.tree, wfs_tree_root(kit.tree), list, sizeof(list));
    check_int(n, 21 + 25);
    check_int(wfs_node_get_xattr(kit.tree, wfs_tree_root(kit.tree), "user.weightfs.metadata.big",
                                 NULL, 0),
              -E2BIG);
    size_t n_text = 0;
    char *text = kit_read(&kit, ".weightfs/metadata.json", &n_text);
    check(n_text > 200000);
    free(text);
    free(key);
    free(value);
    kit_close(&kit);
}

static void tied_tensors_are_hard_links(void)
{
    struct kit kit;
    struct stat st;
    struct wfs_catalog *catalog = kit_catalog();
    kit_add(catalog, "emb", WFS_F32, 2, 3, 0);
    kit_add(catalog, "head", WFS_F32, 2, 3, 0);
    kit_add(catalog, "other", WFS_F32, 3, 2, 0);
    kit_add(catalog, "e1", WFS_F32, 0, 0, 0);
    kit_add(catalog, "e2", WFS_F32, 0, 0, 0);
    if (catalog_add_attr(catalog, &catalog->tensors[1], "param_id", "p2") < 0)
        abort();
    kit_open(&kit, catalog, kit_options(), true);
    check(kit_at(&kit, "emb") == kit_at(&kit, "head"));
    check(kit_at(&kit, "emb") != kit_at(&kit, "other"));
    check(kit_at(&kit, "e1") != kit_at(&kit, "e2"));
    wfs_node_stat(kit.tree, kit_at(&kit, "emb"), &st);
    check_uint(st.st_nlink, 2);
    /* A write through one name is seen through the other; replacing one name unties it. */
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "head"), 0, "\xee", 1, false), 1);
    size_t n = 0;
    char *bytes = kit_read(&kit, "emb", &n);
    check_uint((uint8_t)bytes[0], 0xee);
    check_bytes(bytes + 1, kit_bytes + 1, 23);
    free(bytes);
    struct wfs_catalog *snapshot = NULL;
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, &kit.err), 0);
    check_str(wfs_tensor_attr(wfs_catalog_tensor(snapshot, 1), "param_id"), "p2");
    check(wfs_tensor_attr(wfs_catalog_tensor(snapshot, 0), "param_id") == NULL);
    wfs_catalog_free(snapshot);
    check_int(kit_write(&kit, ".x", kit_bytes + 100, 24), 0);
    check_int(kit_mv(&kit, ".x", "head", 0), 0);
    wfs_node_stat(kit.tree, kit_at(&kit, "emb"), &st);
    check_uint(st.st_nlink, 1);
    check_str(kit_attr(&kit, "head", "shape"), "[2, 3]");
    struct wfs_node *root = wfs_tree_root(kit.tree);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "emb"), root, "tie"), 0);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "emb"), root, "tie"), -EEXIST);
    check_int(wfs_node_link(kit.tree, root, root, "dir"), -EPERM);
    check_str(kit_commit(&kit), "emb head other e1 e2 tie ");
    kit_close(&kit);
}

static void add_value(struct wfs_catalog *catalog, const char *name, int64_t integer)
{
    catalog->values.graph.arena = &catalog->arena;
    if (catalog_add_value(catalog, arena_copy(&catalog->arena, name, strlen(name)),
                          value_new_integer(&catalog->values.graph, integer), 0) < 0)
        abort();
}

static void what_is_no_tensor_is_a_json_file(void)
{
    struct kit kit;
    char name[300];
    struct wfs_catalog *catalog = kit_nested_catalog(), *snapshot = NULL;
    memset(name, 'v', sizeof(name));
    name[252] = '\0';
    add_value(catalog, "epoch", 3);
    add_value(catalog, "optimizer.group", 4);
    add_value(catalog, "encoder", 5);
    add_value(catalog, "head.x", 6);
    add_value(catalog, name, 7);
    kit_open(&kit, catalog, kit_options(), true);
    size_t n = 0;
    char *text = kit_read(&kit, "epoch.json", &n);
    check_str(text, "3\n");
    free(text);
    text = kit_read(&kit, "encoder.json", &n);
    check_str(text, "5\n");
    free(text);
    check_str(kit_ls(&kit, "optimizer"), "group.json ");
    check_str(kit_ls(&kit, "head"), "%self x.json ");
    check(strncmp(kit_ls(&kit, ""), "encoder encoder.json epoch.json head nothing optimizer vvv",
                  58) == 0);
    check_str(kit_attr(&kit, "epoch.json", "key"), "");
    struct stat st;
    wfs_node_stat(kit.tree, kit_at(&kit, "epoch.json"), &st);
    check_uint(st.st_mode, S_IFREG | 0644);
    check_int(st.st_blocks, 1);
    check_int(wfs_node_open(kit.tree, kit_at(&kit, "epoch.json"), O_RDONLY), 0);
    check_int(wfs_node_open(kit.tree, kit_at(&kit, "epoch.json"), O_WRONLY), 0);
    check_int(kit_mv(&kit, "epoch.json", "x.json", 0), 0);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "x.json"), kit_at(&kit, "head"), "y"), -EPERM);
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check_uint(wfs_catalog_n_tensors(snapshot), 6);
    check_uint(wfs_catalog_n_values(snapshot), 5);
    bool has_moved = false;
    for (size_t i = 0; i < 5; i++)
        has_moved |= strcmp(wfs_catalog_value_name(snapshot, i), "x") == 0;
    check(has_moved);
    wfs_catalog_free(snapshot);
    check_int(kit_rm(&kit, "optimizer/group.json"), 0);
    check(wfs_tree_has_pending(kit.tree));
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check_uint(wfs_catalog_n_values(snapshot), 4);
    wfs_catalog_free(snapshot);
    kit_close(&kit);
}

static uint64_t number_of(const struct kit *kit, const char *path)
{
    return wfs_node_number(kit_at(kit, path));
}

static void numbers_lead_to_their_node_or_nowhere(void)
{
    struct kit kit, again;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    kit_open(&again, kit_small_catalog(), kit_options(), false);
    check_uint(number_of(&kit, ""), 1);
    static const char *const paths[] = {"", "a", "a/w", "a/b", "c", "big", ".weightfs"};
    for (size_t i = 0; i < 7; i++) {
        check(wfs_tree_node(kit.tree, number_of(&kit, paths[i])) == kit_at(&kit, paths[i]));
        check_uint(number_of(&kit, paths[i]), number_of(&again, paths[i]));
    }
    const uint64_t n = number_of(&kit, "c");
    static const uint64_t made_up[] = {0, 1u << 31, UINT32_MAX, UINT64_MAX, UINT64_C(1) << 32};
    for (size_t i = 0; i < 5; i++)
        check(wfs_tree_node(kit.tree, made_up[i]) == NULL);
    for (int bit = 24; bit < 64; bit++)
        check(wfs_tree_node(kit.tree, n ^ UINT64_C(1) << bit) == NULL);
    kit_close(&again);
    kit_close(&kit);
}

/* A place in the pool is used again as often as there are generations, and then never more. */
static void no_number_is_used_twice(void)
{
    struct kit kit;
    struct wfs_node *node = NULL;
    uint64_t before = 0;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    for (int i = 0; i < 100; i++) {
        check_int(kit_write(&kit, "x", "1", 1), 0);
        const uint64_t number = number_of(&kit, "x");
        check(number != before && (uint32_t)number != 0);
        check(i == 0 || (uint32_t)number == (uint32_t)before);
        check(before == 0 || wfs_tree_node(kit.tree, before) == NULL);
        before = number;
        check_int(kit_rm(&kit, "x"), 0);
        check(wfs_tree_node(kit.tree, number) == NULL);
    }
    check_int(kit_write(&kit, "x", "1", 1), 0);
    node = kit_at(&kit, "x");
    node->generation = NODE_GENERATIONS - 1;
    before = wfs_node_number(node);
    check_int(kit_rm(&kit, "x"), 0);
    check(wfs_tree_node(kit.tree, before) == NULL);
    check_int(kit_write(&kit, "x", "1", 1), 0);
    check((uint32_t)number_of(&kit, "x") != (uint32_t)before);
    check(wfs_tree_node(kit.tree, (uint32_t)before) == NULL);
    /* A node that is open outlives its name, and keeps its number. */
    node = kit_at(&kit, "x");
    wfs_node_ref(node, 1);
    before = wfs_node_number(node);
    check_int(kit_rm(&kit, "x"), 0);
    check(wfs_tree_node(kit.tree, before) == node && wfs_node_parent(kit.tree, node) == NULL);
    check(wfs_node_unref(node, 1));
    wfs_node_reap(kit.tree, node);
    check(wfs_tree_node(kit.tree, before) == NULL);
    kit_close(&kit);
}

static const char *read_number(const struct kit *kit, uint64_t number)
{
    static char text[8192];
    const ssize_t n = wfs_number_read(kit->tree, number, 0, text, sizeof(text) - 1);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

/* A cache that knows a number has the same bytes for as long as it has a reference. */
static void each_version_of_a_text_has_a_number(void)
{
    struct kit kit;
    struct stat st, again;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    struct wfs_node *node = kit_at(&kit, ".weightfs/tensors.csv");
    const uint64_t old = wfs_number_enter(kit.tree, node, &st);
    check(old != 0 && wfs_number_enter(kit.tree, node, &st) == old);
    check(wfs_tree_node(kit.tree, old) == node);
    check(strstr(read_number(&kit, old), "longer") == NULL);
    check_int(kit_mv(&kit, "c", "longer", 0), 0);
    const uint64_t new = wfs_number_enter(kit.tree, node, &again);
    check(new != old &&again.st_size > st.st_size &&again.st_ino == st.st_ino);
    check(strstr(read_number(&kit, new), "longer") != NULL);
    check(strstr(read_number(&kit, old), "longer") == NULL);
    wfs_number_stat(kit.tree, old, &again);
    check_int(again.st_size, st.st_size);
    check(!wfs_number_leave(kit.tree, old, 1));
    check_uint(strlen(read_number(&kit, old)), (uint64_t)st.st_size);
    check(!wfs_number_leave(kit.tree, old, 1));
    check_int(wfs_number_read(kit.tree, old, 0, &st, 1), -ESTALE);
    check(!wfs_number_leave(kit.tree, old, 1)); /* made up */
    check(!wfs_number_leave(kit.tree, new, 1));
    check(strstr(read_number(&kit, new), "longer") != NULL);
    check(wfs_number_enter(kit.tree, node, &st) == new);
    check(!wfs_number_leave(kit.tree, new, 1));
    kit_close(&kit);
}

int main(void)
{
    check_run(a_tree_shows_what_the_catalog_has);
    check_run(stat_is_exact_and_inode_numbers_are_stable);
    check_run(npy_files_have_a_header_that_numpy_reads);
    check_run(odd_keys_come_back_in_both_layouts_and_kinds_of_files);
    check_run(twins_and_prefix_clashes);
    check_run(listings_are_sorted_and_survive_changes);
    check_run(the_control_directory_is_hidden_but_there);
    check_run(attributes_of_a_read_only_tree);
    check_run(long_attributes_are_not_listed);
    check_run(what_is_no_tensor_is_a_json_file);
    check_run(tied_tensors_are_hard_links);
    check_run(numbers_lead_to_their_node_or_nowhere);
    check_run(no_number_is_used_twice);
    check_run(each_version_of_a_text_has_a_number);
    return check_done();
}
