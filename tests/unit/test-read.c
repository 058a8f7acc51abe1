/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an object: mapped or by descriptor, and what bad memory does. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/lib/lookup.h"
#include "client/read.h"
#include "client/view.h"
#include "tests/unit/harness.h"

static void test_should_map(void **state)
{
        static const struct {
                uint64_t object_bytes, huge_bytes, n_bytes;
                bool was_read;
                bool should;
        } rows[] = {
                /* Small: the mapping saves the next round trip. */
                { 0, 0, 0, false, true },
                { 1, 0, 1, false, true },
                { MIB, 0, MIB, false, true },
                /* Whole and once, of small pages. */
                { MIB + 1, 0, MIB + 1, false, false },
                { 32 * MIB, 0, 32 * MIB, false, false },
                { 32 * MIB + 1, 0, 32 * MIB + 1, false, true },
                { GIB, 0, GIB, false, true },
                { UINT64_MAX, 0, UINT64_MAX, false, true },
                /* Again. */
                { MIB + 1, 0, MIB + 1, true, true },
                { 32 * MIB, 0, 32 * MIB, true, true },
                /* A part of it: the other parts come. */
                { 32 * MIB, 0, 32 * MIB - 1, false, true },
                { 32 * MIB, 0, 1, false, true },
                /* Huge, by half at least. */
                { 4 * MIB, 4 * MIB, 4 * MIB, false, true },
                { 8 * MIB, 4 * MIB, 8 * MIB, false, true },
                { 8 * MIB, 2 * MIB, 8 * MIB, false, false },
                { 3 * MIB, 2 * MIB, 3 * MIB, false, true },
                { 3 * MIB, UINT64_MAX, 3 * MIB, false, true },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ReadCase read = { rows[i].object_bytes, rows[i].huge_bytes, rows[i].n_bytes, rows[i].was_read };

                if (read_should_map(&read) != rows[i].should)
                        fail_msg("row %zu", i);
        }
}

typedef struct Fixture {
        Client client;
        Space space;
        Object object;
        int fd;
} Fixture;

/* A sealed object that is all of a region. */
static void fixture_make(Fixture *fixture, uint64_t n_bytes)
{
        uint8_t *data;

        *fixture = (Fixture){ .fd = memfd_create("object", MFD_CLOEXEC) };
        assert_int_equal(ftruncate(fixture->fd, (off_t)n_bytes), 0);
        data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fixture->fd, 0);
        assert_true(data != MAP_FAILED);
        for (uint64_t i = 0; i < n_bytes; i++)
                data[i] = (uint8_t)(i * 7 + i / 4096);
        munmap(data, n_bytes);
        assert_int_equal(forked_take_mark(&fixture->client.fork_mark), 0);
        assert_int_equal(maps_new(0, 0, &fixture->client.maps), 0);
        object_init(&fixture->object, &fixture->client, &fixture->space);
        fixture->object.placement = FOLIO_PLACEMENT_OWN;
        fixture->object.size_bytes = n_bytes;
        fixture->object.capacity_bytes = n_bytes;
        fixture->object.region_id = 7;
        fixture->object.is_pinned = true;
}

static void fixture_drop(Fixture *fixture)
{
        fixture->object.is_pinned = false;
        atomic_fetch_add(&fixture->client.n_users, 1); /* it is not one that can be freed */
        object_deinit(&fixture->object);
        maps_free(fixture->client.maps);
        close(fixture->fd);
}

static bool is_right(const uint8_t *bytes, uint64_t offset, size_t n_bytes)
{
        for (size_t i = 0; i < n_bytes; i++)
                if (bytes[i] != (uint8_t)((offset + i) * 7 + (offset + i) / 4096))
                        return false;
        return true;
}

/* Whatever way the bytes come they are the same, and nothing is written beside them. */
static void test_ways(void **state)
{
        enum { N_BYTES = 5 << 20 };
        static const struct {
                uint64_t offset;
                size_t n_bytes;
        } rows[] = { { 0, N_BYTES }, { 0, 1 }, { 4095, 2 }, { N_BYTES - 1, 1 }, { 2097151, 2097154 }, { 12345, 65536 }, { 0, 0 } };
        static uint8_t buffer[N_BYTES + 2];

        for (unsigned way = 0; way < 4; way++) {
                for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                        ProtoItemReply item = { .region_id = 7, .region_bytes = N_BYTES, .placement = FOLIO_PLACEMENT_OWN };
                        Fixture fixture;
                        size_t n = rows[i].n_bytes;
                        Mapping *mapping;
                        int r;

                        fixture_make(&fixture, N_BYTES);
                        memset(buffer, 0xee, sizeof(buffer));
                        if (way == 0) {
                                assert_int_equal(maps_open(fixture.client.maps, 7, fixture.fd, N_BYTES, false, false, &mapping), 0);
                                assert_true(object_attach(&fixture.object, mapping));
                        } else if (way == 1) {
                                fixture.object.fd = dup(fixture.fd);
                        }
                        r = object_read_now(&fixture.object, rows[i].offset, buffer + 1, n);
                        assert_int_equal(r, way < 2 || n == 0 ? 1 : 0);
                        if (r == 0) {
                                /* The second whole read of a region of small pages maps it. */
                                if (way == 3)
                                        assert_false(maps_note_read(fixture.client.maps, 7));
                                assert_int_equal(object_read_region(&fixture.object, &item, dup(fixture.fd), rows[i].offset,
                                                                    buffer + 1, n), 0);
                                assert_int_equal(maps_count(), way == 3 || n < N_BYTES);
                        }
                        assert_int_equal(buffer[0], 0xee);
                        assert_int_equal(buffer[n + 1], 0xee);
                        assert_true(is_right(buffer + 1, rows[i].offset, n));
                        fixture_drop(&fixture);
                        assert_int_equal(maps_count(), 0);
                }
        }
}

static void test_answers_that_lie(void **state)
{
        static const ProtoItemReply rows[] = {
                { .region_id = 7, .region_bytes = 0 },
                { .region_id = 7, .region_bytes = 4095 },
                { .region_id = 7, .region_bytes = 4096, .offset_bytes = 1 },
                { .region_id = 7, .region_bytes = 8192, .offset_bytes = UINT64_MAX },
                { .region_id = 7, .region_bytes = UINT64_MAX, .offset_bytes = UINT64_MAX - 4095 },
                { .region_id = 7, .region_bytes = 8192 }, /* the file has half of that */
        };
        uint8_t buffer[4096];

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Fixture fixture;

                fixture_make(&fixture, 4096);
                assert_int_equal(object_read_region(&fixture.object, &rows[i], dup(fixture.fd), 0, buffer, 4096), FOLIO_E_PROTOCOL);
                assert_int_equal(object_read_region(&fixture.object, &rows[i], -1, 0, buffer, 4096), FOLIO_E_PROTOCOL);
                fixture_drop(&fixture);
        }
        assert_int_equal(maps_count(), 0);
}

/*
 * First the truth, and then, of the same region or another, a place beyond what is mapped: what was checked at first is
 * what is read.
 */
static void test_answers_that_change(void **state)
{
        static const ProtoItemReply rows[] = {
                { .region_id = 7, .region_bytes = UINT64_MAX, .offset_bytes = UINT64_C(1) << 40 },
                { .region_id = 7, .region_bytes = 12288, .offset_bytes = 8192 },
                { .region_id = 8, .region_bytes = 8192, .offset_bytes = 4096 },
                { .region_id = 8, .region_bytes = 4096 },
        };
        static const ProtoItemReply first = { .region_id = 7, .region_bytes = 4096, .placement = FOLIO_PLACEMENT_OWN };
        uint8_t buffer[4096];

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                ProtoItemReply lie = rows[i];
                Fixture fixture;
                const uint8_t *view;
                int fd;

                lie.placement = FOLIO_PLACEMENT_OWN;
                fixture_make(&fixture, 4096);
                fd = fixture.fd;
                assert_int_equal(view_add_region(&fixture.object, &first, dup(fd), false), 0);
                view = view_data(&fixture.object);
                assert_int_equal(object_add_region(&fixture.object, &first, dup(fd), false, false), 0);
                assert_int_equal(object_add_region(&fixture.object, &lie, dup(fd), true, false), FOLIO_E_PROTOCOL);
                assert_int_equal(object_read_region(&fixture.object, &lie, dup(fd), 0, buffer, 4096), FOLIO_E_PROTOCOL);
                assert_int_equal(view_add_region(&fixture.object, &lie, dup(fd), false), FOLIO_E_PROTOCOL);
                assert_int_equal(object_read_now(&fixture.object, 0, buffer, 4096), 1);
                assert_true(is_right(buffer, 0, 4096));
                assert_true(is_right(object_peek(&fixture.object), 0, 4096));
                assert_ptr_equal(view_data(&fixture.object), view);
                fixture_drop(&fixture);
        }
        assert_int_equal(maps_count(), 0);
}

/*
 * A page that is not there any more stands for one that is bad: the kernel raises the same signal at a load, and pread()
 * fails. The rest of the object is read as ever.
 */
static void test_bad_memory(void **state)
{
        enum { N_BYTES = 3 << 20, GOOD = 1 << 20 };
        static uint8_t buffer[N_BYTES];
        Fixture fixture;
        Mapping *mapping;

        for (unsigned way = 0; way < 2; way++) {
                fixture_make(&fixture, N_BYTES);
                if (way == 0) {
                        assert_int_equal(maps_open(fixture.client.maps, 7, fixture.fd, N_BYTES, false, false, &mapping), 0);
                        assert_true(object_attach(&fixture.object, mapping));
                } else {
                        fixture.object.fd = dup(fixture.fd);
                }
                assert_int_equal(ftruncate(fixture.fd, GOOD), 0);
                assert_int_equal(object_read_now(&fixture.object, GOOD - 100, buffer, 100), 1);
                assert_true(is_right(buffer, GOOD - 100, 100));
                assert_int_equal(object_read_now(&fixture.object, 0, buffer, N_BYTES), FOLIO_E_IO);
                assert_non_null(strstr(error_get_sentence(), "bad memory"));
                assert_int_equal(object_read_now(&fixture.object, GOOD, buffer, 1), FOLIO_E_IO);
                assert_int_equal(object_read_now(&fixture.object, N_BYTES - 8, buffer, 8), FOLIO_E_IO);
                assert_int_equal(object_read_now(&fixture.object, 0, buffer, GOOD), 1);
                assert_true(is_right(buffer, 0, GOOD));
                fixture_drop(&fixture);
        }
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                /* First: the library's handler of SIGBUS is installed once, and the harness puts its own in its place for each test. */
                UNIT_TEST(test_bad_memory),
                UNIT_TEST(test_should_map),
                UNIT_TEST(test_ways),
                UNIT_TEST(test_answers_that_lie),
                UNIT_TEST(test_answers_that_change),
        };

        return cmocka_run_group_tests_name("read", tests, NULL, NULL);
}
