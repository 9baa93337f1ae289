/* SPDX-License-Identifier: MIT */
/*
 * The steps of saving one file, for savers of one and of several.
 */
#ifndef WFS_SAVE_H
#define WFS_SAVE_H

#include "base/outfile.h"
#include "format/core/layout.h"

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
