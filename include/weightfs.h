/* SPDX-License-Identifier: MIT */
/*
 * weightfs as a library: checkpoints of neural networks in any of its formats, opened, read,
 * compared, edited and written. This header is the whole interface; docs/library.md is a guide with
 * an example.
 *
 * Results. A function that returns int returns 0, or a negative errno and a sentence in *err, which
 * need not be initialised and may be NULL. What an out-parameter points to is only written on
 * success.
 *
 * Ownership. A `const char *` and a `const struct wfs_tensor *` are borrowed from the checkpoint
 * and live until it is closed. A `char **` gets a text that wfs_free frees.
 *
 * Options are texts, as the program spells them without the dashes: "cast=F16", "overwrite". A dash
 * in a name is as good as an underscore. An option that the function has no use for is an error.
 * Options that a function takes are those of the verb that is named at it: `weightfs VERB --help`
 * lists them.
 *
 * JSON is what the program prints for that verb with --json: UTF-8, with a line feed at the end.
 * What is about one checkpoint is its item of "sources" alone. "schema" is in that of plans only.
 *
 * Threads. Any number of threads may use one checkpoint at once: nothing but wfs_close changes it.
 * Edits belong to one thread at a time. Callbacks are called in the thread that called the
 * function.
 *
 * The library does not print, change signals, the umask or the locale, nor end the process.
 */
#ifndef WFS_WEIGHTFS_H
#define WFS_WEIGHTFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Returns the version of the library, such as "0.1.0". */
const char *wfs_version(void);

/* Frees a text that was returned through a `char **`. NULL is allowed. */
void wfs_free(char *text);

/*
 * code is a positive errno, 0 when nothing failed:
 *   EBADMSG      malformed or truncated input
 *   EMEDIUMTYPE  not a checkpoint at all
 *   EOPNOTSUPP   valid but not supported
 *   E2BIG, EFBIG above a stated limit
 *   EINVAL       bad request: an option, a slice, a dtype, an edit that does not fit
 *   ENOKEY       no tensor or value has that key; the text suggests others
 *   EEXIST       the target exists, or a key is edited twice
 *   EINTR        the progress callback asked for an end
 *   EIO          the file has changed, or cannot be read
 *   ENOMEM       out of memory
 * or whatever the system returned. text is one line, safe for a terminal: "FILE: what is wrong with
 * it", or without a file where it is about the request.
 */
#define WFS_ERROR_TEXT_MAX 2048

struct wfs_error {
    int code;
    char text[WFS_ERROR_TEXT_MAX];
};

/* What a function is given besides its operands. NULL stands for a zeroed one. */
struct wfs_options {
    size_t size; /* sizeof(struct wfs_options): members that follow are taken as 0 */
    const char *const *texts;
    size_t n_texts;
    /*
     * Called now and then with the bytes that are done and those that are to be done, 0 where that
     * is not known. Not 0 stops the call: it fails with EINTR, and nothing is left of it. NULL:
     * none.
     */
    int (*progress)(void *ctx, uint64_t n_done, uint64_t n_total);
    /* Called with each line that the program would print besides its result: notices of a view,
     * what the output has no room for, names in it that may run code. NULL: none. */
    void (*notice)(void *ctx, const char *text);
    void *ctx; /* of both */
};

/* ---- checkpoints ---- */

struct wfs_checkpoint;
struct wfs_tensor;

/*
 * Opens a checkpoint: a file, a directory, the index of a set, or a URL (http, https, s3, hf).
 * Reads headers, not tensors. Options are those of the source and of views, which `weightfs ls
 * --help` lists: "remap=s/a/b/", "cast=F16", "include=REGEX", "lora=PATH", "average=PATH",
 * "like=PATH", "force", "shards", "epoch=3", "limit=NAME=NUMBER", "cache=DIR". Views apply in the
 * order of their kinds, as docs/view.md describes it. A URL is fetched by a process of its own,
 * which ends with the checkpoint; while its bytes are awaited, the progress callback is asked, with
 * two zeros, whether to go on.
 */
int wfs_open(const char *source, const struct wfs_options *options, struct wfs_checkpoint **out,
             struct wfs_error *err);

/* Makes an empty checkpoint, to which edits add tensors. */
int wfs_new(struct wfs_checkpoint **out, struct wfs_error *err);

/* Nothing that is borrowed from it may be used any more, nor edits of it. NULL is allowed. */
void wfs_close(struct wfs_checkpoint *checkpoint);

/* Returns the name of the format, such as "safetensors"; NULL for an empty checkpoint. */
const char *wfs_checkpoint_format(const struct wfs_checkpoint *checkpoint);

size_t wfs_checkpoint_n_tensors(const struct wfs_checkpoint *checkpoint);

/* Returns the i-th tensor in the order of the file; NULL after the last. */
const struct wfs_tensor *wfs_checkpoint_tensor(const struct wfs_checkpoint *checkpoint, size_t i);

/* Returns the keys of all tensors in that order, a NUL after each; *ret_n_bytes is the length of
 * all. NULL: out of memory. */
const char *wfs_checkpoint_keys(const struct wfs_checkpoint *checkpoint, size_t *ret_n_bytes);

/* Finds a tensor by its key. -ENOKEY: the text of the error suggests keys. */
int wfs_checkpoint_find(const struct wfs_checkpoint *checkpoint, const char *key,
                        const struct wfs_tensor **ret, struct wfs_error *err);

/* Makes the JSON of `weightfs info`: format, container, writer, counts, dtypes, metadata, top
 * level, files, findings. */
int wfs_info(const struct wfs_checkpoint *checkpoint, char **out, struct wfs_error *err);

/* Makes a JSON object of the text metadata, by name. */
int wfs_metadata(const struct wfs_checkpoint *checkpoint, char **out, struct wfs_error *err);

/* Makes the JSON of `weightfs config`: what is not a tensor and not metadata, all of it (key NULL)
 * or what the dotted key names. -ENOKEY. */
int wfs_values(const struct wfs_checkpoint *checkpoint, const char *key, char **out,
               struct wfs_error *err);

/* ---- tensors ---- */

/* All are as the views show the tensor. */
const char *wfs_tensor_key(const struct wfs_tensor *tensor);

/* Returns the name of the dtype, such as "BF16". */
const char *wfs_tensor_dtype(const struct wfs_tensor *tensor);

/* Returns the rank; *ret_dims gets as many dimensions, the outermost first. */
size_t wfs_tensor_shape(const struct wfs_tensor *tensor, const uint64_t **ret_dims);

/* Returns the size of the dense, row-major, little-endian bytes. */
uint64_t wfs_tensor_n_bytes(const struct wfs_tensor *tensor);

/* Returns the key in the file. */
const char *wfs_tensor_origin(const struct wfs_tensor *tensor);

/* Returns what the views did to it and why, as text; NULL: nothing. */
const char *wfs_tensor_changes(const struct wfs_tensor *tensor);

/* Returns what it is computed from, as a formula; NULL: it is stored. */
const char *wfs_tensor_computed(const struct wfs_tensor *tensor);

/* Returns why it cannot be read; NULL: nothing is known. */
const char *wfs_tensor_trouble(const struct wfs_tensor *tensor);

/* Returns a text that the format keeps with the tensor ("param_id", "quantization", "role"), or
 * NULL. */
const char *wfs_tensor_attr(const struct wfs_tensor *tensor, const char *name);

/*
 * Returns the path of the file that has the bytes of the tensor as they are, in one piece, where
 * they begin in it, and its descriptor, which is borrowed and stays the same file whatever has the
 * path; NULL: they lie otherwise, or on the network. ret_fd may be NULL.
 */
const char *wfs_tensor_file(const struct wfs_checkpoint *checkpoint,
                            const struct wfs_tensor *tensor, uint64_t *ret_offset, int *ret_fd);

/* Finds the fewest elements of a dtype that fill whole bytes: 1 and 2 for "BF16", 2 and 1 for "F4",
 * 32 and 18 for "Q4_0". -EINVAL: no dtype has that name, which may be spelled as PyTorch does. */
int wfs_dtype_size(const char *dtype, unsigned *ret_n_elems, unsigned *ret_n_bytes,
                   struct wfs_error *err);

/*
 * Reads n_bytes from offset, clipped to the end of the tensor. Returns how many. Of the options,
 * all that counts here and in the next two functions is the progress callback, by which a read can
 * be stopped.
 */
int64_t wfs_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, uint64_t n_bytes,
                 const struct wfs_options *options, struct wfs_error *err);

/* Indices of one dimension: start, start + step, ..., count of them. step may be negative. */
struct wfs_slice {
    uint64_t start, count;
    int64_t step;
};

/*
 * Reads the elements that slices choose, one for each dimension from the outermost on; dimensions
 * without one are read whole. They are dense and row-major in buf, in the dtype of the tensor, or
 * converted to another one as `cast` does (NULL: not). Reads the parts of the file that are needed.
 * Returns how many bytes they take, which is all that is found out when buf is NULL. -ENOBUFS:
 * n_bytes is less than that. -EINVAL: an index outside of a dimension, a dtype that the elements
 * cannot become, or elements of less than a byte, or in blocks, that are not one run of whole bytes
 * or blocks.
 */
int64_t wfs_read_slice(const struct wfs_tensor *tensor, const struct wfs_slice *slices,
                       size_t n_slices, const char *dtype, void *buf, uint64_t n_bytes,
                       const struct wfs_options *options, struct wfs_error *err);

/* Makes a JSON object with the member "stats" of `weightfs show --json`: min, max, mean, std and
 * counts; null where the elements are not numbers. Reads the tensor. */
int wfs_stats(const struct wfs_tensor *tensor, const struct wfs_options *options, char **out,
              struct wfs_error *err);

/* ---- whole checkpoints ---- */

/* Makes the JSON of `weightfs plan`: what options of views do to a source. */
int wfs_plan(const char *source, const struct wfs_options *options, char **out,
             struct wfs_error *err);

/* Makes the JSON of `weightfs check`. Options: "values", "large". */
int wfs_check(const struct wfs_checkpoint *checkpoint, const struct wfs_options *options,
              char **out, struct wfs_error *err);

/* Makes the JSON of `weightfs diff`. Options: "exact", "large", "long". */
int wfs_diff(const struct wfs_checkpoint *a, const struct wfs_checkpoint *b,
             const struct wfs_options *options, char **out, struct wfs_error *err);

/* Makes the JSON of `weightfs sum`. Option: "large". */
int wfs_sum(const struct wfs_checkpoint *checkpoint, const struct wfs_options *options, char **out,
            struct wfs_error *err);

/* ---- edits ---- */

/* Edits of a checkpoint, which they leave as it is: wfs_checkpoint_save writes what it becomes by
 * them. All refer to the checkpoint as it was, so their order does not matter. */
struct wfs_edits;

int wfs_edits_new(const struct wfs_checkpoint *checkpoint, struct wfs_edits **out,
                  struct wfs_error *err);
void wfs_edits_free(struct wfs_edits *edits); /* NULL is allowed */

/* Each fails with -ENOKEY for a key that the checkpoint does not have, and -EEXIST for one that has
 * been edited in a way that excludes this edit. Texts are copied. */

/* Gives the tensor with the key, and with it its place in the file, another key. */
int wfs_edits_rename(struct wfs_edits *edits, const char *key, const char *new_key,
                     struct wfs_error *err);

/* Removes the tensor or value with the key. */
int wfs_edits_remove(struct wfs_edits *edits, const char *key, struct wfs_error *err);

/*
 * Adds a tensor, or replaces one that exists. bytes are dense, row-major and little-endian; they
 * are borrowed until the edits are freed. -EINVAL where n_bytes is not what dtype and shape make.
 */
int wfs_edits_put(struct wfs_edits *edits, const char *key, const char *dtype, const uint64_t *dims,
                  size_t rank, const void *bytes, uint64_t n_bytes, struct wfs_error *err);

/* Adds or replaces a tensor by one of a checkpoint, which is read when the edits are saved and must
 * stay open until then. */
int wfs_edits_copy(struct wfs_edits *edits, const char *key, const struct wfs_tensor *tensor,
                   struct wfs_error *err);

/* Sets "dtype", "shape" or "param_id" of a tensor, whose bytes stay as they are. */
int wfs_edits_set(struct wfs_edits *edits, const char *key, const char *name, const char *value,
                  struct wfs_error *err);

/* Sets a value, or adds it, by its JSON text. */
int wfs_edits_set_value(struct wfs_edits *edits, const char *key, const char *json,
                        struct wfs_error *err);

/* Sets a text of the metadata; value NULL removes it. */
int wfs_edits_set_metadata(struct wfs_edits *edits, const char *name, const char *value,
                           struct wfs_error *err);

/* Makes a JSON list of the edits, a line as `weightfs patch show` prints it for each. */
int wfs_edits_list(const struct wfs_edits *edits, char **out, struct wfs_error *err);

/* ---- saving ---- */

/*
 * Writes the checkpoint with the edits (NULL: none) to target, whole or not at all: the old file
 * stays until the new file is complete and durable. The format follows from the name of the target.
 * Options are those of outputs, which `weightfs convert --help` lists: "format=NAME", "overwrite",
 * "backup", "max_shard_size=5GB", "ties=drop", "values=metadata", "safe", "large". The target may
 * be the source, with "overwrite": the checkpoint goes on showing what it was opened with.
 * *ret_json, which may be NULL, is an object with "output", "format", "tensors", "files", "bytes"
 * and "left_out", a list of "kind", "name" and "why".
 */
int wfs_checkpoint_save(const struct wfs_checkpoint *checkpoint, const struct wfs_edits *edits,
                        const char *target, const struct wfs_options *options, char **ret_json,
                        struct wfs_error *err);

/* Opens a source and saves it: options are those of wfs_open and of wfs_checkpoint_save. */
int wfs_convert(const char *source, const char *target, const struct wfs_options *options,
                char **ret_json, struct wfs_error *err);

/* Writes the edits to a patch file (docs/formats/patch.md), for `weightfs patch apply`. */
int wfs_edits_save(const struct wfs_edits *edits, const char *target,
                   const struct wfs_options *options, struct wfs_error *err);

/* Adds to edits, which must be empty, those of a patch file. An edit that does not fit the
 * checkpoint is an error of wfs_checkpoint_save. */
int wfs_edits_open(struct wfs_edits *edits, const char *patch, struct wfs_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
