/* SPDX-License-Identifier: MIT */
/*
 * The output is resolved when the mount starts: a symbolic link stays, and the file that it leads
 * to is replaced.
 */
#include "fuse/target.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/percent.h>
#include <weightfs/strbuf.h>
#include <weightfs/url.h>
#include "fuse/log.h"
#include "program/print.h"
#include "program/unmount.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Prints the line of a decision that failed. */
static int report(enum exit_code exit_code, const struct wfs_error *err)
{
    return exit_code == EXIT_DONE ? 0 : log_failure((int)exit_code, "%s", err->text);
}

static int fail_output(const char *path)
{
    return log_failure(EXIT_MOUNT, "cannot use output '%s': %s%s", wfs_quote(path).text,
                       strerror(errno),
                       url_find(path) != NULL ? "; an output is a local file, not a URL" : "");
}

/* Returns the path of the source, or what was typed where it has none. */
static const char *source_path(const struct target *target)
{
    return target->source.path != NULL ? target->source.path : target->source.opened;
}

/*
 * Finds the output: one file, or the index of several. Makes a directory that is one by its name,
 * or because of the format.
 */
static int choose_path(struct target *target)
{
    struct wfs_error err = {0};
    struct destination *output = &target->output;
    enum exit_code exit_code = destination_find(output, source_path(target), &err);
    if (exit_code != EXIT_DONE)
        return report(exit_code, &err);
    if (wfs_output_is_directory(output->typed, output->format)) {
        target->has_new_directory = mkdir(output->typed, 0777) == 0;
        if (!target->has_new_directory && errno != EEXIST)
            return fail_output(output->typed);
    }
    const bool is_set = output->index != NULL;
    if (place_find(&target->place, is_set ? output->index : output->typed,
                   is_set ? PLACE_KEEP_LINK : PLACE_FOLLOW_LINK) < 0)
        return fail_output(output->typed);
    target->path = target->place.path;
    return report(destination_check_size(output, &err), &err);
}

/* Checks that a backup can be kept of what is at the path. */
static int check_backup(const struct target *target)
{
    struct wfs_error err = {0};
    const struct wfs_save_options save = {.replace = WFS_REPLACE_ANY,
                                          .backup = target->output.backup};
    if (save.backup.control == WFS_BACKUP_NONE)
        return 0;
    return wfs_output_check(target->path, &save, 0, &err) == 0
               ? 0
               : log_failure(EXIT_MOUNT, "cannot use output '%s': %s", wfs_quote(target->path).text,
                             err.text);
}

/* Decides whether what is at the path now may be replaced. */
static int choose_replacement(struct target *target, const struct place *own)
{
    struct stat st;
    struct wfs_error err = {0};
    const struct place *place = &target->place;
    if (target->output.index != NULL && lstat(place->path, &st) == 0 && S_ISLNK(st.st_mode))
        return log_failure(
            EXIT_MOUNT,
            "cannot use output '%s': it is a symbolic link, and its shards are in the "
            "directory of its target; use another directory",
            wfs_quote(place->path).text);
    if (!place->is_there && (stat(place->path, &st) == 0 || errno != ENOENT))
        return fail_output(place->path);
    if (place->is_there && !S_ISREG(place->st.st_mode))
        return log_failure(EXIT_MOUNT, "cannot use output '%s': it is not a regular file",
                           wfs_quote(place->path).text);
    target->output.is_source = place_is_same(own, place);
    (void)destination_choose_replacement(&target->output, place->is_there ? &place->st : NULL,
                                         &err); /* what is taken is refused once it is read */
    return place->is_there ? check_backup(target) : 0;
}

static int choose_stage(struct target *target, const struct mount_options *options)
{
    autofree char *directory = options->stage != NULL ? realpath(options->stage, NULL) : NULL;
    if (options->stage != NULL && directory == NULL)
        return log_failure(EXIT_MOUNT, "cannot use staging directory '%s': %s",
                           wfs_quote(options->stage).text, strerror(errno));
    target->stage_path = place_stage_path(target->path, directory);
    return target->stage_path != NULL ? 0 : log_failure(EXIT_UNSUPPORTED, "out of memory");
}

int target_check_directory(const struct target *target, struct wfs_error *err)
{
    return !place_has_moved(&target->place)
               ? 0
               : wfs_fail(err, EACCES,
                          "the directory of the output was replaced after it was mounted: unmount "
                          "and mount again");
}

/* own: the file that `rw` replaces, found when its path is not NULL. */
static int choose_output(struct target *target, const struct mount_options *options,
                         const struct place *own)
{
    const char *typed = options->output != NULL ? options->output : own->path;
    if (options->output == NULL && strcmp(options->source, "-") == 0)
        return log_failure(EXIT_USAGE, "mount option 'rw' cannot replace standard input");
    if (typed == NULL)
        return log_failure(EXIT_USAGE,
                           "mount option 'rw' replaces one file, or an index and its shards; "
                           "use output=DIR/ for shards without an index, and with format=NAME "
                           "for a distributed checkpoint");
    struct wfs_error err = {0};
    target->output.typed = typed;
    enum exit_code exit_code = destination_check_links(
        &target->output, options->output != NULL ? options->output : options->source, &err);
    if (exit_code == EXIT_DONE && options->stage != NULL)
        exit_code = destination_check_links(&target->output, options->stage, &err);
    if (exit_code != EXIT_DONE)
        return report(exit_code, &err);
    target->boot = wfs_stage_boot();
    target->cwd = getcwd(NULL, 0);
    int rc = choose_path(target);
    if (rc == 0)
        rc = choose_replacement(target, own);
    if (rc != 0)
        return rc;
    const bool can_keep = target->output.is_source && target->output.index == NULL;
    exit_code = destination_choose_format(&target->output, can_keep, &err);
    return exit_code != EXIT_DONE ? report(exit_code, &err) : choose_stage(target, options);
}

static int find(struct target *target, const struct mount_options *options)
{
    struct stat st;
    struct place own = {0};
    *target =
        (struct target){.output = {.settings = &options->settings, .speaker = DESTINATION_OF_MOUNT},
                        .allows_replacing = "-o overwrite"};
    (void)place_find(&target->source, options->source, PLACE_KEEP_LINK);
    if (target->source.opened == NULL)
        return log_failure(EXIT_UNSUPPORTED, "out of memory");
    const bool is_wanted = options->output != NULL || options->access == MOUNT_ACCESS_RW;
    const bool is_url = url_is(target->source.opened);
    autofree char *file =
        is_url ? NULL : wfs_source_file(target->source.opened, options->settings.load.shards);
    if (is_url && options->access == MOUNT_ACCESS_RW && options->output == NULL)
        return log_failure(EXIT_USAGE, "mount option 'rw' cannot replace a URL; use output=PATH");
    if (!is_wanted || (!is_url && stat(file != NULL ? file : target->source.opened, &st) < 0))
        return 0; /* a missing source is the loader's to report */
    const int code = file == NULL ? 0 : place_find(&own, file, PLACE_KEEP_LINK);
    const int rc = code < 0 ? log_failure(EXIT_SOURCE, "%s", strerror(-code))
                            : choose_output(target, options, &own);
    place_done(&own);
    return rc;
}

void target_abandon(struct target *target)
{
    if (!target->has_new_directory || target->path == NULL)
        return;
    autofree char *directory = path_directory(target->path);
    if (directory != NULL)
        rmdir(directory);
    target->has_new_directory = false;
}

int target_init(struct target *target, const struct mount_options *options)
{
    const int rc = find(target, options);
    if (rc != 0 || target->stage_path == NULL)
        return rc;
    /* A driver that ended since then has replaced what was found. */
    (void)unmount_wait_for_driver(target->stage_path);
    target_abandon(target);
    target_done(target);
    return find(target, options);
}

void target_done(struct target *target)
{
    place_done(&target->source);
    place_done(&target->place);
    destination_done(&target->output);
    free(target->stage_path);
    free(target->boot);
    free(target->cwd);
    free(target->kept_source);
    wfs_remote_free(target->remote);
    *target = (struct target){0};
}

static struct wfs_identity identity_at(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? wfs_identity_of(&st) : (struct wfs_identity){0};
}

int target_check(struct target *target, const struct mount_options *options,
                 const struct wfs_catalog *catalog)
{
    if (target->path == NULL)
        return 0;
    struct destination *output = &target->output;
    struct wfs_error err = {0};
    if (output->format == NULL)
        output->format = wfs_catalog_format(catalog);
    /* An output that describes the directory that is mounted: its files are what pending edits are
     * made on, and a commit would remove them. */
    if (target->place.is_there && output->format->is_directory &&
        wfs_catalog_reads(catalog, &target->place.st))
        return log_failure(EXIT_USAGE,
                           "a mount cannot replace the distributed checkpoint that it shows; use "
                           "another directory as output");
    const struct wfs_container *container = wfs_catalog_container(catalog);
    if (output->is_source && output->index == NULL && container->kind == WFS_CONTAINER_SHARDS)
        return log_failure(EXIT_USAGE,
                           "mount option 'rw' cannot replace an index that is not named "
                           "NAME.index.json; use output=DIR");
    if (output->is_source && container->read_only != NULL)
        return log_failure(EXIT_USAGE, "mount option 'rw' cannot replace %s", container->read_only);
    enum exit_code exit_code = destination_check_options(output, &err);
    if (exit_code == EXIT_DONE && !target->is_published)
        exit_code = destination_check_backup(output, target->path, catalog, &err);
    if (exit_code != EXIT_DONE)
        return report(exit_code, &err);
    if (output->replace != WFS_REPLACE_KNOWN)
        return 0;
    const struct wfs_identity now = identity_at(target->path);
    if (!wfs_identity_is_equal(&now, &output->known))
        return log_failure(EXIT_MOUNT, "the source changed while it was loaded");
    return 0;
}

void target_published(struct target *target, const struct wfs_identity *identity)
{
    target->output.known = *identity;
    target->is_published = true;
    if (target->output.replace == WFS_REPLACE_NONE)
        target->output.replace = WFS_REPLACE_KNOWN;
}

/* Writes control characters and '%' as %XX, so that the text fits a line. */
static void print_encoded(struct strbuf *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        char code[PERCENT_N + 1] = {(char)*at};
        if (*at < 0x20 || *at == 0x7f || *at == '%')
            percent_encode(*at, code);
        strbuf_puts(out, code);
    }
    strbuf_puts(out, "\n");
}

/* "WORD INODE BYTES MTIME" */
static void print_identity(struct strbuf *out, const char *word,
                           const struct wfs_identity *identity)
{
    strbuf_printf(out, "%s %llu %llu %lld\n", word, (unsigned long long)identity->inode,
                  (unsigned long long)identity->n_bytes, (long long)identity->mtime_ns);
}

static void print_named(struct strbuf *out, const char *word, const char *text)
{
    strbuf_printf(out, "%s ", word);
    print_encoded(out, text);
}

/* Writes how it was mounted, one option a line, for recovery. */
static void print_mount(struct strbuf *out, const struct target *target,
                        const struct mount_options *options)
{
    print_named(out, "#cwd", target->cwd != NULL ? target->cwd : "/");
    print_named(out, "#source", source_path(target));
    print_named(out, "#output", target->path);
    print_named(out, "#stage", target->stage_path);
    print_named(out, "#option format", target->output.format->name);
    for (size_t i = 0; i < options->settings.load.n_limits; i++)
        print_named(out, "#option limit", options->settings.load.limits[i]);
    if (options->settings.load.force)
        strbuf_puts(out, "#option flag force\n");
    if (options->settings.load.shards)
        strbuf_puts(out, "#option flag shards\n");
    if (options->settings.load.has_epoch)
        strbuf_printf(out, "#option flag epoch=%llu\n",
                      (unsigned long long)options->settings.load.epoch);
    const struct wfs_fit_options *fit = &options->settings.fit;
    for (size_t i = 0; i < fit->n_options; i++)
        strbuf_printf(out, "#option flag %s=%s\n", fit->options[i].option->name,
                      fit->options[i].value);
    const struct wfs_backup *backup = &options->settings.backup;
    if (backup->control != WFS_BACKUP_NONE)
        strbuf_printf(out, "#option flag backup=%s\n", settings_backup_name(backup));
    if (backup->control != WFS_BACKUP_NONE && strcmp(backup->suffix, "~") != 0) {
        strbuf_puts(out, "#option flag suffix=");
        print_encoded(out, backup->suffix);
    }
    if (options->settings.max_shard > 0)
        strbuf_printf(out, "#option flag max_shard_size=%llu\n",
                      (unsigned long long)options->settings.max_shard);
}

static int print_base(struct strbuf *out, const struct target *target,
                      const struct mount_options *options, const struct wfs_catalog *catalog)
{
    uint64_t digest;
    if (wfs_catalog_digest(catalog, &digest) < 0)
        return -ENOMEM;
    strbuf_puts(out, "weightfs-base 1\n");
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++) {
        const char *path = wfs_catalog_source_path(catalog, i);
        const struct wfs_identity identity =
            url_is(path) ? wfs_catalog_source_identity(catalog, i) : identity_at(path);
        autofree char *whole = path_resolve(path);
        print_identity(out, "source", &identity);
        strbuf_printf(out, "#device %llu ", (unsigned long long)identity.device);
        print_encoded(out, whole != NULL ? whole : path);
    }
    strbuf_printf(out, "index %016llx\n", (unsigned long long)digest);
    strbuf_puts(out, options->layout == WFS_LAYOUT_FLAT ? "option layout=flat\n" : "");
    strbuf_puts(out, options->files == WFS_FILES_NPY ? "option files=npy\n" : "");
    for (size_t i = 0; i < options->n_views; i++)
        print_named(out, "view", options->views[i]);
    print_identity(out, "#replaces", &target->output.known);
    print_mount(out, target, options);
    return 0;
}

char *target_base_text(const struct target *target, const struct mount_options *options,
                       const struct wfs_catalog *catalog)
{
    autostrbuf struct strbuf text = {0};
    const int code = print_base(&text, target, options, catalog);
    return code < 0 || text.has_failed ? NULL : steal(&text.bytes);
}
