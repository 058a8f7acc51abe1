/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lease lets its holder do, and nobody else: objects made in place without a system call; others read them and
 * cannot write, as far as they are of another uid than foliod; who wants bytes that nobody can change asks for a copy.
 * Where writers are not trusted there are no leases, and the kernel seals as ever.
 */
#include "tests/integration/raw-ring.h"
#include "tests/integration/spaces.h"
#include "tests/integration/trace.h"

#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)
#define OTHER_ID 65534

static void mark(const char *what)
{
        CHECK(write(-1, what, strlen(what)) < 0);
}

/* Created, written in place, sealed. The handle is the caller's. */
static struct folio_object *make_in_place(struct folio_client *client, const char *name, uint64_t n_bytes,
                                          uint64_t seed)
{
        struct folio_object *object;
        void *place;

        CHECK_OK(folio_create(client, name, n_bytes, NULL, &object));
        CHECK_OK(folio_object_map_write(object, &place));
        harness_fill(place, n_bytes, seed);
        CHECK_OK(folio_object_seal(object));
        return object;
}

/* --- in place ----------------------------------------------------------------------------------------------------- */

enum { N_MADE = 150 };               /* two records each: fewer than a ring has room for */

static uint64_t made_bytes(unsigned i)
{
        return i % 50 == 49 ? 300 * 1024 : 64 + i * 31;
}

static void make_untold(Child *child)
{
        struct folio_client *client = child_connect_with(child, 0);
        char name[64];

        spaces_warm_up(client, "trusted");
        /* So large a lease that none has to be asked for in between. */
        for (unsigned i = 0; i < 8; i++) {
                (void)snprintf(name, sizeof(name), "trusted:wide %u", i);
                CHECK_OK(folio_object_release(make_in_place(client, name, 900 * 1024, i)));
        }
        for (unsigned i = 0; i < 8; i++) {
                (void)snprintf(name, sizeof(name), "trusted:wide %u", i);
                CHECK_OK(folio_delete(client, name, 0));
        }
        CHECK_OK(folio_flush(client));
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        mark("making begins");
        for (unsigned i = 0; i < N_MADE; i++) {
                (void)snprintf(name, sizeof(name), "trusted:made %u", i);
                CHECK_OK(folio_object_release(make_in_place(client, name, made_bytes(i), i)));
        }
        mark("making ends");
        child_say(child, 2);
        CHECK(child_hear(child) == 2);
        CHECK_OK(folio_flush(client));
        child_say(child, 3);
        CHECK(child_hear(child) == 3);
        folio_client_unref(client);
}

/* The daemon stands still meanwhile: the one call there can be is to ring for it. */
static void test_in_place_without_system_calls(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        Child *child = child_start(foliod, make_untold, NULL);
        uint8_t *read = malloc(MIB);
        unsigned n_calls = 0;
        bool is_traced;
        char name[64];
        Trace trace;

        (void)state;
        assert_non_null(read);
        assert_int_equal(child_hear(child), 1);
        is_traced = trace_begin(&trace, foliod, child->pid, NULL);
        assert_int_equal(kill(foliod->pid, SIGSTOP), 0);
        child_say(child, 1);
        assert_int_equal(child_hear(child), 2);
        assert_int_equal(kill(foliod->pid, SIGCONT), 0);
        if (is_traced) {
                trace_end(&trace);
                n_calls = trace_count_between(&trace, "making begins", "making ends");
        }
        child_say(child, 2);
        assert_int_equal(child_hear(child), 3);
        assert_true(n_calls <= 1);
        for (unsigned i = 0; i < N_MADE; i++) {
                (void)snprintf(name, sizeof(name), "trusted:made %u", i);
                ASSERT_OK(folio_stat(client, name, &stat));
                assert_int_equal(stat.protection, FOLIO_PROTECTION_TRUSTED);
                assert_int_equal(stat.placement, FOLIO_PLACEMENT_PACKED);
                ASSERT_OK(folio_read(client, name, 0, read, made_bytes(i)));
                assert_true(harness_is_filled(read, made_bytes(i), i, 0));
        }
        assert_true(spaces_get(client, "trusted").leased_bytes > 0);
        assert_int_equal(spaces_delete_all(client, "trusted:made "), N_MADE);
        child_say(child, 3);
        child_finish(child);
        free(read);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

/* A handle whose seal nobody waited for shows its bytes, whatever becomes of the name, until it is released. */
static void test_handles_of_one_s_own(void **state)
{
        enum { N = 200 };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *objects[N];
        uint8_t bytes[5000];
        char name[64];

        (void)state;
        spaces_warm_up(client, "trusted");
        for (unsigned i = 0; i < N; i++) {
                (void)snprintf(name, sizeof(name), "trusted:held %u", i);
                objects[i] = make_in_place(client, name, 100 + i * 20, i);
                /* One in three is asked what it is, which needs an answer to its seal. */
                if (i % 3 == 0) {
                        ASSERT_OK(folio_object_stat(objects[i], &stat));
                        assert_int_equal(stat.state, FOLIO_STATE_SEALED);
                        assert_int_equal(stat.size_bytes, 100 + i * 20);
                }
                if (i % 2)
                        ASSERT_OK(folio_delete(client, name, 0));
                else
                        ASSERT_OK(folio_put(client, name, "other", 5, &replace));
        }
        for (unsigned i = 0; i < alive_scaled(5000); i++) {
                memset(bytes, (int)i, sizeof(bytes));
                ASSERT_OK(folio_put(client, "trusted:churn", bytes, i % sizeof(bytes), &replace));
        }
        for (unsigned i = 0; i < N; i++) {
                assert_true(harness_is_filled(folio_object_data(objects[i]), 100 + i * 20, i, 0));
                ASSERT_OK(folio_object_read(objects[i], 50, bytes, 50));
                assert_true(harness_is_filled(bytes, 50, i, 50));
                ASSERT_OK(folio_object_release(objects[i]));
        }
        assert_int_equal(spaces_delete_all(client, "trusted:"), N / 2 + 1);
        ASSERT_OK(folio_flush(client));
        assert_int_equal(spaces_get(client, "trusted").used_bytes, 0);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- who may write ------------------------------------------------------------------------------------------------ */

/* The memory at @data, however it is asked. */
static void cannot_write_mapping(const void *data, size_t n_bytes)
{
        uintptr_t begin = (uintptr_t)data & ~(uintptr_t)4095, end = (uintptr_t)data + n_bytes;

        CHECK(mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE) != 0 && errno == EACCES);
}

static void cannot_write_fd(int fd, uint64_t region_bytes)
{
        char path[64];

        CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        CHECK(pwrite(fd, "x", 1, 0) < 0);
        CHECK(ftruncate(fd, 0) < 0);
        CHECK(ftruncate(fd, (off_t)region_bytes + 4096) < 0);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        CHECK(open(path, O_RDWR | O_CLOEXEC) < 0 && (errno == EACCES || errno == EPERM));
        CHECK(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) < 0 && (errno == EACCES || errno == EPERM));
        CHECK(fchmod(fd, 0777) < 0);
}

typedef struct Published {
        uint64_t n_bytes;
        uint32_t slot;
        uint64_t generation;
} Published;

/* By the descriptor foliod gives, and by the library's own mapping. */
static void read_as_another(Child *child)
{
        const Published *published = child->userdata;
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = published->slot, .generation = published->generation };
        struct folio_client *client;
        struct folio_object *object;
        uint64_t region_bytes;
        uint32_t id;
        Raw *raw;

        child_become(OTHER_ID, OTHER_ID);
        client = child_connect(child);
        CHECK_OK(folio_get(client, "trusted:published", 0, 0, &object));
        CHECK(folio_object_size(object) == published->n_bytes);
        CHECK(harness_is_filled(folio_object_data(object), published->n_bytes, 7, 0));
        cannot_write_mapping(folio_object_data(object), published->n_bytes);
        raw = raw_open(child->foliod);
        id = raw_namespace(raw, "trusted");
        CHECK(raw_item(raw, VERB_REGION, id, item) == STATUS_OK);
        CHECK(raw->n_fds == 1);
        region_bytes = raw->reply.items[0].region_bytes;
        CHECK(raw->reply.items[0].offset_bytes + published->n_bytes <= region_bytes);
        cannot_write_fd(raw->fds[0], region_bytes);
        /* And for writing it is not given out. */
        item.flags |= PROTO_ITEM_WRITABLE;
        CHECK(raw_item(raw, VERB_REGION, id, item) != STATUS_OK && raw->n_fds == 0);
        raw_close(raw);
        CHECK_OK(folio_object_release(object));
        folio_client_unref(client);
}

/* Nor can the holder himself write in the book: that is the daemon's. */
static void be_read_by_another(void)
{
        static const uint64_t sizes[] = { 100, 8192, 300000, 3 * MIB };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "trusted");
        RawRing *ring = raw_ring_open(raw);
        uint64_t offset = 0;
        RawLease lease;

        assert_int_equal(raw_lease_open(raw, id, 4 * MIB, 4 * MIB, &lease), STATUS_OK);
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, lease.book_fd, 0), MAP_FAILED);
        assert_int_not_equal(ftruncate(lease.book_fd, 0), 0);
        assert_int_not_equal(ftruncate(lease.fd, 0), 0);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                RingRecord record = raw_record(RING_VERB_PUT, id, "published");
                const RingResult *result = &ring->results[ring->tail % RING_RECORDS];
                Published published = { .n_bytes = sizes[i] };

                harness_fill(lease.data + offset, sizes[i], 7);
                record.region_id = lease.region_id;
                record.offset_bytes = offset;
                record.size_bytes = sizes[i];
                record.flags = FOLIO_REPLACE;
                assert_int_equal(raw_ring_call(ring, record), STATUS_OK);
                published.slot = result->slot;
                published.generation = result->generation;
                child_finish(child_start(foliod, read_as_another, &published));
                offset += (sizes[i] + 63) / 64 * 64;
        }
        assert_int_equal(raw_ring_call(ring, raw_record(RING_VERB_DELETE, id, "published")), STATUS_OK);
        raw_lease_close(&lease);
        raw_ring_close(ring);
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
}

static void test_readers_cannot_write(void **state)
{
        (void)state;
        if (geteuid() != 0) {
                print_message("# only root can be another user\n");
                skip();
        }
        be_read_by_another();
}

/* --- a copy that nobody can change -------------------------------------------------------------------------------- */

static bool are_all(const void *data, size_t n_bytes, uint8_t value)
{
        const uint8_t *bytes = data;

        for (size_t i = 0; i < n_bytes; i++)
                if (bytes[i] != value)
                        return false;
        return true;
}

/* Keeps the place it wrote to, and writes there again after the seal. */
static void break_a_promise(struct folio_client *writer, struct folio_client *reader, uint64_t n_bytes)
{
        struct folio_object *made, *plain, *copy, *later;
        void *place;

        ASSERT_OK(folio_create(writer, "trusted:promise", n_bytes, NULL, &made));
        ASSERT_OK(folio_object_map_write(made, &place));
        memset(place, 1, n_bytes);
        ASSERT_OK(folio_object_seal(made));
        ASSERT_OK(folio_flush(writer));
        ASSERT_OK(folio_get(reader, "trusted:promise", FOLIO_GET_SEALED, 0, &copy));
        ASSERT_OK(folio_get(reader, "trusted:promise", 0, 0, &plain));
        assert_true(are_all(folio_object_data(copy), n_bytes, 1));
        memset(place, 2, n_bytes);
        /* It is one memory, which is why stat says what it says. */
        assert_true(are_all(folio_object_data(plain), n_bytes, 2));
        assert_true(are_all(folio_object_data(copy), n_bytes, 1));
        assert_int_equal(folio_object_size(copy), n_bytes);
        ASSERT_OK(folio_get(reader, "trusted:promise", FOLIO_GET_SEALED, 0, &later));
        assert_true(are_all(folio_object_data(later), n_bytes, 2));
        memset(place, 3, n_bytes);
        assert_true(are_all(folio_object_data(later), n_bytes, 2));
        ASSERT_OK(folio_delete(writer, "trusted:promise", 0));
        ASSERT_OK(folio_object_release(made));
        ASSERT_OK(folio_object_release(plain));
        ASSERT_OK(folio_flush(writer));
        assert_true(are_all(folio_object_data(copy), n_bytes, 1));
        ASSERT_OK(folio_object_release(copy));
        ASSERT_OK(folio_object_release(later));
}

static void test_get_sealed(void **state)
{
        static const uint64_t sizes[] = { 1, 100, 5000, 100000, 3 * MIB };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *writer = foliod_connect_with(foliod, 0), *reader = foliod_connect(foliod);
        struct folio_object *object;

        (void)state;
        spaces_warm_up(writer, "trusted");
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                break_a_promise(writer, reader, sizes[i]);
        /* Of what the kernel protects it is the get that it always was. */
        ASSERT_OK(folio_put(writer, "default:sealed", "sealed", 6, NULL));
        ASSERT_OK(folio_flush(writer));
        ASSERT_OK(folio_get(reader, "default:sealed", FOLIO_GET_SEALED, 0, &object));
        assert_memory_equal(folio_object_data(object), "sealed", 6);
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(reader, "default:sealed", 0));
        folio_client_unref(writer);
        folio_client_unref(reader);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- where there are leases, and where there are none ------------------------------------------------------------- */

static void check_protection(struct folio_client *client, const char *space, bool is_trusted)
{
        static const uint64_t sizes[] = { 1, 5000, 300000, 3 * MIB };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        char name[64];

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                (void)snprintf(name, sizeof(name), "%s:protected", space);
                ASSERT_OK(folio_object_release(make_in_place(client, name, sizes[i], i)));
                ASSERT_OK(folio_stat(client, name, &stat));
                if (is_trusted)
                        assert_int_equal(stat.protection, FOLIO_PROTECTION_TRUSTED);
                else
                        assert_in_range(stat.protection, FOLIO_PROTECTION_KERNEL, FOLIO_PROTECTION_MODE);
                ASSERT_OK(folio_delete(client, name, 0));
        }
        ASSERT_OK(folio_flush(client));
        assert_int_equal(spaces_get(client, space).writers == FOLIO_WRITERS_TRUSTED, is_trusted);
        assert_int_equal(spaces_get(client, space).leased_bytes > 0, is_trusted);
}

static void test_untrusted_stays_sealed(void **state)
{
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);
        ProtoItem item = { .size_bytes = 4096, .offset_bytes = 2 * MIB };
        ProtoRequest ring = { .verb = VERB_RING };
        Raw *raw = raw_open(foliod);

        (void)state;
        for (unsigned s = 0; s < N_SPACES; s++) {
                spaces_warm_up(client, spaces_names[s]);
                check_protection(client, spaces_names[s], s == SPACE_TRUSTED);
        }
        /* Nor is one to be had by asking: not there, and nowhere without a ring. */
        assert_int_not_equal(raw_item(raw, VERB_LEASE, raw_namespace(raw, "trusted"), item), STATUS_OK);
        assert_true(raw_call(raw, &ring));
        assert_int_equal(raw->reply.status, STATUS_OK);
        assert_int_not_equal(raw_item(raw, VERB_LEASE, raw_namespace(raw, "default"), item), STATUS_OK);
        assert_int_equal(raw_item(raw, VERB_LEASE, raw_namespace(raw, "trusted"), item), STATUS_OK);
        raw_close(raw);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The daemon of a user trusts its clients, who are all this user, unless it is told otherwise. */
static void test_daemon_of_a_user(void **state)
{
        Foliod *foliod = foliod_start(FOLIOD_OF_USER, "--budget", "256M", ALIVE_NO_POOL, "--namespace",
                                      "sealed:writers=untrusted", NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect_with(foliod, 0);

        (void)state;
        spaces_warm_up(client, "default");
        check_protection(client, "default", true);
        spaces_warm_up(client, "sealed");
        check_protection(client, "sealed", false);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void write_all_of_it(struct folio_client *client, uint64_t n_bytes, unsigned n_rounds)
{
        for (unsigned i = 0; i < n_rounds; i++) {
                struct folio_object *object;
                void *memory;

                ASSERT_OK(folio_create(client, "trusted:blank", n_bytes, NULL, &object));
                ASSERT_OK(folio_object_map_write(object, &memory));
                for (uint64_t at = 0; at < n_bytes; at++)
                        if (((const uint8_t *)memory)[at] != 0)
                                fail_msg("byte %llu of %llu in round %u", (unsigned long long)at,
                                         (unsigned long long)n_bytes, i);
                memset(memory, 0xa5, n_bytes);
                if (i % 3 == 0) {
                        ASSERT_OK(folio_object_abort(object));
                } else {
                        ASSERT_OK(folio_object_seal(object));
                        ASSERT_OK(folio_object_release(object));
                        ASSERT_OK(folio_delete(client, "trusted:blank", 0));
                }
        }
}

/* Whoever had it before, and whether he published it: what an object is made of reads as zeros. */
static void test_made_of_zeros(void **state)
{
        static const uint64_t sizes[] = { 1, 100, 5000, 40000, MIB - 1, MIB, 2 * MIB + 1, 9 * MIB };
        Foliod *foliod = spaces_start();
        Alive before = alive_begin(foliod);

        (void)state;
        for (unsigned round = 0; round < 3; round++) {
                struct folio_client *client = foliod_connect(foliod);

                spaces_warm_up(client, "trusted");
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                        write_all_of_it(client, sizes[i], 10);
                ASSERT_OK(folio_flush(client));
                folio_client_unref(client);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_in_place_without_system_calls),
                INTEGRATION_TEST(test_handles_of_one_s_own),
                INTEGRATION_TEST(test_readers_cannot_write),
                INTEGRATION_TEST(test_get_sealed),
                INTEGRATION_TEST(test_untrusted_stays_sealed),
                INTEGRATION_TEST(test_daemon_of_a_user),
                INTEGRATION_TEST(test_made_of_zeros),
        };

        return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
