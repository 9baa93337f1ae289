/* SPDX-License-Identifier: MIT */
/*
 * A source: an open input that is only ever read with pread in exact amounts, never mapped. A file
 * that shrinks, changes or fails gives -EIO, for that read and for all later ones, never other
 * bytes.
 *
 * Other kinds of input (a deflated zip member) are sources of a kind of their own.
 */
#ifndef WFS_SOURCE_H
#define WFS_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/error.h>
#include <weightfs/interruption.h>
#include <weightfs/output.h>

struct source {
    char *path;                   /* as given, for messages and to find siblings */
    int fd;                       /* -1: not a local file */
    uint64_t id;                  /* no other source of this process has or had it */
    uint64_t n_bytes;             /* length of the whole */
    struct wfs_identity identity; /* of the file when it was opened; zeros: not a file */
    atomic_bool *has_changed;    /* sticky; no description of the source, but what is known of it */
    bool is_part;                /* of a checkpoint; by itself it is none */
    bool is_remote;              /* on the network: what is read soon is worth to be known */
    bool is_weak;                /* a change that keeps the length may not be noticed */
    bool is_unkept;              /* the cache has no room for it */
    bool is_private;             /* fetched with credentials of the user: nobody else may read it */
    const struct source *origin; /* what a made-up one is made of, which is looked at for changes;
                                    NULL: nothing */
    const struct source_kind *kind;
    void *ctx; /* of the kind */
};

/* How the bytes are read of what is not a file. */
struct source_kind {
    /* Reads exactly n_bytes. Safe to call from many threads. NULL: a file, which is read by its
     * descriptor. */
    int (*read)(const struct source *source, const struct wfs_io *io, uint64_t offset, void *buf,
                size_t n_bytes);
    void (*done)(void *ctx); /* NULL: nothing to free */
    /* Checks the sources that the bytes at offset are made of, where they are several; NULL:
     * origin is all. */
    int (*check)(const struct source *source, uint64_t offset);
    /* Returns the file in which the bytes at *offset lie as they are read here, moves *offset to
     * their place in it, and shortens *n_bytes to what lies there in one piece. Returns NULL where
     * they do not. NULL: they never do. */
    const struct source *(*find)(const struct source *source, uint64_t *offset, uint64_t *n_bytes);
    /* Returns why the bytes at offset cannot be read, once that is known, or NULL. NULL: no reason
     * is ever known. */
    const char *(*trouble)(const struct source *source, uint64_t offset);
    /* Returns what the bytes are computed from. NULL: they are stored somewhere. */
    const char *(*describe)(const struct source *source);
    /* Returns how many bytes of a remote one have been fetched. NULL for others. */
    uint64_t (*count_cached)(const struct source *source);
    /* Counts what was fetched for it and all others that came the same way, and that with what
     * somebody waits for. NULL for others. */
    void (*count_fetched)(const struct source *source, uint64_t *ret_fetched, uint64_t *ret_needed);
};

/* Makes a source of a kind, with no file. path is copied. ctx is freed by `done` when this fails,
 * too; where the kind has that, NULL means that memory ran out. -ENOMEM. */
int source_new(const struct source_kind *kind, const char *path, void *ctx, uint64_t n_bytes,
               struct source **out);

/*
 * Opens a regular file (symbolic links followed, without blocking). -EISDIR for a directory, -ENXIO
 * for what is neither. err gets a sentence. "/dev/fd/N" is reopened or, where that cannot be
 * (memfd, socket passing), duplicated.
 */
int source_open(const char *path, struct source **out, struct wfs_error *err);

/*
 * Opens a file by a path relative to an open directory, as source_open does, but nothing outside of
 * the directory: not by "..", and not by a symbolic link, except for one into the cache of Hugging
 * Face that the directory is in, and one to a file of the same owner in its parent. shown is the
 * path for messages. -EXDEV for what is outside.
 */
int source_open_beneath(int directory, const char *relative, const char *shown, struct source **out,
                        struct wfs_error *err);

/* Bytes in memory, borrowed: for tests and embedded streams. name is copied. */
int source_new_memory(const char *name, const void *bytes, size_t n_bytes, struct source **out);

/* Adopts fd. Identity and length are taken now. */
int source_new_fd(const char *path, int fd, struct source **out, struct wfs_error *err);

void source_free(struct source *source);

/* Returns true for a file, also one on the network; false for what is made of others. */
static inline bool source_is_file(const struct source *source)
{
    return source->identity.inode != 0;
}

/* Adds what it lets others do: of one on the network that is private, nothing. */
void source_add_access(const struct source *source, struct wfs_access *access);

/* Returns what a source is made of in the end. */
static inline const struct source *source_file(const struct source *source)
{
    while (source->origin != NULL)
        source = source->origin;
    return source;
}

/* Closes the file: reading is -EIO from now on. */
void source_close(struct source *source);

/* Returns the lengths of all sources together, each counted once. Sorts the list. */
uint64_t source_sum(const struct source **sources, size_t n);

/* Reads all n_bytes, and checks the identity after that. -EIO for a file that is short or has
 * changed, or what the system returned; -EBADMSG for damaged compressed data, -EINTR, -ENOMEM. */
int source_read_for(const struct wfs_io *io, const struct source *source, uint64_t offset,
                    void *buf, size_t n_bytes);

/* Reads without a check of the identity, for many small reads before one source_check and before
 * anybody sees the bytes. */
int source_read_unchecked(const struct wfs_io *io, const struct source *source, uint64_t offset,
                          void *buf, size_t n_bytes);

static inline int source_read(const struct source *source, uint64_t offset, void *buf,
                              size_t n_bytes)
{
    return source_read_for(NULL, source, offset, buf, n_bytes);
}

/* Returns the file in which the bytes at *offset lie as they are, as `find` does; the source itself
 * where that is not known, or has fewer than n_least. */
const struct source *source_find(const struct source *source, uint64_t *offset, uint64_t *n_bytes,
                                 uint64_t n_least);

/* Returns what is known of the reader, and that it is about to read the range of the source. */
struct wfs_io source_expect(const struct wfs_io *io, const struct source *source, uint64_t offset,
                            uint64_t n_bytes);

/* Returns up to where the reader goes on from the offset; 0: not known. */
uint64_t source_expected(const struct wfs_io *io, const struct source *source, uint64_t offset);

/* Returns -EIO when the file is no longer what it was when it was opened, and from then on. */
int source_check(const struct source *source);

/* The same for all files that the bytes at offset are made of. */
int source_check_at(const struct source *source, uint64_t offset);

#endif
