/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that lie: about sizes, about offsets, about what they will do with the memory they were given. The daemon
 * goes on, gives nothing away and keeps nothing; other clients never notice.
 */
#include "tests/integration/alive.h"
#include "tests/integration/raw.h"
#include "tests/integration/trace.h"

#define MIB (UINT64_C(1) << 20)

static const uint64_t absurd_bytes[] = {
        (64 * MIB) + 1,    UINT64_C(1) << 40, UINT64_C(1) << 46, (UINT64_C(1) << 46) + 1, UINT64_C(1) << 62, INT64_MAX,
        UINT64_C(1) << 63, UINT64_MAX - 4096, UINT64_MAX,
};

#define N_ABSURD (sizeof(absurd_bytes) / sizeof(absurd_bytes[0]))

static bool is_refusal(int error)
{
        return error == FOLIO_E_TOO_LARGE || error == FOLIO_E_INVALID || error == FOLIO_E_LIMIT ||
               error == FOLIO_E_RANGE;
}

static bool is_refused(Status status)
{
        return status == STATUS_TOO_LARGE || status == STATUS_INVALID || status == STATUS_LIMIT ||
               status == STATUS_RANGE || status == STATUS_STATE;
}

static void ask_absurd_by_library(struct folio_client *client)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        struct folio_create_options sparse = { .struct_bytes = sizeof(sparse), .flags = FOLIO_SPARSE | FOLIO_MUTABLE };
        struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        char byte = 1;

        for (size_t i = 0; i < N_ABSURD; i++) {
                struct folio_object *object = NULL;
                int error = folio_create(client, "absurd", absurd_bytes[i], NULL, &object);

                assert_true(error == FOLIO_E_TOO_LARGE);
                assert_true(strlen(folio_strerror_full()) > 0);
                assert_int_equal(folio_create(client, "absurd", absurd_bytes[i], &mutable, &object), FOLIO_E_TOO_LARGE);
                assert_int_equal(folio_create(client, "absurd", absurd_bytes[i], &replace, &object), FOLIO_E_TOO_LARGE);
                mutable.capacity_bytes = absurd_bytes[i];
                assert_true(is_refusal(folio_create(client, "absurd", 1, &mutable, &object)));
                mutable.capacity_bytes = 0;
                if (absurd_bytes[i] > FOLIO_OBJECT_BYTES_MAX)
                        assert_true(is_refusal(folio_create(client, "absurd", absurd_bytes[i], &sparse, &object)));
                /* The bytes are never looked at: one is all there is. */
                assert_int_equal(folio_put(client, "absurd", &byte, absurd_bytes[i], NULL), FOLIO_E_TOO_LARGE);
                assert_int_equal(folio_truncate(client, "mutable", absurd_bytes[i]), FOLIO_E_TOO_LARGE);
                assert_null(object);
                assert_int_equal(folio_exists(client, "absurd"), 0);
        }
}

static void abort_by_hand(Raw *raw, uint32_t id, ProtoItem item)
{
        item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = item.slot, .generation = item.generation };
        assert_int_equal(raw_item(raw, VERB_ABORT, id, item), STATUS_OK);
}

static void ask_absurd_by_hand(Raw *raw)
{
        uint32_t id = raw_namespace(raw, "default");

        for (size_t i = 0; i < N_ABSURD; i++) {
                static const uint32_t flags[] = { 0,
                                                  FOLIO_OWN_REGION,
                                                  FOLIO_MUTABLE,
                                                  PROTO_ITEM_STAGED,
                                                  FOLIO_REPLACE,
                                                  FOLIO_MUTABLE | FOLIO_REPLACE };
                ProtoItem item = { .key = raw_key("absurd"), .size_bytes = absurd_bytes[i] };

                for (size_t j = 0; j < sizeof(flags) / sizeof(flags[0]); j++) {
                        item.flags = flags[j];
                        assert_true(is_refused(raw_item(raw, VERB_CREATE, id, item)));
                }
                item.flags = 0;
                assert_true(is_refused(raw_item(raw, VERB_PUT, id, item)));
                item.size_bytes = 1;
                item.staging_offset = absurd_bytes[i];
                assert_true(is_refused(raw_item(raw, VERB_PUT, id, item)));
                item.staging_offset = 0;
                item.flags = FOLIO_MUTABLE;
                item.capacity_bytes = absurd_bytes[i];
                assert_true(is_refused(raw_item(raw, VERB_CREATE, id, item)));
                item = (ProtoItem){ .key = raw_key("mutable"), .size_bytes = absurd_bytes[i] };
                assert_true(is_refused(raw_item(raw, VERB_TRUNCATE, id, item)));
                /* Announced as a stream, and then written far out. */
                item = (ProtoItem){ .key = raw_key("stream"), .flags = FOLIO_STREAM };
                assert_int_equal(raw_item(raw, VERB_CREATE, id, item), STATUS_OK);
                item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT,
                                    .slot = raw->reply.items[0].slot,
                                    .generation = raw->reply.items[0].generation,
                                    .offset_bytes = absurd_bytes[i],
                                    .size_bytes = 1 };
                assert_true(is_refused(raw_item(raw, VERB_WRITE, id, item)));
                item.offset_bytes = 0;
                item.size_bytes = absurd_bytes[i];
                assert_true(is_refused(raw_item(raw, VERB_WRITE, id, item)));
                abort_by_hand(raw, id, item);
        }
}

/* A07: a size that can never be is refused before any system call is made for it; the kernel would not refuse it. */
static void test_a07_absurd_sizes(void **state)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable),
                                                .flags = FOLIO_MUTABLE,
                                                .capacity_bytes = MIB };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Raw *raw = raw_open(foliod);
        struct folio_object *object;
        static uint8_t bytes[3 * MIB];
        bool is_traced;
        Trace trace;

        (void)state;
        ASSERT_OK(folio_create(client, "mutable", 4096, &mutable, &object));
        is_traced = trace_begin(&trace, foliod, foliod->pid, "fallocate,ftruncate");
        ask_absurd_by_library(client);
        if (is_traced) {
                trace_end(&trace);
                assert_int_equal(trace_count(&trace, "fallocate(", true), 0);
                assert_int_equal(trace_count(&trace, "ftruncate(", true), 0);
                /* And one that can be is seen, or we would have looked in vain. */
                is_traced = trace_begin(&trace, foliod, foliod->pid, "fallocate,ftruncate");
                ASSERT_OK(folio_put(client, "possible", bytes, sizeof(bytes), NULL));
                ASSERT_OK(folio_delete(client, "possible", 0));
        }
        if (is_traced) {
                trace_end(&trace);
                assert_true(trace_count(&trace, "fallocate(", false) > 0);
                is_traced = trace_begin(&trace, foliod, foliod->pid, "fallocate,ftruncate");
        }
        ask_absurd_by_hand(raw);
        if (is_traced) {
                /* A stream may reserve its first piece; nothing else may, and nothing near an absurd size. */
                trace_end(&trace);
                for (size_t i = 0; i < N_ABSURD; i++) {
                        char text[32];

                        (void)snprintf(text, sizeof(text), ", %llu)", (unsigned long long)absurd_bytes[i]);
                        assert_int_equal(trace_count(&trace, text, true), 0);
                        (void)snprintf(text, sizeof(text), ", %lld)", (long long)absurd_bytes[i]);
                        assert_int_equal(trace_count(&trace, text, true), 0);
                }
        }
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "mutable", 0));
        /* Nothing at all is an object like any other. */
        ASSERT_OK(folio_put(client, "empty", NULL, 0, NULL));
        assert_int_equal(folio_exists(client, "empty"), 1);
        ASSERT_OK(folio_delete(client, "empty", 0));
        folio_client_unref(client);
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

static void shrink_for_ever(Child *child)
{
        struct pollfd told = { .fd = child->socket, .events = POLLIN };
        int fd = *(int *)child->userdata;

        child_say(child, 1);
        while (poll(&told, 1, 0) == 0) {
                CHECK(ftruncate(fd, 0) != 0);
                CHECK(ftruncate(fd, 3 * (off_t)MIB - 1) != 0);
                CHECK(ftruncate(fd, 64 * (off_t)MIB) != 0);
        }
}

/*
 * C01: clients never hand over memory, but hold writable descriptors of what the daemon made: of their own unsealed
 * objects, of their staging region, of their pin table. None of it can be made smaller under the daemon or a reader.
 */
static void test_c01_shrink_after_handing_over(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        int pins_fd = raw_take_fd(raw, 1), index_fd = raw_take_fd(raw, 0), fd;
        static uint8_t bytes[3 * MIB], read[3 * MIB];
        ProtoItem item = { .key = raw_key("shrunk"), .size_bytes = sizeof(bytes), .flags = FOLIO_OWN_REGION };
        Child *child;

        (void)state;
        assert_int_not_equal(ftruncate(raw->staging_fd, 0), 0);
        assert_int_not_equal(ftruncate(pins_fd, 0), 0);
        assert_int_not_equal(ftruncate(index_fd, 0), 0);
        assert_int_equal(raw_item(raw, VERB_CREATE, id, item), STATUS_OK);
        item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT,
                            .slot = raw->reply.items[0].slot,
                            .generation = raw->reply.items[0].generation };
        fd = raw_take_fd(raw, 0);
        assert_int_not_equal(ftruncate(fd, 0), 0);
        harness_fill(bytes, sizeof(bytes), 1);
        assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
        /* It keeps the descriptor over the seal, which a polite client does not. */
        assert_int_equal(raw_item(raw, VERB_SEAL, id, item), STATUS_OK);
        child = child_start(foliod, shrink_for_ever, &fd);
        assert_int_equal(child_hear(child), 1);
        for (unsigned i = 0; i < alive_scaled(1000); i++) {
                ASSERT_OK(folio_read(client, "shrunk", i * 1024, read, 64 * 1024));
                assert_true(harness_is_filled(read, 64 * 1024, 1, i * 1024));
        }
        child_say(child, 1);
        child_finish(child);
        assert_int_not_equal(pwrite(fd, "x", 1, 0), 1);
        assert_int_not_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
        ASSERT_OK(folio_read(client, "shrunk", 0, read, sizeof(read)));
        assert_memory_equal(read, bytes, sizeof(bytes));
        ASSERT_OK(folio_delete(client, "shrunk", 0));
        close(fd);
        close(pins_fd);
        close(index_fd);
        folio_client_unref(client);
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * C02: more is declared than there is. The only memory of a client that foliod reads is staging, so the lie is about
 * that.
 */
static void test_c02_declared_larger_than_it_is(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        uint64_t end = raw->staging_bytes;
        const struct {
                uint64_t offset;
                uint64_t size;
                bool is_good;
        } rows[] = {
                { end - 1, 1, true },      { end - 100, 100, true },    { end, 0, true },
                { end - 1, 2, false },     { end, 1, false },           { end + 1, 0, false },
                { 0, 8294400 * 8, false }, { 0, end + 1, false },       { UINT64_MAX, 1, false },
                { UINT64_MAX, 2, false },  { 1, UINT64_MAX, false },    { UINT64_MAX - 99, 100, false },
                { 1, INT64_MAX, false },   { UINT32_MAX, 4096, false }, { 100, UINT64_MAX - 99, false },
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                ProtoItem item = { .key = raw_key("declared"),
                                   .size_bytes = rows[i].size,
                                   .staging_offset = rows[i].offset };
                Status status = raw_item(raw, VERB_PUT, id, item);

                if (rows[i].is_good != (status == STATUS_OK) || (!rows[i].is_good && !is_refused(status)))
                        fail_msg("put of %llu bytes at %llu of %llu: status %u", (unsigned long long)rows[i].size,
                                 (unsigned long long)rows[i].offset, (unsigned long long)end, (unsigned)status);
                item = (ProtoItem){ .key = raw_key("declared") };
                if (status == STATUS_OK)
                        assert_int_equal(raw_item(raw, VERB_DELETE, id, item), STATUS_OK);
                /* The same through a stream. */
                item = (ProtoItem){ .key = raw_key("stream"), .flags = FOLIO_STREAM };
                assert_int_equal(raw_item(raw, VERB_CREATE, id, item), STATUS_OK);
                item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT,
                                    .slot = raw->reply.items[0].slot,
                                    .generation = raw->reply.items[0].generation,
                                    .size_bytes = rows[i].size,
                                    .staging_offset = rows[i].offset };
                status = raw_item(raw, VERB_WRITE, id, item);
                assert_true(rows[i].is_good || is_refused(status));
                abort_by_hand(raw, id, item);
        }
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * Items of one call, each in range or out of it by itself; together their lengths wrap to next to nothing. Of a packed
 * object an offset just below 2^64 would be its neighbour's place, if it were added to that of the object.
 */
static void check_items(struct folio_client *client, const char *name, uint64_t size_bytes)
{
        const struct {
                uint64_t offset_bytes, n_bytes;
        } rows[] = {
                { 0, size_bytes },
                { 0, UINT64_C(1) << 63 },
                { 0, (UINT64_C(1) << 63) - size_bytes },
                { 1, size_bytes - 1 },
                { 1, UINT64_MAX },
                { UINT64_MAX - 127, 128 },
                { UINT64_MAX - 127, size_bytes },
                { UINT64_MAX - 63, size_bytes },
                { UINT64_MAX - 63, 64 },
                { size_bytes, 0 },
                { size_bytes - 1, 2 },
                { size_bytes - 1, 1 },
        };
        enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };
        struct folio_read_item items[N_ROWS];
        uint8_t *buffers = malloc(N_ROWS * (size_bytes + 8));
        int n_wrong = 0;

        assert_non_null(buffers);
        memset(buffers, 0x5a, N_ROWS * (size_bytes + 8));
        for (unsigned i = 0; i < N_ROWS; i++) {
                items[i] = (struct folio_read_item){ .name = name, .offset_bytes = rows[i].offset_bytes,
                                                     .buffer = buffers + i * (size_bytes + 8), .n_bytes = rows[i].n_bytes };
                n_wrong += rows[i].offset_bytes > size_bytes || rows[i].n_bytes > size_bytes - rows[i].offset_bytes;
        }
        assert_int_equal(n_wrong, 8);
        assert_int_equal(folio_read_many(client, items, N_ROWS), n_wrong);
        for (unsigned i = 0; i < N_ROWS; i++) {
                const uint8_t *buffer = items[i].buffer;
                bool is_good = rows[i].offset_bytes <= size_bytes && rows[i].n_bytes <= size_bytes - rows[i].offset_bytes;
                uint64_t n = is_good ? rows[i].n_bytes : 0;

                assert_int_equal(items[i].error, is_good ? 0 : FOLIO_E_RANGE);
                assert_true(harness_is_filled(buffer, n, 100, rows[i].offset_bytes));
                for (; n < size_bytes + 8; n++)
                        assert_int_equal(buffer[n], 0x5a);
        }
        free(buffers);
}

/*
 * C17: offset and length, each with each, that may not pass together. Neighbours in a packed region are never
 * returned.
 */
static void check_ranges(struct folio_client *client, const char *name, uint64_t size_bytes)
{
        const uint64_t offsets[] = { 0,
                                     size_bytes - 1,
                                     size_bytes,
                                     size_bytes + 1,
                                     UINT64_C(1) << 31,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - size_bytes + 1,
                                     UINT64_MAX - 127,
                                     UINT64_MAX };
        enum { N_OFFSETS = sizeof(offsets) / sizeof(offsets[0]), N_LENGTHS = 8 };
        uint8_t *buffer = malloc(size_bytes + 8);
        struct folio_object *object;

        assert_non_null(buffer);
        ASSERT_OK(folio_get(client, name, 0, 0, &object));
        for (size_t i = 0; i < N_OFFSETS; i++) {
                uint64_t offset = offsets[i];
                const uint64_t lengths[N_LENGTHS] = {
                        0, 1, size_bytes, size_bytes + 1, UINT64_C(1) << 32, 0 - offset, UINT64_MAX, UINT64_MAX - offset
                };

                for (size_t j = 0; j < N_LENGTHS; j++) {
                        bool is_good = offset <= size_bytes && lengths[j] <= size_bytes - offset;
                        struct folio_read_item items[2] = {
                                { .name = name, .offset_bytes = offset, .buffer = buffer, .n_bytes = lengths[j] },
                                { .object = object, .offset_bytes = offset, .buffer = buffer, .n_bytes = lengths[j] },
                        };
                        int expected = is_good ? 0 : FOLIO_E_RANGE;

                        memset(buffer, 0x5a, size_bytes + 8);
                        assert_int_equal(folio_read(client, name, offset, buffer, lengths[j]), expected);
                        if (!is_good || lengths[j] == 0)
                                for (size_t k = 0; k < size_bytes; k++)
                                        assert_int_equal(buffer[k], 0x5a);
                        assert_int_equal(folio_object_read(object, offset, buffer, lengths[j]), expected);
                        assert_int_equal(folio_read_many(client, items, 2), is_good ? 0 : 2);
                        assert_int_equal(items[0].error, expected);
                        assert_int_equal(items[1].error, expected);
                        if (is_good)
                                assert_true(harness_is_filled(buffer, lengths[j], 100, offset));
                        for (size_t k = size_bytes; k < size_bytes + 8; k++)
                                assert_int_equal(buffer[k], 0x5a);
                }
        }
        ASSERT_OK(folio_object_release(object));
        free(buffer);
}

static void test_c17_offset_and_length_wrap(void **state)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable),
                                                .flags = FOLIO_MUTABLE,
                                                .capacity_bytes = 65536 };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        uint8_t bytes[100], neighbour[100];

        (void)state;
        harness_fill(bytes, sizeof(bytes), 100);
        memset(neighbour, 0xee, sizeof(neighbour));
        ASSERT_OK(folio_put(client, "before", neighbour, sizeof(neighbour), NULL));
        ASSERT_OK(folio_put(client, "packed", bytes, sizeof(bytes), NULL));
        ASSERT_OK(folio_put(client, "after", neighbour, sizeof(neighbour), NULL));
        ASSERT_OK(folio_put(client, "own", bytes, sizeof(bytes), &own));
        ASSERT_OK(folio_create(client, "mutable", sizeof(bytes), &mutable, &object));
        ASSERT_OK(folio_object_write(object, 0, bytes, sizeof(bytes)));
        /* Writing is no different: what lies in the capacity but not in the object is out of range. */
        assert_int_equal(folio_object_write(object, 100, bytes, 1), FOLIO_E_RANGE);
        assert_int_equal(folio_object_write(object, UINT64_MAX, bytes, 2), FOLIO_E_RANGE);
        assert_int_equal(folio_object_write(object, 1, bytes, UINT64_MAX), FOLIO_E_RANGE);
        ASSERT_OK(folio_object_release(object));
        check_ranges(client, "packed", sizeof(bytes));
        check_ranges(client, "own", sizeof(bytes));
        check_ranges(client, "mutable", sizeof(bytes));
        check_items(client, "packed", sizeof(bytes));
        check_items(client, "own", sizeof(bytes));
        check_items(client, "mutable", sizeof(bytes));
        for (size_t i = 0; i < 5; i++) {
                static const char *const names[] = { "before", "packed", "after", "own", "mutable" };

                ASSERT_OK(folio_delete(client, names[i], 0));
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a07_absurd_sizes),
                INTEGRATION_TEST(test_c01_shrink_after_handing_over),
                INTEGRATION_TEST(test_c02_declared_larger_than_it_is),
                INTEGRATION_TEST(test_c17_offset_and_length_wrap),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
