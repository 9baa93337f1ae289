/* SPDX-License-Identifier: MIT */
/*
 * Inside of the PyTorch reader: what its parts share. Containers (zip, stream, tar, bare pickle)
 * give a graph of values and know where the bytes of storages lie; builders read calls of the graph
 * as tensors; the walk names what it finds.
 */
#ifndef WFS_TORCH_H
#define WFS_TORCH_H

#include "format/core/format.h"
#include "format/core/names.h"
#include "pickle/pickle.h"
#include "archive/zip.h"

/* What a name in a pickle means to us; everything else stays opaque. */
enum torch_what {
    WHAT_UNKNOWN,
    WHAT_REBUILD_TENSOR, /* the arguments of the others: see torch_build.c */
    WHAT_REBUILD_TENSOR_V2,
    WHAT_REBUILD_TENSOR_V3,
    WHAT_REBUILD_PARAMETER,
    WHAT_REBUILD_PARAMETER_STATE,
    WHAT_REBUILD_QTENSOR,
    WHAT_REBUILD_SPARSE,
    WHAT_REBUILD_NESTED,
    WHAT_REBUILD_NJT,
    WHAT_REBUILD_META,
    WHAT_REBUILD_FROM_ARRAY,
    WHAT_REBUILD_FROM_TENSOR,
    WHAT_REBUILD_WRAPPER,
    WHAT_REBUILD_TYPE,
    WHAT_PARAMETER,
    WHAT_TENSOR_CLASS, /* of old: FloatTensor */
    WHAT_LOAD_FROM_BYTES,
    WHAT_NP_RECONSTRUCT,
    WHAT_NP_FROMBUFFER,
    WHAT_LAST_TENSOR = WHAT_NP_FROMBUFFER,
    WHAT_STORAGE, /* a class, with the dtype of its elements */
    WHAT_UNTYPED_STORAGE,
    WHAT_DTYPE,
    WHAT_SIZE,
    WHAT_LAYOUT,
    WHAT_ORDERED_DICT,
    WHAT_ENCODE, /* text to bytes */
    WHAT_BYTES,
    WHAT_BYTEARRAY,
    WHAT_SEQUENCE, /* list, tuple, set of one argument; also TorchScript's typed lists */
    WHAT_NP_DTYPE,
    WHAT_NP_DTYPE_CLASS,
    WHAT_QSCHEME,
};

struct torch_global {
    const char *module, *name;
    uint8_t n_module, n_name;
    uint8_t what;  /* enum torch_what */
    uint8_t dtype; /* enum wfs_dtype, where what has one */
};

/* The bytes that tensors are views of. */
struct torch_storage {
    const struct source *source;
    uint64_t offset, n_bytes;
    enum wfs_dtype dtype; /* of its class; U8 when it has none */
    bool is_big_endian;
    bool is_absent; /* there are no bytes, on purpose */
    bool has_crc;   /* crc is that of just these bytes */
    uint32_t crc;
    const char *trouble; /* why it cannot be used; NULL: it can */
};

/* ('storage', class, key, location, number of elements[, view]), taken apart. */
struct torch_storage_id {
    const char *key; /* as text */
    size_t n_key;
    char number[24]; /* where key is when it was an integer */
    const struct torch_global *class;
    uint32_t n_items;                 /* of the tuple */
    bool is_meta;                     /* says itself that it has no bytes */
    uint64_t n_bytes;                 /* as declared */
    uint64_t view_offset, view_bytes; /* in the storage; view_bytes UINT64_MAX: all of it */
};

/* A tensor as a call describes it. */
struct torch_tensor {
    struct torch_storage storage;
    enum wfs_dtype dtype;
    bool is_conjugate, is_negative;
    uint64_t offset; /* elements */
    uint32_t rank;
    uint64_t *dims, *strides; /* in the scratch, until the next one; strides NULL: dense */
    bool is_fortran;          /* numpy: column-major, strides to be made */
    uint32_t item_bytes;      /* numpy, of an opaque element; 0: as dtype */
    const char *trouble;      /* NULL: none */
    const char *attr_name, *attr_value; /* a text to show with it; NULL: none */
    uint32_t state;                     /* attributes that hang on it: value; 0: none */
};

/* What was made of values once: bytes that were decoded, storages in streams of their own. */
struct torch_made {
    struct map map; /* of the entries */
    struct torch_made_entry *entries;
    uint32_t n_entries, n_room;
};

struct torch {
    struct wfs_catalog *catalog;
    struct graph *graph; /* the catalog's */
    const struct limits *limits;
    struct wfs_error *err;
    struct source *source;
    struct pickle_budget budget;
    unsigned notes;  /* enum pickle_note of all pickles */
    bool has_failed; /* a text had no memory */
    bool is_forced;
    bool is_big_endian;
    unsigned depth; /* of streams within streams */
    /* Finds the bytes of a storage; sets trouble when they are not there. Negative only for what
     * stops the loading. */
    int (*find)(struct torch *torch, const struct torch_storage_id *id, struct torch_storage *ret);
    const void *container;
    /* A persistent value that is a tensor by itself; NULL where there are none. As torch_build. */
    bool (*is_tensor)(const struct torch *torch, uint32_t id);
    int (*find_tensor)(struct torch *torch, uint32_t id, struct torch_tensor *ret);
    struct torch_made made;
    uint64_t *scratch; /* dims and strides of the tensor at hand */
    uint32_t n_scratch;
    struct names names, value_names; /* in use */
    uint64_t n_names;                /* bytes of them so far */
    uint64_t n_long, n_mixed;        /* storages longer than declared, or used as two types */
};

/* ---- torch_global.c ---- */

/* Of a global, or of the class that a persistent id of old stands for; NULL when it means nothing
 * to us. */
const struct torch_global *torch_global_of(const struct graph *graph, uint32_t id);

/* What a call calls. */
enum torch_what torch_what_of(const struct graph *graph, const struct value *value);

/* Names what the file would have run, if that can do harm. -ENOMEM. */
int torch_warn(struct torch *torch);

/* ---- torch_args.c ---- */

/* The i-th of a tuple or list; 0 when it is none or has less. */
uint32_t torch_arg(const struct graph *graph, uint32_t args, uint32_t i);
uint32_t torch_n_args(const struct graph *graph, uint32_t args);
bool torch_integer(const struct graph *graph, uint32_t id, int64_t *ret);

/* Bytes, or what stands for them in old protocols: a range of a source. 1: found; 0: it is none;
 * -ENOMEM. */
int torch_bytes(struct torch *torch, uint32_t id, struct value_bytes *ret);

/* The source for what is made of others. */
int torch_derived(struct torch *torch, struct source **ret);

/* A text in the catalog's arena; never NULL, but static when memory is out. */
const char *torch_print(struct torch *torch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- torch_storage.c ---- */

/* The storage that a value is. 1: it is one, perhaps with a trouble; 0: it is none; negative:
 * error. */
int torch_storage(struct torch *torch, uint32_t id, struct torch_storage *ret);

/* Is this persistent value a storage, well described or not? */
bool torch_is_storage(const struct graph *graph, uint32_t id);

/*
 * Takes apart the id of a persistent value. False, and *ret_trouble says why (in the arena of the
 * catalog), when it does not describe a storage that can be read.
 */
bool torch_storage_id(struct torch *torch, uint32_t id, struct torch_storage_id *ret,
                      const char **ret_trouble);

/* Notes where the bytes of all storages are, for whoever writes the graph again. -EIO, -ENOMEM. */
int torch_keep_storages(struct torch *torch);

/* Compares the declared size with what is there, and cuts the view out of the whole. */
void torch_fit(struct torch *torch, const struct torch_storage_id *id, struct torch_storage *ret);

/* ---- torch_build.c, torch_geometry.c, torch_numpy.c ---- */

/* The tensor that a value is. As torch_storage. */
int torch_build(struct torch *torch, uint32_t id, struct torch_tensor *ret);

/*
 * Reads shape and strides (0: row-major). -ENOMEM; whatever is wrong with them becomes the tensor's
 * trouble.
 */
int torch_set_shape(struct torch *torch, struct torch_tensor *tensor, uint32_t size,
                    uint32_t stride);

/* The trouble of a tensor that has a shape but no bytes, on purpose. */
extern const char torch_absent[];

/* Room for the dims and strides of a tensor of that rank, and one more dimension. -ENOMEM. */
int torch_reserve(struct torch *torch, struct torch_tensor *tensor, uint32_t rank);

/* Sets the first trouble; later ones do not count. */
void torch_trouble(struct torch_tensor *tensor, const char *trouble);

/* Checks that the tensor lies inside its storage, and adds it to the catalog. key must live in the
 * arena. -E2BIG, -ENOMEM. */
int torch_add(struct torch *torch, const char *key, uint32_t place, struct torch_tensor *tensor);

/* A numpy array, from the call that makes it. As torch_build; 0: one of objects. */
int torch_build_array(struct torch *torch, uint32_t id, struct torch_tensor *ret);
bool torch_is_array(const struct graph *graph, const struct value *call);

/* ---- torch_mark.c, torch_parts.c, torch_walk.c ---- */

/*
 * Gives MARK_TENSOR to every value below root that a tensor is in, and takes keys that stand twice
 * out of dicts. -ENOMEM.
 */
int torch_mark(struct torch *torch, uint32_t root);

/*
 * The i-th part of a tensor that is made of several: its value, and its name. 0: no more. A
 * quantized tensor is one by itself, its parts come on top.
 */
uint32_t torch_part(const struct graph *graph, const struct value *call, uint32_t i,
                    const char **ret_name);

/* Is it only its parts, no tensor by itself? */
bool torch_is_composite(const struct graph *graph, const struct value *call);

/* A text about the whole for each of its parts: name, and JSON in the arena; NULL when there is
 * none. */
const char *torch_part_text(struct torch *torch, const struct value *call, const char **ret_name);

/* Lists tensors and values below a root, with a prefix for their names (may be empty). */
int torch_walk(struct torch *torch, uint32_t root, const char *prefix);

/* ---- containers ---- */

/* The zip that is n_bytes from start. depth: of zips in zips. */
int torch_load_zip(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);
int torch_load_stream(struct torch *torch);
int torch_load_tar(struct torch *torch);

/* What torch.export.save wrote; root is the path of its folder, with the slash. */
int torch_load_export(struct torch *torch, struct zip *zip, const char *root, size_t n_root,
                      unsigned depth);

/* The bytes of an entry of a zip, inflated as they are read where that is needed. As zip_locate. */
int torch_open_entry(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                     struct value_bytes *ret, struct wfs_error *err);

/* Loads the pickle in a range; *offset moves behind it. */
int torch_pickle(struct torch *torch, const struct source *source, uint64_t *offset, uint64_t end,
                 uint32_t *ret_root);

#endif
