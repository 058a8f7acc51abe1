/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a ring goes on that an earlier foliod was carrying out when it ended: each record that changes something is
 * carried out once. That one counted each record when it was done with it, so at most the next one is in doubt: what
 * came of that shows by a result, by an event, or by the object that it created or aborted.
 *
 * The client can have written anything anywhere; whatever is made of it harms itself alone.
 */
#ifndef DAEMON_SERVER_RING_RESUME_H
#define DAEMON_SERVER_RING_RESUME_H

#include <stdint.h>

#include "daemon/server/ring-record.h"
#include "daemon/store/session.h"
#include "proto/ring.h"

/*
 * @from: what the store found. @made has RING_MADE_MAX, all zeros. Writes the result of a record that was carried out
 * where it has none yet. Returns how many records are done: from->head or more, and not beyond from->tail.
 */
uint64_t ring_resume(const SessionRing *from, const RingRecord *records, RingResult *results, RingMade *made);

#endif
