/* SPDX-License-Identifier: MIT */
/*
 * ".NAME.weightfs.set", next to the index NAME while a set is being saved: the inode that the index
 * will have, the new files, and the old files that are obsolete once it is published.
 *
 *     weightfs-set 1
 *     index INODE
 *     new FILE
 *     old FILE
 *     end
 */
#include "format/set/shard_leftover.h"

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

#include "format/core/format.h"
#include "format/set/shard_files.h"

enum { MAX_NOTE = 16 << 20 };

static const char head[] = "weightfs-set 1\n", tail[] = "end\n";

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

static bool has_line_feed(const char *name)
{
    return strchr(name, '\n') != NULL;
}

static char *make_note(const struct wfs_shards *set, const struct shard_present *present,
                       uint64_t inode, size_t *ret_n)
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
    for (size_t i = 0; present->has_index && i < present->index.n_shards; i++) {
        const char *name = present->index.shards[i];
        if (!is_in_set(set, name) && !has_line_feed(name))
            fprintf(out, "old %s\n", name);
    }
    fputs(tail, out);
    const bool is_good = !ferror(out);
    if (fclose(out) == 0 && is_good)
        return text;
    free(text);
    return NULL;
}

int shard_leftover_note(const struct wfs_shards *set, const struct shard_present *present,
                        const struct outfile *index, struct wfs_error *err)
{
    char name[WFS_OUTPUT_NAME_MAX];
    struct wfs_identity identity;
    size_t n_bytes;
    int code = outfile_identity(index, &identity);
    if (code < 0)
        return wfs_fail(err, -code, "cannot inspect the new index: %s", strerror(-code));
    autofree char *text = make_note(set, present, identity.inode, &n_bytes);
    if (text == NULL)
        return wfs_fail_memory(err);
    note_name(outfile_name(index), name);
    const int directory = outfile_directory(index);
    autoclose int fd =
        openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    code = fd < 0 ? -errno : io_write(fd, text, n_bytes);
    if (code == 0 && (fsync(fd) < 0 || io_sync_directory(directory) < 0))
        code = -errno;
    return code == 0 ? 0 : wfs_fail(err, -code, "cannot write %s: %s", name, strerror(-code));
}

/* ---- clearing ---- */

struct note {
    const struct format_table *table;
    char *text; /* malloc'ed; NULL: there is none */
    size_t n_bytes;
    int directory;
    const char *path; /* of the index */
    struct shard_present present;
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
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size > MAX_NOTE)
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
    const size_t n_tail = sizeof(tail) - 1;
    return strlen(note->text) == note->n_bytes && note->n_bytes > n_tail &&
           strncmp(note->text, head, sizeof(head) - 1) == 0 &&
           strcmp(note->text + note->n_bytes - n_tail, tail) == 0;
}

static bool is_listed(const struct note *note, const char *name)
{
    for (size_t i = 0; note->present.has_index && i < note->present.index.n_shards; i++) {
        if (strcmp(note->present.index.shards[i], name) == 0)
            return true;
    }
    return false;
}

/* A file of a checkpoint, by its name, that the index as it is now does not need. */
static bool may_remove(const struct note *note, const char *name)
{
    return strchr(name, '/') == NULL && name[0] != '.' && note->table->names_checkpoint(name) &&
           !is_listed(note, name);
}

static int remove_file(const struct note *note, const char *name, struct wfs_error *err)
{
    if (unlinkat(note->directory, name, 0) == 0 || errno == ENOENT)
        return 0;
    return wfs_fail(err, errno, "cannot remove '%s': %s", wfs_quote(name).text, strerror(errno));
}

static int clear_line(struct note *note, char *line, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    struct stat st;
    if (strncmp(line, "index ", 6) == 0)
        note->is_published =
            fstatat(note->directory, strrchr(note->path, '/') + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)st.st_ino == strtoull(line + 6, NULL, 10);
    const bool is_new = strncmp(line, "new ", 4) == 0;
    if ((!is_new && strncmp(line, "old ", 4) != 0) || !may_remove(note, line + 4))
        return 0;
    if (is_new) {
        wfs_output_temporary(line + 4, temporary);
        const int code = remove_file(note, temporary, err);
        if (code < 0)
            return code;
    }
    return is_new == note->is_published ? 0 : remove_file(note, line + 4, err);
}

static int clear(struct note *note, const char *name, struct wfs_error *err)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    int code = shard_present_read(&note->present, note->path, note->directory, err);
    if (code < 0)
        return code;
    if (is_complete(note)) {
        char *rest = note->text;
        for (char *line; code == 0 && (line = strsep(&rest, "\n")) != NULL;)
            code = clear_line(note, line, err);
    }
    wfs_output_temporary(note->path, temporary);
    code = code < 0 ? code : remove_file(note, temporary, err);
    if (code == 0 && io_sync_directory(note->directory) < 0)
        code = wfs_fail(err, errno, "cannot sync the directory: %s", strerror(errno));
    return code < 0 ? code : remove_file(note, name, err);
}

int shard_leftover_clear(const struct format_table *table, const char *path, struct wfs_error *err)
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
        return wfs_fail(err, errno, "cannot open the directory of the output: %s", strerror(errno));
    struct note note = {.table = table, .directory = directory, .path = whole};
    int code = read_note(&note, name, err);
    if (code == 0 && note.text != NULL)
        code = clear(&note, name, err);
    shard_present_done(&note.present);
    free(note.text);
    return code;
}
