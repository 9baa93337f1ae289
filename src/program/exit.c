/* SPDX-License-Identifier: MIT */
/*
 * Exit codes from the errnos that the library reports.
 */
#include "program/exit.h"

#include <errno.h>
#include <stddef.h>

static const struct {
    int code;
    enum exit_code exit_code;
} exits[] = {
    {EINVAL, EXIT_USAGE},
    {EMEDIUMTYPE, EXIT_FOREIGN},
    {EBADMSG, EXIT_DAMAGED},
    {EIO, EXIT_DAMAGED},
    {EOPNOTSUPP, EXIT_UNSUPPORTED},
    {E2BIG, EXIT_UNSUPPORTED},
    {ENOMEM, EXIT_UNSUPPORTED},
    /* Reads of network filesystems and of disks keep their errno. */
    {ESTALE, EXIT_DAMAGED},
    {ETIMEDOUT, EXIT_DAMAGED},
    {EREMOTEIO, EXIT_DAMAGED},
};

enum exit_code exit_of_errno(int code)
{
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); i++) {
        if (exits[i].code == code)
            return exits[i].exit_code;
    }
    return EXIT_SOURCE;
}
