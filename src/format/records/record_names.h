/* SPDX-License-Identifier: MIT */
/*
 * What Burn calls things: ids of parameters, which are texts in a record and numbers of 64 bits in
 * a Burnpack; fields that are keywords of Rust; versions that have recorders; dtypes, by name, by
 * number, and by the names of Rust in the metadata.
 */
#ifndef WFS_RECORD_NAMES_H
#define WFS_RECORD_NAMES_H

#include "catalog/catalog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_id_kind {
    RECORD_ID_DIGITS, /* 13 of them, or fewer: the number that Burn reads from them */
    RECORD_ID_UUID,   /* of Burn up to 0.13: the number is a hash of ours */
    RECORD_ID_OTHER,  /* Burn from 0.15 on stops at it; the number is a hash of ours */
};

enum { RECORD_ID_N = 13 }; /* digits of a new id */

enum record_id_kind record_id_parse(const char *text, size_t n_bytes, uint64_t *ret);

/* Writes the digits and a NUL. */
void record_id_print(uint64_t id, char ret[RECORD_ID_N + 1]);

/* A record has `type` for the field r#type; burn-store and Burnpack call it `r#type`, and so do we.
 */
#define RECORD_RAW "r#"

/* Returns whether a field can have the name only as a raw identifier. */
bool record_is_keyword(const char *name, size_t n_bytes);

/* What it writes is read by Burn 0.14 to 0.21, bools and constants of 0.21 aside. */
#define RECORD_VERSION_DEFAULT "0.20.1"

/* Returns the 20 of 0.20 or 0.20.1; 0 for anything but a version from 0.8 to 0.21. */
unsigned record_version_minor(const char *text);

/* The option that names the version, and the check of its value. */
#define RECORD_VERSION_OPTION "burn_version"
int record_version_check(const char *text, struct wfs_error *err);

/* Finds a dtype that has a name alone. */
bool record_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret);

/* Returns Burn's name of a dtype, NULL: it has none. Bools have a form of their own since 0.21. */
const char *record_dtype_name(enum wfs_dtype dtype);

/* Returns the dtype that Rust's name stands for, such as "half::binary16::f16"; WFS_OPAQUE: none.
 */
enum wfs_dtype record_dtype_of_rust(const char *name, size_t n_bytes);

/* Finds the dtype that had the number in Burn 0.minor; 0: in the newest. */
bool record_dtype_of_number(int64_t number, unsigned minor, enum wfs_dtype *ret);

#endif
