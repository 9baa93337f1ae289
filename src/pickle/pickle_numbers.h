/* SPDX-License-Identifier: MIT */
/*
 * Opcodes of the pickle reader that push numbers.
 */
#ifndef WFS_PICKLE_NUMBERS_H
#define WFS_PICKLE_NUMBERS_H

#include "pickle/pickle_vm.h"

int op_int_line(struct pickle *p);
int op_long_line(struct pickle *p);
int op_float_line(struct pickle *p);
int op_fixed_int(struct pickle *p);
int op_float(struct pickle *p);
int op_long(struct pickle *p);

#endif
