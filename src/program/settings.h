/* SPDX-License-Identifier: MIT */
/*
 * Settings: what the user says of a source and of an output. Verbs take them as flags and mounts as
 * mount options; names, values, help and mistakes are the same, from one table. And the spelling of
 * names that the user has typed.
 */
#ifndef WFS_SETTINGS_H
#define WFS_SETTINGS_H

#include "fetch/fetcher.h"

#include <weightfs/format.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETTINGS_NO_CACHE "none" /* in place of a directory */

struct settings {
    /* Of a source. */
    struct wfs_load_options load; /* `remote` is not set */
    struct fetcher_settings fetcher;
    /* Of an output. */
    const struct wfs_format *format; /* NULL: as its name says */
    struct wfs_fit_options fit;      /* `is_set` is not set */
    uint64_t max_shard;              /* bytes of tensors in a shard; 0: as they are */
    bool allows_large, overwrite;
    struct wfs_backup backup; /* of what is replaced */
    bool has_backup_control;  /* given, not chosen for a suffix */
};

enum setting_subject { SETTING_OF_SOURCE, SETTING_OF_OUTPUT };

/* A row of the table. */
struct setting {
    const char *name;     /* with underscores; flags of verbs have dashes in their place */
    const char *argument; /* what stands for the value in a help text, in brackets where it may be
                             left out; NULL: takes none */
    const char *help;     /* one line; NULL: it is one of the formats */
    enum setting_subject subject;
    int (*apply)(struct settings *settings, const char *value, struct wfs_error *err);
    size_t flag; /* offset of what becomes true, where there is no function: by the option, or by
                    the second word where the argument is one of two */
    const struct wfs_option *option; /* of a format that declares it; NULL: none does */
};

/* Takes the value, borrowed and NULL where none was given, into the settings. -EINVAL, and what the
 * value must be: "must be ..., not ...". */
int settings_apply(struct settings *settings, const struct setting *setting, const char *value,
                   struct wfs_error *err);

/* Returns the rows one by one, in the order of their names, those that formats declare among them.
 * False after the last. */
bool settings_row(size_t i, struct setting *ret);

/* Spells the name of a setting with dashes as flags have them, or underscores. ret has room for
 * SPELLING_NAME_MAX and a NUL. */
void settings_spell(const char *name, char between, char *ret);

/* Returns whether a given name is that of a setting or option; it may have dashes as underscores.
 */
bool settings_is_name(const char *name, const char *given, size_t n_given);

/* Finds the row with that name, where a dash is as good as an underscore. */
bool settings_find(const char *name, size_t n_name, struct setting *ret);

/* Returns whether an option whose help has that argument must have a value. */
bool settings_needs_value(const char *argument);

/*
 * Returns the directory of the cache that is used when the settings name none: WEIGHTFS_CACHE, else
 * weightfs in XDG_CACHE_HOME or ~/.cache, where that is the user's own. malloc'ed; NULL: none.
 */
char *settings_usual_cache(void);

/* Returns the name of the control, such as "simple". */
const char *settings_backup_name(const struct wfs_backup *backup);

/* Finds a format by its name. -EINVAL: err lists those that there are. */
int settings_parse_format(const char *name, const struct wfs_format **ret, struct wfs_error *err);

/* ---- spelling: which of the names that there are was probably meant by one that is not ---- */

enum {
    SPELLING_NAME_MAX = 31,
    SPELLING_TEXT_MAX = 255, /* longer texts are not compared */
    SPELLING_FAR = 1000,
};

/*
 * Returns how many characters must be inserted, removed or replaced to get from one text to the
 * other, or SPELLING_FAR when that is more than bound.
 */
unsigned spelling_distance(const char *a, size_t n_a, const char *b, size_t n_b, unsigned bound);

struct spelling {
    char name[SPELLING_NAME_MAX + 1]; /* up to a '='; empty: too long to be meant */
    const char *best;                 /* the nearest known name; NULL: none is near */
    unsigned distance;                /* letters that differ must be fewer */
};

/* Starts with the name that is not known. */
void spelling_start(struct spelling *spelling, const char *name);

/* Tries a known name, borrowed, which counts up to a '='. A dash is as good as an underscore. */
void spelling_try(struct spelling *spelling, const char *known);

#endif
