/* SPDX-License-Identifier: MIT */
/*
 * Opcodes of the pickle reader that push text and bytes.
 */
#ifndef WFS_PICKLE_STRINGS_H
#define WFS_PICKLE_STRINGS_H

#include "pickle/pickle_vm.h"

int op_string_line(struct pickle *p);
int op_unicode_line(struct pickle *p);
int op_string(struct pickle *p);
int op_text(struct pickle *p);
int op_bytes(struct pickle *p);
int op_persid(struct pickle *p);

#endif
