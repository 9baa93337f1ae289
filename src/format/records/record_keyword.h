/* SPDX-License-Identifier: MIT */
/*
 * Names of fields that are keywords of Rust. A record has `type` for the field r#type; burn-store
 * and Burnpack call it `r#type`, and so do we.
 */
#ifndef WFS_RECORD_KEYWORD_H
#define WFS_RECORD_KEYWORD_H

#include <stdbool.h>
#include <stddef.h>

#define RECORD_RAW "r#"

/* Returns whether a field can have the name only as a raw identifier. */
bool record_is_keyword(const char *name, size_t n_bytes);

#endif
