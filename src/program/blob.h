/* SPDX-License-Identifier: MIT */
#ifndef WFS_BLOB_H
#define WFS_BLOB_H

/* Compares a file of the cache of Hugging Face with the SHA-256 that is its name. 1: its content is
 * another; 0: it is not, or the file is not such a one. -errno where it cannot be read; -ENOMEM. */
int blob_check(const char *path);

#endif
