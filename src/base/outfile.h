/* SPDX-License-Identifier: MIT */
/*
 * An output file that is complete or absent: written under a temporary name beside its target and
 * published by rename. It remembers its first error; every call after that returns the same.
 */
#ifndef WFS_OUTFILE_H
#define WFS_OUTFILE_H

#include <sys/stat.h>

#include <weightfs/output.h>

#include "base/source.h"
#include "base/written.h"

struct outfile;

/*
 * Opens the directory of path and creates ".NAME.weightfs.tmp" in it (a left-over one is removed
 * first), exclusively, following no link. n_bytes of space are reserved: -ENOSPC here, not in the
 * middle, except where files can share blocks, which take no space. The replace rule of options is
 * checked now and again at publishing.
 */
int outfile_new(const char *path, uint64_t n_bytes, const struct wfs_save_options *options,
                struct outfile **out, struct wfs_error *err);

/*
 * The same in the directory of another outfile, which must be freed later, under a name at which
 * nothing may be.
 */
int outfile_new_beside(const struct outfile *beside, const char *name, uint64_t n_bytes,
                       struct outfile **out, struct wfs_error *err);

/* Removes the temporary unless it was published. A large one goes to `abandon` of the options. */
void outfile_free(struct outfile *outfile);

/* What the file is, once it is synced. */
int outfile_identity(const struct outfile *outfile, struct wfs_identity *ret);

/* Path of the temporary, to read it back. */
const char *outfile_path(const struct outfile *outfile);
uint64_t outfile_offset(const struct outfile *outfile);

/* Writes at the position, which moves on. Small pieces wait in memory for others, until
 * outfile_sync at the latest: its failure may be reported by a later call. */
int outfile_write(struct outfile *outfile, const void *bytes, size_t n_bytes);
int outfile_pad(struct outfile *outfile, uint64_t to_offset);

/*
 * Writes n parts that follow each other from the position on, in the threads of a team: `make`
 * fills bytes with all of part i, or returns a negative errno. Where parts fail the position
 * becomes the offset of the first that did, whose code this is.
 */
int outfile_make(const struct wfs_io *io, struct outfile *outfile, struct written_range *parts,
                 size_t n, int (*make)(void *ctx, size_t i, char *bytes), void *ctx);

/*
 * Copies a range of a source, in the kernel where that can be. Does less than asked where that
 * would take long: *ret_n is how much. -EIO when the source came up short or changed, or what the
 * system returned.
 */
int outfile_copy(const struct wfs_io *io, struct outfile *outfile, const struct source *source,
                 uint64_t offset, uint64_t n_bytes, uint64_t *ret_n);

/* Returns true when the error of outfile_copy came from reading the source. */
bool outfile_cannot_read(const struct outfile *outfile);

/*
 * Makes the whole of a source the content of an empty outfile without writing it: a reflink, or
 * else a hard link. -EOPNOTSUPP when the filesystem, or the right to, is not there for either.
 */
int outfile_take(struct outfile *outfile, const struct source *source);

/* Cuts to the position, gives owner and mode, fsyncs. */
int outfile_sync(struct outfile *outfile, struct wfs_error *err);

/*
 * Reads all bytes of a synced outfile again that did not come into it by the kernel's copying, and
 * compares them, by a hash, with what was to be written. -EIO: they differ; -ENOMEM, or what
 * the progress of the options says.
 */
int outfile_check(struct outfile *outfile, const struct wfs_save_options *options,
                  struct wfs_error *err);

/* Lets go of the descriptor of a synced outfile, for when there are many. It can only be renamed
 * then. */
void outfile_park(struct outfile *outfile);

/* Renames to the target, durable with the next outfile_publish of one in the same directory. */
int outfile_rename(struct outfile *outfile, struct wfs_error *err);

/* The directory, borrowed. */
int outfile_directory(const struct outfile *outfile);
const char *outfile_name(const struct outfile *outfile);

/* Renames over the target and fsyncs the directory. report as format.h says. */
int outfile_publish(struct outfile *outfile, struct wfs_save_report *report, struct wfs_error *err);

#endif
