/* SPDX-License-Identifier: MIT */
/*
 * Changes of content and description, and the snapshot that a commit writes.
 */
#include "treekit.h"

#include "tensor/tensor.h"

static void the_first_write_copies_what_is_shown(void)
{
    struct kit kit;
    uint8_t want[24];
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    struct wfs_node *node = kit_at(&kit, "a/w");
    check(!wfs_tree_has_pending(kit.tree));
    check_int(wfs_node_open(kit.tree, node, O_RDWR), 0);
    check_uint(kit_n_staged(&kit), 0);
    check_int(wfs_node_write(kit.tree, node, 4, "abcd", 4, false), 4);
    check_uint(kit_n_staged(&kit), 1);
    memcpy(want, kit_bytes, 24);
    memcpy(want + 4, "abcd", 4);
    check(kit_commits(&kit, "a.w", "F32", "[2, 3]", want, 24));
    check(wfs_tree_has_pending(kit.tree));
    check_uint(wfs_tree_n_edits(kit.tree), 1);
    check_int(wfs_node_write(kit.tree, node, 0, "x", 1, false), 1);
    check_uint(wfs_tree_n_edits(kit.tree), 1);
    wfs_tree_committed(kit.tree, wfs_tree_generation(kit.tree));
    check(!wfs_tree_has_pending(kit.tree));
    check_uint(wfs_tree_n_edits(kit.tree), 0);
    want[0] = 'x';
    check(kit_commits(&kit, "a.w", "F32", "[2, 3]", want, 24));
    /* The whole at once copies nothing, and a part of a large one keeps the rest. */
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "a/b"), 0, kit_bytes + 5, 12, false), 12);
    check(kit_commits(&kit, "a.b", "F32", "[3]", kit_bytes + 5, 12));
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "big"), 59999, "z", 1, false), 1);
    size_t n = 0;
    char *bytes = kit_read(&kit, "big", &n);
    check_uint(n, 60000);
    check_bytes(bytes, kit_bytes + 48, 59999);
    check_int(bytes[59999], 'z');
    free(bytes);
    kit_close(&kit);
}

static void sizes_change_and_are_judged_at_the_commit(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    struct wfs_node *node = kit_at(&kit, "a/b");
    check_int(wfs_node_truncate(kit.tree, node, 12), 0);
    check(!wfs_tree_has_pending(kit.tree));
    check_int(wfs_node_truncate(kit.tree, node, 6), 0);
    check_str(kit_commit(&kit),
              "'a/b' has 6 bytes, but F32 [3] takes 12: replace its content, or set "
              "user.weightfs.dtype and user.weightfs.shape");
    check_int(kit.err.code, EINVAL);
    check_int(wfs_node_truncate(kit.tree, node, 12), 0);
    uint8_t want[12] = {0};
    memcpy(want, kit_bytes + 24, 6);
    check(kit_commits(&kit, "a.b", "F32", "[3]", want, 12));
    check_int(wfs_node_open(kit.tree, node, O_WRONLY | O_TRUNC), 0);
    check_uint(kit_size(&kit, "a/b"), 0);
    check_int(wfs_node_write(kit.tree, node, 0, kit_bytes, 8, false), 8);
    check_int(wfs_node_write(kit.tree, node, 0, kit_bytes + 8, 4, true), 4);
    check(kit_commits(&kit, "a.b", "F32", "[3]", kit_bytes, 12));
    check_int(wfs_node_fallocate(kit.tree, node, 0, 8, 8), 0);
    check_uint(kit_size(&kit, "a/b"), 16);
    check_int(kit_set_attr(&kit, "a/b", "shape", "[2,2]"), 0);
    memset(want, 0, sizeof(want));
    uint8_t longer[16] = {0};
    memcpy(longer, kit_bytes, 12);
    check(kit_commits(&kit, "a.b", "F32", "[2, 2]", longer, 16));
    check_int(wfs_node_fallocate(kit.tree, node, 0x08, 0, 1), -EOPNOTSUPP);
    check_int(wfs_node_fallocate(kit.tree, node, 0, 0, 0), -EINVAL);
    check_int(wfs_node_truncate(kit.tree, node, UINT64_MAX), -EFBIG);
    check_int(wfs_node_write(kit.tree, node, UINT64_C(1) << 63, "a", 1, false), -EFBIG);
    check_int(wfs_node_write(kit.tree, node, INT64_MAX, "a", 1, false), -EFBIG);
    check_int(wfs_node_write(kit.tree, node, 0, "", 0, false), 0);
    kit_close(&kit);
}

static void new_files_need_dtype_and_shape(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&kit, "new", kit_bytes, 24), 0);
    check_uint(wfs_tree_n_edits(kit.tree), 1);
    check_str(kit_commit(&kit), "'new' is not a tensor: its dtype and shape are unknown; copy "
                                "tensors with 'cp -a', save arrays as .npy, set "
                                "user.weightfs.dtype and user.weightfs.shape, or delete it");
    check_int(kit_set_attr(&kit, "new", "dtype", "F33"), -EINVAL);
    check_int(kit_set_attr(&kit, "new", "dtype", "F16"), 0);
    check(strstr(kit_commit(&kit), "'new' has no shape: ") != NULL);
    check_int(kit_set_attr(&kit, "new", "shape", "[3, 4"), -EINVAL);
    check_int(kit_set_attr(&kit, "new", "shape", "[3, 4]"), 0);
    check(kit_commits(&kit, "new", "F16", "[3, 4]", kit_bytes, 24));
    check_str(kit_attr(&kit, "new", "dtype"), "F16");
    /* Names that begin with a dot are nobody's business; new ones come last, by key. */
    check_int(kit_write(&kit, ".new.XXXXXX", kit_bytes, 3), 0);
    check_int(kit_mkdir(&kit, ".git"), 0);
    check_int(kit_write(&kit, ".git/x", kit_bytes, 3), 0);
    check_int(kit_mkdir(&kit, "d"), 0);
    check_int(kit_write(&kit, "d/empty", "", 0), 0);
    check_int(kit_set_attr(&kit, "d/empty", "dtype", "F32"), 0);
    check_int(kit_set_attr(&kit, "d/empty", "shape", "[2, 0]"), 0);
    check_str(kit_commit(&kit), "a.w a.b c big d.empty new ");
    check_int(kit_mv(&kit, ".git/x", "d/x", 0), 0);
    check(strstr(kit_commit(&kit), "'d/x' is not a tensor: its dtype and shape are unknown") !=
          NULL);
    kit_close(&kit);
}

static void a_file_renamed_over_a_tensor_takes_its_description(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&kit, "a/.w.k3Jx", kit_bytes + 9, 24), 0);
    check(!wfs_tree_has_pending(kit.tree));
    check_int(kit_mv(&kit, "a/.w.k3Jx", "a/w", 0), 0);
    check(wfs_tree_has_pending(kit.tree));
    check(kit_commits(&kit, "a.w", "F32", "[2, 3]", kit_bytes + 9, 24));
    check_str(kit_commit(&kit), "a.w a.b c big ");
    check_str(kit_attr(&kit, "a/w", "source_key"), "a.w");
    check_str(kit_attr(&kit, "a/w", "file"), "");
    /* One with a description of its own keeps that. */
    check_int(kit_write(&kit, "a/.w.2", kit_bytes, 12), 0);
    check_int(kit_set_attr(&kit, "a/.w.2", "dtype", "F16"), 0);
    check_int(kit_set_attr(&kit, "a/.w.2", "shape", "[6]"), 0);
    check_int(kit_mv(&kit, "a/.w.2", "a/w", 0), 0);
    check(kit_commits(&kit, "a.w", "F16", "[6]", kit_bytes, 12));
    /* What was set on the target is inherited too. */
    check_int(kit_write(&kit, "a/.w.3", kit_bytes + 1, 12), 0);
    check_int(kit_mv(&kit, "a/.w.3", "a/w", 0), 0);
    check(kit_commits(&kit, "a.w", "F16", "[6]", kit_bytes + 1, 12));
    /* The size is not that of the target: said at the commit. */
    check_int(kit_write(&kit, "a/.b.1", kit_bytes, 13), 0);
    check_int(kit_mv(&kit, "a/.b.1", "a/b", 0), 0);
    check(strstr(kit_commit(&kit), "'a/b' has 13 bytes, but F32 [3] takes 12") != NULL);
    /* A tensor moved over another brings its own dtype, and gets the place in the output. */
    check_int(kit_mv(&kit, "c", "a/b", 0), 0);
    check(kit_commits(&kit, "a.b", "BF16", "[2, 3]", kit_bytes + 36, 12));
    check_str(kit_commit(&kit), "a.w a.b big ");
    kit_close(&kit);
}

/* Of the first tensors of a commit, spaces between them. */
static const char *first_keys(const struct kit *kit, char text[64])
{
    struct wfs_catalog *snapshot = NULL;
    check_int(wfs_tree_snapshot(kit->tree, NULL, &snapshot, NULL), 0);
    text[0] = '\0';
    for (size_t i = 0; snapshot != NULL && i < 3; i++)
        strcat(strcat(text, i == 0 ? "" : " "), wfs_catalog_tensor(snapshot, i)->key);
    wfs_catalog_free(snapshot);
    return text;
}

static void a_file_that_is_made_anew_is_the_one_that_it_was(void)
{
    struct kit kit;
    char before[64], after[64];
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    first_keys(&kit, before);
    check_int(kit_rm(&kit, "a/w"), 0);
    check_int(kit_write(&kit, "a/w", "uvwxyz", 6), 0);
    check(strstr(kit_commit(&kit), "'a/w' has 6 bytes, but F32 [2, 3] takes 24") != NULL);
    check_int(kit_write(&kit, "a/w", kit_bytes + 7, 24), 0);
    check(kit_commits(&kit, "a.w", "F32", "[2, 3]", kit_bytes + 7, 24));
    check_str(first_keys(&kit, after), before);
    /* Under a name of before it has the type of that; over another file the type of that one. */
    check_int(kit_rm(&kit, "a/b"), 0);
    check_int(kit_write(&kit, ".new", kit_bytes, 12), 0);
    check_int(kit_mv(&kit, ".new", "a/b", 0), 0);
    check(kit_commits(&kit, "a.b", "F32", "[3]", kit_bytes, 12));
    check_str(first_keys(&kit, after), before);
    check_int(kit_mv(&kit, "a/b", "a/w", 0), 0);
    check(strstr(kit_commit(&kit), "'a/w' has 12 bytes, but F32 [2, 3] takes 24") != NULL);
    /* A place that went elsewhere is not given back. */
    check_int(kit_rm(&kit, "a/w"), 0);
    check_int(kit_mv(&kit, "c", "a/w", 0), 0);
    check_int(kit_mv(&kit, "big", "c", 0), 0);
    check(kit_commits(&kit, "c", "U8", "[60000]", kit_bytes + 48, 60000));
    kit_close(&kit);
}

static void two_files_of_one_key_are_both_named(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_mv(&kit, "c", "a.w", 0), 0);
    check_str(kit_commit(&kit), "'a/w' and 'a.w' both give the key 'a.w': rename one of them");
    check_int(kit_mv(&kit, "a/w", "x", 0), 0);
    check_str(kit_commit(&kit), "x a.b a.w big ");
    check_int(kit_write(&kit, "y%~0123456789abcdef", "", 0), 0);
    check(strstr(kit_commit(&kit), "has a shortened name") != NULL);
    kit_close(&kit);
}

static void cut_names_keep_their_keys(void)
{
    struct kit kit, other;
    struct wfs_catalog *catalog = kit_catalog();
    char key[700], moved[800], name[300];
    memset(key, 'k', sizeof(key));
    key[300] = '.';
    key[600] = '\0';
    kit_add(catalog, key, WFS_U8, 2, 0, 0);
    kit_open(&kit, catalog, kit_options(), true);
    uint64_t cookie = 0;
    struct wfs_dirent dir, file;
    check_int(wfs_dir_next(kit.tree, wfs_tree_root(kit.tree), &cookie, &dir), 1);
    cookie = 0;
    check_int(wfs_dir_next(kit.tree, dir.node, &cookie, &file), 1);
    snprintf(name, sizeof(name), "%s", file.name);
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", dir.name, name);
    check_int(kit_mkdir(&kit, "new"), 0);
    snprintf(moved, sizeof(moved), "new/%s", name);
    check_int(kit_mv(&kit, path, moved, 0), 0);
    snprintf(moved, sizeof(moved), "new.%s ", key + 301);
    check_str(kit_commit(&kit), moved);
    /* Another tree learns it from the attribute that `cp -a` and `rsync -X` bring. */
    kit_open(&other, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&other, name, "ab", 2), 0);
    check_int(kit_set_attr(&other, name, "dtype", "U8"), 0);
    check_int(kit_set_attr(&other, name, "shape", "[2]"), 0);
    check(strstr(kit_commit(&other), "has a shortened name") != NULL);
    check_int(kit_set_attr(&other, name, "key", "nonsense"), 0);
    check(strstr(kit_commit(&other), "has a shortened name") != NULL);
    check_int(kit_set_attr(&other, name, "key", key), 0);
    snprintf(moved, sizeof(moved), "a.w a.b c big %s ", key + 301);
    check_str(kit_commit(&other), moved);
    kit_close(&kit);
    kit_close(&other);
}

static void attributes_reinterpret(void)
{
    struct kit kit;
    char big[70000] = {0};
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_set_attr(&kit, "c", "dtype", "F16"), 0);
    check(kit_commits(&kit, "c", "F16", "[2, 3]", kit_bytes + 36, 12));
    check_int(kit_set_attr(&kit, "c", "shape", "[6]"), 0);
    check_int(kit_set_attr(&kit, "c", "dtype", "F32"), 0);
    check(strstr(kit_commit(&kit), "'c' has 12 bytes, but F32 [6] takes 24") != NULL);
    check_int(kit_set_attr(&kit, "c", "shape", "[]"), 0);
    check(strstr(kit_commit(&kit), "'c' has 12 bytes, but F32 [] takes 4") != NULL);
    check_int(kit_set_attr(&kit, "c", "shape", "[ 3 ,1]"), 0);
    check(kit_commits(&kit, "c", "F32", "[3, 1]", kit_bytes + 36, 12));
    check_uint(kit_n_staged(&kit), 0);
    struct wfs_node *c = kit_at(&kit, "c"), *root = wfs_tree_root(kit.tree);
    check_int(wfs_node_remove_xattr(kit.tree, c, "user.weightfs.dtype"), 0);
    check_int(wfs_node_remove_xattr(kit.tree, c, "user.weightfs.shape"), 0);
    check(kit_commits(&kit, "c", "BF16", "[2, 3]", kit_bytes + 36, 12));
    const uint64_t generation = wfs_tree_generation(kit.tree);
    check_int(kit_set_attr(&kit, "c", "dtype", "BF16"), 0);
    check_int(kit_set_attr(&kit, "c", "offset", "17"), 0);
    check_int(kit_set_attr(&kit, "c", "xxh3", "17"), 0);
    check_int(kit_set_attr(&kit, "a", "dtype", "BF16"), 0);
    check_int(wfs_node_remove_xattr(kit.tree, c, "user.weightfs.key"), 0);
    check_uint(wfs_tree_generation(kit.tree), generation);
    check_int(kit_set_attr(&kit, "c", "dtyp", "BF16"), -EINVAL);
    check_int(kit_set_attr(&kit, "c", "param_id", "p7"), 0);
    check_str(kit_attr(&kit, "c", "param_id"), "p7");
    struct wfs_catalog *snapshot = NULL;
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check_str(wfs_tensor_attr(wfs_catalog_find(snapshot, "c"), "param_id"), "p7");
    wfs_catalog_free(snapshot);
    /* Foreign ones, their flags and limits. */
    check_int(wfs_node_set_xattr(kit.tree, c, "user.x", "12", 2, XATTR_REPLACE), -ENODATA);
    check_int(wfs_node_set_xattr(kit.tree, c, "user.x", "12", 2, XATTR_CREATE), 0);
    check_int(wfs_node_set_xattr(kit.tree, c, "user.x", "12", 2, XATTR_CREATE), -EEXIST);
    check_int(wfs_node_set_xattr(kit.tree, c, "user.x", "345", 3, 0), 0);
    check_int(wfs_node_get_xattr(kit.tree, c, "user.x", big, 10), 3);
    check_int(wfs_node_set_xattr(kit.tree, c, "security.x", "1", 1, 0), -EOPNOTSUPP);
    check_int(wfs_node_set_xattr(kit.tree, c, "user.big", big, 65537, 0), -E2BIG);
    check_int(wfs_node_set_xattr(kit.tree, root, "user.big", big, 65536, 0), 0);
    int code = 0;
    for (int i = 0; i < 20 && code == 0; i++) {
        char name[20];
        snprintf(name, sizeof(name), "user.%d", i);
        code = wfs_node_set_xattr(kit.tree, c, name, big, 65536, 0);
    }
    check_int(code, -ENOSPC);
    check_int(wfs_node_remove_xattr(kit.tree, c, "user.x"), 0);
    check_int(wfs_node_remove_xattr(kit.tree, c, "user.x"), -ENODATA);
    check_uint(wfs_tree_generation(kit.tree), generation + 1);
    kit_close(&kit);
}

static void metadata_is_edited_as_a_file_and_as_attributes(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    const char *path = ".weightfs/metadata.json";
    check_int(kit_set_attr(&kit, "", "metadata.who", "me"), 0);
    check_str(kit_attr(&kit, "", "metadata.who"), "me");
    check_str(kit_attr(&kit, "", "metadata.format"), "pt");
    check(wfs_tree_has_pending(kit.tree));
    size_t n = 0;
    char *text = kit_read(&kit, path, &n);
    check_str(text, "{\n  \"format\": \"pt\",\n  \"who\": \"me\"\n}\n");
    free(text);
    check_int(
        wfs_node_remove_xattr(kit.tree, wfs_tree_root(kit.tree), "user.weightfs.metadata.format"),
        0);
    check_int(
        wfs_node_remove_xattr(kit.tree, wfs_tree_root(kit.tree), "user.weightfs.metadata.format"),
        -ENODATA);
    struct wfs_catalog *snapshot = NULL;
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check_str(wfs_catalog_meta(snapshot)->name, "who");
    check(wfs_catalog_meta(snapshot)->next == NULL);
    wfs_catalog_free(snapshot);
    /* Anything may be written; it is judged at the commit. */
    const char *broken = "{\"a\": \"1\",\n \"b\": }";
    check_int(kit_write(&kit, path, broken, strlen(broken)), 0);
    check(strstr(kit_commit(&kit), ".weightfs/metadata.json: line 2, column ") != NULL);
    check_int(kit_set_attr(&kit, "", "metadata.x", "y"), -EBADMSG);
    const char *number = "{\"a\": 1}";
    check_int(kit_write(&kit, path, number, strlen(number)), 0);
    check_str(kit_commit(&kit), ".weightfs/metadata.json: the value of 'a' is not a string");
    check_int(kit_write(&kit, path, "[]", 2), 0);
    check_str(kit_commit(&kit), ".weightfs/metadata.json is not a JSON object of strings");
    check_int(kit_write(&kit, ".weightfs/metadata.json", "{\"a\" 1}", 7), 0);
    check_str(kit_commit(&kit), ".weightfs/metadata.json: line 1, column 6: ':' expected near '1'");
    kit_close(&kit);
}

static void editors_replace_metadata_by_files_of_theirs(void)
{
    struct kit kit;
    struct wfs_catalog *snapshot = NULL;
    const char *path = ".weightfs/metadata.json", *number = "{\"a\": 1}";
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    /* `sed -i` and editors make files beside it and move them over it. */
    const char *good = "{\"z\": \"1\", \"a\": \"\\u0000x\"}";
    check_int(kit_write(&kit, ".weightfs/sedAbC", good, strlen(good)), 0);
    check_int(kit_mv(&kit, ".weightfs/sedAbC", path, 0), 0);
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check_str(wfs_catalog_meta(snapshot)->name, "z");
    check_uint(wfs_catalog_meta(snapshot)->next->n_bytes, 2);
    wfs_catalog_free(snapshot);
    check_int(kit_mv(&kit, path, ".weightfs/metadata.json~", 0), 0);
    check_int(kit_write(&kit, path, number, strlen(number)), 0);
    check_int(kit_mv(&kit, ".weightfs/metadata.json~", path, 0), 0);
    check_str(kit_attr(&kit, "", "metadata.z"), "1");
    check_int(kit_rm(&kit, path), 0);
    check_int(wfs_tree_snapshot(kit.tree, NULL, &snapshot, NULL), 0);
    check(wfs_catalog_meta(snapshot) == NULL);
    wfs_catalog_free(snapshot);
    check_int(kit_set_attr(&kit, "", "metadata.z", "2"), 0);
    check_str(kit_attr(&kit, "", "metadata.z"), "2");
    /* The rest of the directory is the tree's. */
    check_int(kit_rm(&kit, ".weightfs/tensors.csv"), -EPERM);
    check_int(kit_mv(&kit, path, ".weightfs/status.json", 0), -EPERM);
    check_int(kit_mv(&kit, path, "x", 0), -EXDEV);
    check_int(kit_mv(&kit, "c", path, 0), -EXDEV);
    check_int(kit_mv(&kit, ".weightfs", "x", 0), -EPERM);
    check_int(kit_rmdir(&kit, ".weightfs"), -EBUSY);
    check_int(kit_mkdir(&kit, ".weightfs/d"), -EPERM);
    check_int(wfs_node_open(kit.tree, kit_at(&kit, ".weightfs/tensors.csv"), O_RDWR), -EACCES);
    kit_close(&kit);
}

static void texts_follow_the_tree(void)
{
    struct kit kit;
    size_t n = 0;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    char *before = kit_read(&kit, ".weightfs/tensors.csv", &n);
    check_int(kit_mv(&kit, "c", "quo\"te,d", 0), 0);
    check_int(kit_write(&kit, "new", "abc", 3), 0);
    char *after = kit_read(&kit, ".weightfs/tensors.csv", &n);
    check(strcmp(before, after) != 0);
    check(strstr(after, "\n\"quo\"\"te,d\",BF16,\"[2, 3]\",12,model.bin,,c,\n") != NULL);
    check(strstr(after, "\nnew,,,3,,,,\n") != NULL);
    free(before);
    free(after);
    char *status = kit_read(&kit, ".weightfs/status.json", &n);
    check(strstr(status, "\"state\": \"dirty\"") != NULL);
    check(strstr(status, "\"edits\": 2,") != NULL);
    check(strstr(status, "\"unsynced\": 1,") != NULL);
    free(status);
    kit_close(&kit);
}

static void strided_tensors_are_copied_before_they_are_described_anew(void)
{
    struct kit kit;
    struct wfs_catalog *catalog = kit_catalog();
    struct wfs_tensor *tensor = kit_add(catalog, "t", WFS_U8, 2, 3, 0);
    uint64_t *strides = arena_calloc(&catalog->arena, 2, sizeof(*strides));
    strides[0] = 1;
    strides[1] = 2;
    tensor->stored.strides = strides;
    kit_open(&kit, catalog, kit_options(), true);
    const uint8_t want[6] = {kit_bytes[0], kit_bytes[2], kit_bytes[4],
                             kit_bytes[1], kit_bytes[3], kit_bytes[5]};
    check(kit_commits(&kit, "t", "U8", "[2, 3]", want, 6));
    check_int(kit_set_attr(&kit, "t", "shape", "[6]"), 0);
    check_uint(kit_n_staged(&kit), 1);
    check(kit_commits(&kit, "t", "U8", "[6]", want, 6));
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "t"), 5, "\x7f", 1, false), 1);
    check_int(wfs_node_sync(kit.tree, kit_at(&kit, "t")), 0);
    check_int(wfs_tree_sync(kit.tree, NULL), 0);
    kit_close(&kit);
}

/* Both names come out of a snapshot as one view of one source, with equal shapes. */
static void check_tied(struct kit *kit, const char *key, const char *other)
{
    struct wfs_catalog *catalog = NULL;
    if (!check_int(wfs_tree_snapshot(kit->tree, NULL, &catalog, &kit->err), 0))
        return;
    const struct wfs_tensor *a = wfs_catalog_find(catalog, key);
    const struct wfs_tensor *b = wfs_catalog_find(catalog, other);
    if (check(a != NULL && b != NULL)) {
        check(tied_are_same(a, b));
        check_uint(tied_hash(a), tied_hash(b));
    }
    wfs_catalog_free(catalog);
}

static void names_of_one_file_stay_tied_whatever_is_written(void)
{
    static const char header[] = "\x93NUMPY\x01\x00\x38\x00{'descr': '<f4', 'fortran_order': "
                                 "False, 'shape': (2,)}\n12345678";
    struct kit kit;
    /* Made and written in this order: a link of a tensor, then its content. */
    for (int is_npy = 0; is_npy < 2; is_npy++) {
        struct wfs_tree_options options = kit_options();
        options.files = is_npy ? WFS_FILES_NPY : WFS_FILES_RAW;
        kit_open(&kit, kit_small_catalog(), options, true);
        const char *from = is_npy ? "c.npy" : "c", *to = is_npy ? "d.npy" : "d";
        struct wfs_node *node = kit_at(&kit, from);
        check_int(wfs_node_link(kit.tree, node, kit_at(&kit, ""), to), 0);
        check_tied(&kit, "c", "d");
        check_int(wfs_node_write(kit.tree, node, kit_size(&kit, from) - 1, "x", 1, false), 1);
        check_tied(&kit, "c", "d");
        check_int(
            wfs_node_write(kit.tree, kit_at(&kit, to), kit_size(&kit, from) - 2, "y", 1, false), 1);
        check_tied(&kit, "c", "d");
        check_int(kit_set_attr(&kit, from, "dtype", "F16"), 0);
        check_tied(&kit, "c", "d");
        check_int(kit_set_attr(&kit, to, "shape", "[6]"), 0);
        check_tied(&kit, "c", "d");
        check_int(kit_mv(&kit, from, is_npy ? "e.npy" : "e", 0), 0);
        check_tied(&kit, "e", "d");
        kit_close(&kit);
    }
    /* A new file with two names, described by its header, by attributes, or by neither. */
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&kit, "n.npy", header, sizeof(header) - 1), 0);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "n.npy"), kit_at(&kit, ""), "m.npy"), 0);
    check_tied(&kit, "n", "m");
    check_int(kit_write(&kit, "p", "1234", 4), 0);
    check_int(kit_set_attr(&kit, "p", "dtype", "U8"), 0);
    check_int(kit_set_attr(&kit, "p", "shape", "[4]"), 0);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "p"), kit_at(&kit, "a"), "q"), 0);
    check_tied(&kit, "p", "a.q");
    check_int(kit_rm(&kit, "c"), 0);
    check_int(kit_write(&kit, "c", kit_bytes, 12), 0);
    check_int(wfs_node_link(kit.tree, kit_at(&kit, "c"), kit_at(&kit, "a"), "c"), 0);
    check_tied(&kit, "c", "a.c");
    kit_close(&kit);
}

static void scratch_is_no_edit(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_int(kit_write(&kit, ".w.tmp", kit_bytes, 12), 0);
    check_int(kit_mkdir(&kit, "empty"), 0);
    check_int(kit_rmdir(&kit, "empty"), 0);
    check_int(kit_write(&kit, ".weightfs/4913", "", 0), 0);
    check_int(kit_rm(&kit, ".weightfs/4913"), 0);
    check_int(wfs_node_set_times(kit.tree, kit_at(&kit, "c"), NULL, &(struct timespec){5, 6}), 0);
    check_int(wfs_node_set_mode(kit.tree, kit_at(&kit, "c"), 0600), 0);
    struct stat st;
    wfs_node_stat(kit.tree, kit_at(&kit, "c"), &st);
    check(st.st_mtim.tv_sec == 5 && st.st_mtim.tv_nsec == 6);
    check_uint(st.st_mode, S_IFREG | 0600);
    check(!wfs_tree_has_pending(kit.tree));
    check_int(kit_rm(&kit, "c"), 0);
    check(wfs_tree_has_pending(kit.tree));
    kit_close(&kit);
}

int main(void)
{
    check_run(the_first_write_copies_what_is_shown);
    check_run(sizes_change_and_are_judged_at_the_commit);
    check_run(new_files_need_dtype_and_shape);
    check_run(a_file_renamed_over_a_tensor_takes_its_description);
    check_run(a_file_that_is_made_anew_is_the_one_that_it_was);
    check_run(two_files_of_one_key_are_both_named);
    check_run(cut_names_keep_their_keys);
    check_run(attributes_reinterpret);
    check_run(metadata_is_edited_as_a_file_and_as_attributes);
    check_run(editors_replace_metadata_by_files_of_theirs);
    check_run(texts_follow_the_tree);
    check_run(strided_tensors_are_copied_before_they_are_described_anew);
    check_run(names_of_one_file_stay_tied_whatever_is_written);
    check_run(scratch_is_no_edit);
    return check_done();
}
