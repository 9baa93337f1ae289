/* SPDX-License-Identifier: MIT */
/*
 * .npy files that somebody writes into the tree.
 */
#include "tensor/npy.h"

#include "treekit.h"

/* A .npy file of the dict and the data. */
static size_t make_npy(char *buf, int version, const char *dict, const void *data, size_t n_data)
{
    const size_t n_text = strlen(dict);
    size_t n = 8;
    memcpy(buf, "\x93NUMPY", 6);
    buf[6] = (char)version;
    buf[7] = 0;
    for (size_t i = 0; i < (version == 1 ? 2u : 4u); i++)
        buf[n++] = (char)(n_text >> (8 * i));
    memcpy(buf + n, dict, n_text);
    memcpy(buf + n + n_text, data, n_data);
    return n + n_text + n_data;
}

static const char *commit_npy(struct kit *kit, int version, const char *dict, size_t n_data)
{
    static char buf[1 << 16];
    const size_t n = make_npy(buf, version, dict, kit_bytes, n_data);
    check_int(kit_write(kit, "new.npy", buf, n), 0);
    return kit_commit(kit);
}

static const struct {
    const char *dict, *text;
    size_t n_data;
} cases[] = {
    {"{\"shape\":(),\"descr\":\"|u1\",\"fortran_order\":False}\n", "a.w a.b c big new ", 1},
    {"{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", "a.w a.b c big new ", 3},
    {"{'descr': '<c16', 'fortran_order': False, 'shape': (1L,), }", "a.w a.b c big new ", 16},
    {"{'descr': '>i1', 'fortran_order': False, 'shape': (1,), }", "a.w a.b c big new ", 1},
    {"{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }", "a.w a.b c big new ", 0},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
     "'new.npy' is in Fortran order: convert it, in numpy with numpy.ascontiguousarray(a)", 24},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }",
     "'new.npy' is big-endian: convert it, in numpy with "
     "a.astype(a.dtype.newbyteorder('<'))",
     24},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
     "'new.npy' has a damaged .npy header", 24},
    {"{'descr': '<U4', 'fortran_order': False, 'shape': (2, 3), }",
     "'new.npy' has a numpy type that a tensor cannot have", 96},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }",
     "'new.npy' has a structured numpy type, which a tensor cannot have", 24},
    {"{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }",
     "'new.npy': numpy has no name for its dtype: set user.weightfs.dtype "
     "(setfattr -n user.weightfs.dtype -v BF16)",
     6},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
     "'new.npy' has 20 bytes, but F32 [2, 3] takes 24: replace its content, or set "
     "user.weightfs.dtype and user.weightfs.shape",
     20},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x",
     "'new.npy' has a damaged .npy header", 24},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
     "'new.npy' has a damaged .npy header", 24},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3), }",
     "'new.npy' has a damaged .npy header", 12},
    {"{'descr': '<f4', 'fortran_order': False, }", "'new.npy' has a damaged .npy header", 12},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
     "'new.npy' has a damaged .npy header", 12},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }",
     "'new.npy' has a damaged .npy header", 12},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
     "'new.npy': F32 [4294967296, 4294967296] is not a whole number of bytes below 2^64", 12},
};

static void npy_files_bring_dtype_and_shape(void)
{
    struct kit kit;
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    const char *good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
    for (int version = 1; version <= 3; version++) {
        check_str(commit_npy(&kit, version, good, 24), "a.w a.b c big new ");
        check(kit_commits(&kit, "new", "F32", "[2, 3]", kit_bytes, 24));
    }
    check_str(kit_attr(&kit, "new.npy", "key"), "new");
    check_str(kit_attr(&kit, "new.npy", "dtype"), "F32");
    check_str(kit_attr(&kit, "new.npy", "shape"), "[2, 3]");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (!check_str(commit_npy(&kit, 1, cases[i].dict, cases[i].n_data), cases[i].text))
            printf("# %s\n", cases[i].dict);
    }
    kit_close(&kit);
}

static void what_a_header_lacks_or_breaks_is_said(void)
{
    struct kit kit;
    const char *good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
    kit_open(&kit, kit_small_catalog(), kit_options(), true);
    check_str(commit_npy(&kit, 1, "{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }", 6),
              "'new.npy': numpy has no name for its dtype: set user.weightfs.dtype "
              "(setfattr -n user.weightfs.dtype -v BF16)");
    check_int(kit_set_attr(&kit, "new.npy", "dtype", "BF16"), 0);
    check(kit_commits(&kit, "new", "BF16", "[3]", kit_bytes, 6));
    check_str(commit_npy(&kit, 4, good, 24), "'new.npy' is a .npy file of an unknown version");
    /* Cut anywhere, it is damaged or has too little data, and nothing else happens. */
    char buf[200];
    const size_t n = make_npy(buf, 1, good, kit_bytes, 24);
    check_int(wfs_node_remove_xattr(kit.tree, kit_at(&kit, "new.npy"), "user.weightfs.dtype"), 0);
    for (size_t i = 0; i < n; i++) {
        check_int(kit_write(&kit, "new.npy", buf, i), 0);
        check(strncmp(kit_commit(&kit), "'new.npy' ", 10) == 0 ||
              strncmp(kit_commit(&kit), "'new.npy': ", 11) == 0);
    }
    check_int(kit_rm(&kit, "new.npy"), 0);
    /* Without the suffix it is not looked into, but recognised. */
    check_int(kit_write(&kit, "c", buf, n), 0);
    check_str(kit_commit(&kit), "'c' contains a .npy file: give it a name that ends in .npy");
    kit_close(&kit);
}

static void npy_trees_take_npy_files(void)
{
    struct kit kit;
    char buf[400];
    struct wfs_tree_options options = kit_options();
    options.files = WFS_FILES_NPY;
    kit_open(&kit, kit_small_catalog(), options, true);
    /* Part of the data, then the whole as numpy.save would write it. */
    check_int(wfs_node_write(kit.tree, kit_at(&kit, "a/b.npy"), 128 + 4, "abcd", 4, false), 4);
    uint8_t want[24];
    memcpy(want, kit_bytes + 24, 12);
    memcpy(want + 4, "abcd", 4);
    check(kit_commits(&kit, "a.b", "F32", "[3]", want, 12));
    size_t n = make_npy(buf, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
                        kit_bytes, 16);
    check_int(kit_write(&kit, "a/b.npy", buf, n), 0);
    check(kit_commits(&kit, "a.b", "F64", "[2]", kit_bytes, 16));
    /* What numpy has no name for stays what it was, moved over by rsync too. */
    n = make_npy(buf, 1, "{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }", kit_bytes, 8);
    check_int(kit_write(&kit, ".c.npy.Xy", buf, n), 0);
    check_int(kit_mv(&kit, ".c.npy.Xy", "c.npy", 0), 0);
    check(kit_commits(&kit, "c", "BF16", "[4]", kit_bytes, 8));
    check_int(kit_write(&kit, "a/w.npy", kit_bytes, 24), 0);
    check_str(kit_commit(&kit), "'a/w.npy' is not a .npy file");
    check_int(kit_rm(&kit, "a/w.npy"), 0);
    /* A dtype set on an untouched file changes its header. */
    const uint64_t n_big = kit_size(&kit, "big.npy");
    check_int(kit_set_attr(&kit, "big.npy", "dtype", "I16"), 0);
    check_int(kit_set_attr(&kit, "big.npy", "shape", "[3, 10000]"), 0);
    check_uint(kit_size(&kit, "big.npy"), n_big);
    size_t n_read = 0;
    char *bytes = kit_read(&kit, "big.npy", &n_read);
    check(strstr(bytes + 10, "'<i2', 'fortran_order': False, 'shape': (3, 10000)") != NULL);
    free(bytes);
    check(kit_commits(&kit, "big", "I16", "[3, 10000]", kit_bytes + 48, 60000));
    check_int(kit_mv(&kit, "big.npy", "other.npy", 0), 0);
    check_str(kit_commit(&kit), "a.b c other ");
    kit_close(&kit);
}

static void sub_byte_tensors_keep_their_shape_as_npy(void)
{
    struct kit kit;
    struct wfs_catalog *catalog = kit_catalog();
    struct wfs_tree_options options = kit_options();
    options.files = WFS_FILES_NPY;
    kit_add(catalog, "q", WFS_F4, 3, 4, 0);
    kit_open(&kit, catalog, options, true);
    size_t n = 0;
    char *bytes = kit_read(&kit, "q.npy", &n);
    check(strstr(bytes + 10, "'|V1', 'fortran_order': False, 'shape': (3, 2)") != NULL);
    bytes[n - 1] = 'x';
    check_int(kit_write(&kit, "q.npy", bytes, n), 0);
    uint8_t want[6];
    memcpy(want, kit_bytes, 5);
    want[5] = 'x';
    check(kit_commits(&kit, "q", "F4", "[3, 4]", want, 6));
    free(bytes);
    /* Another number of rows: the last dimension counts bytes there, elements here. */
    char buf[200];
    n = make_npy(buf, 1, "{'descr': '|V1', 'fortran_order': False, 'shape': (2, 2), }", kit_bytes,
                 4);
    check_int(kit_write(&kit, "q.npy", buf, n), 0);
    check(kit_commits(&kit, "q", "F4", "[2, 4]", kit_bytes, 4));
    kit_close(&kit);
}

/* Whatever is changed in a header, it is read as one or refused. */
static void damaged_headers_are_read_within_bounds(void)
{
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{\"shape\":(1L,),\"descr\":'|V1','fortran_order':True}",
    };
    char whole[200];
    for (size_t k = 0; k < sizeof(dicts) / sizeof(*dicts); k++) {
        const size_t n = make_npy(whole, (int)k + 1, dicts[k], "", 0);
        for (size_t i = 0; i < n; i++) {
            for (int c = 0; c < 256; c++) {
                struct arena arena = {0};
                struct npy_header header;
                const char *reason = NULL;
                char *exact = malloc(n);
                memcpy(exact, whole, n);
                exact[i] = (char)c;
                const int code = npy_parse(exact, n, &arena, &header, &reason);
                check(code == 0 || code == -EBADMSG || code == -EOPNOTSUPP || code == -E2BIG);
                check(code < 0 || header.n_bytes <= n);
                free(exact);
                arena_done(&arena);
            }
        }
    }
}

int main(void)
{
    check_run(what_a_header_lacks_or_breaks_is_said);
    check_run(damaged_headers_are_read_within_bounds);
    check_run(npy_files_bring_dtype_and_shape);
    check_run(npy_trees_take_npy_files);
    check_run(sub_byte_tensors_keep_their_shape_as_npy);
    return check_done();
}
