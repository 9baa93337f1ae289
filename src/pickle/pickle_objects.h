/* SPDX-License-Identifier: MIT */
/*
 * Opcodes of the pickle reader that make containers, names, calls and persistent objects.
 */
#ifndef WFS_PICKLE_OBJECTS_H
#define WFS_PICKLE_OBJECTS_H

#include "pickle/pickle_vm.h"

int op_constant(struct pickle *p);
int op_empty(struct pickle *p);
int op_tuple(struct pickle *p);
int op_short_tuple(struct pickle *p);
int op_collect(struct pickle *p);
int op_append(struct pickle *p);
int op_setitem(struct pickle *p);
int op_global(struct pickle *p);
int op_stack_global(struct pickle *p);
int op_inst(struct pickle *p);
int op_obj(struct pickle *p);
int op_call(struct pickle *p);
int op_newobj_ex(struct pickle *p);
int op_build(struct pickle *p);
int op_extension(struct pickle *p);
int op_binpersid(struct pickle *p);

#endif
