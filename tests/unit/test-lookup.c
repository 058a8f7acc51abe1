/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the index: what is found, what is believed not to be there, what a damaged or hostile index can do (nothing
 * but make the answer wrong), and sleeping on it. Reading while it is written is test-lookup-threads's.
 */
#include <pthread.h>

#include "client/lib/lookup.h"
#include "client/lib/maps.h"
#include "tests/unit/lookup-fixture.h"

#define MS UINT64_C(1000000)

static const char key_255[] =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";

static void test_find_keys_of_all_lengths(void **state)
{
        Fixture f;

        fixture_new(&f);
        for (size_t n = 1; n <= 255; n++) {
                Key key = { key_255 + 255 - n, n };

                assert_int_equal(lookup_find(f.space, key, NOW, &f.found), LOOKUP_MISSING);
                assert_int_equal(f.found.reason, 0);
                fake_index_add(&f.fake, &(FakeObject){ .key = key, .state = LAYOUT_SLOT_SEALED, .size_bytes = n });
        }
        for (size_t n = 1; n <= 255; n++) {
                Key key = { key_255 + 255 - n, n };

                assert_int_equal(lookup_find(f.space, key, NOW, &f.found), LOOKUP_FOUND);
                assert_int_equal(f.found.slot, n - 1);
                assert_int_equal(f.found.copy.size_bytes, n);
                assert_int_equal(f.found.copy.region_id, n - 1 + 100);
                assert_int_equal(f.found.copy.sequence & 1, 0);
        }
        /* Lengths that no key has. */
        assert_int_equal(lookup_find(f.space, (Key){ key_255, 0 }, NOW, &f.found), LOOKUP_MISSING);
        assert_int_equal(lookup_find(f.space, (Key){ key_255, 256 }, NOW, &f.found), LOOKUP_MISSING);
        assert_int_equal(lookup_find(f.space, (Key){ key_255, SIZE_MAX }, NOW, &f.found), LOOKUP_MISSING);
        fixture_free(&f);
}

/* Every part of a key counts: the slot of another with the same hash (forged) is not it. */
static void test_find_compares_whole_keys(void **state)
{
        static const size_t places[] = { 0, 1, 31, 32, 33, 63, 64, 253, 254 };
        char key[256];
        Fixture f;

        fixture_new(&f);
        fixture_add(&f, key_255);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                memcpy(key, key_255, sizeof(key));
                key[places[i]] ^= 1;
                f.fake.slots[0].hash = fake_hash(&f.fake, fake_key(key));
                f.fake.buckets[0].tag[0] = layout_tag(f.fake.slots[0].hash);
                assert_int_equal(fixture_find(&f, key), LOOKUP_MISSING);
        }
        f.fake.slots[0].hash = fake_hash(&f.fake, fake_key(key_255));
        f.fake.buckets[0].tag[0] = layout_tag(f.fake.slots[0].hash);
        assert_int_equal(fixture_find(&f, key_255), LOOKUP_FOUND);
        fixture_free(&f);
}

static void test_find_states(void **state)
{
        static const struct {
                uint8_t slot_state;
                LookupOutcome outcome;
        } rows[] = {
                { LAYOUT_SLOT_FREE, LOOKUP_MISSING },
                { LAYOUT_SLOT_WRITING, LOOKUP_FOUND },
                { LAYOUT_SLOT_SEALED, LOOKUP_FOUND },
                { LAYOUT_SLOT_MUTABLE, LOOKUP_FOUND },
                { LAYOUT_SLOT_RETRACTED, LOOKUP_UNSURE }, /* not out of its bucket yet */
                { _LAYOUT_SLOT_STATE_MAX, LOOKUP_MISSING },
                { UINT8_MAX, LOOKUP_MISSING },
        };
        Fixture f;

        fixture_new(&f);
        fixture_add(&f, "key");
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                fake_slot_set_state(&f.fake, 0, rows[i].slot_state);
                assert_int_equal(fixture_find(&f, "key"), rows[i].outcome);
        }
        fixture_free(&f);
}

static void test_find_expiry(void **state)
{
        static const struct {
                uint64_t expires_ns;
                uint64_t at_ns;
                LookupOutcome outcome;
        } rows[] = {
                { 0, NOW, LOOKUP_FOUND },          { 0, UINT64_MAX, LOOKUP_FOUND },
                { NOW, NOW - 1, LOOKUP_FOUND },    { NOW, NOW, LOOKUP_MISSING },
                { NOW, NOW + 1, LOOKUP_MISSING },  { UINT64_MAX, UINT64_MAX - 1, LOOKUP_FOUND },
                { UINT64_MAX, UINT64_MAX, LOOKUP_MISSING },
        };
        Fixture f;

        fixture_new(&f);
        fixture_add(&f, "key");
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                f.fake.slots[0].expires_ns = rows[i].expires_ns;
                assert_int_equal(lookup_find(f.space, fake_key("key"), rows[i].at_ns, &f.found), rows[i].outcome);
                assert_int_equal(f.found.reason, rows[i].outcome == LOOKUP_MISSING ? FOLIO_EVENT_EXPIRED : 0);
        }
        fixture_free(&f);
}

static void test_find_says_why_it_is_gone(void **state)
{
        static const uint8_t reasons[] = { FOLIO_EVENT_DELETED, FOLIO_EVENT_EVICTED, FOLIO_EVENT_EXPIRED,
                                           LAYOUT_GRAVE_WRITER_DIED };
        Fixture f;
        uint64_t hash;

        fixture_new(&f);
        for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
                fixture_add(&f, "key");
                assert_int_equal(fixture_find(&f, "key"), LOOKUP_FOUND);
                assert_int_equal(f.found.reason, 0);
                fake_index_retract(&f.fake, (uint32_t)i, reasons[i]);
                assert_int_equal(fixture_find(&f, "key"), LOOKUP_MISSING);
                assert_int_equal(f.found.reason, reasons[i]);
        }
        /* The same place, another name: of that one nothing is known. */
        hash = fake_hash(&f.fake, fake_key("key"));
        f.fake.graves[layout_grave_place(hash, 64)] = layout_grave(hash ^ UINT64_C(1) << 60, FOLIO_EVENT_DELETED);
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_MISSING);
        assert_int_equal(f.found.reason, 0);
        fixture_free(&f);
}

static void test_find_while_the_table_grows(void **state)
{
        char key[32];
        Fixture f;

        fixture_new(&f);
        for (unsigned n = 0; n < 1000; n++) {
                snprintf(key, sizeof(key), "object %u", n);
                fixture_add(&f, key);
                if (n % 4 == 3)
                        fake_index_split(&f.fake);
                for (unsigned m = n < 200 ? 0 : n - 5; m <= n; m++) {
                        snprintf(key, sizeof(key), "object %u", m);
                        assert_int_equal(fixture_find(&f, key), LOOKUP_FOUND);
                        assert_int_equal(f.found.slot, m);
                }
                assert_int_equal(fixture_find(&f, "nobody"), LOOKUP_MISSING);
        }
        assert_int_equal(f.fake.header->n_buckets, 251);
        fixture_free(&f);
}

/* 125 buckets in one chain, longer than a reader follows: it does not know about the last, and denies none. */
static void test_find_in_a_long_chain(void **state)
{
        char key[32];
        Fixture f;

        fixture_new(&f);
        for (unsigned n = 0; n < 1000; n++) {
                snprintf(key, sizeof(key), "object %u", n);
                fixture_add(&f, key);
        }
        for (unsigned n = 0; n < 1000; n++) {
                snprintf(key, sizeof(key), "object %u", n);
                assert_int_equal(fixture_find(&f, key), n < 8 * 65 ? LOOKUP_FOUND : LOOKUP_UNSURE);
        }
        assert_int_equal(fixture_find(&f, "nobody"), LOOKUP_UNSURE);
        fixture_free(&f);
}

static void test_find_in_a_damaged_index(void **state)
{
        Fixture f;
        LayoutBucket *bucket;

        fixture_new(&f);
        fixture_add(&f, "key");
        bucket = &f.fake.buckets[0];
        /* Places that are not there. */
        bucket->tag[1] = bucket->tag[2] = layout_tag(fake_hash(&f.fake, fake_key("other")));
        bucket->slot[1] = 2049;
        bucket->slot[2] = UINT32_MAX;
        assert_int_equal(fixture_find(&f, "other"), LOOKUP_MISSING);
        bucket->next = 513;
        assert_int_equal(fixture_find(&f, "other"), LOOKUP_UNSURE);
        bucket->next = UINT32_MAX;
        assert_int_equal(fixture_find(&f, "other"), LOOKUP_UNSURE);
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_FOUND);
        /* A chain without end. */
        bucket->next = 1;
        f.fake.overflow[0].next = 2;
        f.fake.overflow[1].next = 1;
        assert_int_equal(fixture_find(&f, "other"), LOOKUP_UNSURE);
        bucket->next = 0;
        /* Geometry. */
        f.fake.header->n_buckets = 0;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_UNSURE);
        f.fake.header->n_buckets = 257;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_UNSURE);
        f.fake.header->n_buckets = UINT32_MAX;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_UNSURE);
        f.fake.header->n_buckets = 1;
        /* A writer that has stopped in the middle. */
        f.fake.slots[0].sequence |= 1;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_UNSURE);
        assert_false(lookup_read_slot(f.space, 0, &f.found.copy));
        f.fake.slots[0].sequence++;
        bucket->sequence |= 1;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_UNSURE);
        assert_int_equal(fixture_find(&f, "nobody"), LOOKUP_UNSURE);
        bucket->sequence++;
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_FOUND);
        assert_int_equal(fixture_find(&f, "nobody"), LOOKUP_MISSING);
        fixture_free(&f);
}

static void test_without_the_read_right(void **state)
{
        ProtoNamespace ns = { .name = "test", .id = 7 };
        Space *space;
        Lookup found;
        LayoutEvent event;
        uint64_t oldest;

        assert_int_equal(space_new(&ns, 1, -1, -1, &space), 0);
        assert_int_equal(lookup_find(space, fake_key("key"), NOW, &found), LOOKUP_UNSURE);
        assert_false(lookup_read_slot(space, 0, &found.copy));
        assert_false(lookup_read_texts(space, 0, &found.copy, NULL, NULL, NULL));
        assert_false(lookup_wait(space, &found, 1));
        assert_int_equal(lookup_n_slots(space), 0);
        assert_int_equal(lookup_newest_event(space), 0);
        assert_int_equal(lookup_read_event(space, 1, &event, &oldest), LOOKUP_EVENT_NONE);
        assert_false(lookup_wait_event(space, 0, 1));
        space_unref(space);
}

static void test_slots_by_number(void **state)
{
        LayoutSlot copy;
        Fixture f;

        fixture_new(&f);
        assert_int_equal(lookup_n_slots(f.space), 0);
        assert_false(lookup_read_slot(f.space, 0, &copy));
        fixture_add(&f, "a");
        fixture_add(&f, "b");
        assert_int_equal(lookup_n_slots(f.space), 2);
        assert_true(lookup_read_slot(f.space, 1, &copy));
        assert_int_equal(copy.key[0], 'b');
        assert_false(lookup_read_slot(f.space, 2, &copy));
        assert_false(lookup_read_slot(f.space, UINT32_MAX, &copy));
        /* A number that cannot be is cut to what there is room for. */
        f.fake.header->n_slots = UINT32_MAX;
        assert_int_equal(lookup_n_slots(f.space), 2048);
        assert_true(lookup_read_slot(f.space, 2047, &copy));
        assert_false(lookup_read_slot(f.space, 2048, &copy));
        fixture_free(&f);
}

static void test_texts(void **state)
{
        static char metadata[4096], got_metadata[4096];
        char got_key[255], got_type[255];
        LayoutSlot copy;
        Fixture f;

        for (size_t i = 0; i < sizeof(metadata); i++)
                metadata[i] = (char)(i * 7);
        fixture_new(&f);
        for (unsigned row = 0; row < 27; row++) {
                static const size_t keys[] = { 1, 32, 255 }, types[] = { 0, 1, 255 }, metas[] = { 0, 1, 4096 };
                size_t n_key = keys[row % 3], n_type = types[row / 3 % 3], n_meta = metas[row / 9];
                uint32_t slot = fake_index_add(&f.fake, &(FakeObject){ .key = { key_255, n_key },
                                                                       .state = LAYOUT_SLOT_SEALED,
                                                                       .content_type = { key_255, n_type },
                                                                       .metadata = { metadata, n_meta } });

                assert_true(lookup_read_slot(f.space, slot, &copy));
                assert_true(lookup_read_texts(f.space, slot, &copy, got_key, got_type, got_metadata));
                assert_memory_equal(got_key, key_255, n_key);
                assert_true(n_type == 0 || memcmp(got_type, key_255, n_type) == 0);
                assert_true(n_meta == 0 || memcmp(got_metadata, metadata, n_meta) == 0);
                /* Each alone. */
                memset(got_key, 0, sizeof(got_key));
                memset(got_type, 0, sizeof(got_type));
                memset(got_metadata, 0, sizeof(got_metadata));
                assert_true(lookup_read_texts(f.space, slot, &copy, NULL, NULL, NULL));
                assert_true(lookup_read_texts(f.space, slot, &copy, got_key, NULL, NULL));
                assert_true(lookup_read_texts(f.space, slot, &copy, NULL, got_type, NULL));
                assert_true(lookup_read_texts(f.space, slot, &copy, NULL, NULL, got_metadata));
                assert_memory_equal(got_key, key_255, n_key);
                assert_true(n_type == 0 || memcmp(got_type, key_255, n_type) == 0);
                assert_true(n_meta == 0 || memcmp(got_metadata, metadata, n_meta) == 0);
        }
        fixture_free(&f);
}

static void test_texts_of_a_damaged_slot(void **state)
{
        static char metadata[4096];
        uint32_t n_blocks = 64 * 1024 / 64;
        LayoutSlot copy, bad;
        Fixture f;

        fixture_new(&f);
        fake_index_add(&f.fake, &(FakeObject){ .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED,
                                               .metadata = { metadata, 65 } });
        assert_true(lookup_read_slot(f.space, 0, &copy));
        bad = copy;
        bad.metadata_bytes = 4097;
        assert_false(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        bad.metadata_bytes = UINT16_MAX;
        assert_false(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        bad = copy;
        bad.heap_block = 0;
        assert_false(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        bad.heap_block = n_blocks - 2;
        assert_true(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        bad.heap_block = n_blocks - 1;
        assert_false(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        bad.heap_block = UINT32_MAX;
        assert_false(lookup_read_texts(f.space, 0, &bad, NULL, NULL, metadata));
        assert_false(lookup_read_texts(f.space, 2048, &copy, NULL, NULL, metadata));
        assert_false(lookup_read_texts(f.space, UINT32_MAX, &copy, NULL, NULL, metadata));
        /* Changed since: whatever is asked for. */
        fake_slot_set_state(&f.fake, 0, LAYOUT_SLOT_SEALED);
        assert_false(lookup_read_texts(f.space, 0, &copy, NULL, NULL, metadata));
        assert_false(lookup_read_texts(f.space, 0, &copy, metadata, NULL, NULL));
        fixture_free(&f);
}

static void test_replace_is_one_step(void **state)
{
        Fixture f;
        uint32_t slot;

        fixture_new(&f);
        fixture_add(&f, "key");
        slot = f.fake.n_slots++;
        fake_index_fill(&f.fake, slot, &(FakeObject){ .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED });
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_FOUND);
        assert_int_equal(f.found.slot, 0);
        fake_index_replace(&f.fake, 0, slot);
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_FOUND);
        assert_int_equal(f.found.slot, slot);
        fixture_free(&f);
}

/* -- sleeping ----------------------------------------------------------------------------------------------------- */

static void test_wait_does_not_sleep_in_vain(void **state)
{
        Lookup bad = { .bucket = 256 };
        Fixture f;

        fixture_new(&f);
        assert_int_equal(fixture_find(&f, "key"), LOOKUP_MISSING);
        assert_false(lookup_wait(f.space, &f.found, 0));
        assert_false(lookup_wait(f.space, &f.found, MS));
        fixture_add(&f, "key");
        assert_true(lookup_wait(f.space, &f.found, 0));
        assert_true(lookup_wait(f.space, &f.found, UINT64_MAX));
        /* However long is asked for, it looks up from time to time: the daemon may have died. */
        assert_int_equal(fixture_find(&f, "nobody"), LOOKUP_MISSING);
        assert_false(lookup_wait(f.space, &f.found, UINT64_MAX));
        assert_false(lookup_wait(f.space, &bad, UINT64_MAX));
        assert_false(lookup_wait_event(f.space, 0, 0));
        assert_false(lookup_wait_event(f.space, 0, MS));
        assert_false(lookup_wait_event(f.space, 5, MS));
        fake_index_event(&f.fake, FOLIO_EVENT_SEALED, 0, "key");
        assert_true(lookup_wait_event(f.space, 0, UINT64_MAX));
        assert_false(lookup_wait_event(f.space, 1, MS));
        fixture_free(&f);
}

static void *wait_for_object(void *userdata)
{
        Fixture *f = userdata;
        Lookup found;
        unsigned n = 0;

        while (lookup_find(f->space, fake_key("awaited"), NOW, &found) != LOOKUP_FOUND && n++ < 200)
                (void)lookup_wait(f->space, &found, UINT64_MAX);
        return n < 200 ? f : NULL;
}

static void *wait_for_event(void *userdata)
{
        Fixture *f = userdata;
        LayoutEvent event;
        uint64_t oldest;
        unsigned n = 0;

        while (lookup_read_event(f->space, 1, &event, &oldest) != LOOKUP_EVENT && n++ < 200)
                (void)lookup_wait_event(f->space, 0, UINT64_MAX);
        return n < 200 ? f : NULL;
}

static void test_wait_is_woken(void **state)
{
        pthread_t threads[2];
        void *result;
        Fixture f;

        fixture_new(&f);
        assert_int_equal(pthread_create(&threads[0], NULL, wait_for_object, &f), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, wait_for_event, &f), 0);
        fixture_add(&f, "another");
        fixture_add(&f, "awaited");
        fake_index_event(&f.fake, FOLIO_EVENT_SEALED, 1, "awaited");
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(pthread_join(threads[i], &result), 0);
                assert_ptr_equal(result, &f);
        }
        fixture_free(&f);
}

/* -- events ------------------------------------------------------------------------------------------------------- */

static void test_events(void **state)
{
        LayoutEvent event;
        uint64_t oldest = 0;
        Fixture f;
        char key[16];

        fixture_new(&f);
        assert_int_equal(lookup_read_event(f.space, 1, &event, &oldest), LOOKUP_EVENT_NONE);
        assert_int_equal(lookup_read_event(f.space, UINT64_MAX, &event, &oldest), LOOKUP_EVENT_NONE);
        assert_int_equal(lookup_read_event(f.space, 0, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_int_equal(oldest, 1);
        for (unsigned n = 1; n <= 40; n++) {
                snprintf(key, sizeof(key), "key %u", n);
                fake_index_event(&f.fake, FOLIO_EVENT_DELETED, n, key);
                assert_int_equal(lookup_newest_event(f.space), n);
                assert_int_equal(lookup_read_event(f.space, n, &event, &oldest), LOOKUP_EVENT);
                assert_int_equal(event.slot, n);
                assert_int_equal(event.type, FOLIO_EVENT_DELETED);
                assert_memory_equal(event.key, key, strlen(key));
                assert_int_equal(lookup_read_event(f.space, n + 1, &event, &oldest), LOOKUP_EVENT_NONE);
        }
        assert_int_equal(lookup_read_event(f.space, 25, &event, &oldest), LOOKUP_EVENT);
        assert_int_equal(lookup_read_event(f.space, 24, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_int_equal(oldest, 25);
        assert_int_equal(lookup_read_event(f.space, 1, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_int_equal(oldest, 25);
        /* Being overwritten now: gone. */
        f.fake.events[layout_event_place(30, 16)].sequence = 0;
        assert_int_equal(lookup_read_event(f.space, 30, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_int_equal(oldest, 31);
        /* A number that the ring has no record for leads onwards all the same. */
        f.fake.header->event_sequence = UINT64_MAX;
        assert_int_equal(lookup_read_event(f.space, UINT64_MAX - 1, &event, &oldest), LOOKUP_EVENT_LAPPED);
        assert_true(oldest == UINT64_MAX);
        assert_int_equal(lookup_read_event(f.space, UINT64_MAX, &event, &oldest), LOOKUP_EVENT_NONE);
        fixture_free(&f);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_find_keys_of_all_lengths),
                UNIT_TEST(test_find_compares_whole_keys),
                UNIT_TEST(test_find_states),
                UNIT_TEST(test_find_expiry),
                UNIT_TEST(test_find_says_why_it_is_gone),
                UNIT_TEST(test_find_while_the_table_grows),
                UNIT_TEST(test_find_in_a_long_chain),
                UNIT_TEST(test_find_in_a_damaged_index),
                UNIT_TEST(test_without_the_read_right),
                UNIT_TEST(test_slots_by_number),
                UNIT_TEST(test_texts),
                UNIT_TEST(test_texts_of_a_damaged_slot),
                UNIT_TEST(test_replace_is_one_step),
                UNIT_TEST(test_wait_does_not_sleep_in_vain),
                UNIT_TEST(test_wait_is_woken),
                UNIT_TEST(test_events),
        };

        return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
