/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of objects that were never written read as zeros, by every call that copies bytes out, and reading them takes
 * no memory: neither of the object, which keeps the pages it has, nor faults of who reads.
 */
#include "tests/integration/alive.h"
#include "tests/integration/raw.h"
#include "tests/integration/faults.h"

#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE UINT64_C(4096)

static uint32_t next_random(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(*state >> 33);
}

/* An object that is made by hand: so that its file can be looked at, which the library shows to nobody. */
typedef struct Made {
        const char *name;            /* in the namespace of @id */
        uint32_t id;
        ProtoItem by_slot;
        int fd;                      /* read-only */
        uint64_t size_bytes;
        uint8_t *bytes;              /* what must be there */
} Made;

static void make_object(Raw *raw, Made *made, uint64_t capacity_bytes, uint32_t flags, int *ret_fd)
{
        const char *key = strchr(made->name, ':') ? strchr(made->name, ':') + 1 : made->name;
        ProtoItem item = { .key = raw_key(key), .size_bytes = made->size_bytes, .capacity_bytes = capacity_bytes,
                           .flags = flags };
        char path[32];

        assert_int_equal(raw_item(raw, VERB_CREATE, made->id, item), STATUS_OK);
        made->by_slot = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = raw->reply.items[0].slot,
                                     .generation = raw->reply.items[0].generation };
        *ret_fd = raw_take_fd(raw, 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", *ret_fd);
        made->fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(made->fd >= 0);
        made->bytes = calloc(1, (capacity_bytes ? capacity_bytes : made->size_bytes) + 1);
        assert_non_null(made->bytes);
}

static void seal_object(Raw *raw, Made *made, int consume_fd)
{
        close(consume_fd);
        assert_int_equal(raw_item(raw, VERB_SEAL, made->id, made->by_slot), STATUS_OK);
}

static void end_object(Made *made)
{
        close(made->fd);
        free(made->bytes);
}

/* What its file takes. */
static uint64_t file_pages(const Made *made)
{
        struct stat st;

        assert_int_equal(fstat(made->fd, &st), 0);
        return (uint64_t)st.st_blocks * 512 / PAGE;
}

static struct folio_stat stat_of(struct folio_client *client, const char *name)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        ASSERT_OK(folio_stat(client, name, &stat));
        return stat;
}

/* Pieces of all sizes, mostly far apart, some on the borders of pages and huge pages. */
static void write_pieces(Made *made, int fd, uint64_t *random)
{
        unsigned n_pieces = 1 + next_random(random) % 40;

        for (unsigned i = 0; i < n_pieces; i++) {
                uint64_t offset = next_random(random) % made->size_bytes;
                uint64_t n = 1 + next_random(random) % (i % 7 ? 9000 : 300000);

                if (i % 3 == 0)
                        offset = offset / PAGE * PAGE;
                if (i % 11 == 0)
                        offset = offset / (2 * MIB) * 2 * MIB;
                n = n < made->size_bytes - offset ? n : made->size_bytes - offset;
                harness_fill(made->bytes + offset, n, next_random(random));
                assert_int_equal(pwrite(fd, made->bytes + offset, n, (off_t)offset), n);
        }
}

static void compare_at_random(const Made *made, struct folio_client *client, struct folio_object *object,
                              uint8_t *buffer, unsigned n_reads, uint64_t *random)
{
        for (unsigned i = 0; i < n_reads; i++) {
                uint64_t offset = next_random(random) % made->size_bytes;
                uint64_t n = next_random(random) % (i % 4 ? 20000 : made->size_bytes);

                n = n < made->size_bytes - offset ? n : made->size_bytes - offset;
                memset(buffer, 0xee, n + 1);
                if (object)
                        ASSERT_OK(folio_object_read(object, offset, buffer, n));
                else
                        ASSERT_OK(folio_read(client, made->name, offset, buffer, n));
                assert_memory_equal(buffer, made->bytes + offset, n);
                assert_int_equal(buffer[n], 0xee);
        }
}

static void compare_many(const Made *made, struct folio_client *client, struct folio_object *object, uint8_t *buffer,
                         uint64_t *random)
{
        struct folio_read_item items[60];
        uint64_t at = 0;

        for (size_t i = 0; i < 60; i++) {
                uint64_t offset = next_random(random) % made->size_bytes;
                uint64_t n = next_random(random) % (made->size_bytes / 60 + 1);

                n = n < made->size_bytes - offset ? n : made->size_bytes - offset;
                items[i] = (struct folio_read_item){ .name = i % 2 ? made->name : NULL, .object = i % 2 ? NULL : object,
                                                     .offset_bytes = offset, .buffer = buffer + at, .n_bytes = n };
                at += n;
        }
        memset(buffer, 0xee, made->size_bytes + 1);
        assert_int_equal(folio_read_many(client, items, 60), 0);
        for (size_t i = 0; i < 60; i++) {
                assert_int_equal(items[i].error, 0);
                assert_memory_equal(items[i].buffer, made->bytes + items[i].offset_bytes, items[i].n_bytes);
        }
        assert_int_equal(buffer[made->size_bytes], 0xee);
}

/* Each way of reading by a client of its own, that has nothing mapped yet. */
static void compare_all(const Made *made, const Foliod *foliod, bool is_steady, uint64_t *random)
{
        uint8_t *buffer = malloc(made->size_bytes + 1);
        uint64_t n_pages = file_pages(made);

        assert_non_null(buffer);
        for (unsigned way = 0; way < 6; way++) {
                struct folio_client *client = foliod_connect(foliod);
                struct folio_object *object = NULL;

                if (way < 4)
                        ASSERT_OK(folio_get(client, made->name, way % 2 ? FOLIO_GET_UNMAPPED : 0, 0, &object));
                if (way < 2) {
                        memset(buffer, 0xee, made->size_bytes);
                        ASSERT_OK(folio_object_read(object, 0, buffer, made->size_bytes));
                        assert_memory_equal(buffer, made->bytes, made->size_bytes);
                }
                if (way == 2 || way == 3)
                        compare_many(made, client, object, buffer, random);
                if (way == 4) {
                        memset(buffer, 0xee, made->size_bytes);
                        ASSERT_OK(folio_read(client, made->name, 0, buffer, made->size_bytes));
                        assert_memory_equal(buffer, made->bytes, made->size_bytes);
                }
                compare_at_random(made, client, object, buffer, 30, random);
                if (is_steady) {
                        assert_int_equal(file_pages(made), n_pages);
                        assert_int_equal(stat_of(client, made->name).allocated_bytes, n_pages * PAGE);
                }
                if (object)
                        ASSERT_OK(folio_object_release(object));
                folio_client_unref(client);
        }
        free(buffer);
}

/* Sealed objects with random holes. @is_steady: nothing in the daemon adds pages either. */
static void follow_sealed(const Foliod *foliod, Raw *raw, const char *space, bool is_steady)
{
        uint32_t id = raw_namespace(raw, space);

        for (uint64_t seed = 1; seed <= alive_scaled(20); seed++) {
                struct folio_client *client = foliod_connect(foliod);
                char name[64];
                uint64_t random = seed;
                Made made = { .name = name, .id = id };
                bool has_holes;
                int fd;

                snprintf(name, sizeof(name), "%s:sealed", space);
                made.size_bytes = 1 + next_random(&random) % (seed % 3 ? 9 * MIB : 5 * PAGE);
                make_object(raw, &made, 0, seed % 4 ? FOLIO_SPARSE : FOLIO_OWN_REGION, &fd);
                write_pieces(&made, fd, &random);
                seal_object(raw, &made, fd);
                has_holes = file_pages(&made) < (made.size_bytes + PAGE - 1) / PAGE;
                if (is_steady)
                        assert_int_equal(stat_of(client, name).has_holes, has_holes);
                compare_all(&made, foliod, is_steady, &random);
                ASSERT_OK(folio_delete(client, name, 0));
                end_object(&made);
                folio_client_unref(client);
        }
}

static void test_sealed_with_holes(void **state)
{
        Foliod *foliod = foliod_start("--budget", "128M", "--huge", "never", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Raw *raw = raw_open(foliod);

        (void)state;
        follow_sealed(foliod, raw, "default", true);
        if (alive_add_tmpfs(client)) {
                follow_sealed(foliod, raw, "tmpfs", true);
                ASSERT_OK(folio_namespace_remove(client, "tmpfs"));
        }
        raw_close(raw);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* The same while huge pages are made of what is data. */
static void test_sealed_and_huge(void **state)
{
        Foliod *foliod = foliod_start("--budget", "128M", "--huge", "always", NULL);
        Raw *raw = raw_open(foliod);

        (void)state;
        follow_sealed(foliod, raw, "default", false);
        raw_close(raw);
        foliod_stop(foliod);
}

/* Created and sealed, sparse or with every page reserved: not one page of it is touched by reading all of it. */
static void test_never_written(void **state)
{
        static const uint32_t flags[] = { FOLIO_SPARSE, FOLIO_OWN_REGION };
        const uint64_t n_bytes = 64 * MIB + 5;
        Foliod *foliod = foliod_start("--budget", "256M", "--huge", "never", ALIVE_NO_POOL, NULL);
        Raw *raw = raw_open(foliod);
        uint8_t *buffer = malloc(n_bytes);

        (void)state;
        assert_non_null(buffer);
        for (size_t i = 0; i < 2; i++) {
                struct folio_client *client = foliod_connect(foliod);
                Made made = { .name = "default:blank", .id = raw_namespace(raw, "default"), .size_bytes = n_bytes };
                struct folio_object *object;
                uint64_t n_pages, begun, random = i;
                int fd;

                make_object(raw, &made, 0, flags[i], &fd);
                seal_object(raw, &made, fd);
                n_pages = file_pages(&made);
                assert_true(i == 0 ? n_pages == 0 : n_pages >= n_bytes / PAGE);
                assert_int_equal(stat_of(client, "blank").has_holes, i == 0);
                ASSERT_OK(folio_get(client, "blank", 0, 0, &object));
                /* What we compare with is there before, too. */
                memset(buffer, 0xee, n_bytes);
                memset(made.bytes, 0xee, n_bytes);
                memset(made.bytes, 0, n_bytes);
                begun = faults_count();
                ASSERT_OK(folio_object_read(object, 0, buffer, n_bytes));
                compare_at_random(&made, client, object, buffer, 100, &random);
                assert_true(faults_count() - begun < 100);
                ASSERT_OK(folio_object_read(object, 0, buffer, n_bytes));
                assert_memory_equal(buffer, made.bytes, n_bytes);
                assert_int_equal(file_pages(&made), n_pages);
                assert_int_equal(stat_of(client, "blank").allocated_bytes, n_pages * PAGE);
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_delete(client, "blank", 0));
                end_object(&made);
                folio_client_unref(client);
        }
        free(buffer);
        raw_close(raw);
        foliod_stop(foliod);
}

/*
 * Pages that were made huge before they were to be written look like data to the seal. What is found out about them
 * later also helps whoever has the object already.
 */
static void test_zeros_found_after_the_seal(void **state)
{
        const uint64_t n_bytes = 64 * MIB;
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_OWN_REGION };
        Foliod *foliod = foliod_start("--budget", "256M", "--huge", "always", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        uint8_t *buffer = malloc(n_bytes);
        uint64_t begun;

        (void)state;
        assert_non_null(buffer);
        ASSERT_OK(folio_create(client, "blank", n_bytes, &options, &object));
        ASSERT_OK(folio_object_seal(object));
        memset(buffer, 0xee, n_bytes);
        ASSERT_OK(folio_object_read(object, 0, buffer, 4096));
        AWAIT(stat_of(client, "blank").zero_bytes == n_bytes);
        begun = faults_count();
        ASSERT_OK(folio_object_read(object, 0, buffer, n_bytes));
        assert_true(faults_count() - begun < n_bytes / (4 * MIB));
        for (uint64_t i = 0; i < n_bytes; i++)
                assert_int_equal(buffer[i], 0);
        ASSERT_OK(folio_object_release(object));
        free(buffer);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- mutable ------------------------------------------------------------------------------------------------------ */

#define CAPACITY (6 * MIB + 100)
#define N_PAGES (CAPACITY / PAGE + 1)

typedef struct Mutable {
        Made made;
        bool has_page[N_PAGES];
        struct folio_object *writer; /* of one client, */
        struct folio_object *reader; /* of another */
} Mutable;

static void mutable_write(Mutable *m, uint64_t *random)
{
        uint64_t offset = next_random(random) % m->made.size_bytes, n = 1 + next_random(random) % 50000;

        n = n < m->made.size_bytes - offset ? n : m->made.size_bytes - offset;
        harness_fill(m->made.bytes + offset, n, next_random(random));
        ASSERT_OK(folio_object_write(m->writer, offset, m->made.bytes + offset, n));
        for (uint64_t page = offset / PAGE; page <= (offset + n - 1) / PAGE; page++)
                m->has_page[page] = true;
}

static void mutable_truncate(Mutable *m, uint64_t size_bytes)
{
        ASSERT_OK(folio_object_truncate(m->writer, size_bytes));
        if (size_bytes < m->made.size_bytes) {
                memset(m->made.bytes + size_bytes, 0, m->made.size_bytes - size_bytes);
                for (uint64_t page = (size_bytes + PAGE - 1) / PAGE; page < N_PAGES; page++)
                        m->has_page[page] = false;
        }
        m->made.size_bytes = size_bytes;
}

static void assert_pages(const Mutable *m)
{
        uint64_t n = 0;

        for (uint64_t page = 0; page < N_PAGES; page++)
                n += m->has_page[page];
        assert_int_equal(file_pages(&m->made), n);
}

/*
 * Written by one client, read by another that has had it open all the time, while it grows and shrinks. What was never
 * written, or was cut off, stays without a page however often it is read.
 */
static void test_mutable_and_sparse(void **state)
{
        Foliod *foliod = foliod_start("--budget", "128M", "--huge", "never", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        uint8_t *buffer = malloc(CAPACITY + 1);

        (void)state;
        assert_non_null(buffer);
        for (uint64_t seed = 1; seed <= 4; seed++) {
                Mutable m = { .made = { .name = "default:moving", .id = id, .size_bytes = 3 * MIB } };
                uint64_t random = seed;
                int fd;

                make_object(raw, &m.made, CAPACITY, FOLIO_MUTABLE | FOLIO_SPARSE, &fd);
                close(fd);
                ASSERT_OK(folio_get(client, "moving", FOLIO_GET_WRITABLE, 0, &m.writer));
                ASSERT_OK(folio_get(other, "moving", seed % 2 ? FOLIO_GET_UNMAPPED : 0, 0, &m.reader));
                for (unsigned i = 0; i < alive_scaled(60); i++) {
                        if (i % 6 == 5)
                                mutable_truncate(&m, i % 12 == 5 ? next_random(&random) % CAPACITY + 1 : CAPACITY);
                        else if (i % 6 != 0)
                                mutable_write(&m, &random);
                        memset(buffer, 0xee, m.made.size_bytes + 1);
                        ASSERT_OK(folio_object_read(m.reader, 0, buffer, m.made.size_bytes));
                        assert_memory_equal(buffer, m.made.bytes, m.made.size_bytes);
                        assert_int_equal(buffer[m.made.size_bytes], 0xee);
                        compare_at_random(&m.made, other, i % 2 ? m.reader : NULL, buffer, 5, &random);
                        assert_pages(&m);
                }
                ASSERT_OK(folio_object_release(m.reader));
                ASSERT_OK(folio_object_release(m.writer));
                ASSERT_OK(folio_delete(client, "moving", 0));
                end_object(&m.made);
        }
        free(buffer);
        raw_close(raw);
        folio_client_unref(other);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_sealed_with_holes),
                INTEGRATION_TEST(test_sealed_and_huge),
                INTEGRATION_TEST(test_never_written),
                INTEGRATION_TEST(test_zeros_found_after_the_seal),
                INTEGRATION_TEST(test_mutable_and_sparse),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
