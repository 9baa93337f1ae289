/* SPDX-License-Identifier: MIT */
/*
 * The journal as a file, its records as text, and a tree that is made again from both.
 */
#include <weightfs/cleanup.h>

#include "treekit.h"

#include <inttypes.h>

#include "tree/stage/journal.h"

/* ---- the file ---- */

static char folder[] = "/tmp/wfs-unit-XXXXXX";

struct seen {
    char text[256]; /* all records, each with a line feed behind it */
};

static int see(void *ctx, char *text, size_t n_bytes)
{
    struct seen *seen = ctx;
    check_uint(strlen(text), n_bytes);
    strcat(seen->text, text);
    strcat(seen->text, "\n");
    return 0;
}

static int open_dir(void)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(fd >= 0);
    return fd;
}

static void put(struct journal *journal, const char *text)
{
    check_int(journal_append(journal, text, strlen(text), JOURNAL_CHANGE), 0);
}

/* Opens it anew, reads all of it, and expects this. */
static void check_journal(struct journal *journal, int dir_fd, const char *wanted,
                          uint64_t wanted_bad)
{
    struct seen seen = {""};
    uint64_t bad = 99;
    journal_done(journal);
    journal_init(journal, dir_fd);
    check_int(journal_open(journal, see, &seen, &bad), 0);
    check_str(seen.text, wanted);
    check_uint(bad, wanted_bad);
}

/* The bytes of the file, changed: at < 0 counts from the end. */
static void damage(off_t at, const char *bytes, size_t n_bytes)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/journal", folder);
    autoclose int fd = open(path, O_RDWR | O_CLOEXEC);
    check(fd >= 0 && lseek(fd, at, at < 0 ? SEEK_END : SEEK_SET) >= 0);
    check(write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
}

static void cut(off_t n_bytes)
{
    struct stat st;
    char path[100];
    snprintf(path, sizeof(path), "%s/journal", folder);
    check(stat(path, &st) == 0 && truncate(path, st.st_size - n_bytes) == 0);
}

static void records_come_back_in_their_order(void)
{
    autoclose int dir_fd = open_dir();
    struct journal journal;
    journal_init(&journal, dir_fd);
    check_journal(&journal, dir_fd, "", 0);
    put(&journal, "D one");
    put(&journal, "D two");
    check_int(journal_sync(&journal), 0);
    check_journal(&journal, dir_fd, "D one\nD two\n", 0);
    put(&journal, "D three");
    put(&journal, "D gone");
    journal_undo(&journal);
    journal_undo(&journal); /* there is only one to take back */
    put(&journal, "D four");
    check_journal(&journal, dir_fd, "D one\nD two\nD three\nD four\n", 0);
    check_int(journal_remove(&journal), 0);
    check_journal(&journal, dir_fd, "", 0);
    journal_done(&journal);
}

static void only_a_torn_last_line_is_dropped(void)
{
    autoclose int dir_fd = open_dir();
    struct journal journal;
    journal_init(&journal, dir_fd);
    put(&journal, "D one");
    put(&journal, "D two");
    for (int i = 0; i < 2; i++) {
        put(&journal, "D three");
        if (i == 0)
            cut(1);
        else
            damage(-3, "X", 1);
        check_journal(&journal, dir_fd, "D one\nD two\n", 0);
    }
    put(&journal, "D four");
    check_journal(&journal, dir_fd, "D one\nD two\nD four\n", 0);
    damage(12, "X", 1);
    check_journal(&journal, dir_fd, "", 1);
    check_int(journal_remove(&journal), 0);
    put(&journal, "D one");
    put(&journal, "D two");
    damage(-4, "\n", 1); /* the second is two bad ones now */
    check_journal(&journal, dir_fd, "D one\n", 2);
    check_int(journal_remove(&journal), 0);
    journal_done(&journal);
}

static void a_record_out_of_sequence_is_bad(void)
{
    autoclose int dir_fd = open_dir();
    struct journal journal;
    char line[64];
    char path[100];
    journal_init(&journal, dir_fd);
    put(&journal, "D one");
    snprintf(path, sizeof(path), "%s/journal", folder);
    autoclose int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    const ssize_t n = pread(fd, line, sizeof(line), 0);
    check(n > 0 && write(fd, line, (size_t)n) == n && write(fd, line, (size_t)n) == n);
    check_journal(&journal, dir_fd, "D one\n", 2);
    check_int(journal_remove(&journal), 0);
    journal_done(&journal);
}

static void a_line_has_a_longest(void)
{
    enum { N = JOURNAL_LINE_MAX };
    autofree char *text = malloc(N);
    autoclose int dir_fd = open_dir();
    struct journal journal;
    if (text == NULL)
        abort();
    memset(text, 'x', N);
    journal_init(&journal, dir_fd);
    check_int(journal_append(&journal, text, N, JOURNAL_CHANGE), -E2BIG);
    put(&journal, "D one");
    damage(-1, text, N);
    check_journal(&journal, dir_fd, "", 1);
    check_int(journal_remove(&journal), 0);
    journal_done(&journal);
}

/* ---- records ---- */

static void words_hold_anything_but_nul(void)
{
    static const char *const words[] = {"", "plain", " a b ", "100%", "\n\t\x7f", "\xc3\xa9"};
    struct strbuf text = {0};
    struct wfs_record record;
    strbuf_puts(&text, "X");
    for (size_t i = 0; i < 6; i++)
        record_puts(&text, words[i]);
    check_str(text.bytes, "X % plain %20a%20b%20 100%25 %0A%09%7F \xc3\xa9");
    check_int(record_parse(text.bytes, &record), 0);
    check_uint(record.n_words, 6);
    for (unsigned i = 0; i < record.n_words; i++)
        check_str(record.words[i], words[i]);
    strbuf_done(&text);
}

static void what_is_no_record_is_refused(void)
{
    static const char *const texts[] = {"",     " ",    "X ",    "X  a",  "Xa",
                                        "X a ", "X %4", "X %4g", "X %00", "X a b c d e f g"};
    struct wfs_record record;
    uint64_t number;
    char copy[64];
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        strcpy(copy, texts[i]);
        check_int(record_parse(copy, &record), -EBADMSG);
    }
    strcpy(copy, "S 18446744073709551615 18446744073709551616 -1 1x");
    check_int(record_parse(copy, &record), 0);
    check_int(record_to_number(&record, 0, &number), 0);
    check_uint(number, UINT64_MAX);
    for (unsigned i = 1; i < 5; i++)
        check_int(record_to_number(&record, i, &number), -EBADMSG);
}

/* ---- a tree again ---- */

/* What another process finds when this one stops here: a copy, since this one holds the lock. */
static int open_copy(struct kit *kit, struct wfs_tree_options options, struct kit *ret)
{
    char command[256];
    *ret = (struct kit){.catalog = kit->catalog};
    strcpy(ret->stage, "/tmp/wfs-unit-XXXXXX");
    if (mkdtemp(ret->stage) == NULL)
        abort();
    strcat(ret->stage, "/stage");
    snprintf(command, sizeof(command), "cp -a '%s' '%s'", kit->stage, ret->stage);
    if (system(command) != 0)
        abort();
    options.stage = kit_stage(ret->stage, &ret->err);
    check(options.stage != NULL);
    return wfs_tree_new(ret->catalog, &options, &ret->tree, &ret->err);
}

static void close_copy(struct kit *kit)
{
    wfs_tree_free(kit->tree);
    kit_remove_stage(kit->stage);
}

static struct wfs_catalog *small(void)
{
    struct wfs_catalog *catalog = kit_catalog();
    kit_add(catalog, "a.w", WFS_U8, 2, 3, 0);
    kit_add(catalog, "a.b", WFS_F32, 3, 0, 24);
    kit_add(catalog, "c", WFS_U8, 12, 0, 36);
    kit_add(catalog, "d", WFS_U8, 2, 0, 48);
    return catalog;
}

static void change(struct kit *kit)
{
    check_int(kit_mv(kit, "a", "z", 0), 0);
    check_int(kit_write(kit, "z/w", "wwwwww", 6), 0);
    check_int(kit_mv(kit, "c", "d", RENAME_EXCHANGE), 0);
    check_int(kit_write(kit, ".tmp", "abcd", 4), 0);
    check_int(kit_set_attr(kit, ".tmp", "dtype", "F32"), 0);
    check_int(kit_set_attr(kit, ".tmp", "shape", "[1]"), 0);
    check_int(kit_set_attr(kit, ".tmp", "param_id", "7 %\n"), 0);
    check_int(kit_mkdir(kit, "new"), 0);
    check_int(kit_mv(kit, ".tmp", "new/x", 0), 0);
    check_int(wfs_node_link(kit->tree, kit_at(kit, "new/x"), kit_at(kit, "new"), "y"), 0);
    check_int(wfs_node_write(kit->tree, kit_at(kit, "d"), 3, "d", 1, false), 1);
    check_int(kit_rm(kit, "c"), 0);
    check_int(kit_write(kit, "c", "", 0), 0);
    check_int(kit_rm(kit, "c"), 0);
    check_int(kit_mkdir(kit, "none"), 0);
    check_int(kit_rmdir(kit, "none"), 0);
}

static void check_changed(struct kit *kit)
{
    size_t n = 0;
    check_str(kit_commit(kit), "z.w z.b d new.x new.y ");
    check_str(kit_ls(kit, ""), "d z new ");
    char *bytes = kit_read(kit, "z/w", &n);
    check_str(bytes, "wwwwww");
    free(bytes);
    bytes = kit_read(kit, "d", &n);
    check_uint(n, 12);
    check(bytes != NULL && bytes[3] == 'd' && memcmp(bytes + 4, kit_bytes + 40, 8) == 0);
    free(bytes);
    check_str(kit_attr(kit, "new/y", "param_id"), "7 %\n");
    check_str(kit_attr(kit, "new/x", "shape"), "[1]");
}

static void a_tree_is_made_again(void)
{
    struct kit kit, first, second;
    struct wfs_replayed replayed;
    kit_open(&kit, small(), kit_options(), true);
    change(&kit);
    check_int(wfs_node_sync(kit.tree, kit_at(&kit, "d")), 0);
    check_changed(&kit);
    check_int(open_copy(&kit, kit_options(), &first), 0);
    check_changed(&first);
    wfs_tree_replayed(first.tree, &replayed);
    check_uint(replayed.n_edits, wfs_tree_n_edits(kit.tree));
    check_uint(replayed.n_unsynced, 2);
    check_uint(replayed.n_doubtful, 0);
    check_uint(replayed.n_lost, 0);
    check_uint(kit_n_staged(&first), 3);
    /* Once more, from what the second one has. */
    check_int(open_copy(&first, kit_options(), &second), 0);
    check_changed(&second);
    close_copy(&second);
    close_copy(&first);
    kit_close(&kit);
}

static void what_is_committed_is_not_pending_again(void)
{
    struct kit kit, copy;
    const struct wfs_identity identity = {1, 2, 3, 4};
    kit_open(&kit, small(), kit_options(), true);
    change(&kit);
    check_int(wfs_tree_commit_begin(kit.tree, "/out", ".out.tmp"), 0);
    check_int(wfs_tree_commit_complete(kit.tree, &identity, 5), 0);
    check_int(open_copy(&kit, kit_options(), &copy), 0);
    check(wfs_tree_has_pending(copy.tree));
    close_copy(&copy);
    check_int(wfs_tree_committed(kit.tree, wfs_tree_generation(kit.tree)), 0);
    check_int(open_copy(&kit, kit_options(), &copy), 0);
    check(!wfs_tree_has_pending(copy.tree));
    check_changed(&copy);
    close_copy(&copy);
    check_int(kit_mv(&kit, "d", "e", 0), 0);
    check_int(open_copy(&kit, kit_options(), &copy), 0);
    check_uint(wfs_tree_n_edits(copy.tree), 1);
    close_copy(&copy);
    kit_close(&kit);
}

static void edits_of_another_tensor_are_refused_and_kept(void)
{
    struct kit kit, copy;
    char command[256];
    kit_open(&kit, small(), kit_options(), true);
    change(&kit);
    kit.catalog->tensors[0].dtype = WFS_I8;
    check_int(open_copy(&kit, kit_options(), &copy), -EBADMSG);
    check_str(copy.err.text,
              "edit 1 of 'z/w' was made to a tensor of U8 [2, 3], but the source has I8 "
              "[2, 3]");
    snprintf(command, sizeof(command), "diff -r '%s' '%s'", kit.stage, copy.stage);
    check_int(system(command), 0);
    kit_remove_stage(copy.stage);
    kit.catalog->tensors[0].dtype = WFS_U8;
    kit_close(&kit);
}

static bool has_data(const struct kit *kit, uint64_t number)
{
    char path[120];
    snprintf(path, sizeof(path), "%s/data/%" PRIu64, kit->stage, number);
    return access(path, F_OK) == 0;
}

static void put_data(const struct kit *kit, const char *name)
{
    char path[120];
    snprintf(path, sizeof(path), "%s/data/%s", kit->stage, name);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check(fd >= 0);
}

/* What a driver leaves that dies between a file and its record, or between a record and a removal.
 */
static void content_that_no_edit_has_is_removed(void)
{
    struct kit kit, copy;
    kit_open(&kit, small(), kit_options(), true);
    change(&kit);
    put_data(&kit, "77");
    put_data(&kit, "4294967297"); /* 2^32 + 1 */
    put_data(&kit, "007");
    check_int(open_copy(&kit, kit_options(), &copy), 0);
    check_changed(&copy);
    check(has_data(&copy, 1));
    check(!has_data(&copy, 77));
    check(!has_data(&copy, 4294967297));
    check_uint(kit_n_staged(&copy), 4); /* three edits, and a name that is not a number */
    check_int(wfs_node_write(copy.tree, kit_at(&copy, "z/w"), 0, kit_bytes, 6, false), 6);
    check_int(kit_write(&copy, "another", "x", 1), 0);
    check(has_data(&copy, 4294967298)); /* numbers are not used again */
    close_copy(&copy);
    kit_close(&kit);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        abort();
    check_run(records_come_back_in_their_order);
    check_run(only_a_torn_last_line_is_dropped);
    check_run(a_record_out_of_sequence_is_bad);
    check_run(a_line_has_a_longest);
    check_run(words_hold_anything_but_nul);
    check_run(what_is_no_record_is_refused);
    check_run(a_tree_is_made_again);
    check_run(what_is_committed_is_not_pending_again);
    check_run(edits_of_another_tensor_are_refused_and_kept);
    check_run(content_that_no_edit_has_is_removed);
    if (rmdir(folder) < 0)
        abort();
    return check_done();
}
