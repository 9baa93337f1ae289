/* SPDX-License-Identifier: MIT */
/*
 * Saving a set: all files are written, synced and read back under temporary names, then renamed to
 * names that no other file has, the index last. Until then nobody sees anything of it, and what the
 * old index names stays what it was.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include "base/bytes.h"
#include "base/output.h"
#include "format/core/save.h"
#include "format/set/set.h"
#include "format/set/shard_files.h"
#include "format/set/shard_set.h"
#include "catalog/catalog.h"

/* ---- writing ---- */

struct saving {
    struct wfs_shards *set;
    const struct wfs_save_options *options;
    struct wfs_save_options inner; /* for one file: progress counts those before it */
    uint64_t n_before;
    const char *path; /* of the index */
    struct outfile *index;
    const char *text; /* of the index */
    size_t n_text;
    struct strbuf note;        /* text of the note beside the output; empty: there is none */
    struct wfs_catalog *found; /* what all files hold together; NULL: not read yet */
    struct wfs_save_report *report;
    struct wfs_error *err;
};

static int count_all(void *ctx, uint64_t n_done, uint64_t n_total)
{
    const struct saving *saving = ctx;
    return save_tell_progress(saving->options, saving->n_before + n_done, saving->set->n_bytes);
}

static int fail_home(const struct saving *saving, const struct shard *shard)
{
    return wfs_fail(saving->err, EIO, "%s cannot be read, or was changed by another program",
                    wfs_quote(shard->home->path).text);
}

/* Takes the whole file, or else copies it byte for byte: always a file beside the checkpoint, which
 * people edit. */
static int take_home(struct saving *saving, const struct shard *shard)
{
    const int taken = shard->is_beside ? -EOPNOTSUPP : outfile_take(shard->outfile, shard->home);
    if (taken != -EOPNOTSUPP)
        return taken < 0 ? save_fail_write(shard->outfile, taken, saving->err) : 0;
    for (uint64_t n_done = 0; n_done < shard->home->n_bytes;) {
        uint64_t n = 0;
        int code = outfile_copy(NULL, shard->outfile, shard->home, n_done,
                                shard->home->n_bytes - n_done, &n);
        if (code < 0 && outfile_cannot_read(shard->outfile))
            return fail_home(saving, shard);
        if (code < 0)
            return save_fail_write(shard->outfile, code, saving->err);
        n_done += n;
        code = count_all(saving, n_done, 0);
        if (code < 0)
            return wfs_fail(saving->err, -code, "interrupted");
    }
    return 0;
}

/* What was taken over is in the file under its new name as it was in the old one. */
static int read_taken(struct saving *saving, const struct shard *shard)
{
    auto_catalog struct wfs_catalog *found = NULL;
    uint64_t wanted, digest;
    const int code =
        readback_load(saving->set->format, shard->outfile, shard->found, NULL, &found, saving->err);
    if (code < 0)
        return code;
    if (wfs_catalog_digest(found, &digest) < 0 || wfs_catalog_digest(shard->found, &wanted) < 0)
        return wfs_fail_memory(saving->err);
    return digest == wanted ? 0
                            : wfs_fail(saving->err, EIO, "internal error: '%s' is not what it was",
                                       wfs_quote(shard->name).text);
}

/* What was written is durable, and on the disk as it was written. */
static int settle(const struct saving *saving, struct outfile *outfile)
{
    const int code = outfile_sync(outfile, saving->err);
    return code < 0 ? code : outfile_check(outfile, &saving->inner, saving->err);
}

static int write_shard(struct saving *saving, struct shard *shard)
{
    const bool is_new = shard->layout != NULL;
    if (shard->is_kept)
        return 0;
    int code = outfile_new_beside(saving->index, shard->name, is_new ? shard->layout->n_bytes : 0,
                                  &shard->outfile, saving->err);
    if (code == 0)
        code = is_new ? save_emit(shard->layout, &saving->inner, shard->outfile, saving->err)
                      : take_home(saving, shard);
    if (code == 0)
        code = settle(saving, shard->outfile);
    if (code == 0 && saving->set->kind == NULL)
        code = is_new ? readback_load_same(shard->layout, &saving->inner, shard->outfile,
                                           &shard->found, saving->err)
                      : read_taken(saving, shard);
    if (code < 0)
        return code;
    saving->n_before += outfile_offset(shard->outfile);
    outfile_park(shard->outfile);
    for (size_t i = 0; shard->found != NULL && i < shard->found->sources.n; i++)
        source_close(shard->found->sources.list[i]);
    return 0;
}

/* The bytes that the shard takes on the device of the output, unless files can share blocks. */
static uint64_t n_new_bytes(const struct shard *shard, dev_t device)
{
    struct stat st;
    if (shard->layout != NULL)
        return shard->layout->n_bytes;
    if (shard->is_kept || (fstat(shard->home->fd, &st) == 0 && st.st_dev == device))
        return 0;
    return shard->home->n_bytes; /* neither a reflink nor a link leads to another device */
}

static int check_space(const struct saving *saving)
{
    struct stat st;
    uint64_t n_new = 0;
    if (fstat(outfile_directory(saving->index), &st) < 0)
        return 0;
    for (size_t i = 0; i < saving->set->n_shards; i++)
        n_new += n_new_bytes(&saving->set->shards[i], st.st_dev);
    return output_check_room(outfile_directory(saving->index), n_new, saving->err);
}

static int read_directory(struct saving *saving)
{
    struct wfs_shards *set = saving->set;
    autofree const char **names = set_index_names(set);
    autofree char *folder = folder_of(saving->path);
    if (names == NULL || folder == NULL)
        return wfs_fail_memory(saving->err);
    const struct directory_files files = {*folder == '\0' ? "./" : folder,
                                          outfile_directory(saving->index), names};
    return set->kind->read_back(&set->directory, &files, &saving->inner, &saving->found,
                                saving->err);
}

static int read_index(const struct saving *saving)
{
    cleanup(shard_index_done) struct shard_index index = {0};
    const size_t n = saving->set->catalog->n_tensors;
    const int code = shard_index_list(&index, NULL, outfile_path(saving->index), saving->err);
    if (code < 0 || index.n_keys == n)
        return code < 0 ? code : 0;
    return wfs_fail(saving->err, EIO, "internal error: the index has %s, expected %zu",
                    wfs_count(index.n_keys, "key").text, n);
}

static int write_index(struct saving *saving)
{
    int code = outfile_write(saving->index, saving->text, saving->n_text);
    if (code < 0)
        return save_fail_write(saving->index, code, saving->err);
    code = settle(saving, saving->index);
    if (code < 0)
        return code;
    return saving->set->kind != NULL ? read_directory(saving) : read_index(saving);
}

static int write_all(struct saving *saving)
{
    struct wfs_shards *set = saving->set;
    saving->report->step = "write";
    int code = check_space(saving);
    for (size_t i = 0; code == 0 && i < set->n_shards; i++)
        code = write_shard(saving, &set->shards[i]);
    if (code == 0)
        code = write_index(saving);
    saving->report->step = "verify";
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        const struct shard *shard = &set->shards[i];
        if (shard->layout != NULL)
            code = save_check_sources(shard->layout, saving->err);
        else if (source_check(shard->home) < 0)
            code = fail_home(saving, shard);
    }
    return code;
}

/* ---- publishing ---- */

static int compare_shards(const void *a, const void *b)
{
    const struct shard *x = a, *y = b;
    return strverscmp(x->name, y->name);
}

/* The catalog that loading the index is going to make. */
static int gather(struct wfs_shards *set, struct wfs_catalog **out)
{
    auto_catalog struct wfs_catalog *whole = NULL;
    if (catalog_new(&whole) < 0 || catalog_reserve(whole, set->catalog->n_tensors) < 0)
        return -ENOMEM;
    qsort(set->shards, set->n_shards, sizeof(*set->shards), compare_shards);
    for (size_t i = 0; i < set->n_shards; i++) {
        struct wfs_catalog *part = steal(&set->shards[i].found);
        memcpy(whole->tensors + whole->n_tensors, part->tensors,
               part->n_tensors * sizeof(*part->tensors));
        whole->n_tensors += part->n_tensors;
        int code = catalog_merge_texts(whole, part);
        if (code == 0 && i == 0 && part->format->functions->describes_part != NULL)
            code = set_show_values(whole, part);
        if (catalog_adopt_part(whole, part) < 0 || code < 0)
            return -ENOMEM;
    }
    *out = steal(&whole);
    return 0;
}

static int publish(struct saving *saving)
{
    struct wfs_shards *set = saving->set;
    const size_t n_found = set->kind != NULL ? 1 : set->n_shards;
    int code = 0;
    for (size_t i = 0; code == 0 && i < n_found; i++)
        code = save_tell_dangers(saving->options, set->catalog,
                                 set->kind != NULL ? saving->found : set->shards[i].found,
                                 saving->err);
    if (code < 0)
        return code;
    if (set->kind == NULL && gather(set, &saving->found) < 0)
        return wfs_fail_memory(saving->err);
    code = set_note_add(set, saving->index, &saving->note, saving->err);
    if (code == 0)
        code = save_tell_complete(saving->options, saving->index, saving->found, saving->err);
    saving->report->step = "rename";
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        if (set->shards[i].outfile != NULL)
            code = outfile_rename(set->shards[i].outfile, saving->err);
    }
    if (code == 0 && io_sync_directory(outfile_directory(saving->index)) < 0)
        code = wfs_fail(saving->err, errno, "cannot sync the directory: %s", strerror(errno));
    return code < 0 ? code : outfile_publish(saving->index, saving->report, saving->err);
}

static int run(struct saving *saving)
{
    struct wfs_shards *set = saving->set;
    cleanup(set_present_done) struct set_present present = {0};
    int code = set_note_clear(set->table, saving->path, NULL, saving->err);
    if (code == 0)
        code = outfile_new(saving->path, 0, saving->options, &saving->index, saving->err);
    if (code == 0)
        code = set_present_read(&present, set, saving->path, outfile_directory(saving->index),
                                saving->err);
    if (code >= 0)
        code = set_index_name(&present, set, saving->index, saving->err);
    if (code == 0)
        code = set_index_make(set, &saving->text, &saving->n_text, saving->err);
    if (code == 0)
        code = set_note_write(set, &present, saving->index, &saving->note, saving->err);
    if (code == 0)
        code = write_all(saving);
    return code < 0 ? code : publish(saving);
}

int wfs_shards_save(struct wfs_shards *set, const char *path,
                    const struct wfs_save_options *options, struct wfs_save_report *report,
                    struct wfs_error *err)
{
    struct wfs_save_report unwanted;
    report = report != NULL ? report : &unwanted;
    *report = (struct wfs_save_report){.step = "create"};
    struct saving saving = {
        .set = set, .options = options, .path = path, .report = report, .err = err};
    if (set->parts != NULL)
        return set->functions->save(set, path, options, report, err);
    saving.inner = *options;
    saving.inner.progress = count_all;
    saving.inner.ctx = &saving;
    const int code = run(&saving);
    for (size_t i = 0; i < set->n_shards; i++) {
        outfile_free(set->shards[i].outfile);
        set->shards[i].outfile = NULL;
    }
    wfs_catalog_free(saving.found);
    /* While it is not sure which index will be there after a loss of power, both need their files.
     */
    const bool is_unsure = report->published.inode != 0 && !report->is_durable;
    if (!is_unsure && saving.note.n_bytes > 0) /* what stays is cleared by the next save */
        (void)set_note_clear(set->table, path, saving.note.bytes, NULL);
    outfile_free(saving.index); /* with its lock: another save may begin */
    strbuf_done(&saving.note);
    return code;
}
