/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in the descriptors of a namespace: a table of headers that are not believed, and what is mapped how. */
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "client/lib/maps.h"
#include "client/lib/pins.h"
#include "tests/unit/index-fake.h"

static void test_good(void **state)
{
        FakeIndex fake;
        Space *space;

        fake_index_new(&fake, 100, 16, 16);
        assert_int_equal(fake_index_open(&fake, &space), 0);
        assert_string_equal(space->name, "test");
        assert_int_equal(space->id, 7);
        assert_int_equal(space->instance, 1);
        assert_int_equal(space->header.n_slots_max, 100);
        assert_ptr_equal(space_ref(space), space);
        space_unref(space);
        assert_int_equal(maps_count(), 2);
        space_unref(space);
        space_unref(NULL);
        assert_int_equal(maps_count(), 0);
        fake_index_free(&fake);
}

typedef struct Row {
        const char *what;
        size_t offset;
        uint64_t value;
        size_t n_bytes;
} Row;

#define ROW(type, field, value) { #field " = " #value, offsetof(type, field), value, sizeof(((type *)0)->field) }
#define INDEX(field, value) ROW(LayoutIndexHeader, field, value)
#define PINS(field, value) ROW(LayoutPinsHeader, field, value)

/* Each alone in an otherwise good header; the sum of all areas there is below 1 MiB. */
static const Row bad_index[] = {
        INDEX(magic, 0),
        INDEX(magic, LAYOUT_PINS_MAGIC),
        INDEX(layout_version, 0),
        INDEX(layout_version, 2),
        INDEX(header_bytes, 0),
        INDEX(header_bytes, 4095),
        INDEX(header_bytes, UINT32_MAX),
        INDEX(incompatible_flags, 1),
        INDEX(incompatible_flags, 1u << 31),
        INDEX(region_bytes, 0),
        INDEX(region_bytes, 4095),
        INDEX(region_bytes, 4096),
        INDEX(region_bytes, MIB),
        INDEX(region_bytes, UINT64_MAX),
        INDEX(namespace_id, 8),
        INDEX(n_slots_max, 0),
        INDEX(n_slots_max, 101), /* not what the pin table is for */
        INDEX(n_slots_max, 1u << 20),
        INDEX(n_slots_max, UINT32_MAX),
        INDEX(n_buckets_max, 0),
        INDEX(n_buckets_max, 1u << 20),
        INDEX(n_buckets_max, UINT32_MAX),
        INDEX(n_overflow_max, 1u << 20),
        INDEX(n_overflow_max, UINT32_MAX),
        INDEX(n_graves, 0),
        INDEX(n_graves, 63),
        INDEX(n_graves, 1u << 31),
        INDEX(n_events, 0),
        INDEX(n_events, 15),
        INDEX(n_events, 1u << 31),
        INDEX(buckets_offset, 0),
        INDEX(buckets_offset, 4095),
        INDEX(buckets_offset, 4097),
        INDEX(buckets_offset, MIB),
        INDEX(buckets_offset, UINT64_MAX),
        INDEX(buckets_offset, UINT64_MAX - 63),
        INDEX(overflow_offset, 0),
        INDEX(overflow_offset, 4097),
        INDEX(overflow_offset, UINT64_MAX - 63),
        INDEX(slots_offset, 0),
        INDEX(slots_offset, 4100),
        INDEX(slots_offset, UINT64_MAX - 63),
        INDEX(graves_offset, 0),
        INDEX(graves_offset, 4104),
        INDEX(graves_offset, UINT64_MAX - 63),
        INDEX(events_offset, 0),
        INDEX(events_offset, 4128),
        INDEX(events_offset, UINT64_MAX - 63),
        INDEX(heap_offset, 0),
        INDEX(heap_offset, 4128),
        INDEX(heap_offset, UINT64_MAX - 63),
        INDEX(heap_bytes, MIB),
        INDEX(heap_bytes, UINT64_MAX),
};

static const Row bad_pins[] = {
        PINS(magic, 0),
        PINS(magic, LAYOUT_INDEX_MAGIC),
        PINS(layout_version, 0),
        PINS(layout_version, 2),
        PINS(n_slots_max, 0),
        PINS(n_slots_max, 99),
        PINS(n_slots_max, UINT32_MAX),
        PINS(region_bytes, 0),
        PINS(region_bytes, 4096),
        PINS(region_bytes, 12288),
        PINS(region_bytes, UINT64_MAX),
        PINS(summary_offset, 0),
        PINS(summary_offset, 4095),
        PINS(summary_offset, 8192),
        PINS(summary_offset, UINT64_MAX),
        PINS(counters_offset, 0),
        PINS(counters_offset, 4161),
        PINS(counters_offset, 8192 - 384), /* 400 bytes are needed */
        PINS(counters_offset, UINT64_MAX - 63),
};

static void check_bad(bool is_pins, const Row *rows, size_t n)
{
        FakeIndex fake;
        Space *space = NULL;

        fake_index_new(&fake, 100, 16, 16);
        for (size_t i = 0; i < n; i++) {
                int fd = is_pins ? fake.pins_fd : fake.index_fd;
                uint8_t before[8], damaged[8];

                assert_int_equal(pread(fd, before, rows[i].n_bytes, (off_t)rows[i].offset), rows[i].n_bytes);
                memcpy(damaged, &rows[i].value, sizeof(damaged));
                assert_int_equal(pwrite(fd, damaged, rows[i].n_bytes, (off_t)rows[i].offset), rows[i].n_bytes);
                if (fake_index_open(&fake, &space) != SPACE_E_LAYOUT)
                        fail_msg("taken for good: %s", rows[i].what);
                assert_int_equal(pwrite(fd, before, rows[i].n_bytes, (off_t)rows[i].offset), rows[i].n_bytes);
        }
        assert_int_equal(maps_count(), 0);
        assert_int_equal(fake_index_open(&fake, &space), 0);
        space_unref(space);
        fake_index_free(&fake);
}

static void test_bad_index_headers(void **state)
{
        check_bad(false, bad_index, ARRAY_SIZE(bad_index));
}

static void test_bad_pins_headers(void **state)
{
        check_bad(true, bad_pins, ARRAY_SIZE(bad_pins));
}

static void test_name_without_end(void **state)
{
        FakeIndex fake;
        Space *space;

        fake_index_new(&fake, 100, 16, 16);
        memset(fake.header->namespace_name, 'x', 64);
        assert_int_equal(fake_index_open(&fake, &space), SPACE_E_LAYOUT);
        fake_index_free(&fake);
}

/* The areas may end exactly where the region does, and a flag that may be ignored is. */
static void test_at_the_limit(void **state)
{
        FakeIndex fake;
        Space *space;

        fake_index_new(&fake, 100, 16, 0);
        fake.header->compatible_flags = UINT32_MAX;
        fake.header->heap_bytes = fake.header->region_bytes - fake.header->heap_offset;
        assert_int_equal(fake_index_open(&fake, &space), 0);
        space_unref(space);
        fake.header->heap_bytes++;
        assert_int_equal(fake_index_open(&fake, &space), SPACE_E_LAYOUT);
        fake_index_free(&fake);
}

static void test_bad_descriptors(void **state)
{
        ProtoNamespace ns = { .name = "test", .id = 7 };
        Space *space = NULL;
        int empty = memfd_create("empty", MFD_CLOEXEC);
        FakeIndex fake;

        fake_index_new(&fake, 100, 16, 16);
        assert_int_equal(space_new(&ns, 1, dup(fake.index_fd), -1, &space), SPACE_E_LAYOUT);
        assert_int_equal(space_new(&ns, 1, -1, dup(fake.pins_fd), &space), SPACE_E_LAYOUT);
        assert_int_equal(space_new(&ns, 1, dup(fake.pins_fd), dup(fake.index_fd), &space), SPACE_E_LAYOUT);
        assert_int_equal(space_new(&ns, 1, dup(empty), dup(fake.pins_fd), &space), SPACE_E_LAYOUT);
        assert_int_equal(space_new(&ns, 1, dup(fake.index_fd), dup(empty), &space), SPACE_E_LAYOUT);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        assert_int_equal(space_new(&ns, 1, null, dup(fake.pins_fd), &space), SPACE_E_LAYOUT);
        assert_int_equal(space_new(&ns, 1, 1000000, dup(fake.pins_fd), &space), -EBADF);
        assert_null(space);
        assert_int_equal(maps_count(), 0);
        close(empty);
        fake_index_free(&fake);
}

/* The private copy counts: what the other side writes into the header later changes nothing. */
static void test_header_is_a_copy(void **state)
{
        FakeIndex fake;
        Space *space;

        fake_index_new(&fake, 100, 16, 16);
        assert_int_equal(fake_index_open(&fake, &space), 0);
        fake.header->n_slots_max = UINT32_MAX;
        fake.header->heap_bytes = UINT64_MAX;
        assert_int_equal(space->header.n_slots_max, 100);
        assert_int_equal(space->header.heap_bytes, 64 * KIB);
        fake.header->region_bytes = space->header.region_bytes;
        space_unref(space);
        fake_index_free(&fake);
}

/* A child has the index, and cannot touch the pins. */
static void test_pins_stay_with_the_parent(void **state)
{
        FakeIndex fake;
        Space *space;
        pid_t pid;
        int status;

        fake_index_new(&fake, 100, 16, 16);
        fake_index_add(&fake, &(FakeObject){ .key = fake_key("key"), .state = LAYOUT_SLOT_SEALED });
        assert_int_equal(fake_index_open(&fake, &space), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                unsigned char there;

                /* ENOMEM: not mapped. */
                if (mincore((void *)(uintptr_t)space->shared, 1, &there) != 0)
                        _exit(1);
                _exit(mincore(space->pins, 1, &there) == -1 && errno == ENOMEM ? 0 : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        space_unref(space);
        fake_index_free(&fake);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_good),
                UNIT_TEST(test_bad_index_headers),
                UNIT_TEST(test_bad_pins_headers),
                UNIT_TEST(test_name_without_end),
                UNIT_TEST(test_at_the_limit),
                UNIT_TEST(test_bad_descriptors),
                UNIT_TEST(test_header_is_a_copy),
                UNIT_TEST(test_pins_stay_with_the_parent),
        };

        return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
