/* SPDX-License-Identifier: MIT */
/*
 * The severity of each kind of finding.
 */
#ifndef WFS_TENSOR_FINDING_H
#define WFS_TENSOR_FINDING_H

#include <weightfs/finding.h>

enum wfs_severity finding_severity(enum wfs_finding_kind kind);

#endif
