/* SPDX-License-Identifier: MIT */
/*
 * What it takes to look at all elements of many tensors. Tensors of a small file can be thousands
 * of views of the same bytes: equal ones are looked at once, and what the others take is known
 * before it is done. For weightfs itself, not installed.
 */
#ifndef WFS_WORKLOAD_H
#define WFS_WORKLOAD_H

#include <weightfs/tensor.h>

/* A tensor that is looked at; `beside` is one of the same shape that it is compared with, or NULL.
 * Without a tensor there is nothing to do. */
struct wfs_work {
    const struct wfs_tensor *tensor, *beside;
    bool reads_shown; /* hashes every element as often as it is shown, and not once */
};

struct wfs_workload;

#pragma GCC visibility push(default)

/* Borrows the tensors, and the list for the call only. -ENOMEM. */
int wfs_workload_new(const struct wfs_work *works, size_t n, struct wfs_workload **out);
void wfs_workload_free(struct wfs_workload *workload);

/*
 * Returns the group of those that give the same result as that work, numbered from 1; 0 for one
 * whose result no other has.
 */
size_t wfs_workload_group(const struct wfs_workload *workload, size_t i);
size_t wfs_workload_n_groups(const struct wfs_workload *workload);

/* Returns how many bytes are shown by all tensors, each group counted once; UINT64_MAX: too many.
 */
uint64_t wfs_workload_n_shown(const struct wfs_workload *workload);

/*
 * Returns 0, or -EFBIG with a sentence when it would take longer than looking at 256 MiB of F32
 * and 16 times the bytes of all files of the tensors.
 */
int wfs_workload_check(const struct wfs_workload *workload, struct wfs_error *err);

#pragma GCC visibility pop

#endif
