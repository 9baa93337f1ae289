/* SPDX-License-Identifier: MIT */
/*
 * Versions of Burn that have recorders.
 */
#ifndef WFS_RECORD_VERSION_H
#define WFS_RECORD_VERSION_H

/* What it writes is read by Burn 0.14 to 0.21, bools and constants of 0.21 aside. */
#define RECORD_VERSION_DEFAULT "0.20.1"

/* Returns the 20 of 0.20 or 0.20.1; 0 for anything but a version from 0.8 to 0.21. */
unsigned record_version_minor(const char *text);

#endif
