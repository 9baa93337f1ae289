/* SPDX-License-Identifier: MIT */
/*
 * What the view did, as files of the control directory.
 */
#ifndef WFS_VIEWING_H
#define WFS_VIEWING_H

#include <weightfs/tree.h>
#include <weightfs/view.h>

enum { VIEWING_N_TEXTS = 3 };

/* Fills in report.txt, report.json and plan.tsv, which are made when somebody reads them. */
void viewing_texts(const struct wfs_report *report, struct wfs_tree_text texts[VIEWING_N_TEXTS]);

#endif
