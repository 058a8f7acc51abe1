/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that nobody can change, for who has asked for them (FOLIO_GET_SEALED): what no seal and no file mode protects is
 * copied to memory of this process alone, read-only, and the handle shows the copy instead.
 */
#ifndef CLIENT_SEALED_H
#define CLIENT_SEALED_H

#include "client/object.h"

/* Of one that is held, and its caller's alone. Blocking where it must be mapped for that. 0 or an error with the thread's sentence. */
int sealed_make(Object *object);

#endif
