/* SPDX-License-Identifier: Apache-2.0 */
/* Everything of libfolio in one include. */
#ifndef FOLIO_FOLIO_H
#define FOLIO_FOLIO_H

#include <folio/types.h>
#include <folio/client.h>
#include <folio/object.h>
#include <folio/batch.h>
#include <folio/watch.h>
#include <folio/admin.h>

#endif
