/* SPDX-License-Identifier: MIT */
/*
 * The steps of saving one file, for savers of one and of several.
 */
#ifndef WFS_SAVE_H
#define WFS_SAVE_H

#include "base/outfile.h"
#include "format/core/format.h"
#include "format/core/layout.h"

/*
 * Loads a file that was written and synced, by the loader of its format. Only what decides how
 * much is listed is limited, as it was for what the file was made from.
 */
int readback_load(const struct wfs_format *format, const struct outfile *outfile,
                  const struct wfs_catalog *wanted, const struct load_taker *taker,
                  struct wfs_catalog **out, struct wfs_error *err);

/*
 * The same, and fails with -EIO unless the file has what the layout was made from. It relies on
 * outfile_check for the bytes of the layout.
 */
int readback_load_same(const struct wfs_layout *layout, const struct wfs_save_options *options,
                       const struct outfile *outfile, struct wfs_catalog **out,
                       struct wfs_error *err);

/*
 * Compares the bytes of two tensors of one dtype and shape: what was expected, and what was found,
 * in a file of the layout or elsewhere. It relies on outfile_check for the bytes of the layout,
 * which may be NULL. -EIO, -ENOMEM, or what the progress of the options says.
 */
int readback_compare_bytes(const struct wfs_layout *layout, const struct wfs_save_options *options,
                           const struct wfs_tensor *wanted, const struct wfs_tensor *found,
                           struct wfs_error *err);

/* Tells how far the saving is; not 0 gives up. Called by any thread that helps. */
static inline int save_tell_progress(const struct wfs_save_options *options, uint64_t n_done,
                                     uint64_t n_total)
{
    return options->progress == NULL ? 0 : options->progress(options->ctx, n_done, n_total);
}

/* Writes the whole layout to the outfile. */
int save_emit(const struct wfs_layout *layout, const struct wfs_save_options *options,
              struct outfile *outfile, struct wfs_error *err);

/* -EIO when a source that the layout reads is no longer what it was. */
int save_check_sources(const struct wfs_layout *layout, struct wfs_error *err);

/* Calls `complete`, the last step before the output is published. */
int save_tell_complete(const struct wfs_save_options *options, const struct outfile *outfile,
                       const struct wfs_catalog *found, struct wfs_error *err);

/* Returns whether something in a file can run code when another program loads it, or might. */
bool save_has_dangers(const struct wfs_catalog *found);

/* Reports what in the file that was read back can run code. -EIO if the planned catalog is safe:
 * there must be nothing like that. */
int save_tell_dangers(const struct wfs_save_options *options, const struct wfs_catalog *planned,
                      const struct wfs_catalog *found, struct wfs_error *err);

/* The sentence for an error of the outfile. */
int save_fail_write(const struct outfile *outfile, int code, struct wfs_error *err);

#endif
