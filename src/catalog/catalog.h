/* SPDX-License-Identifier: MIT */
/*
 * The inside of the catalog, for modules that fill or rewrite one. Its arena owns everything that
 * belongs to it. The room knows what a checkpoint holds as a whole; it leaves the elements of
 * tensors to the room below, and file formats, paths and directories to others.
 */
#ifndef WFS_CATALOG_CATALOG_H
#define WFS_CATALOG_CATALOG_H

#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include "base/arena.h"
#include "base/limits.h"
#include "base/source.h"
#include "base/text_index.h"
#include "value/value.h"

/*
 * Where in the graph something lies that has a name: a tensor, a value, or a container of them. In
 * a checkpoint of several files, whose graphs stay behind, the place of a tensor is the number of
 * its file, from 1: see catalog_home.
 * Places are numbered from 1 in the order of the listing; all that is in a container follows it.
 * They describe what was loaded and never change: a tensor or value that is renamed, replaced or
 * changed keeps its place, a new one has none (0), and a place that nobody has is that of one that
 * was removed. A container that is listed twice has two places.
 */
enum place_kind { PLACE_HOLDER, PLACE_TENSOR, PLACE_VALUE };

struct catalog_place {
    const char *name; /* dotted, as loaded: the first n_name bytes of this */
    uint64_t stamp;   /* of the tensor, as loaded: see catalog_stamp */
    uint32_t n_name;
    uint32_t start;  /* of its own component in name; PLACE_FIXED: it has none */
    uint32_t parent; /* the place of what it is in; 0: it is the root */
    uint32_t item;   /* which of the items of its parent's value; PLACE_FIXED: it is none of them */
    uint32_t id;     /* the value that was loaded */
    uint8_t kind;    /* enum place_kind */
};

/* Where the bytes of a storage are, which several tensors may be views of. */
struct catalog_storage {
    const struct source *source;
    uint64_t offset, n_bytes;
    uint32_t id;   /* the value that stands for it */
    uint32_t crc;  /* CRC-32 of the bytes */
    uint8_t dtype; /* of its class */
    bool has_crc, is_big_endian, is_untyped;
};

#define PLACE_FIXED UINT32_MAX

struct catalog_range {
    uint64_t offset, n_bytes; /* in a source */
};

/* What no tensor shows of a storage. */
struct catalog_hidden {
    struct wfs_hidden public;
    const struct source *source;
    uint64_t start; /* of the storage in the source */
    struct catalog_range *ranges;
    size_t n_ranges;
};

/* A value, or a container of values, that no tensor is in, and its dotted name. */
struct catalog_value {
    const char *name;
    uint32_t id; /* in the graph */
    uint32_t place;
    uint32_t filler; /* what a format with fillers has there, as `like` says; 0: nothing */
    bool is_edited;  /* it is new, or is not what was loaded */
};

/* A value of one file of several, which the whole does not show. */
struct catalog_unshown {
    const char *name;
    const struct source *home; /* stays readable as a path when it is closed */
    const struct catalog_unshown *next;
};

/* What a checkpoint holds besides tensors and texts. */
struct catalog_values {
    struct catalog_value *list; /* malloc'ed; the largest parts of the graph without a tensor */
    size_t n, n_room;
    struct graph graph;            /* what a pickle or a record holds; empty in other formats */
    struct listing_limits listing; /* with which it was listed */
    uint32_t root;                 /* of the graph; 0: there is none */
    struct catalog_place *places;  /* malloc'ed by what was loaded; [0] is not used */
    uint32_t n_places;
    size_t n_place_room;       /* 0: places are borrowed, or there are none */
    bool is_object;            /* the graph and its storages are all that was loaded */
    struct value_bytes pickle; /* the whole graph as it was in the file; source NULL: not kept */
    uint32_t pickle_crc;
};

/* A model of a pipeline: its folder, which is the first part of its keys, and the file in that by
 * which it is loaded. */
struct catalog_member {
    const char *name, *file;
};

/* A file beside the checkpoint, a dict whose items were added to those of the root. */
struct catalog_companion {
    const struct source *source; /* NULL: there is none */
    uint32_t first, last;        /* its values */
    uint64_t hash;               /* of what they were */
};

/* What the format of a loaded checkpoint alone knows of it. Catalogs that are made of this one
 * borrow it. */
struct catalog_own {
    const struct wfs_catalog *owner;
    struct source *derived;           /* bytes made of those of the sources; owned, NULL: none */
    struct source *assembled;         /* the same, of parts in several sources */
    struct catalog_storage *storages; /* in the arena, by id; all that the graph names */
    uint32_t n_storages;
    struct catalog_hidden *hidden; /* in the arena */
    size_t n_hidden;
    /* Files of the directory, by their names there, that a copy of the checkpoint needs; in the
     * arena, among the sources. */
    const struct source **beside;
    size_t n_beside;
    struct catalog_companion companion;   /* among these */
    const struct catalog_member *members; /* of a pipeline; in the arena */
    size_t n_members;
    const char *description; /* text of the file that names them */
    size_t n_description;
    /* Reads what has a checksum in the parts of `assembled`, and adds what is wrong to the findings
     * of a catalog. NULL: nothing has one. */
    int (*verify)(const struct wfs_catalog *from, struct wfs_catalog *catalog,
                  struct wfs_error *err);
};

/* Which file of several one is. */
struct catalog_part {
    uint32_t number, n; /* from 0; n 0: it is not one of several */
    uint64_t n_tensors; /* of all files */
};

/* What is asked of an output that is made of the catalog. */
struct catalog_output {
    struct catalog_part part;
    bool is_safe;               /* it must not have names that may run code */
    bool is_state;              /* its tensors are the state of an optimizer, and not parameters */
    const char *reader_version; /* of what is to read a record, unless an option names it; NULL: as
                                   the metadata state */
    struct wfs_text *options;   /* that its format declares: names and values */
};

/* What is not in the catalog, but beside it. */
struct catalog_notes {
    struct catalog_part part; /* as the loaded file states */
    const struct catalog_unshown *unshown;
    const struct wfs_note *backups;   /* copies of other files */
    const struct wfs_note *described; /* have dtype and shape of the other */
};

/* The arena owns what belongs to the catalog: of each tensor its key, dims, strides and texts. */
struct wfs_catalog {
    struct arena arena;
    struct wfs_tensor *tensors; /* malloc'ed, may move while the catalog is being filled */
    size_t n_tensors, n_room;
    /* malloc'ed; not NULL: these are the tensors, most of them those of the catalog that this one
     * was made of, and the array above is empty. */
    const struct wfs_tensor **borrowed;
    struct {
        const struct wfs_text *first;
        struct wfs_text **end;
        bool exists; /* there is a metadata map, perhaps an empty one */
    } meta;
    struct {
        struct source **list;
        size_t n, n_room;
        struct wfs_access access; /* of files that are not in the list: indexes, directories */
        struct source **made;     /* owned: made of these, and no files */
        size_t n_made, n_made_room;
    } sources;
    struct {
        struct wfs_finding *list;
        size_t n, n_room;
    } findings;
    const struct wfs_format *format;       /* NULL: none yet */
    const struct wfs_container *container; /* NULL: none yet */
    struct catalog_values values;
    struct {
        struct wfs_catalog **list; /* owned: what the tensors were loaded as, shards */
        size_t n, n_room;
    } parts;
    struct catalog_own *own; /* never NULL */
    struct catalog_output output;
    struct catalog_notes notes;
};

int catalog_new(struct wfs_catalog **out);

/* Reports that memory ran out: -E2BIG where it was the limit of the arena, else -ENOMEM. */
int catalog_fail_memory(const struct wfs_catalog *catalog, struct wfs_error *err);

/* Makes room for n tensors in all. -ENOMEM. */
int catalog_reserve(struct wfs_catalog *catalog, size_t n);

/* Adds a zeroed tensor; NULL when out of memory. Earlier pointers to tensors become invalid. */
struct wfs_tensor *catalog_add(struct wfs_catalog *catalog);

/* Adds a tensor that lives as long as the catalog, in which all are borrowed. -ENOMEM. */
int catalog_borrow(struct wfs_catalog *catalog, const struct wfs_tensor *tensor);

/* Copies borrowed tensors, for those who change them. -ENOMEM. */
int catalog_own_tensors(struct wfs_catalog *catalog);

/* Moves a tensor to a place before its own. */
void catalog_move_tensor(struct wfs_catalog *catalog, size_t from, size_t to);

/* Tensors by their keys: of several with one key the first. A zeroed struct is empty. */
struct catalog_keys {
    struct text_index index;
    uint32_t *tensor_of; /* malloc'ed, by the number of the key */
    size_t n_room;
};

/* Adds the keys of the tensors from number `first` on, which are borrowed. -ENOMEM. */
int catalog_keys_add(struct catalog_keys *keys, const struct wfs_catalog *catalog, size_t first);

/* Returns the number of the tensor that has the key, or TEXT_INDEX_NONE. */
uint32_t catalog_keys_find(const struct catalog_keys *keys, const char *key);
void catalog_keys_done(struct catalog_keys *keys);

/* The source is freed with the catalog, also when this fails with -ENOMEM. */
int catalog_adopt_source(struct wfs_catalog *catalog, struct source *source);

/* The same for one that is made of others. */
int catalog_adopt_made(struct wfs_catalog *catalog, struct source *source);

/* name lives in the arena; place 0: none. -ENOMEM. */
int catalog_add_value(struct wfs_catalog *catalog, const char *name, uint32_t id, uint32_t place);

/* Writes a value of the graph as JSON, as wfs_catalog_value_text. */
int catalog_value_text(const struct wfs_catalog *catalog, uint32_t id, char **out, size_t *ret_n);

/* Indexes the names of values in their order, up to one that occurs twice. -ENOMEM. */
int catalog_index_values(const struct wfs_catalog *catalog, struct text_index *ret);

/* As wfs_catalog_config, with an index of the names: for many keys. */
int catalog_config_by(const struct wfs_catalog *catalog, const struct text_index *names,
                      const char *key, char **out, size_t *ret_n, struct wfs_error *err);

/* Makes room for n places in all, in a catalog that is being loaded. -ENOMEM. */
int catalog_reserve_places(struct wfs_catalog *catalog, uint32_t n);

/* Adds a place to a catalog that is being loaded. Its name becomes the name of the containers
 * around it too, where they have none yet. Returns its number, or 0 when out of memory. */
uint32_t catalog_add_place(struct wfs_catalog *catalog, const struct catalog_place *place);

/* Returns whether the place is in the attributes of an object that has items, too. */
bool catalog_is_attribute(const struct wfs_catalog *catalog, uint32_t place);

/* Returns the place of the tensor that the one at this place is an attribute or a part of; 0:
 * none. */
uint32_t catalog_tensor_around(const struct wfs_catalog *catalog, uint32_t place);

/* Returns the place of the tensor in the graph; 0: it has none. */
static inline uint32_t catalog_place(const struct wfs_catalog *catalog,
                                     const struct wfs_tensor *tensor)
{
    return tensor->place > catalog->values.n_places ? 0 : tensor->place;
}

/* Returns the file of several that the tensor is in or takes the place of; NULL: none. */
const struct source *catalog_home(const struct wfs_catalog *catalog,
                                  const struct wfs_tensor *tensor);

/* Returns a hash of what a tensor is and where its elements lie. */
uint64_t catalog_stamp(const struct wfs_tensor *tensor);

/* Lets `to` borrow the graph of `from`, its places and storages; `to` must be freed first. */
void catalog_copy_graph(struct wfs_catalog *to, const struct wfs_catalog *from);

/* Both texts are copied; the second function takes a value that may have NULs in it. -ENOMEM. */
int catalog_add_meta(struct wfs_catalog *catalog, const char *name,
                     const char *value); /* for tests */
int catalog_add_meta_bytes(struct wfs_catalog *catalog, const char *name, const char *value,
                           size_t n_bytes);

/* Adds a finding behind those that are as bad, or worse. severity: enum wfs_severity, with the
 * flags of the finding. -ENOMEM. */
int catalog_add_finding(struct wfs_catalog *catalog, unsigned severity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns a text in the arena, which leads to none; both are copied. NULL when out of memory. */
struct wfs_text *catalog_text_new(struct wfs_catalog *catalog, const char *name, const char *value,
                                  size_t n_bytes);

/* The text of a tensor with the `param_id` that it has of another checkpoint, as a view says: an
 * output without room for ids has lost nothing of the source then. */
#define CATALOG_LENT_ID "lent_param_id"

/* Puts a text before the tensor's others. -ENOMEM. */
int catalog_add_attr(struct wfs_catalog *catalog, struct wfs_tensor *tensor, const char *name,
                     const char *value);

/* Row-major strides of the shape in the arena, for rules that permute. NULL when out of memory or
 * rank 0. */
uint64_t *catalog_dense_strides(struct wfs_catalog *catalog, const struct wfs_shape *shape);

/*
 * Takes over a catalog as part of another: its sources become the whole's, its memory lives as
 * long. Its tensors stay its own; copies of them may be added to the whole. Freed in any case.
 * -ENOMEM.
 */
int catalog_adopt_part(struct wfs_catalog *catalog, struct wfs_catalog *part);

/* Adds the metadata that the whole has no value for, and the findings. -ENOMEM. */
int catalog_merge_texts(struct wfs_catalog *catalog, const struct wfs_catalog *part);

#endif
