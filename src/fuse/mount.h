/* SPDX-License-Identifier: MIT */
/*
 * The mount half of the program, as the command line sees it. This room knows processes, the kernel
 * and libfuse; what files hold, how a view changes it and how edits are kept is left to the
 * library, and what verbs share with it to the room `program`.
 */
#ifndef WFS_MOUNT_H
#define WFS_MOUNT_H

/* Runs `weightfs SOURCE MOUNTPOINT [-f] [-d] [-s] [-o OPTION,...]`; argv[0] is the program. Returns
 * the exit code. */
int mount_main(int argc, char **argv);

/* Returns the version of libfuse at run time; NULL in a build without it. */
const char *mount_library_version(void);

#endif
