/* SPDX-License-Identifier: MIT */
/*
 * The mount half of the program: all that the command line needs of it.
 */
#ifndef WFS_MOUNT_H
#define WFS_MOUNT_H

/* `weightfs SOURCE MOUNTPOINT [-f] [-d] [-s] [-o OPTION,...]`; argv[0] is the program. The exit
 * code. */
int mount_main(int argc, char **argv);

/* Version of libfuse at run time; NULL in a build without it. */
const char *mount_library_version(void);

#endif
