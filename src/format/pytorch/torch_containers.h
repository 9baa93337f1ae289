/* SPDX-License-Identifier: MIT */
/*
 * The containers that PyTorch writes. Loading one fails with -EBADMSG, -EOPNOTSUPP, -EMEDIUMTYPE
 * for what is not from PyTorch, -E2BIG, -EIO, -ENOMEM.
 */
#ifndef WFS_TORCH_CONTAINERS_H
#define WFS_TORCH_CONTAINERS_H

#include "archive/zip.h"
#include "format/pytorch/object/torch.h"

/*
 * The records of a PyTorch zip: entries below a root folder, found by name, and their bytes; and
 * the search for storages, and parts of them, that no listed tensor shows.
 */

enum { TORCH_RECORD_NAME_MAX = 4096 };

struct torch_records {
    struct zip *zip;
    const char *root; /* with the slash; not ended by NUL; may be empty */
    size_t n_root;
    const char *const *folders; /* where storages are, in the order of search; ended by NULL */
    const char *suffix;         /* of their names */
};

bool torch_records_has_suffix(const struct zip_entry *entry, const char *suffix);

/* Returns whether the entry lies below the root, in this folder (may be empty). */
bool torch_records_is_in(const struct torch_records *records, const struct zip_entry *entry,
                         const char *folder);

/* Finds the entry with that name in a folder, the nearest to the top, not counting what is in a
 * folder .data. NULL: there is none. */
struct zip_entry *torch_records_search(const struct zip *zip, const char *name);

/* Makes the folder of an entry, which has this name, the root. */
void torch_records_set_root(struct torch_records *records, const struct zip_entry *entry,
                            const char *name);

/* Finds a record by its name below the root. NULL: there is none. */
struct zip_entry *torch_records_find(const struct torch_records *records, const char *name);

/* For struct torch, whose container is the records: finds a storage in the folders. */
int torch_records_find_storage(struct torch *torch, const struct torch_storage_id *id,
                               struct torch_storage *ret);

/* Finds the bytes of an entry, which are inflated as they are read if necessary. As zip_locate. */
int torch_records_open(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       struct value_bytes *ret, struct wfs_error *err);

/* Reads the first 31 bytes of a record as text, empty when there is no such record. */
int torch_records_read_text(struct torch *torch, const struct torch_records *records,
                            const char *name, char text[32], bool *ret_exists);

/* Reads the byte order of all storages. -EOPNOTSUPP for an unknown one. */
int torch_records_read_byteorder(struct torch *torch, const struct torch_records *records);

/* Adds findings about entries outside of the root, and about records without a folder. -ENOMEM. */
int torch_records_report_strays(struct torch *torch, const struct torch_records *records);

/* Reads a record as a pickle, after its checksum, and lets the storages of the pickle be found
 * among the records. As torch_read_pickle. */
int torch_records_read_pickle(struct torch *torch, const struct torch_records *records,
                              struct zip_entry *entry, uint32_t *ret_root);

/* Searches the storages that the pickle names for bytes that no listed tensor shows. -ENOMEM. */
int torch_hidden_find(struct torch *torch);

/* Searches all records in the folders of storages, whether a pickle names them or not. -ENOMEM, and
 * errors that are not about one record. */
int torch_hidden_find_records(struct torch *torch, const struct torch_records *records);

/* Loads the tar archive that PyTorch wrote before 0.1.10. */
int torch_tar_load(struct torch *torch);

/* Loads the zip of n_bytes at start: a checkpoint, TorchScript, a package, an exported program.
 * depth: how many zips it is in. */
int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth);

/*
 * Reads the pickle of a checkpoint in a range of the source, without listing what is in it: the zip
 * fills the range, and its records are stored. zip and records are used while storages are looked
 * up; zip_close is needed in any case.
 */
int torch_zip_read(struct torch *torch, uint64_t start, uint64_t n_bytes, struct zip *zip,
                   struct torch_records *records, uint32_t *ret_root);

/* For struct wfs_format: reads every record of a zip once, in bounded pieces, and adds a finding
 * for each that does not match its checksum. -EBADMSG, -EIO, -ENOMEM. */
int torch_zip_verify(const struct source *source, struct wfs_catalog *catalog,
                     struct wfs_error *err);

/* Reads a list of weights of an exported program in an entry of a zip, and adds its weights, whose
 * records are in the same folder, to the catalog. role: what they are, if state_dict() does not
 * return them; else NULL. */
int torch_weights_load(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       const char *role);

/* Loads a torch.package: any number of pickles, the TorchScript modules that they refer to, and
 * source code. Lists every pickle; with its path in the keys, if there are several. */
int torch_package_load(struct torch *torch, struct torch_records *records);

/* Returns whether the zip is a package, and makes its folder the root. pickle is the data.pkl that
 * would make it a checkpoint; NULL: there is none. */
bool torch_package_is(struct torch_records *records, const struct zip_entry *pickle);

#endif
