/* SPDX-License-Identifier: Apache-2.0 */
/* An index on a real memfd, objects to put into it, and a reader of it: what the tests of the index share. */
#ifndef TESTS_UNIT_INDEX_FIXTURE_H
#define TESTS_UNIT_INDEX_FIXTURE_H

#include "harness.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/lookup.h"
#include "daemon/store/index.h"
#include "daemon/store/pins.h"

typedef struct Fixture {
        Backend *backend;
        Index *index;
        Pins *pins;
        Space *space;
        uint64_t generation;
} Fixture;

static inline void fixture_init(Fixture *f, uint32_t n_slots_max, uint32_t n_events)
{
        const char *failed = NULL;
        ProtoNamespace ns = { .name = "test", .id = 7 };

        memset(f, 0, sizeof(*f));
        assert_int_equal(backend_memfd_new(FOLIO_HUGE_NEVER, &f->backend, &failed), 0);
        IndexConfig config = {
                .backend = f->backend,
                .name = "test",
                .namespace_id = 7,
                .instance = 99,
                .generation = 1,
                .hash_seed = 12345,
                .n_slots_max = n_slots_max,
                .n_events = n_events,
        };
        assert_int_equal(index_new(&config, &f->index), 0);
        assert_int_equal(pins_new(f->backend, n_slots_max, &f->pins), 0);
        assert_int_equal(space_new(&ns, 1, fcntl(index_region(f->index)->fd_read_only, F_DUPFD_CLOEXEC, 3),
                                   fcntl(pins_fd(f->pins), F_DUPFD_CLOEXEC, 3), &f->space), 0);
}

static inline void fixture_deinit(Fixture *f)
{
        space_unref(f->space);
        pins_free(f->pins);
        index_free(f->index);
        backend_free(f->backend);
}

/* A key for each number, of 1 to 255 bytes: its digits, and dots. */
static inline Key fixture_key(uint32_t id, char buffer[FOLIO_KEY_BYTES_MAX + 1])
{
        size_t n = (size_t)snprintf(buffer, FOLIO_KEY_BYTES_MAX + 1, "%x", id);
        size_t n_wanted = 1 + id * 2654435761u % FOLIO_KEY_BYTES_MAX;

        if (n_wanted > n) {
                memset(buffer + n, '.', n_wanted - n);
                n = n_wanted;
        }
        return (Key){ buffer, n };
}

/* Mostly none, some, rarely the most there can be; bytes that tell which object they belong to. */
static inline Key fixture_metadata(uint64_t generation, char buffer[FOLIO_METADATA_BYTES_MAX])
{
        size_t n = generation % 10 ? 0 : generation % 100 ? generation % 190 : 4000 + generation / 100 % 97;

        memset(buffer, (int)(generation * 7 & 0x7f), n);
        return (Key){ buffer, n };
}

/* Reserved and written, in no bucket. 0 or INDEX_E_*. */
static inline int fixture_make(Fixture *f, uint32_t id, uint8_t state, uint32_t *ret_slot)
{
        char key_bytes[FOLIO_KEY_BYTES_MAX + 1], metadata_bytes[FOLIO_METADATA_BYTES_MAX];
        Key key = fixture_key(id, key_bytes);
        uint64_t generation = ++f->generation;
        Key metadata = fixture_metadata(generation, metadata_bytes);
        Key content_type = generation % 3 ? (Key){ "", 0 } : (Key){ "text/plain", 10 };
        LayoutSlot record;
        int r;

        r = index_reserve_slot(f->index, key, content_type, metadata, ret_slot, &record);
        if (r)
                return r;
        record.state = state;
        record.generation = generation;
        record.size_bytes = generation * 3;
        record.capacity_bytes = generation * 3;
        record.region_id = generation ^ id;
        index_write(f->index, *ret_slot, &record);
        return 0;
}

/* Is @copy, as a reader has it, an object of @id as fixture_make() made it, whole? */
static inline bool fixture_is_whole(const Fixture *f, uint32_t id, uint32_t slot, const LayoutSlot *copy)
{
        char key_bytes[FOLIO_KEY_BYTES_MAX + 1], metadata_bytes[FOLIO_METADATA_BYTES_MAX];
        char key_seen[FOLIO_KEY_BYTES_MAX + 1], type_seen[256], metadata_seen[FOLIO_METADATA_BYTES_MAX];
        Key key = fixture_key(id, key_bytes);
        Key metadata = fixture_metadata(copy->generation, metadata_bytes);

        if (copy->size_bytes != copy->generation * 3 || copy->region_id != (copy->generation ^ id) ||
            copy->key_bytes != key.n_bytes || copy->metadata_bytes != metadata.n_bytes ||
            copy->content_type_bytes != (copy->generation % 3 ? 0 : 10))
                return false;
        if (!lookup_read_texts(f->space, slot, copy, key_seen, type_seen, metadata_seen))
                return true; /* it has changed since: nothing wrong was told */
        return memcmp(key_seen, key.bytes, key.n_bytes) == 0 &&
               (copy->content_type_bytes == 0 || memcmp(type_seen, "text/plain", 10) == 0) &&
               memcmp(metadata_seen, metadata.bytes, metadata.n_bytes) == 0;
}

static inline LookupOutcome fixture_look(const Fixture *f, uint32_t id, Lookup *ret)
{
        char key_bytes[FOLIO_KEY_BYTES_MAX + 1];

        return lookup_find(f->space, fixture_key(id, key_bytes), 0, ret);
}

static inline bool fixture_find(const Fixture *f, uint32_t id, uint32_t *ret_slot)
{
        char key_bytes[FOLIO_KEY_BYTES_MAX + 1];
        Key key = fixture_key(id, key_bytes);

        return index_find(f->index, key, index_hash(f->index, key), ret_slot);
}

/* One random number after the other, the same ones each time. */
static inline uint32_t fixture_random(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

#endif
