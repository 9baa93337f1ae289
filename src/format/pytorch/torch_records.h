/* SPDX-License-Identifier: MIT */
/*
 * The records of a PyTorch zip: entries below a root folder, found by name, and their bytes; and
 * the search for storages, and parts of them, that no listed tensor shows.
 */
#ifndef WFS_TORCH_RECORDS_H
#define WFS_TORCH_RECORDS_H

#include "archive/zip.h"
#include "format/pytorch/object/torch.h"

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

#endif
