/* SPDX-License-Identifier: Apache-2.0 */
/* See put-now.h. A small object is copied with the locks held, which is less than taking them twice; a large one before. */
#include "client/put-now.h"

#include "client/lib/copy.h"

#define PUT_SMALL_BYTES_MAX (4 * KIB)

typedef struct PutNow {
        Direct direct;
        const void *data;
        const ProtoItem *item;
        bool is_visible;
} PutNow;

static int put_finish(const PutNow *put, uint64_t sequence)
{
        RingResult result;
        int r;

        if (LIKELY(!put->is_visible))
                return 0;
        r = pipe_result(put->direct.client, put->direct.ring, sequence, put->direct.name, &result);
        pipe_note_result(put->direct.client, r);
        return r;
}

/* --- in a lease ------------------------------------------------------------------------------------------------------------------- */

/* With the lock of the leases, which is given up. */
static int put_publish(const PutNow *put, Placed *placed, uint64_t *ret_sequence)
{
        const Direct *direct = &put->direct;
        RingRecord *record;
        int r = pipe_begin(direct->client, direct->ring, &record, ret_sequence);

        if (UNLIKELY(r < 0)) {
                leases_give(placed);
                return r;
        }
        if (placed->is_locked)
                copy_bytes(placed->data, put->data, (size_t)placed->n_bytes);
        direct_fill_new(direct, RING_VERB_PUT, put->item, record);
        record->region_id = lease_region_id(placed->lease);
        record->offset_bytes = placed->offset_bytes;
        leases_placed(placed, *ret_sequence);
        ring_submit(direct->ring, direct->hash, put->is_visible);
        leases_published(placed);
        return 0;
}

static int put_leased(const PutNow *put, Leases *leases)
{
        const Direct *direct = &put->direct;
        uint64_t n_bytes = put->item->size_bytes, sequence;
        Placed placed;
        int r;

        if (!leases_place(direct->client, direct->ring, leases, direct->space, n_bytes, n_bytes <= PUT_SMALL_BYTES_MAX,
                          &placed))
                return DIRECT_NOT;
        if (!placed.is_locked) {
                copy_bytes(placed.data, put->data, (size_t)n_bytes);
                leases_lock(leases);
        }
        r = put_publish(put, &placed, &sequence);
        return r < 0 ? r : put_finish(put, sequence);
}

/* --- by staging memory -------------------------------------------------------------------------------------------------------------- */

static int put_staged(const PutNow *put)
{
        const Direct *direct = &put->direct;
        size_t n_bytes = (size_t)put->item->size_bytes;
        void *staged = NULL;
        RingRecord *record;
        uint64_t sequence;
        int r;

        if (put->item->size_bytes > direct->client->packed_bytes_max)
                return DIRECT_NOT;
        if (n_bytes > 0) {
                staged = pipe_take_staged(direct->client, direct->ring, n_bytes);
                if (!staged)
                        return DIRECT_NOT;
                copy_bytes(staged, put->data, n_bytes);
        }
        r = pipe_begin(direct->client, direct->ring, &record, &sequence);
        if (UNLIKELY(r < 0)) {
                if (staged)
                        staging_give(direct->client->staging, staged);
                return r;
        }
        direct_fill_new(direct, RING_VERB_PUT, put->item, record);
        if (staged)
                record->offset_bytes = staging_offset(direct->client->staging, staged);
        pipe_keep_staged(direct->client, sequence, staged);
        ring_submit(direct->ring, direct->hash, put->is_visible);
        return put_finish(put, sequence);
}

int put_now(Client *client, const char *name, const void *data, const ProtoItem *item, bool is_visible)
{
        PutNow put = {
                .data = data,
                .item = item,
                .is_visible = is_visible || item->size_bytes >= DIRECT_WAIT_BYTES || pipe_is_careful(client),
        };
        Leases *leases;
        int r;

        if (item->flags & ~FOLIO_REPLACE || item->metadata.n_bytes > 0 || item->content_type.n_bytes > 0)
                return DIRECT_NOT;
        if (UNLIKELY(!direct_begin(&put.direct, client, name)))
                return DIRECT_NOT;
        leases = leases_of(put.direct.entry);
        if (item->size_bytes > (leases ? LEASE_REGION_BYTES_MAX : client->packed_bytes_max))
                return DIRECT_NOT;
        r = direct_check_free(&put.direct, item->flags);
        if (UNLIKELY(r != 0))
                return r;
        if (UNLIKELY(!direct_want(&put.direct)))
                return DIRECT_NOT;
        if (leases) {
                r = put_leased(&put, leases);
                if (LIKELY(r != DIRECT_NOT))
                        return r;
                leases_count_other(leases, item->size_bytes);
        }
        return put_staged(&put);
}
