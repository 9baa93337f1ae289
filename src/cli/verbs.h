/* SPDX-License-Identifier: MIT */
/*
 * The command line: a file for each verb (those for a running mount share one), which parses its
 * options, calls the library and prints. This room knows how results are shown. Exit codes,
 * commits, escapes and unmounting are left to src/program, everything about serving a mount to
 * src/fuse.
 *
 * In all of these, argv[0] is the verb itself, and the exit code is returned.
 */
#ifndef WFS_VERBS_H
#define WFS_VERBS_H

int verb_ls(int argc, char **argv);
int verb_info(int argc, char **argv);
int verb_cat(int argc, char **argv);
int verb_show(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_config(int argc, char **argv);
int verb_convert(int argc, char **argv);
int verb_diff(int argc, char **argv);
int verb_edit(int argc, char **argv);
int verb_find(int argc, char **argv);
int verb_extract(int argc, char **argv);
int verb_cache(int argc, char **argv);
int verb_patch(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_commit(int argc, char **argv);
int verb_discard(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_recover(int argc, char **argv);
int verb_sum(int argc, char **argv);
int verb_umount(int argc, char **argv);

#endif
