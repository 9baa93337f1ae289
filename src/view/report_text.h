/* SPDX-License-Identifier: MIT */
/*
 * The report as text for people.
 */
#ifndef WFS_REPORT_TEXT_H
#define WFS_REPORT_TEXT_H

#include <stdio.h>

#include "view/report.h"

void report_put_text(const struct wfs_report *report, FILE *out);

/* Writes a text with the escapes of WFS_ESCAPE_NAME. */
void report_put_escaped(const char *text, FILE *out);

#endif
