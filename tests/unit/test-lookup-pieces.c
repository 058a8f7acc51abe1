/* SPDX-License-Identifier: Apache-2.0 */
/* A lookup in pieces, as a batch does it, and the places in a bucket: the same answer as in one go, also in a damaged index. */
#include "client/lib/lookup.h"
#include "tests/unit/lookup-fixture.h"

/* Every entry of a bucket, beside tags that are nearly the same: the one that is it is found, and no other. */
static void test_find_at_every_place(void **state)
{
        static const uint16_t differences[] = { 1, 2, 0x80, 0x100, 0x8000, 0xffff };
        Fixture f;

        fixture_new(&f);
        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                char key[2] = { (char)('a' + i), '\0' };

                fixture_add(&f, key);
        }
        for (unsigned i = 0; i < LAYOUT_BUCKET_ENTRIES; i++) {
                char key[2] = { (char)('a' + i), '\0' };
                uint16_t tag = layout_tag(fake_hash(&f.fake, fake_key(key)));

                for (size_t k = 0; k < ARRAY_SIZE(differences); k++) {
                        for (unsigned j = 0; j < LAYOUT_BUCKET_ENTRIES; j++)
                                f.fake.buckets[0].tag[j] = j == i ? tag : tag ^ differences[k];
                        assert_int_equal(fixture_find(&f, key), LOOKUP_FOUND);
                        assert_int_equal(f.found.slot, i);
                        assert_int_equal(f.found.copy.key[0], key[0]);
                        f.fake.buckets[0].tag[i] = tag ^ 1;
                        assert_int_equal(fixture_find(&f, key), LOOKUP_MISSING);
                }
                /* All the same: each slot is looked at. */
                for (unsigned j = 0; j < LAYOUT_BUCKET_ENTRIES; j++)
                        f.fake.buckets[0].tag[j] = tag;
                assert_int_equal(fixture_find(&f, key), LOOKUP_FOUND);
                assert_int_equal(f.found.slot, i);
        }
        fixture_free(&f);
}

/* In pieces it is the same answer, whatever the pieces before have seen. */
static void test_find_in_pieces(void **state)
{
        Fixture f;
        uint64_t hash;
        LayoutBucket *bucket;

        fixture_new(&f);
        fixture_add(&f, "key");
        hash = lookup_hash_ahead(f.space, fake_key("key"));
        assert_int_equal(hash, fake_hash(&f.fake, fake_key("key")));
        for (unsigned is_to_pin = 0; is_to_pin < 2; is_to_pin++) {
                lookup_slot_ahead(f.space, hash, is_to_pin);
                assert_int_equal(lookup_find_hashed(f.space, fake_key("key"), hash, NOW, &f.found), LOOKUP_FOUND);
                assert_int_equal(f.found.slot, 0);
        }
        assert_int_equal(lookup_find_to_pin(f.space, fake_key("key"), NOW, &f.found), LOOKUP_FOUND);
        assert_int_equal(f.space->pin_counters[0], 0);
        assert_int_equal(lookup_find_to_pin(f.space, fake_key("nobody"), NOW, &f.found), LOOKUP_MISSING);
        assert_int_equal(lookup_find_to_pin(f.space, (Key){ "key", 256 }, NOW, &f.found), LOOKUP_MISSING);
        /* A damaged index leads nowhere. */
        bucket = &f.fake.buckets[0];
        bucket->slot[0] = 2049;
        lookup_slot_ahead(f.space, hash, true);
        bucket->slot[0] = UINT32_MAX;
        lookup_slot_ahead(f.space, hash, true);
        f.fake.header->n_buckets = 0;
        assert_int_equal(lookup_hash_ahead(f.space, fake_key("key")), hash);
        lookup_slot_ahead(f.space, hash, true);
        f.fake.header->n_buckets = UINT32_MAX;
        lookup_slot_ahead(f.space, hash, true);
        fixture_free(&f);
}

static void test_is_still(void **state)
{
        LayoutSlot copy;
        Fixture f;

        fixture_new(&f);
        fixture_add(&f, "key");
        assert_true(lookup_read_slot(f.space, 0, &copy));
        assert_true(lookup_is_still(f.space, 0, &copy));
        assert_false(lookup_is_still(f.space, 2048, &copy));
        assert_false(lookup_is_still(f.space, UINT32_MAX, &copy));
        f.fake.slots[0].sequence++;
        assert_false(lookup_is_still(f.space, 0, &copy));
        f.fake.slots[0].sequence--;
        fake_index_retract(&f.fake, 0, FOLIO_EVENT_DELETED);
        assert_false(lookup_is_still(f.space, 0, &copy));
        fixture_free(&f);
}

/* A pause has an end, also where nothing changes, and where there is no such place. */
static void test_pause(void **state)
{
        LayoutSlot copy;
        Fixture f;

        fixture_new(&f);
        fixture_add(&f, "key");
        f.fake.slots[0].sequence++;
        assert_false(lookup_read_slot(f.space, 0, &copy));
        lookup_pause_slot(f.space, 0, 1000);
        lookup_pause_slot(f.space, 0, 0);
        lookup_pause_slot(f.space, UINT32_MAX, UINT64_MAX);
        f.fake.buckets[0].sequence++;
        assert_int_equal(lookup_find(f.space, fake_key("key"), NOW, &f.found), LOOKUP_UNSURE);
        lookup_pause_bucket(f.space, f.found.bucket, 1000);
        lookup_pause_bucket(f.space, f.found.bucket, 0);
        lookup_pause_bucket(f.space, UINT32_MAX, UINT64_MAX);
        f.fake.buckets[0].sequence++;
        f.fake.slots[0].sequence++;
        assert_int_equal(lookup_find(f.space, fake_key("key"), NOW, &f.found), LOOKUP_FOUND);
        fixture_free(&f);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_find_at_every_place),
                UNIT_TEST(test_find_in_pieces),
                UNIT_TEST(test_is_still),
                UNIT_TEST(test_pause),
        };

        return cmocka_run_group_tests_name("lookup-pieces", tests, NULL, NULL);
}
