/* SPDX-License-Identifier: MIT */
/*
 * The forms of a report.
 */
#ifndef WFS_WRITE_H
#define WFS_WRITE_H

#include <stdio.h>

#include "view/report.h"

void write_report_text(const struct wfs_report *report, FILE *out);
void write_report_json(const struct wfs_report *report, FILE *out);
void write_report_plan(const struct wfs_report *report, FILE *out);

/* Control characters and DEL as \xHH, a backslash as two. */
void write_escaped(const char *text, FILE *out);

/* In quotes; bytes that are no UTF-8 are written \xHH. */
void write_json_text(const char *text, FILE *out);

/* What was decided about the item, in words. */
const char *write_certainty(const struct item *item);

#endif
