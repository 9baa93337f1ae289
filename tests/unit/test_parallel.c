/* SPDX-License-Identifier: MIT */
/*
 * Functions that take a const tree beside each other, as the driver calls them. What it proves is
 * said by a build with a thread sanitizer; without one it is a test that the answers are right.
 */
#include "treekit.h"

#include <pthread.h>

enum { N_THREADS = 4, N_ROUNDS = 200, N_FILES = 100 };

static struct kit shared;

static void look_at(const struct kit *kit, unsigned i)
{
    char name[32], text[300];
    uint8_t bytes[64];
    struct wfs_node *node = NULL;
    struct stat st;
    snprintf(name, sizeof(name), "w%02u", i % N_FILES);
    check_int(wfs_node_lookup(kit->tree, wfs_tree_root(kit->tree), name, &node), 0);
    wfs_node_ref(node, 1);
    wfs_node_stat(kit->tree, node, &st);
    check_int(st.st_size, 64);
    check_int(wfs_node_read(kit->tree, node, 0, bytes, 64), 64);
    check_bytes(bytes + 1, kit_bytes + i % N_FILES * 64 + 1, 63);
    check_int(wfs_node_check(kit->tree, node), 0);
    check(wfs_node_list_xattr(kit->tree, node, text, sizeof(text)) > 0);
    check_int(wfs_node_get_xattr(kit->tree, node, "user.weightfs.xxh3", text, 300), 16);
    check(wfs_node_get_xattr(kit->tree, node, "user.weightfs.stats", text, 300) > 0);
    check(!wfs_node_unref(node, 1));
}

static void look_around(const struct kit *kit, unsigned i)
{
    char text[300];
    uint64_t cookie = 0;
    struct wfs_dirent found;
    struct stat st;
    unsigned n = 0;
    while (wfs_dir_next(kit->tree, wfs_tree_root(kit->tree), &cookie, &found) == 1)
        n++;
    check_uint(n, N_FILES);
    wfs_node_stat(kit->tree, kit_at(kit, ".weightfs/status.json"), &st);
    check(wfs_node_read(kit->tree, kit_at(kit, ".weightfs/tensors.csv"), i, text, 300) > 0);
    check(wfs_node_get_xattr(kit->tree, wfs_tree_root(kit->tree), "user.weightfs.metadata.a", text,
                             300) == 1);
    snprintf(text, sizeof(text), "round %u", i);
    wfs_tree_set_status(kit->tree, &(struct wfs_status){.state = WFS_MOUNT_FAILED, .text = text});
}

static void *live(void *ctx)
{
    const unsigned first = *(const unsigned *)ctx;
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        look_at(&shared, first + i);
        if (i % 20 == 0)
            look_around(&shared, i);
    }
    return NULL;
}

static void readers_do_not_disturb_each_other(void)
{
    struct wfs_catalog *catalog = kit_catalog();
    pthread_t threads[N_THREADS];
    unsigned firsts[N_THREADS];
    char name[32];
    for (unsigned i = 0; i < N_FILES; i++) {
        snprintf(name, sizeof(name), "w%02u", i);
        kit_add(catalog, name, WFS_U8, 64, 0, i * 64);
    }
    kit_open(&shared, catalog, kit_options(), true);
    /* All but a few are staged: more than may stay open. */
    for (unsigned i = 5; i < N_FILES; i++) {
        snprintf(name, sizeof(name), "w%02u", i);
        check_int(wfs_node_write(shared.tree, kit_at(&shared, name), 0, "x", 1, false), 1);
    }
    check_int(kit_set_attr(&shared, "", "metadata.a", "1"), 0);
    for (unsigned i = 0; i < N_THREADS; i++) {
        firsts[i] = i * 13;
        if (pthread_create(&threads[i], NULL, live, &firsts[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    kit_close(&shared);
}

int main(void)
{
    check_run(readers_do_not_disturb_each_other);
    return check_done();
}
