/* SPDX-License-Identifier: MIT */
/*
 * Settings: what the user says of a source and of an output. Verbs take them as flags and mounts as
 * mount options; names, values, help and mistakes are the same, from one table.
 */
#ifndef WFS_SETTINGS_H
#define WFS_SETTINGS_H

#include "fetch/fetcher.h"

#include <weightfs/format.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct settings {
    /* Of a source. */
    bool force, escapes_nul, shards, has_epoch;
    uint64_t epoch; /* of a training run */
    struct fetcher_settings fetcher;
    /* Of an output. */
    const struct wfs_format *format; /* NULL: as its name says */
    uint64_t max_shard;              /* bytes of tensors in a shard; 0: as they are */
    const char *burn_version;        /* borrowed; NULL: not given */
    bool allows_large, overwrite, drops_ties, values_in_metadata, is_safe;
    struct wfs_backup backup; /* of what is replaced */
    bool has_backup_control;  /* given, not chosen for a suffix */
};

enum setting_subject { SETTING_OF_SOURCE, SETTING_OF_OUTPUT };

/* A row of the table. */
struct setting {
    const char *name;     /* with underscores; flags of verbs have dashes in their place */
    const char *argument; /* what stands for the value in a help text, in brackets where it may be
                             left out; NULL: takes none */
    const char *help;     /* one line */
    enum setting_subject subject;
    /* 0, or -EINVAL and what the value must be: "must be ..., not ...". The value is NULL where
     * none was given. */
    int (*apply)(struct settings *settings, const char *value, struct wfs_error *err);
};

/* Returns the rows one by one, in the order of their names; NULL after the last. */
const struct setting *settings_row(size_t i);

/* Returns whether a given name is that of a setting or option; it may have dashes as underscores.
 */
bool settings_is_name(const char *name, const char *given, size_t n_given);

/* Returns the row with that name, where a dash is as good as an underscore; NULL: none. */
const struct setting *settings_find(const char *name, size_t n_name);

/* Returns whether an option whose help has that argument must have a value. */
bool settings_needs_value(const char *argument);

/* Returns the name of the control, such as "simple". */
const char *settings_backup_name(const struct wfs_backup *backup);

/* Finds a format by its name. -EINVAL: err lists those that there are. */
int settings_parse_format(const char *name, const struct wfs_format **ret, struct wfs_error *err);

#endif
