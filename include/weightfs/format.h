/* SPDX-License-Identifier: MIT */
/*
 * Files in, files out. Loading turns a checkpoint of any format into a catalog without reading
 * tensor bytes; saving lays a catalog out as a file of a format and publishes it whole or not at
 * all.
 */
#ifndef WFS_FORMAT_H
#define WFS_FORMAT_H

#include <weightfs/catalog.h>
#include <weightfs/layout.h>
#include <weightfs/shards.h>

struct wfs_remote;

struct wfs_load_options {
    bool force;       /* read what can be read of a damaged file */
    bool escapes_nul; /* show keys with a NUL escaped */
    bool shards;      /* a path to one shard stands for the whole checkpoint */
    bool ranks;       /* a directory with a file for each rank stands for that of rank 0 */
    bool has_epoch;   /* of a training run; false: the newest one */
    uint64_t epoch;
    struct wfs_remote *remote; /* what fetches URLs; NULL: they are refused */
    const char *const *limits; /* "NAME=NUMBER" texts that replace a default limit */
    size_t n_limits;
};

#pragma GCC visibility push(default)

/* In the order in which the content of a file is tried, from 0; NULL after the last. */
const struct wfs_format *wfs_format_at(size_t i);
/* By name ("safetensors"), or by the extension of a path; NULL when there is none. */
const struct wfs_format *wfs_format_by_name(const char *name);
const struct wfs_format *wfs_format_by_path(const char *path);
/* False: files of this format are only read. */
bool wfs_format_can_write(const struct wfs_format *format);

/* What a list of formats names: those that can be written, or the endings of their files. */
enum wfs_format_words { WFS_FORMAT_NAMES, WFS_FORMAT_ENDINGS };

struct wfs_format_list {
    char text[256];
};

/* Lists them for a sentence: "a, b or c"; last is what precedes the last one. */
struct wfs_format_list wfs_format_list(enum wfs_format_words words, const char *last);

/* Checks whether a new file of the format can hold the tensor; the error names it. */
int wfs_format_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                            struct wfs_error *err);

/*
 * Loads the checkpoint at path, recognised by its content: a file, the index of a sharded one, the
 * directory that holds either, the directory of a training run, or an entry of the cache of the
 * Hub, of which main is loaded. options may be NULL. Errors as error.h says, and the errno of open:
 * -EISDIR for a directory without a checkpoint, -ENXIO for what is not a regular file.
 */
int wfs_load(const char *path, const struct wfs_load_options *options, struct wfs_catalog **out,
             struct wfs_error *err);

/*
 * Verifies what has a checksum in the file: reads all of it, in bounded memory, and adds what is
 * wrong to the findings of the catalog. Negative only when that cannot be done.
 */
int wfs_verify(struct wfs_catalog *catalog, struct wfs_error *err);

enum { WFS_OPTIONS_MAX = 16 }; /* options that formats may declare in all */

/* How a catalog is made to fit a format. */
struct wfs_fit_options {
    bool drops_ties;         /* the first name of a tensor only, where the format keeps no ties */
    bool values_in_metadata; /* values that the format has no room for become texts */
    bool is_safe;            /* nothing that may run code when the file is loaded */
    bool is_set;             /* several files, in which no format has room for values */
    struct {
        const struct wfs_option *option; /* of the format */
        const char *value;               /* that its check has passed */
    } options[WFS_OPTIONS_MAX];
    size_t n_options;
};

enum wfs_fit_kind {
    WFS_FIT_VALUE,
    WFS_FIT_METADATA,
    WFS_FIT_TIE,
    WFS_FIT_PARAM_ID,
    WFS_FIT_QUANTIZATION, /* of integers, which are stored without scale and zero point */
    WFS_FIT_NAME,         /* of code, with what calling it would make */
    WFS_FIT_STORAGE,      /* that no tensor shows */
    WFS_FIT_BACKUP,       /* a file of a tree; its path is the name */
};

/* What is not in the file as it was in the catalog. Texts are the catalog's. */
struct wfs_fit_item {
    enum wfs_fit_kind kind;
    const char *name;
    const char *why;
};

struct wfs_fit {
    struct wfs_fit_item *items; /* malloc'ed */
    size_t n_items, n_room;
    size_t n_stored;    /* values that became texts */
    const char *kept;   /* of the format of the source; NULL: nothing */
    const char *needed; /* a value that the output does not have; NULL: none */
};

/*
 * Rewrites the catalog, which is nobody else's, for a file of the format, and lists what the
 * format cannot hold. A tied name that is dropped is a text of the metadata with the name that
 * stays as its value, as the safetensors library writes it; a value is a text with its own name: as
 * it is when it is a string, else as JSON. Texts that have such a name already are kept. The
 * catalog keeps only the values that a file of the format can hold. Fills a zeroed struct. -EINVAL
 * names a value that was edited and would be left out; -ENOMEM.
 */
int wfs_catalog_fit(struct wfs_catalog *catalog, const struct wfs_format *format,
                    const struct wfs_fit_options *options, struct wfs_fit *ret,
                    struct wfs_error *err);
void wfs_fit_done(struct wfs_fit *fit);

/*
 * What of a source is opened: for a directory its index or its one checkpoint, else the path. NULL
 * when nothing is, or several shards without an index are. malloc'ed.
 */
char *wfs_source_file(const char *path, bool shards);

/* Returns the i-th of the names of files that are the checkpoint of a folder, the first one that
 * exists; NULL: there are no more. For folders that cannot be listed; of others wfs_load knows
 * more. */
const char *wfs_folder_file(size_t i);

/*
 * Returns whether an output path asks for several files: it is the name of an index
 * ("….index.json"), an existing directory, any path with a slash at its end, or any path where
 * *format writes directories. 1: *ret is the path of the index, or of the file that describes the
 * directory, malloc'ed; a NULL *format becomes the format that its name or the name of the
 * source implies. If neither implies one, *format stays NULL and *ret is the directory. 0: it does
 * not ask for several. -ENOMEM.
 */
int wfs_output_index(const char *path, const char *source, const struct wfs_format **format,
                     char **ret);

/*
 * Returns whether an output path, for which wfs_output_index returned 1, is that of a directory
 * that is created where it is missing: it ends with a slash, or the format writes directories.
 */
bool wfs_output_is_directory(const char *path, const struct wfs_format *format);

/*
 * Plans a checkpoint in several files with an index. With max_bytes 0 each tensor stays in the file
 * that it was in, as a view or tree over a loaded set knows; else no file gets more than max_bytes
 * bytes of tensors, unless one tensor alone has more. Borrows the catalog. Errors as
 * wfs_layout_new.
 */
int wfs_shards_new(const struct wfs_format *format, const struct wfs_catalog *catalog,
                   uint64_t max_bytes, struct wfs_shards **out, struct wfs_error *err);

/*
 * Adds to fit the values of files that are rewritten: a set holds only tensors. Files that are
 * taken over keep their values. catalog is the one that the set was made of. -ENOMEM.
 */
int wfs_shards_fit(const struct wfs_shards *set, struct wfs_catalog *catalog, struct wfs_fit *fit,
                   struct wfs_error *err);

/*
 * Removes what an interrupted save of several files to path left behind. Returns 0 when there is
 * nothing.
 */
int wfs_save_clear(const char *path, struct wfs_error *err);

#pragma GCC visibility pop

#endif
