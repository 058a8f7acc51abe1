/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records behind the head stand where they stood until the client writes others over them; those are looked at for
 * creations that failed, which the client may be about to find out by a seal. Each is copied before it is looked at.
 */
#include "daemon/server/ring-resume.h"

#include "base/macro.h"
#include "proto/seqlock.h"
#include "proto/status.h"

static bool has_result(const RingResult *results, uint64_t n)
{
        const RingResult *result = &results[n % RING_RECORDS];

        return atomic_load_explicit((_Atomic uint32_t *)&result->sequence, memory_order_acquire) == (uint32_t)(n + 1);
}

static void write_result(RingResult *results, uint64_t n, uint32_t slot, uint64_t generation)
{
        RingResult *result = &results[n % RING_RECORDS];

        if (has_result(results, n))
                return;
        result->status = STATUS_OK;
        result->slot = slot;
        result->generation = generation;
        atomic_store_explicit(&result->sequence, (uint32_t)(n + 1), memory_order_release);
}

static RingRecord copy_record(const RingRecord *records, uint64_t n)
{
        RingRecord record;

        seqlock_copy_out(&record, &records[n % RING_RECORDS], sizeof(record) / 8);
        return record;
}

static void take_objects(const SessionRing *from, RingMade *made)
{
        for (uint32_t i = 0; from->made && i < RING_MADE_MAX; i++)
                if (from->made[i].is_there)
                        made[i] = (RingMade){
                                .state = RING_MADE_OBJECT,
                                .namespace_id = from->made[i].namespace_id,
                                .slot = from->made[i].slot,
                                .generation = from->made[i].generation,
                                .region_id = from->made[i].region_id,
                        };
}

/* Record @n is done: did the creation of an object that is not there fail? */
static void note_failure(const RingRecord *records, const RingResult *results, uint64_t n, RingMade *made)
{
        RingRecord record = copy_record(records, n);
        Status status;

        if (record.slot >= RING_MADE_MAX || made[record.slot].state == RING_MADE_OBJECT)
                return;
        made += record.slot;
        if (record.verb == RING_VERB_CREATE) {
                status = has_result(results, n) ? (Status)results[n % RING_RECORDS].status : STATUS_OK;
                *made = (RingMade){ 0 };
                if (status > STATUS_OK && status < _STATUS_MAX)
                        *made = (RingMade){ .state = RING_MADE_FAILED, .status = status };
        } else if (record.verb == RING_VERB_ABORT) {
                *made = (RingMade){ 0 };
        }
}

/* The one in doubt, of which neither result nor event tells. */
static bool is_done(const RingRecord *record, const RingMade *made)
{
        if (record->slot >= RING_MADE_MAX)
                return false;
        made += record->slot;
        if (record->verb == RING_VERB_CREATE)
                return made->state == RING_MADE_OBJECT && made->namespace_id == record->namespace_id &&
                       made->region_id == record->region_id;
        return record->verb == RING_VERB_ABORT && made->state == RING_MADE_NONE;
}

uint64_t ring_resume(const SessionRing *from, const RingRecord *records, RingResult *results, RingMade *made)
{
        uint64_t head = from->head, first = from->tail > RING_RECORDS ? from->tail - RING_RECORDS : 0;

        take_objects(from, made);
        for (uint64_t n = from->head; n != from->tail; n++)
                if (has_result(results, n))
                        head = n + 1;
        if (from->n_done > head && from->n_done <= from->tail) {
                head = from->n_done;
                write_result(results, head - 1, from->done_slot, from->done_generation);
        }
        for (uint64_t n = MIN(first, head); n != head; n++)
                note_failure(records, results, n, made);
        if (head != from->tail) {
                RingRecord record = copy_record(records, head);

                if (is_done(&record, made)) {
                        made += record.slot;
                        write_result(results, head, made->slot, made->generation);
                        head++;
                }
        }
        return head;
}
