/* SPDX-License-Identifier: MIT */
/*
 * The output is resolved when the mount starts: a symbolic link stays, and the file that it leads
 * to is replaced.
 */
#include "fuse/target.h"

#include "program/print.h"
#include "fuse/log.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/url.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weightfs/percent.h>

static int fail_format(const struct target *target, const char *path)
{
    const struct wfs_quoted quoted = wfs_quote(path);
    if (target->is_set)
        return log_failure(EXIT_USAGE,
                           "cannot infer the format of '%s' from the name of its source: use "
                           "-o format=NAME, with safetensors, pytorch, burnpack or dcp",
                           quoted.text);
    return log_failure(EXIT_USAGE,
                       "cannot infer the format from the name '%s': use -o format=NAME, or '%s/' "
                       "for a directory of shards",
                       quoted.text, quoted.text);
}

static int fail_output(const char *path)
{
    return log_failure(EXIT_MOUNT, "cannot use output '%s': %s%s", wfs_quote(path).text,
                       strerror(errno),
                       url_is_any(path) ? "; an output is a local file, not a URL" : "");
}

/* Takes the format from the extension as typed, or from the source where that is replaced. */
static int choose_format(struct target *target, const char *typed)
{
    if (target->format == NULL)
        target->format = wfs_format_by_path(typed);
    if (target->format != NULL || (target->is_source && !target->is_set))
        return 0;
    return fail_format(target, typed);
}

static int choose_size(struct target *target, const struct mount_options *options)
{
    target->max_shard = options->settings.max_shard;
    return target->is_set || target->max_shard == 0
               ? 0
               : log_failure(EXIT_USAGE, "mount option 'max_shard_size' needs an output that is a "
                                         "directory or NAME.index.json");
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
static int choose_path(struct target *target, const struct mount_options *options,
                       const char *typed)
{
    autofree char *index = NULL;
    target->format = options->settings.format;
    if (wfs_output_index(typed, source_path(target), &target->format, &index) < 0)
        return log_failure(EXIT_UNSUPPORTED, "out of memory");
    target->is_set = index != NULL;
    if (target->is_set && target->format == NULL)
        return choose_format(target, typed);
    if (wfs_output_is_directory(typed, target->format)) {
        target->has_new_directory = mkdir(typed, 0777) == 0;
        if (!target->has_new_directory && errno != EEXIST)
            return fail_output(typed);
    }
    if (place_find(&target->output, index != NULL ? index : typed,
                   index != NULL ? PLACE_KEEP_LINK : PLACE_FOLLOW_LINK) < 0)
        return fail_output(typed);
    target->path = target->output.path;
    return choose_size(target, options);
}

/* Checks that a backup can be kept of what is at the path. */
static int check_backup(const struct target *target, const struct mount_options *options)
{
    struct wfs_error err = {0};
    const struct wfs_save_options save = {.replace = WFS_REPLACE_ANY,
                                          .backup = options->settings.backup};
    if (save.backup.control == WFS_BACKUP_NONE)
        return 0;
    return wfs_output_check(target->path, &save, 0, &err) == 0
               ? 0
               : log_failure(EXIT_MOUNT, "cannot use output '%s': %s", wfs_quote(target->path).text,
                             err.text);
}

/* Decides whether what is at the path now may be replaced. */
static int choose_replacement(struct target *target, const struct mount_options *options,
                              const struct place *own)
{
    struct stat st;
    const struct place *output = &target->output;
    target->replace = options->settings.overwrite ? WFS_REPLACE_ANY : WFS_REPLACE_NONE;
    if (target->is_set && lstat(output->path, &st) == 0 && S_ISLNK(st.st_mode))
        return log_failure(
            EXIT_MOUNT,
            "cannot use output '%s': it is a symbolic link, and its shards are in the "
            "directory of its target; use another directory",
            wfs_quote(output->path).text);
    if (!output->is_there)
        return stat(output->path, &st) < 0 && errno == ENOENT ? 0 : fail_output(output->path);
    if (!S_ISREG(output->st.st_mode))
        return log_failure(EXIT_MOUNT, "cannot use output '%s': it is not a regular file",
                           wfs_quote(output->path).text);
    if (check_backup(target, options) != 0)
        return EXIT_MOUNT;
    target->is_source = place_is_same(own, output);
    target->known = wfs_identity_of(&output->st);
    if (options->settings.overwrite)
        return 0;
    target->is_taken = !target->is_source;
    if (target->is_source)
        target->replace = WFS_REPLACE_KNOWN;
    return 0;
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
    return !place_has_moved(&target->output)
               ? 0
               : wfs_fail(err, EACCES,
                          "the directory of the output was replaced after it was mounted: unmount "
                          "and mount again");
}

/* What another user has put into a directory like /tmp does not say where edits go. */
static int check_links(const char *typed)
{
    return path_check_links(typed) != -EACCES
               ? 0
               : log_failure(EXIT_MOUNT, "cannot use '%s': " PLACE_PLANTED, wfs_quote(typed).text);
}

/* own: the file that `rw` replaces, found when its path is not NULL. */
static int choose_output(struct target *target, const struct mount_options *options,
                         const struct place *own)
{
    const char *typed = options->output != NULL ? options->output : own->path;
    if (options->output == NULL && strcmp(options->source, "-") == 0)
        return log_failure(EXIT_USAGE, "mount option 'rw' cannot replace standard input");
    if (typed == NULL)
        return log_failure(EXIT_USAGE, "mount option 'rw' cannot replace shards without an index; "
                                       "use output=DIR");
    int rc = check_links(options->output != NULL ? options->output : options->source);
    if (rc == 0 && options->stage != NULL)
        rc = check_links(options->stage);
    if (rc != 0)
        return rc;
    target->boot = wfs_stage_boot();
    target->cwd = getcwd(NULL, 0);
    rc = choose_path(target, options, typed);
    if (rc == 0)
        rc = choose_replacement(target, options, own);
    if (rc == 0)
        rc = choose_format(target, typed);
    return rc != 0 ? rc : choose_stage(target, options);
}

int target_init(struct target *target, const struct mount_options *options)
{
    struct stat st;
    struct place own = {0};
    *target = (struct target){.allows_replacing = "-o overwrite"};
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

void target_done(struct target *target)
{
    place_done(&target->source);
    place_done(&target->output);
    free(target->stage_path);
    free(target->boot);
    free(target->cwd);
    free(target->kept_source);
    wfs_remote_free(target->remote);
    *target = (struct target){0};
}

static bool is_packed_record(enum wfs_container container)
{
    return container == WFS_CONTAINER_RECORD_GZIP || container == WFS_CONTAINER_RECORD_JSON ||
           container == WFS_CONTAINER_RECORD_JSON_GZIP;
}

/* Returns whether the output describes the directory that is mounted. Its files are what pending
 * edits are made on, and a commit would remove them. */
static bool replaces_directory(const struct target *target, const struct wfs_catalog *catalog)
{
    return target->output.is_there && target->format->is_directory &&
           wfs_catalog_reads(catalog, &target->output.st);
}

int target_check(struct target *target, const struct mount_options *options,
                 const struct wfs_catalog *catalog)
{
    if (target->path == NULL)
        return 0;
    if (target->format == NULL)
        target->format = wfs_catalog_format(catalog);
    if (target->format == NULL)
        return fail_format(target, target->path);
    if (replaces_directory(target, catalog))
        return log_failure(EXIT_USAGE,
                           "a mount cannot replace the distributed checkpoint that it shows; use "
                           "another directory as output");
    if (target->is_source && !target->is_set &&
        wfs_catalog_container(catalog) == WFS_CONTAINER_SHARDS)
        return log_failure(EXIT_USAGE,
                           "mount option 'rw' cannot replace an index that is not named "
                           "NAME.index.json; use output=DIR");
    if (target->is_source && is_packed_record(wfs_catalog_container(catalog)))
        return log_failure(EXIT_USAGE,
                           "mount option 'rw' cannot replace a record in gzip or JSON, because "
                           "records are written as plain .mpk; use output=NAME.mpk");
    if (options->settings.fit.burn_version != NULL && !target->format->has_fillers)
        return log_failure(EXIT_USAGE, "mount option 'burn_version' applies to .mpk files only");
    struct wfs_error err = {0};
    if (!target->is_published &&
        wfs_catalog_check_backup(catalog, target->path, &options->settings.backup, &err) < 0)
        return log_failure(EXIT_MOUNT, "cannot use output '%s': %s", wfs_quote(target->path).text,
                           err.text);
    struct stat st;
    if (target->replace != WFS_REPLACE_KNOWN)
        return 0;
    const struct wfs_identity now =
        stat(target->path, &st) == 0 ? wfs_identity_of(&st) : (struct wfs_identity){0};
    if (!wfs_identity_is_equal(&now, &target->known))
        return log_failure(EXIT_MOUNT, "the source changed while it was loaded");
    return 0;
}

void target_published(struct target *target, const struct wfs_identity *identity)
{
    target->known = *identity;
    target->is_published = true;
    if (target->replace == WFS_REPLACE_NONE)
        target->replace = WFS_REPLACE_KNOWN;
}

/* Writes control characters and '%' as %XX, so that the text fits a line. */
static void print_encoded(FILE *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        char code[PERCENT_N + 1] = {(char)*at};
        if (*at < 0x20 || *at == 0x7f || *at == '%')
            percent_encode(*at, code);
        fputs(code, out);
    }
    fputc('\n', out);
}

static struct wfs_identity identity_at(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? wfs_identity_of(&st) : (struct wfs_identity){0};
}

/* "WORD INODE BYTES MTIME" */
static void print_identity(FILE *out, const char *word, const struct wfs_identity *identity)
{
    fprintf(out, "%s %llu %llu %lld\n", word, (unsigned long long)identity->inode,
            (unsigned long long)identity->n_bytes, (long long)identity->mtime_ns);
}

static void print_named(FILE *out, const char *word, const char *text)
{
    fprintf(out, "%s ", word);
    print_encoded(out, text);
}

/* Writes how it was mounted, one option a line, for recovery. */
static void print_mount(FILE *out, const struct target *target, const struct mount_options *options)
{
    print_named(out, "#cwd", target->cwd != NULL ? target->cwd : "/");
    print_named(out, "#source", source_path(target));
    print_named(out, "#output", target->path);
    print_named(out, "#stage", target->stage_path);
    print_named(out, "#option format", target->format->name);
    for (size_t i = 0; i < options->settings.load.n_limits; i++)
        print_named(out, "#option limit", options->settings.load.limits[i]);
    if (options->settings.load.force)
        fputs("#option flag force\n", out);
    if (options->settings.load.shards)
        fputs("#option flag shards\n", out);
    if (options->settings.load.has_epoch)
        fprintf(out, "#option flag epoch=%llu\n", (unsigned long long)options->settings.load.epoch);
    if (options->settings.fit.burn_version != NULL)
        fprintf(out, "#option flag burn_version=%s\n", options->settings.fit.burn_version);
    const struct wfs_backup *backup = &options->settings.backup;
    if (backup->control != WFS_BACKUP_NONE)
        fprintf(out, "#option flag backup=%s\n", settings_backup_name(backup));
    if (backup->control != WFS_BACKUP_NONE && strcmp(backup->suffix, "~") != 0) {
        fputs("#option flag suffix=", out);
        print_encoded(out, backup->suffix);
    }
    if (target->max_shard > 0)
        fprintf(out, "#option flag max_shard_size=%llu\n", (unsigned long long)target->max_shard);
}

static int print_base(FILE *out, const struct target *target, const struct mount_options *options,
                      const struct wfs_catalog *catalog)
{
    uint64_t digest;
    if (wfs_catalog_digest(catalog, &digest) < 0)
        return -ENOMEM;
    fputs("weightfs-base 1\n", out);
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++) {
        const char *path = wfs_catalog_source_path(catalog, i);
        const struct wfs_identity identity =
            url_is(path) ? wfs_catalog_source_identity(catalog, i) : identity_at(path);
        autofree char *whole = path_resolve(path);
        print_identity(out, "source", &identity);
        fprintf(out, "#device %llu ", (unsigned long long)identity.device);
        print_encoded(out, whole != NULL ? whole : path);
    }
    fprintf(out, "index %016llx\n", (unsigned long long)digest);
    fputs(options->layout == WFS_LAYOUT_FLAT ? "option layout=flat\n" : "", out);
    fputs(options->files == WFS_FILES_NPY ? "option files=npy\n" : "", out);
    for (size_t i = 0; i < options->n_views; i++)
        print_named(out, "view", options->views[i]);
    print_identity(out, "#replaces", &target->known);
    print_mount(out, target, options);
    return 0;
}

char *target_base_text(const struct target *target, const struct mount_options *options,
                       const struct wfs_catalog *catalog)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);
    if (out == NULL)
        return NULL;
    const bool is_good = print_base(out, target, options, catalog) == 0 && !ferror(out);
    if (fclose(out) != 0 || !is_good) {
        free(text);
        return NULL;
    }
    return text;
}
