/* SPDX-License-Identifier: MIT */
/*
 * ".NAME.weightfs.set", next to the index NAME while a set is being saved: the inode that the index
 * will have, the new files, and the old files that are obsolete once it is published. The rest is
 * added before the first file gets its name.
 *
 *     weightfs-set 3
 *     index INODE
 *     new FILE
 *     old INODE TIME FILE
 *     end
 *     made INODE TIME FILE
 *
 * A time is that of the last change of the content, in nanoseconds since 1970.
 *
 * A note that is found may have been written by anybody, and inodes can be guessed. So a file is
 * removed only if it has the inode and the time, a name that this program would have chosen for a
 * file of this index, and no index beside this one names it, whether the new index was published or
 * not: a backup is one, and a user can make one for the files of an interrupted save.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include "base/output.h"
#include "format/set/set.h"
#include "format/set/shard_files.h"
#include "format/set/shard_set.h"

enum { MAX_NOTE = 16 << 20 };

static const char head[] = "weightfs-set 3\n", tail[] = "\nend\n";

static void note_name(const char *index, char ret[WFS_OUTPUT_NAME_MAX])
{
    snprintf(ret, WFS_OUTPUT_NAME_MAX, ".%.200s.weightfs.set", index);
}

/* Returns whether this program could have chosen the name for a file of the index. */
static bool is_chosen(const struct directory_functions *kind, const char *index, const char *name)
{
    return kind != NULL ? kind->is_name(name) : set_index_is_name(index, name);
}

/* A file as it was when the note was written. Zeros: not known. */
struct mark {
    uint64_t inode, time;
};

static struct mark mark_of(const struct stat *st)
{
    return (struct mark){st->st_ino,
                         (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec};
}

/* ---- writing ---- */

static void print_line(struct strbuf *note, const char *word, const struct stat *st,
                       const char *name)
{
    const struct mark mark = mark_of(st);
    strbuf_printf(note, "%s %" PRIu64 " %" PRIu64 " %s\n", word, mark.inode, mark.time, name);
}

static bool is_in_set(const struct wfs_shards *set, const char *name)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        if (strcmp(set->shards[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Lists the files of an index that the set does not have. is_strict: by their names, too, they
 * belong to it. */
static void list_old(const struct wfs_shards *set, const struct shard_index *old, bool is_strict,
                     const struct outfile *index, struct strbuf *note)
{
    for (size_t i = 0; i < old->n_shards; i++) {
        const char *name = old->shards[i];
        struct stat st;
        if (is_in_set(set, name) || strchr(name, '\n') != NULL ||
            (is_strict && !is_chosen(set->kind, outfile_name(index), name)))
            continue;
        if (fstatat(outfile_directory(index), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            print_line(note, "old", &st, name);
    }
}

/* Writes the text from that byte on, durably. */
static int write_note(const struct outfile *index, int flags, const struct strbuf *note,
                      size_t from, struct wfs_error *err)
{
    char name[WFS_OUTPUT_NAME_MAX];
    const int directory = outfile_directory(index);
    if (note->has_failed)
        return wfs_fail_memory(err);
    note_name(outfile_name(index), name);
    autoclose int fd = openat(directory, name, O_WRONLY | flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    int code = fd < 0 ? -errno : io_write(fd, note->bytes + from, note->n_bytes - from);
    if (code == 0 && (fsync(fd) < 0 || (from == 0 && io_sync_directory(directory) < 0)))
        code = -errno;
    if (code < 0 && fd >= 0 && from == 0)
        unlinkat(directory, name, 0);
    return code < 0 ? wfs_fail(err, -code, "cannot write %s: %s", name, strerror(-code)) : 0;
}

/* The backups are listed because this save may replace one of them. */
int set_note_write(const struct wfs_shards *set, const struct set_present *present,
                   const struct outfile *index, struct strbuf *note, struct wfs_error *err)
{
    const struct kept_indexes *kept = &present->kept;
    struct wfs_identity identity;
    int code = outfile_identity(index, &identity);
    if (code < 0)
        return wfs_fail(err, -code, "cannot inspect the new index: %s", strerror(-code));
    strbuf_printf(note, "%sindex %" PRIu64 "\n", head, identity.inode);
    for (size_t i = 0; i < set->n_shards; i++) {
        if (!set->shards[i].is_kept)
            strbuf_printf(note, "new %s\n", set->shards[i].name);
    }
    list_old(set, &present->index, false, index, note);
    for (size_t i = 0; i < kept->n; i++) {
        if (kept->items[i].is_backup)
            list_old(set, &kept->items[i].files, true, index, note);
    }
    strbuf_puts(note, tail + 1);
    code = write_note(index, O_CREAT | O_EXCL, note, 0, err);
    if (code < 0)
        strbuf_done(note);
    return code;
}

/* The new files still have their temporary names. */
int set_note_add(const struct wfs_shards *set, const struct outfile *index, struct strbuf *note,
                 struct wfs_error *err)
{
    const size_t n_before = note->n_bytes;
    for (size_t i = 0; i < set->n_shards; i++) {
        char temporary[WFS_OUTPUT_NAME_MAX];
        struct stat st;
        if (set->shards[i].outfile == NULL)
            continue;
        wfs_output_temporary(set->shards[i].name, temporary);
        if (fstatat(outfile_directory(index), temporary, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            note_name(outfile_name(index), temporary);
            return wfs_fail(err, errno, "cannot write %s: %s", temporary, strerror(errno));
        }
        print_line(note, "made", &st, set->shards[i].name);
    }
    return write_note(index, O_APPEND, note, n_before, err);
}

/* ---- clearing ---- */

struct note {
    const struct format_table *table;
    const struct directory_functions *kind; /* as in struct wfs_shards */
    bool is_own;                            /* this process has written it just now */
    bool is_published;
    int directory;
    const char *path, *name;  /* of the index */
    struct kept_indexes kept; /* and the index as it is now */
};

static void note_done(struct note *note)
{
    kept_indexes_done(&note->kept);
}

/* Reads the text of the note, malloc'ed; NULL: there is none. One that was cut off was not durable,
 * so nothing that it names was begun: its text is empty. */
static int read_note(const struct note *note, const char *name, char **ret, struct wfs_error *err)
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
    autofree char *text = calloc(1, (size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(err, (int)-n, "cannot read %s: %s", name, strerror((int)-n));
    if (strlen(text) != (size_t)n || strncmp(text, head, sizeof(head) - 1) != 0 ||
        strstr(text, tail) == NULL)
        *text = '\0';
    *ret = steal(&text);
    return 0;
}

/* Returns what follows a space, a number and a space, or NULL. */
static const char *skip_number(const char *text, uint64_t *ret)
{
    char *end;
    if (text[0] != ' ' || text[1] < '0' || text[1] > '9')
        return NULL;
    *ret = strtoull(text + 1, &end, 10);
    return *end == ' ' ? end : NULL;
}

/* Returns the name in a line "WORD INODE TIME NAME", or NULL. */
static const char *split_line(const char *line, const char *word, struct mark *ret)
{
    const char *at = strncmp(line, word, strlen(word)) == 0 ? line + strlen(word) : NULL;
    at = at == NULL ? NULL : skip_number(at, &ret->inode);
    at = at == NULL ? NULL : skip_number(at, &ret->time);
    return at == NULL ? NULL : at + 1;
}

/*
 * Returns whether an index as they are now needs the file. Which files one that cannot be read
 * names is not known: only those that this process made a moment ago, under names that no file had,
 * are of no use to it.
 */
static bool is_needed(const struct note *note, const char *name)
{
    return note->is_own && !note->is_published ? kept_indexes_name(&note->kept, name)
                                               : kept_indexes_need(&note->kept, name);
}

/* A file of a checkpoint, by its name, that no index as they are now names. */
static bool may_remove(const struct note *note, const char *name)
{
    const bool is_ours =
        (note->kind != NULL || note->table->names_checkpoint(name)) &&
        ((note->kind == NULL && note->is_own) || is_chosen(note->kind, note->name, name));
    return strchr(name, '/') == NULL && name[0] != '.' && is_ours &&
           !kept_indexes_name(&note->kept, name);
}

/* Returns whether it goes with the files of a directory. */
static bool is_beside(const struct directory_functions *kind, const char *name)
{
    size_t i = 0;
    while (kind->beside[i] != NULL && strcmp(kind->beside[i], name) != 0)
        i++;
    return kind->beside[i] != NULL;
}

/* Removes the file, or link, with the mark; without one, a regular file of the user. */
static int remove_file(const struct note *note, const char *name, struct mark mark,
                       struct wfs_error *err)
{
    struct stat st;
    if (fstatat(note->directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0
                               : wfs_fail(err, errno, "cannot inspect '%s': %s",
                                          wfs_quote(name).text, strerror(errno));
    const struct mark found = mark_of(&st);
    if (mark.inode != 0 ? found.inode != mark.inode || found.time != mark.time
                        : !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return 0;
    if (unlinkat(note->directory, name, 0) == 0 || errno == ENOENT)
        return 0;
    return wfs_fail(err, errno, "cannot remove '%s': %s", wfs_quote(name).text, strerror(errno));
}

static int clear_line(const struct note *note, const char *line, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    struct mark mark = {0};
    const bool is_new = strncmp(line, "new ", 4) == 0;
    if (is_new && !note->is_own && /* a save has removed its own */
        ((note->kind != NULL && is_beside(note->kind, line + 4)) || may_remove(note, line + 4))) {
        wfs_output_temporary(line + 4, temporary);
        return kept_indexes_name(&note->kept, temporary)
                   ? 0
                   : remove_file(note, temporary, (struct mark){0}, err);
    }
    const char *name = split_line(line, note->is_published ? "old" : "made", &mark);
    if (name == NULL || mark.inode == 0 || !may_remove(note, name) || is_needed(note, name))
        return 0;
    return remove_file(note, name, mark, err);
}

/* Returns whether the index is the one in the first line. */
static bool is_published(const struct note *note, const char *text)
{
    static const char word[] = "index ";
    struct stat st;
    if (*text == '\0' || strncmp(text + sizeof(head) - 1, word, sizeof(word) - 1) != 0)
        return false;
    return fstatat(note->directory, note->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)st.st_ino == strtoull(text + sizeof(head) + sizeof(word) - 2, NULL, 10);
}

/* Reads what all indexes name. A description that is damaged may name any file. */
static int list_needed(struct note *note, struct wfs_error *err)
{
    int code = kept_indexes_read(&note->kept, note->table, note->path, err);
    if (code < 0)
        return code;
    code = kept_indexes_add(&note->kept, note->kind, note->path, note->kind != NULL ? NULL : err);
    if (code < 0 && note->kind != NULL) {
        note->kept.is_unsure = true;
        return code == -ENOMEM ? wfs_fail_memory(err) : 0;
    }
    return code;
}

/* Cuts the text up. The backup that was replaced together with the index does not count. */
static int clear(struct note *note, char *text, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    int code = list_needed(note, err);
    note->is_published = is_published(note, text);
    if (code >= 0 && note->is_published) {
        wfs_output_temporary_link(note->path, temporary);
        code = remove_file(note, temporary, (struct mark){0}, err);
    }
    while (code >= 0 && strchr(text, '\n') != NULL)
        code = clear_line(note, strsep(&text, "\n"), err);
    wfs_output_temporary(note->path, temporary);
    if (code >= 0 && !note->is_own)
        code = remove_file(note, temporary, (struct mark){0}, err);
    if (code == 0 && io_sync_directory(note->directory) < 0)
        return wfs_fail(err, errno, "cannot sync the directory: %s", strerror(errno));
    return code;
}

int set_note_clear(const struct format_table *table, const char *path, char *own,
                   struct wfs_error *err)
{
    autofree char *folder = folder_of(path), *text = NULL;
    char name[WFS_OUTPUT_NAME_MAX], temporary[WFS_OUTPUT_NAME_MAX];
    if (folder == NULL)
        return wfs_fail_memory(err);
    autoclose int directory =
        open(*folder == '\0' ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return output_fail_directory(path, errno, err);
    cleanup(note_done) struct note note = {.table = table,
                                           .kind = table->directory_of(path),
                                           .directory = directory,
                                           .path = path,
                                           .name = path + strlen(folder),
                                           .is_own = own != NULL};
    note_name(note.name, name);
    int code = own != NULL ? 0 : read_note(&note, name, &text, err);
    if (code < 0 || (own == NULL && text == NULL))
        return code;
    wfs_output_temporary(path, temporary);
    autoclose int fd = own != NULL ? -1 : output_open_temporary(directory, temporary);
    if (fd >= 0 && (code = output_lock(directory, temporary, fd, LOCK_EX, err)) < 0)
        return code;
    code = clear(&note, own != NULL ? own : text, err);
    return code < 0 ? code : remove_file(&note, name, (struct mark){0}, err);
}
