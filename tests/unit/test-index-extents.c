/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of zeros in the index: what a slot names is what a reader finds, whole, also while it is replaced; the block
 * goes with the slot; and the lists never take the room that texts need.
 */
#include "index-fixture.h"

#include <errno.h>
#include <pthread.h>

#define N_SLOTS 32768u               /* with the smallest heap there is: 16 MiB */
#define TEXT_UNITS 16u

/* A list that tells by each of its numbers which it is. */
static LayoutExtents list_of(uint32_t id, uint32_t n)
{
        LayoutExtents list = { .n_extents = n, .is_partial = id % 2 };

        for (uint32_t i = 0; i < n; i++)
                list.extents[i] = (LayoutExtent){ id + i * 2, id };
        return list;
}

static bool is_list_of(const LayoutExtents *list, uint32_t id)
{
        if (list->is_partial != id % 2)
                return false;
        for (uint32_t i = 0; i < list->n_extents; i++)
                if (list->extents[i].first_page != id + i * 2 || list->extents[i].n_pages != id)
                        return false;
        return true;
}

static void set_list(Fixture *f, uint32_t slot, const LayoutExtents *list)
{
        LayoutSlot record = { 0 }, written = { 0 };

        index_get(f->index, slot, &record);
        record.placement = FOLIO_PLACEMENT_OWN;
        index_update_extents(f->index, slot, &record, list);
        index_get(f->index, slot, &written);
        assert_int_equal(record.extents_block, written.extents_block);
        assert_int_equal(record.flags, written.flags);
}

static bool has_list(const Fixture *f, uint32_t slot)
{
        LayoutSlot record = { 0 };

        index_get(f->index, slot, &record);
        assert_int_equal(record.flags & LAYOUT_FLAG_ZEROS ? 1 : 0, record.extents_block ? 1 : 0);
        return record.flags & LAYOUT_FLAG_ZEROS;
}

static void assert_list(const Fixture *f, uint32_t slot, uint32_t id, uint32_t n)
{
        LayoutExtents list;
        LayoutSlot copy;

        assert_true(lookup_read_slot(f->space, slot, &copy));
        assert_int_equal(lookup_read_extents(f->space, slot, &copy, &list), n ? LOOKUP_FOUND : LOOKUP_MISSING);
        if (n == 0)
                return;
        assert_int_equal(list.n_extents, n);
        assert_true(is_list_of(&list, id));
}

static void test_set_replace_and_clear(void **state)
{
        static const uint32_t lengths[] = { 0, 1, 7, 8, 15, 16, 63, 64, 510, LAYOUT_EXTENTS_MAX, 0, 3 };
        uint32_t slots[3];
        Fixture f;

        fixture_init(&f, 100, 64);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(fixture_make(&f, i, LAYOUT_SLOT_SEALED, &slots[i]), 0);
                if (i != 2) /* one is in no bucket */
                        index_insert(f.index, slots[i]);
        }
        for (uint32_t round = 0; round < ARRAY_SIZE(lengths); round++)
                for (uint32_t i = 0; i < 3; i++) {
                        LayoutExtents list = list_of(round * 3 + i + 1, lengths[(round + i) % ARRAY_SIZE(lengths)]);
                        LayoutSlot copy;

                        set_list(&f, slots[i], &list);
                        assert_list(&f, slots[i], round * 3 + i + 1, list.n_extents);
                        /* Texts, and what else there is, have stayed. */
                        assert_true(lookup_read_slot(f.space, slots[i], &copy));
                        assert_true(fixture_is_whole(&f, i, slots[i], &copy));
                }
        fixture_deinit(&f);
}

/* A reader that has the slot from before learns that its list is another's now. */
static void test_an_old_copy_is_noticed(void **state)
{
        LayoutExtents list = list_of(1, 100), seen;
        LayoutSlot copy;
        uint32_t slot;
        Fixture f;

        fixture_init(&f, 100, 64);
        assert_int_equal(fixture_make(&f, 0, LAYOUT_SLOT_SEALED, &slot), 0);
        index_insert(f.index, slot);
        set_list(&f, slot, &list);
        assert_true(lookup_read_slot(f.space, slot, &copy));
        list = list_of(2, 100);
        set_list(&f, slot, &list);
        assert_int_equal(lookup_read_extents(f.space, slot, &copy, &seen), LOOKUP_UNSURE);
        assert_true(lookup_read_slot(f.space, slot, &copy));
        index_retract(f.index, slot, 0);
        assert_int_equal(lookup_read_extents(f.space, slot, &copy, &seen), LOOKUP_UNSURE);
        /* Who holds it still has its list. */
        assert_list(&f, slot, 2, 100);
        index_free_slot(f.index, slot);
        assert_int_equal(lookup_read_extents(f.space, slot, &copy, &seen), LOOKUP_UNSURE);
        assert_true(lookup_read_slot(f.space, slot, &copy));
        assert_int_equal(lookup_read_extents(f.space, slot, &copy, &seen), LOOKUP_MISSING);
        fixture_deinit(&f);
}

static uint32_t make_with_texts(Fixture *f, uint32_t id, bool *ret_has_room)
{
        char key_bytes[FOLIO_KEY_BYTES_MAX], metadata_bytes[TEXT_UNITS * LAYOUT_HEAP_UNIT_BYTES] = "m";
        LayoutSlot record;
        uint32_t slot;

        memset(key_bytes, 'x', sizeof(key_bytes));
        memcpy(key_bytes, &(uint32_t){ id | 0x01010101u }, 4);
        *ret_has_room = index_reserve_slot(f->index, (Key){ key_bytes, sizeof(key_bytes) }, (Key){ "", 0 },
                                           (Key){ metadata_bytes, sizeof(metadata_bytes) - sizeof(key_bytes) +
                                                                          LAYOUT_SLOT_KEY_BYTES },
                                           &slot, &record) == 0;
        return *ret_has_room ? slot : UINT32_MAX;
}

/* As many lists as will go in: they end at a quarter of the heap, and come back when slots are freed. */
static void test_lists_leave_room(void **state)
{
        const uint64_t heap_units = (UINT64_C(16) << 20) / LAYOUT_HEAP_UNIT_BYTES;
        uint32_t n_with[2] = { 0 }, n_slots;
        LayoutExtents list = list_of(1, LAYOUT_EXTENTS_MAX);
        LayoutSlot record;
        bool has_room = true;
        Fixture f;

        fixture_init(&f, N_SLOTS, 64);
        for (unsigned round = 0; round < 2; round++) {
                for (n_slots = 0; n_slots < 2000; n_slots++) {
                        uint32_t slot;

                        assert_int_equal(index_reserve_slot(f.index, (Key){ "k", 1 }, (Key){ "", 0 }, (Key){ "", 0 },
                                                            &slot, &record), 0);
                        set_list(&f, slot, &list);
                        n_with[round] += has_list(&f, slot);
                        /* Without room it says so, and all else is written. */
                        assert_list(&f, slot, 1, has_list(&f, slot) ? LAYOUT_EXTENTS_MAX : 0);
                }
                assert_int_equal(n_with[round], heap_units / 4 / 64);
                /* Smaller ones do not fit either: it is the lists together that are bounded. */
                if (round == 0)
                        for (uint32_t slot = 0; slot < n_slots; slot++)
                                index_free_slot(f.index, slot);
        }
        /* Three quarters are for the texts still: each takes sixteen units. */
        for (uint32_t i = 0; has_room; i++) {
                (void)make_with_texts(&f, i, &has_room);
                assert_true(i < N_SLOTS);
                if (!has_room)
                        assert_int_equal(i, (heap_units * 3 / 4 - 1) / TEXT_UNITS);
        }
        fixture_deinit(&f);
}

/* Where the texts have come first, half of the heap stays for those that will come. */
static void test_texts_come_first(void **state)
{
        const uint64_t heap_units = (UINT64_C(16) << 20) / LAYOUT_HEAP_UNIT_BYTES;
        LayoutExtents list = list_of(1, 1);
        uint32_t slot = 0, last = 0;
        bool has_room = true;
        Fixture f;

        fixture_init(&f, N_SLOTS, 64);
        for (uint32_t i = 0; i <= heap_units / 2 / TEXT_UNITS; i++)
                slot = make_with_texts(&f, i, &has_room);
        assert_true(has_room);
        set_list(&f, slot, &list);
        assert_false(has_list(&f, slot));
        /* What was given back of the same size may be taken, though. */
        last = slot;
        list = list_of(1, 127); /* as large as the texts */
        set_list(&f, last - 1, &list);
        assert_false(has_list(&f, last - 1));
        index_free_slot(f.index, last);
        set_list(&f, last - 1, &list);
        assert_true(has_list(&f, last - 1));
        fixture_deinit(&f);
}

/* --- readers in another thread ------------------------------------------------------------------------------------ */

typedef struct Reader {
        const Fixture *f;
        uint32_t slots[2];
        atomic_bool is_over;
        uint64_t n_found, n_torn;
} Reader;

static void *read_lists(void *userdata)
{
        Reader *r = userdata;

        for (unsigned i = 0; !atomic_load(&r->is_over); i++) {
                LayoutExtents list;
                LayoutSlot copy;

                if (!lookup_read_slot(r->f->space, r->slots[i % 2], &copy) ||
                    lookup_read_extents(r->f->space, r->slots[i % 2], &copy, &list) != LOOKUP_FOUND)
                        continue;
                r->n_found++;
                /* The size says which list it has to be. */
                if (list.n_extents != copy.size_bytes || !is_list_of(&list, (uint32_t)copy.size_bytes))
                        r->n_torn++;
        }
        return NULL;
}

/* Two slots whose lists are of one class: blocks go from one to the other all the time. */
static void test_readers_never_see_half_a_list(void **state)
{
        Reader reader = { .is_over = false };
        pthread_t thread;
        Fixture f;

        fixture_init(&f, 100, 64);
        reader.f = &f;
        for (uint32_t i = 0; i < 2; i++) {
                LayoutSlot record;

                assert_int_equal(index_reserve_slot(f.index, (Key){ "k", 1 }, (Key){ "", 0 }, (Key){ "", 0 },
                                                    &reader.slots[i], &record), 0);
                record.state = LAYOUT_SLOT_SEALED;
                index_write(f.index, reader.slots[i], &record);
        }
        assert_int_equal(pthread_create(&thread, NULL, read_lists, &reader), 0);
        for (uint32_t i = 0; i < 60000; i++) {
                uint32_t n = 256 + i % 250;
                LayoutExtents list = list_of(n, n);
                LayoutSlot record = { 0 };

                index_get(f.index, reader.slots[i % 2], &record);
                record.placement = FOLIO_PLACEMENT_OWN;
                record.size_bytes = n;
                index_update_extents(f.index, reader.slots[i % 2], &record, &list);
        }
        atomic_store(&reader.is_over, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(reader.n_torn, 0);
        fixture_deinit(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_set_replace_and_clear),
                UNIT_TEST(test_an_old_copy_is_noticed),
                UNIT_TEST(test_lists_leave_room),
                UNIT_TEST(test_texts_come_first),
                UNIT_TEST(test_readers_never_see_half_a_list),
        };

        return cmocka_run_group_tests_name("index-extents", tests, NULL, NULL);
}
