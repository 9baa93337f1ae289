/* SPDX-License-Identifier: MIT */
/*
 * ".NAME.weightfs.set", next to the index NAME while a set is being saved: the inode that the index
 * will have, the new files, and the old files that are obsolete once it is published. The rest is
 * added before the first file gets its name.
 *
 *     weightfs-set 2
 *     index INODE
 *     new FILE
 *     old INODE FILE
 *     end
 *     made INODE FILE
 *
 * A note that is found may have been written by anybody. So a file is removed only if it has the
 * inode and a name that this program would have chosen for a file of this index. Whatever an index
 * beside this one names stays: a backup is one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include "base/output.h"
#include "format/set/set.h"
#include "format/set/shard_files.h"
#include "format/set/shard_set.h"

enum { MAX_NOTE = 16 << 20 };

static const char head[] = "weightfs-set 2\n", tail[] = "\nend\n";

static void note_name(const char *index, char ret[WFS_OUTPUT_NAME_MAX])
{
    snprintf(ret, WFS_OUTPUT_NAME_MAX, ".%.200s.weightfs.set", index);
}

/* ---- writing ---- */

static bool is_in_set(const struct wfs_shards *set, const char *name)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        if (strcmp(set->shards[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Whether this program could have chosen the name for a file of the index. */
static bool is_chosen(const struct directory_functions *kind, const char *index, const char *name)
{
    return kind != NULL ? kind->is_name(name) : set_index_is_name(index, name);
}

static bool has_line_feed(const char *name)
{
    return strchr(name, '\n') != NULL;
}

/* Lists the files of an index that the set does not have. is_strict: by their names, too, they
 * belong to it. */
static void list_old(const struct wfs_shards *set, const struct shard_index *old, bool is_strict,
                     const struct outfile *index, FILE *out)
{
    for (size_t i = 0; i < old->n_shards; i++) {
        const char *name = old->shards[i];
        struct stat st;
        if (is_in_set(set, name) || has_line_feed(name) ||
            (is_strict && !is_chosen(set->kind, outfile_name(index), name)))
            continue;
        if (fstatat(outfile_directory(index), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            fprintf(out, "old %llu %s\n", (unsigned long long)st.st_ino, name);
    }
}

/* The backups are listed because this save may replace one of them. */
static char *make_note(const struct wfs_shards *set, const struct set_present *present,
                       const struct kept_indexes *kept, const struct outfile *index, uint64_t inode,
                       size_t *ret_n)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_n);
    if (out == NULL)
        return NULL;
    fprintf(out, "%sindex %" PRIu64 "\n", head, inode);
    for (size_t i = 0; i < set->n_shards; i++) {
        if (!set->shards[i].is_kept)
            fprintf(out, "new %s\n", set->shards[i].name);
    }
    list_old(set, &present->index, false, index, out);
    for (size_t i = 0; i < kept->n; i++) {
        if (kept->items[i].is_backup)
            list_old(set, &kept->items[i].files, true, index, out);
    }
    fputs(tail + 1, out);
    const bool is_good = !ferror(out);
    if (fclose(out) == 0 && is_good)
        return text;
    free(text);
    return NULL;
}

static int fail_write(int code, const char *name, struct wfs_error *err)
{
    return wfs_fail(err, -code, "cannot write %s: %s", name, strerror(-code));
}

int set_note_write(const struct wfs_shards *set, const struct set_present *present,
                   const struct outfile *index, char **ret, struct wfs_error *err)
{
    char name[WFS_OUTPUT_NAME_MAX];
    cleanup(kept_indexes_done) struct kept_indexes kept = {0};
    struct wfs_identity identity;
    size_t n_bytes;
    int code = outfile_identity(index, &identity);
    if (code < 0)
        return wfs_fail(err, -code, "cannot inspect the new index: %s", strerror(-code));
    autofree char *folder = shard_folder(outfile_path(index));
    if (folder == NULL)
        return wfs_fail_memory(err);
    code = kept_indexes_read(&kept, set->kind, folder, outfile_name(index), err);
    if (code < 0)
        return code;
    autofree char *text = make_note(set, present, &kept, index, identity.inode, &n_bytes);
    if (text == NULL)
        return wfs_fail_memory(err);
    note_name(outfile_name(index), name);
    const int directory = outfile_directory(index);
    autoclose int fd =
        openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    code = fd < 0 ? -errno : io_write(fd, text, n_bytes);
    if (code == 0 && (fsync(fd) < 0 || io_sync_directory(directory) < 0))
        code = -errno;
    if (code < 0 && fd >= 0)
        unlinkat(directory, name, 0);
    if (code < 0)
        return fail_write(code, name, err);
    *ret = steal(&text);
    return 0;
}

/* Lists the new files, which still have their temporary names. */
static int list_made(const struct wfs_shards *set, int directory, FILE *out)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        char temporary[WFS_OUTPUT_NAME_MAX];
        struct stat st;
        if (set->shards[i].outfile == NULL)
            continue;
        wfs_output_temporary(set->shards[i].name, temporary);
        if (fstatat(directory, temporary, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        fprintf(out, "made %llu %s\n", (unsigned long long)st.st_ino, set->shards[i].name);
    }
    return 0;
}

int set_note_add(const struct wfs_shards *set, const struct outfile *index, char **text,
                 struct wfs_error *err)
{
    char name[WFS_OUTPUT_NAME_MAX];
    char *whole = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&whole, &n_bytes);
    if (out == NULL)
        return wfs_fail_memory(err);
    const size_t n_before = strlen(*text);
    fputs(*text, out);
    int code = list_made(set, outfile_directory(index), out);
    if (fclose(out) != 0) {
        free(whole);
        return wfs_fail_memory(err);
    }
    free(*text);
    *text = whole;
    note_name(outfile_name(index), name);
    autoclose int fd =
        openat(outfile_directory(index), name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (code == 0)
        code = fd < 0 ? -errno : io_write(fd, whole + n_before, n_bytes - n_before);
    if (code == 0 && fsync(fd) < 0)
        code = -errno;
    return code == 0 ? 0 : fail_write(code, name, err);
}

/* ---- clearing ---- */

static const char *path_end(const char *path)
{
    return strrchr(path, '/') + 1;
}

struct note {
    const struct format_table *table;
    const struct directory_functions *kind; /* as in struct wfs_shards */
    char *text;                             /* malloc'ed; NULL: there is none */
    size_t n_bytes;
    bool is_own; /* this process has written it just now */
    int directory;
    const char *path;           /* of the index */
    struct shard_index present; /* as it is now */
    struct kept_indexes kept;
    bool is_published;
};

static int read_note(struct note *note, const char *name, struct wfs_error *err)
{
    struct stat st;
    autoclose int fd =
        openat(note->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot open %s: %s", name, strerror(errno));
    if (!io_is_plain_file(fd) || st.st_uid != geteuid() || (st.st_mode & 077) != 0 ||
        st.st_size > MAX_NOTE)
        return wfs_fail(err, EPERM, "%s was not written by this program and user", name);
    note->text = calloc(1, (size_t)st.st_size + 1);
    if (note->text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = io_read_at(fd, note->text, (size_t)st.st_size, 0);
    note->n_bytes = n < 0 ? 0 : (size_t)n;
    return n < 0 ? wfs_fail(err, (int)-n, "cannot read %s: %s", name, strerror((int)-n)) : 0;
}

/* One that was cut off was not durable, so nothing that it names was begun. */
static bool is_complete(const struct note *note)
{
    return strlen(note->text) == note->n_bytes &&
           strncmp(note->text, head, sizeof(head) - 1) == 0 && strstr(note->text, tail) != NULL;
}

/* Returns the name in a line "WORD INODE NAME", or NULL. */
static const char *split_line(const char *line, const char *word, uint64_t *ret_inode)
{
    const size_t n = strlen(word);
    char *end;
    if (strncmp(line, word, n) != 0 || line[n] != ' ' || line[n + 1] < '0' || line[n + 1] > '9')
        return NULL;
    *ret_inode = strtoull(line + n + 1, &end, 10);
    return *end == ' ' ? end + 1 : NULL;
}

/* A file of a checkpoint, by its name, that no index as they are now needs. */
static bool may_remove(const struct note *note, const char *name)
{
    const bool is_ours =
        (note->kind != NULL || note->table->names_checkpoint(name)) &&
        ((note->kind == NULL && note->is_own) || is_chosen(note->kind, path_end(note->path), name));
    return strchr(name, '/') == NULL && name[0] != '.' && is_ours &&
           !shard_index_has_file(&note->present, name);
}

/* Removes the file, or link, with the inode; without one, a regular file of the user. */
static int remove_file(const struct note *note, const char *name, uint64_t inode,
                       struct wfs_error *err)
{
    struct stat st;
    if (fstatat(note->directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    if (inode != 0 ? st.st_ino != inode : !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return 0;
    if (unlinkat(note->directory, name, 0) == 0 || errno == ENOENT)
        return 0;
    return wfs_fail(err, errno, "cannot remove '%s': %s", wfs_quote(name).text, strerror(errno));
}

static int clear_line(struct note *note, const char *line, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    uint64_t inode = 0;
    if (strncmp(line, "new ", 4) == 0 && may_remove(note, line + 4)) {
        wfs_output_temporary(line + 4, temporary);
        return remove_file(note, temporary, 0, err);
    }
    const char *name = split_line(line, note->is_published ? "old" : "made", &inode);
    return name == NULL || inode == 0 || !may_remove(note, name) ||
                   (note->is_published && kept_indexes_need(&note->kept, name))
               ? 0
               : remove_file(note, name, inode, err);
}

/* Whether the index is the one in the first line. */
static bool is_published(const struct note *note)
{
    static const char word[] = "index ";
    const char *line = note->text + sizeof(head) - 1;
    struct stat st;
    return strncmp(line, word, sizeof(word) - 1) == 0 &&
           fstatat(note->directory, path_end(note->path), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)st.st_ino == strtoull(line + sizeof(word) - 1, NULL, 10);
}

/* The backup that was replaced together with the index does not count. */
static int read_kept(struct note *note, struct wfs_error *err)
{
    char replaced[WFS_OUTPUT_NAME_MAX];
    autofree char *folder = shard_folder(note->path);
    if (folder == NULL)
        return wfs_fail_memory(err);
    wfs_output_temporary_link(note->path, replaced);
    const int code = remove_file(note, replaced, 0, err);
    return code < 0 ? code
                    : kept_indexes_read(&note->kept, note->kind, folder, path_end(note->path), err);
}

static int clear(struct note *note, const char *name, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    int code = shard_index_list(&note->present, note->kind, note->path, err);
    const bool is_whole = is_complete(note);
    note->is_published = is_whole && is_published(note);
    if (code >= 0 && note->is_published)
        code = read_kept(note, err);
    if (code < 0)
        return code;
    code = 0;
    if (is_whole) {
        char *rest = note->text;
        for (const char *line; code == 0 && strchr(rest, '\n') != NULL;) {
            line = strsep(&rest, "\n");
            code = clear_line(note, line, err);
        }
    }
    wfs_output_temporary(note->path, temporary);
    code = code < 0 ? code : remove_file(note, temporary, 0, err);
    if (code == 0 && io_sync_directory(note->directory) < 0)
        code = wfs_fail(err, errno, "cannot sync the directory: %s", strerror(errno));
    return code < 0 ? code : remove_file(note, name, 0, err);
}

int set_note_clear(const struct format_table *table, const char *path, const char *own,
                   struct wfs_error *err)
{
    autofree char *folder = shard_folder(path);
    autofree char *whole = NULL;
    char name[WFS_OUTPUT_NAME_MAX];
    if (folder == NULL || asprintf(&whole, "%s%s", *folder == '\0' ? "./" : "", path) < 0)
        return wfs_fail_memory(err);
    note_name(path + strlen(folder), name);
    autoclose int directory =
        open(*folder == '\0' ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return output_fail_directory(path, errno, err);
    struct note note = {.table = table,
                        .kind = table->directory_of(path),
                        .directory = directory,
                        .path = whole,
                        .is_own = own != NULL};
    int code = 0;
    if (own == NULL)
        code = read_note(&note, name, err);
    else if ((note.text = strdup(own)) == NULL)
        code = wfs_fail_memory(err);
    else
        note.n_bytes = strlen(own);
    if (code == 0 && note.text != NULL)
        code = clear(&note, name, err);
    shard_index_done(&note.present);
    kept_indexes_done(&note.kept);
    free(note.text);
    return code;
}
