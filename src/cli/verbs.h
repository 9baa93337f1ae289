/* SPDX-License-Identifier: MIT */
/*
 * The verbs, one file each. argv[0] is the verb itself; what is returned is the exit code.
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
int verb_plan(int argc, char **argv);
int verb_commit(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_recover(int argc, char **argv);
int verb_umount(int argc, char **argv);

#endif
