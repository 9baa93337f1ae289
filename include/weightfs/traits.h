/* SPDX-License-Identifier: MIT */
/*
 * The traits of a file format: its names, and what a file of it can hold. Everything that
 * treats formats differently asks for a trait; format.h finds formats and has the functions that
 * read and write files.
 */
#ifndef WFS_TRAITS_H
#define WFS_TRAITS_H

#include <stdbool.h>
#include <stdint.h>

/* The library whose modules usually made the tensors: their names and the layout of weights. */
enum wfs_convention { WFS_CONVENTION_ANY, WFS_CONVENTION_TORCH, WFS_CONVENTION_BURN };

/* What a file holds besides tensors and metadata; each kind includes those before it. */
enum wfs_value_room { WFS_VALUES_NONE, WFS_VALUES_NUMBERS, WFS_VALUES_ANY };

/* How the state of an optimizer of Burn is named: `ID.V1.Rank2.momentum.moment_1` with digits of
 * base 32 as the id, or `NUMBER.momentum.moment_1` with the rank as a scalar. */
enum wfs_state_names { WFS_STATE_NAMES_ANY, WFS_STATE_NAMES_NESTED, WFS_STATE_NAMES_FLAT };

/* One file; several with an index; several of one epoch of a training run; several models. */
enum wfs_container_kind {
    WFS_CONTAINER_FILE,
    WFS_CONTAINER_SHARDS,
    WFS_CONTAINER_RUN,
    WFS_CONTAINER_MODELS,
};

/* What the tensors of a checkpoint are packed in. */
struct wfs_container {
    const char *name; /* in a few words for a person: "zip checkpoint" */
    enum wfs_container_kind kind;
    const char *read_only; /* what it is, and why another container of the format is written in its
                              place; NULL: it is written */
};

/* A cap on what a file may ask for, which the user may replace. Limits that files of several
 * formats have are not declared by formats. */
struct wfs_limit {
    const char *name; /* unlike that of any other limit */
    uint64_t value;
    const char *reason; /* its unit, and why so many */
};

struct wfs_error;

/* An option of an output in this format. */
struct wfs_option {
    const char *name;     /* with underscores, unlike that of any other option */
    const char *argument; /* what stands for the value in a help text */
    const char *help;     /* one line */
    /* -EINVAL: the value must be another: "must be ..., not ...". */
    int (*check)(const char *value, struct wfs_error *err);
};

struct format_functions;

struct wfs_format {
    const char *name;              /* as options and reports spell it */
    const char *title;             /* as its makers spell it, for messages */
    const char *const *extensions; /* with the dot, ended by NULL */
    unsigned n_usual;              /* of them from the first: the endings of new files; 0: all */
    const char *set_name;          /* the usual name of the file in a directory of its own; where a
                                      checkpoint is a directory, of the file that describes it */
    const char *reserved_key;      /* which no tensor can have; NULL: none */
    const char *needed_value;      /* without which its usual readers read no file; NULL: none */
    const char *kept_elsewhere;    /* what outputs of other formats keep of it, although their
                                      readers expect something else: a sentence; NULL: nothing */
    enum wfs_convention convention;
    enum wfs_value_room values;
    enum wfs_state_names state_names;
    const char *directory; /* what is written into a directory, in a few words for a person */
    bool is_directory;     /* a checkpoint is a directory: files, and one that describes them */
    bool needs_utf8;       /* in keys */
    bool keeps_ties;       /* two names of one tensor stay one tensor */
    bool keeps_metadata;   /* texts by name */
    bool keeps_param_ids;  /* of Burn's parameters */
    bool sets_have_values; /* the first of several files has those of all */
    bool has_fillers;      /* null, and lists of it, stand where something is not stored */
    const struct wfs_limit *limits;           /* ended by one without a name; NULL: none */
    const struct wfs_option *options;         /* the same */
    const struct format_functions *functions; /* the library's own */
};

#endif
