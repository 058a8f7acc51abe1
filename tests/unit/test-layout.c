/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout 1 as it is written in shared memory: every offset as a number, so that a change of the header that keeps its
 * own assertions is seen here; and what linear hashing promises, over every table size that matters.
 */
#include "tests/unit/harness.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/macro.h"
#include "proto/layout.h"

typedef struct Offset {
        const char *name;
        size_t is;
        size_t was;
} Offset;

#define OFFSET(type, member, number) { #type "." #member, offsetof(type, member), number }

static void assert_offsets(const Offset *offsets, size_t n_offsets)
{
        for (size_t i = 0; i < n_offsets; i++)
                if (offsets[i].is != offsets[i].was)
                        fail_msg("%s is at %zu, not %zu", offsets[i].name, offsets[i].is, offsets[i].was);
}

static void test_index_header(void **state)
{
        static const Offset offsets[] = {
                OFFSET(LayoutIndexHeader, magic, 0),
                OFFSET(LayoutIndexHeader, layout_version, 8),
                OFFSET(LayoutIndexHeader, header_bytes, 12),
                OFFSET(LayoutIndexHeader, compatible_flags, 16),
                OFFSET(LayoutIndexHeader, incompatible_flags, 20),
                OFFSET(LayoutIndexHeader, region_bytes, 24),
                OFFSET(LayoutIndexHeader, instance, 32),
                OFFSET(LayoutIndexHeader, index_generation, 40),
                OFFSET(LayoutIndexHeader, hash_seed, 48),
                OFFSET(LayoutIndexHeader, namespace_id, 56),
                OFFSET(LayoutIndexHeader, n_slots_max, 60),
                OFFSET(LayoutIndexHeader, n_buckets_max, 64),
                OFFSET(LayoutIndexHeader, n_overflow_max, 68),
                OFFSET(LayoutIndexHeader, n_graves, 72),
                OFFSET(LayoutIndexHeader, n_events, 76),
                OFFSET(LayoutIndexHeader, buckets_offset, 80),
                OFFSET(LayoutIndexHeader, overflow_offset, 88),
                OFFSET(LayoutIndexHeader, slots_offset, 96),
                OFFSET(LayoutIndexHeader, graves_offset, 104),
                OFFSET(LayoutIndexHeader, events_offset, 112),
                OFFSET(LayoutIndexHeader, heap_offset, 120),
                OFFSET(LayoutIndexHeader, heap_bytes, 128),
                OFFSET(LayoutIndexHeader, namespace_name, 136),
                OFFSET(LayoutIndexHeader, n_buckets, 1024),
                OFFSET(LayoutIndexHeader, is_closed, 1028),
                OFFSET(LayoutIndexHeader, n_slots, 1088),
                OFFSET(LayoutIndexHeader, n_objects, 1152),
                OFFSET(LayoutIndexHeader, event_sequence, 1216),
                OFFSET(LayoutIndexHeader, event_futex, 1224),
                OFFSET(LayoutIndexHeader, settings, 200),
                OFFSET(LayoutIndexHeader, settings_current, 296),
                OFFSET(LayoutIndexHeader, is_complete, 300),
                OFFSET(LayoutIndexHeader, journal_slot, 1280),
                OFFSET(LayoutIndexHeader, journal, 1344),
                OFFSET(LayoutSettings, quota_bytes, 0),
                OFFSET(LayoutSettings, quota_objects, 8),
                OFFSET(LayoutSettings, objects_max, 16),
                OFFSET(LayoutSettings, owner_uid, 24),
                OFFSET(LayoutSettings, owner_gid, 28),
                OFFSET(LayoutSettings, mode, 32),
                OFFSET(LayoutSettings, backing, 36),
                OFFSET(LayoutSettings, huge, 37),
                OFFSET(LayoutSettings, writers, 38),
                OFFSET(LayoutSettings, checksum, 40),
        };

        assert_offsets(offsets, ARRAY_SIZE(offsets));
        assert_int_equal(sizeof(LayoutIndexHeader), 4096);
}

static void test_buckets_slots_events_pins(void **state)
{
        static const Offset offsets[] = {
                OFFSET(LayoutBucket, sequence, 0),
                OFFSET(LayoutBucket, next, 4),
                OFFSET(LayoutBucket, slot, 8),
                OFFSET(LayoutBucket, tag, 40),
                OFFSET(LayoutBucket, reserved, 56),
                OFFSET(LayoutSlot, sequence, 0),
                OFFSET(LayoutSlot, state, 4),
                OFFSET(LayoutSlot, flags, 5),
                OFFSET(LayoutSlot, key_bytes, 6),
                OFFSET(LayoutSlot, generation, 8),
                OFFSET(LayoutSlot, hash, 16),
                OFFSET(LayoutSlot, size_bytes, 24),
                OFFSET(LayoutSlot, region_id, 32),
                OFFSET(LayoutSlot, offset_units, 40),
                OFFSET(LayoutSlot, extents_block, 40),
                OFFSET(LayoutSlot, heap_block, 44),
                OFFSET(LayoutSlot, capacity_bytes, 48),
                OFFSET(LayoutSlot, allocated_pages, 56),
                OFFSET(LayoutSlot, huge_folios, 60),
                OFFSET(LayoutSlot, created_ns, 64),
                OFFSET(LayoutSlot, changed_ns, 72),
                OFFSET(LayoutSlot, expires_ns, 80),
                OFFSET(LayoutSlot, owner_uid, 88),
                OFFSET(LayoutSlot, metadata_bytes, 92),
                OFFSET(LayoutSlot, content_type_bytes, 94),
                OFFSET(LayoutSlot, checksum, 96),
                OFFSET(LayoutSlot, session, 100),
                OFFSET(LayoutSlot, key, 104),
                OFFSET(LayoutEvent, sequence, 0),
                OFFSET(LayoutEvent, generation, 8),
                OFFSET(LayoutEvent, size_bytes, 16),
                OFFSET(LayoutEvent, time_ns, 24),
                OFFSET(LayoutEvent, type, 32),
                OFFSET(LayoutEvent, slot, 36),
                OFFSET(LayoutEvent, origin, 40),
                OFFSET(LayoutEvent, key_bytes, 48),
                OFFSET(LayoutEvent, key, 49),
                OFFSET(LayoutPinsHeader, magic, 0),
                OFFSET(LayoutPinsHeader, layout_version, 8),
                OFFSET(LayoutPinsHeader, n_slots_max, 12),
                OFFSET(LayoutPinsHeader, region_bytes, 16),
                OFFSET(LayoutPinsHeader, summary_offset, 24),
                OFFSET(LayoutPinsHeader, counters_offset, 32),
                OFFSET(LayoutPinsHeader, n_waiting, 64),
        };

        assert_offsets(offsets, ARRAY_SIZE(offsets));
        assert_int_equal(sizeof(LayoutBucket), 64);
        assert_int_equal(sizeof(LayoutSlot), 128);
        assert_int_equal(sizeof(LayoutEvent), 320);
        assert_int_equal(sizeof(LayoutPinsHeader), 4096);
        assert_int_equal(LAYOUT_SLOT_WORDS, 16);
        assert_int_equal(sizeof(LayoutExtents), 4096);
        assert_int_equal(layout_extents_bytes(0), 8);
        assert_int_equal(layout_extents_bytes(LAYOUT_EXTENTS_MAX), sizeof(LayoutExtents));
        assert_int_equal(LAYOUT_EVENT_WORDS, 40);
}

/* The three small fields share a byte: which bits, as a foreign reader would find them on a little-endian machine. */
static void test_packed_bits(void **state)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        static const struct {
                uint8_t placement, protection, backing, byte;
        } rows[] = { { 3, 0, 0, 0x03 }, { 0, 7, 0, 0x1c }, { 0, 0, 7, 0xe0 }, { 2, 1, 1, 0x26 } };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                LayoutSlot slot = { 0 };

                slot.placement = rows[i].placement;
                slot.protection = rows[i].protection;
                slot.backing = rows[i].backing;
                assert_int_equal(((const uint8_t *)&slot)[7], rows[i].byte);
        }
#else
        skip();
#endif
}

static void test_numbers_that_are_stored(void **state)
{
        static const char index_magic[8] = "FOLIDXX1", pins_magic[8] = "FOLPINS1";
        uint64_t magic = LAYOUT_INDEX_MAGIC;

        assert_int_equal(LAYOUT_VERSION, 1);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        assert_memory_equal(&magic, index_magic, 8);
        magic = LAYOUT_PINS_MAGIC;
        assert_memory_equal(&magic, pins_magic, 8);
#endif
        assert_int_equal(LAYOUT_SLOT_FREE, 0);
        assert_int_equal(LAYOUT_SLOT_WRITING, 1);
        assert_int_equal(LAYOUT_SLOT_SEALED, 2);
        assert_int_equal(LAYOUT_SLOT_MUTABLE, 3);
        assert_int_equal(LAYOUT_SLOT_RETRACTED, 4);
        assert_int_equal(LAYOUT_GRAVE_WRITER_DIED, 0x20);
}

static uint64_t random_state = 0x2545f4914f6cdd1d;

static uint64_t next_random(void)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state;
}

enum { N_HASHES = 500, N_BUCKETS_MAX = 5000 };

/*
 * For each n: every hash has a bucket below n. And from n to n + 1, which splits one bucket: an entry stays where it
 * is, or it moves from that bucket to the new one, number n.
 */
static void test_a_split_moves_entries_of_one_bucket_only(void **state)
{
        static const uint64_t corners[] = { 0, 1, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX, UINT64_MAX - 1 };
        uint64_t hashes[N_HASHES + ARRAY_SIZE(corners)];
        size_t n_moved = 0;

        for (size_t i = 0; i < N_HASHES; i++)
                hashes[i] = next_random();
        memcpy(&hashes[N_HASHES], corners, sizeof(corners));
        for (uint32_t n = 1; n <= N_BUCKETS_MAX; n++) {
                uint32_t top = UINT32_C(1) << (31 - __builtin_clz(n));
                uint32_t split = n - top;

                for (size_t i = 0; i < ARRAY_SIZE(hashes); i++) {
                        uint32_t before = layout_bucket(hashes[i], n), after = layout_bucket(hashes[i], n + 1);

                        if (before >= n || after > n)
                                fail_msg("hash %zu of %u buckets is in %u, then %u", i, n, before, after);
                        if (before == after)
                                continue;
                        n_moved++;
                        assert_int_equal(before, split);
                        assert_int_equal(after, n);
                }
        }
        assert_true(n_moved > ARRAY_SIZE(hashes)); /* they do move on as the table grows */
}

static void test_buckets_at_the_limits(void **state)
{
        static const struct {
                uint64_t hash;
                uint32_t n_buckets, bucket;
        } rows[] = {
                { 0, 1, 0 },
                { UINT64_MAX, 1, 0 },
                { UINT64_MAX, 2, 1 },
                { UINT64_MAX, 3, 1 },
                { UINT64_MAX, 4, 3 },
                { 2, 3, 2 },
                { 3, 3, 1 },
                { UINT64_C(0xffffffff00000000), 4096, 0 },
                { UINT32_MAX, UINT32_C(1) << 31, UINT32_C(0x7fffffff) },
                { UINT32_C(1) << 31, (UINT32_C(1) << 31) + 1, UINT32_C(1) << 31 },
                { UINT32_MAX, UINT32_MAX, UINT32_C(0x7fffffff) },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(layout_bucket(rows[i].hash, rows[i].n_buckets), rows[i].bucket);
}

/* Every bucket of every size is somebody's: none is left out by the arithmetic. */
static void test_every_bucket_is_used(void **state)
{
        for (uint32_t n = 1; n <= 600; n++)
                for (uint32_t bucket = 0; bucket < n; bucket++)
                        assert_int_equal(layout_bucket(bucket, n), bucket);
}

static void test_heap_lengths(void **state)
{
        static const struct {
                uint8_t key_bytes, content_type_bytes;
                uint16_t metadata_bytes;
                uint64_t heap_bytes;
        } rows[] = {
                { 1, 0, 0, 0 },  { LAYOUT_SLOT_KEY_BYTES, 0, 0, 0 }, { LAYOUT_SLOT_KEY_BYTES + 1, 0, 0, 1 },
                { 1, 1, 0, 1 },  { 1, 0, 4096, 4096 },               { 255, 255, 4096, 255 - 24 + 255 + 4096 },
                { 0, 0, 0, 0 },  { 255, 255, UINT16_MAX, 255 - 24 + 255 + UINT16_MAX },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                LayoutSlot slot = {
                        .key_bytes = rows[i].key_bytes,
                        .content_type_bytes = rows[i].content_type_bytes,
                        .metadata_bytes = rows[i].metadata_bytes,
                };

                assert_int_equal(layout_heap_bytes(&slot), rows[i].heap_bytes);
        }
}

static void test_tags_and_graves(void **state)
{
        assert_int_equal(layout_tag(UINT64_C(0xabcd000000000000)), 0xabcd);
        assert_int_equal(layout_tag(UINT64_C(0x0000ffffffffffff)), 0);
        assert_true(layout_grave(UINT64_MAX, 3) == (UINT64_MAX & ~UINT64_C(0xff)) + 3);
        assert_true(layout_grave(0xff, LAYOUT_GRAVE_WRITER_DIED) == LAYOUT_GRAVE_WRITER_DIED);
        for (uint32_t n_graves = 1; n_graves <= 1u << 20; n_graves *= 2)
                for (int i = 0; i < 50; i++)
                        assert_true(layout_grave_place(next_random(), n_graves) < n_graves);
}

/* n_events records in a row never share a place. */
static void test_places_of_events(void **state)
{
        for (uint64_t first = 1; first < 40; first += 13) {
                bool is_used[64] = { false };

                for (uint64_t sequence = first; sequence < first + ARRAY_SIZE(is_used); sequence++) {
                        uint32_t place = layout_event_place(sequence, ARRAY_SIZE(is_used));

                        assert_true(place < ARRAY_SIZE(is_used));
                        assert_false(is_used[place]);
                        is_used[place] = true;
                }
        }
        assert_true(layout_event_place(UINT64_MAX, 1024) < 1024);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_index_header),
                UNIT_TEST(test_buckets_slots_events_pins),
                UNIT_TEST(test_packed_bits),
                UNIT_TEST(test_numbers_that_are_stored),
                UNIT_TEST(test_a_split_moves_entries_of_one_bucket_only),
                UNIT_TEST(test_buckets_at_the_limits),
                UNIT_TEST(test_every_bucket_is_used),
                UNIT_TEST(test_heap_lengths),
                UNIT_TEST(test_tags_and_graves),
                UNIT_TEST(test_places_of_events),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
