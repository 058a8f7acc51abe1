/* SPDX-License-Identifier: Apache-2.0 */
/* Pin tables as the client writes them and the daemon reads them: counts, holes that stay holes, a size that stays. */
#include "harness.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/store/pins.h"
#include "proto/layout.h"

typedef struct Table {
        Backend *backend;
        Pins *pins;
        uint8_t *data;               /* as the client maps it */
        LayoutPinsHeader *header;
} Table;

static void table_init(Table *t, uint32_t n_slots_max)
{
        const char *failed = NULL;

        assert_int_equal(backend_memfd_new(FOLIO_HUGE_NEVER, &t->backend, &failed), 0);
        assert_int_equal(pins_new(t->backend, n_slots_max, &t->pins), 0);
        t->data = mmap(NULL, pins_region_bytes(t->pins), PROT_READ | PROT_WRITE, MAP_SHARED, pins_fd(t->pins), 0);
        assert_ptr_not_equal(t->data, MAP_FAILED);
        t->header = (LayoutPinsHeader *)(void *)t->data;
}

static void table_deinit(Table *t)
{
        assert_int_equal(munmap(t->data, pins_region_bytes(t->pins)), 0);
        pins_free(t->pins);
        backend_free(t->backend);
}

static _Atomic uint32_t *counter(Table *t, uint32_t slot)
{
        return (_Atomic uint32_t *)(void *)(t->data + t->header->counters_offset) + slot;
}

static _Atomic uint8_t *summary(Table *t, uint32_t slot)
{
        return (_Atomic uint8_t *)(t->data + t->header->summary_offset + slot / LAYOUT_PINS_PER_SUMMARY);
}

static uint64_t allocated_bytes(Table *t)
{
        struct stat st;

        assert_int_equal(fstat(pins_fd(t->pins), &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static void test_plan(void **state)
{
        static const uint32_t sizes[] = { 1, 1023, 1024, 1025, 1u << 20, UINT32_MAX };
        uint64_t n_bytes;

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                assert_true(pins_plan_bytes(sizes[i], &n_bytes));
                assert_true(n_bytes >= 4096 + (uint64_t)sizes[i] * 4 + (sizes[i] - 1) / 1024 + 1);
                assert_int_equal(n_bytes % PAGE_BYTES, 0);
        }
}

static void test_header(void **state)
{
        uint64_t n_bytes;
        Table t;

        (void)state;
        table_init(&t, 100000);
        assert_true(t.header->magic == LAYOUT_PINS_MAGIC);
        assert_int_equal(t.header->layout_version, LAYOUT_VERSION);
        assert_int_equal(t.header->n_slots_max, 100000);
        assert_true(pins_plan_bytes(100000, &n_bytes));
        assert_int_equal(t.header->region_bytes, n_bytes);
        assert_int_equal(pins_region_bytes(t.pins), n_bytes);
        table_deinit(&t);
}

static void test_counts(void **state)
{
        static const uint32_t slots[] = { 0, 1, 1023, 1024, 50000, 99999 };
        Table t;

        (void)state;
        table_init(&t, 100000);
        for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
                assert_int_equal(pins_count(t.pins, slots[i]), 0);
                atomic_store(summary(&t, slots[i]), 1);
                assert_int_equal(pins_count(t.pins, slots[i]), 0);
                atomic_fetch_add(counter(&t, slots[i]), 3);
                assert_int_equal(pins_count(t.pins, slots[i]), 3);
                atomic_fetch_sub(counter(&t, slots[i]), 3);
                assert_int_equal(pins_count(t.pins, slots[i]), 0);
        }
        /* A client that does not set the summary has no pin: it harms itself. */
        atomic_store(counter(&t, 3000), 1);
        assert_int_equal(pins_count(t.pins, 3000), 0);
        table_deinit(&t);
}

static void test_untouched(void **state)
{
        static const uint32_t slots[] = { 0, 1023, 1024, 50000, 98304, 99999 };
        uint64_t before;
        Table t;

        (void)state;
        table_init(&t, 100000);
        before = allocated_bytes(&t);
        assert_true(pins_is_untouched(t.pins));
        for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
                atomic_store(summary(&t, slots[i]), 1);
                assert_false(pins_is_untouched(t.pins));
                atomic_store(summary(&t, slots[i]), 0);
                assert_true(pins_is_untouched(t.pins));
        }
        /* Whoever says that all of it is in use makes no work, and no memory, of that. */
        memset((void *)(uintptr_t)summary(&t, 0), 1, 100000 / LAYOUT_PINS_PER_SUMMARY + 1);
        assert_false(pins_is_untouched(t.pins));
        assert_true(allocated_bytes(&t) <= before + PAGE_BYTES); /* that of the summary */
        table_deinit(&t);
}

static void test_holes_stay(void **state)
{
        uint64_t before;
        Table t;

        (void)state;
        table_init(&t, 1u << 20);
        atomic_store(summary(&t, 5), 1);
        atomic_store(counter(&t, 5), 1);
        assert_int_equal(pins_count(t.pins, 5), 1);
        before = allocated_bytes(&t);
        for (uint32_t slot = 0; slot < 1u << 20; slot += 100)
                (void)pins_count(t.pins, slot);
        assert_int_equal(allocated_bytes(&t), before);
        table_deinit(&t);
}

/* The client has it read-write, and still cannot take the ground from under the daemon. */
static void test_size_is_sealed(void **state)
{
        Table t;

        (void)state;
        table_init(&t, 1000);
        assert_int_equal(ftruncate(pins_fd(t.pins), 0), -1);
        assert_int_equal(ftruncate(pins_fd(t.pins), 1 << 30), -1);
        assert_int_equal(fallocate(pins_fd(t.pins), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                   (off_t)pins_region_bytes(t.pins)), 0);
        assert_int_equal(pins_count(t.pins, 999), 0);
        table_deinit(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_plan),
                UNIT_TEST(test_header),
                UNIT_TEST(test_counts),
                UNIT_TEST(test_untouched),
                UNIT_TEST(test_holes_stay),
                UNIT_TEST(test_size_is_sealed),
        };

        return cmocka_run_group_tests_name("pins", tests, NULL, NULL);
}
