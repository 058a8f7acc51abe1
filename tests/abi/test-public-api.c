/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfolio.so as a program meets it: linked with the real shared library, built with public headers only. Without an
 * argument it needs no daemon; with the argument `store` it wants one at $FOLIO_SOCKET and calls through every part of
 * the API. Whether each call is right in every case is for the other tests; this one shows that it is there, exported, and does what
 * its first line says. Over 600 lines, as every function there is has its place here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include <folio/folio.h>

#define LARGE_BYTES (8u << 20)
#define N_ITEMS 600

static int open_client(void **state)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .client_name = "public-api",
                                              .flags = FOLIO_OPEN_DUMPABLE };
        struct folio_client *client = NULL;

        assert_int_equal(folio_client_open(&options, &client), 0);
        *state = client;
        return 0;
}

static int close_client(void **state)
{
        folio_client_unref(*state);
        return 0;
}

static uint8_t *make_pattern(size_t n_bytes)
{
        uint8_t *bytes = malloc(n_bytes);

        assert_non_null(bytes);
        for (size_t i = 0; i < n_bytes; i++)
                bytes[i] = (uint8_t)(i * 2654435761u >> 13);
        return bytes;
}

/* --- without a daemon --------------------------------------------------------------------------------------------- */

static void test_open_nobody_there(void **state)
{
        struct folio_open_options options = {
                .struct_bytes = sizeof(options),
                .address = "/nonexistent/folio.sock",
        };
        struct folio_client *client = (struct folio_client *)(uintptr_t)0x55;

        (void)state;
        assert_int_equal(folio_client_open(&options, &client), FOLIO_E_DAEMON_GONE);
        assert_ptr_equal(client, (void *)(uintptr_t)0x55);
        assert_non_null(strstr(folio_strerror_full(), "/nonexistent/folio.sock"));
}

static void test_open_bad_options(void **state)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .flags = UINT32_MAX };
        struct folio_client *client = NULL;

        (void)state;
        assert_int_equal(folio_client_open(NULL, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_client_open(&options, &client), FOLIO_E_INVALID);
        options.flags = FOLIO_OPEN_TOOL << 1;
        assert_int_equal(folio_client_open(&options, &client), FOLIO_E_INVALID);
        options.flags = 0;
        options.struct_bytes = 0;
        assert_int_equal(folio_client_open(&options, &client), FOLIO_E_INVALID);
        assert_null(client);
}

static void test_strerror(void **state)
{
        static const int errors[] = {
                0, FOLIO_E_NOT_FOUND, FOLIO_E_DELETED, FOLIO_E_EVICTED, FOLIO_E_EXPIRED, FOLIO_E_WRITING, FOLIO_E_WRITER_DIED,
                FOLIO_E_EXISTS, FOLIO_E_ACCESS, FOLIO_E_FULL, FOLIO_E_TOO_LARGE, FOLIO_E_LIMIT, FOLIO_E_DAEMON_GONE,
                FOLIO_E_PROTOCOL, FOLIO_E_TIMEOUT, FOLIO_E_RANGE, FOLIO_E_INVALID, FOLIO_E_STATE, FOLIO_E_UNSUPPORTED,
                FOLIO_E_FORKED, FOLIO_E_CANCELLED, FOLIO_E_NO_MEMORY, FOLIO_E_IO, 1, -4095, INT32_MIN, INT32_MAX,
        };
        size_t n_known = 23;

        (void)state;
        for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
                assert_non_null(folio_strerror(errors[i]));
                assert_true(strlen(folio_strerror(errors[i])) > 0);
                for (size_t k = 0; k < i && i < n_known; k++)
                        assert_string_not_equal(folio_strerror(errors[i]), folio_strerror(errors[k]));
        }
}

/* What is no client and no handle answers an error, and does no harm. */
static void test_nothing_given(void **state)
{
        static const int none = 0;
        struct folio_object *handle = (struct folio_object *)(uintptr_t)&none;
        void *memory = NULL;
        uint64_t n_bytes;
        char byte = 0;

        (void)state;
        folio_client_unref(NULL);
        folio_list_close(NULL);
        folio_watch_close(NULL);
        assert_int_equal(folio_object_release(NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_object_release(handle), FOLIO_E_INVALID);
        assert_int_equal(folio_object_abort(handle), FOLIO_E_INVALID);
        assert_int_equal(folio_object_seal(handle), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write(handle, 0, &byte, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_read(handle, 0, &byte, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write_file(handle, 0, 0, 1, &n_bytes), FOLIO_E_INVALID);
        assert_int_equal(folio_object_read_file(handle, 0, 1, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_write(handle, &memory), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_private(handle, &memory), FOLIO_E_INVALID);
        assert_int_equal(folio_object_truncate(handle, 1), FOLIO_E_INVALID);
        assert_int_equal(folio_object_metadata(handle, &byte, 1), FOLIO_E_INVALID);
        assert_null(folio_object_data(handle));
        assert_int_equal(folio_object_size(handle), 0);
}

/* --- with a daemon ------------------------------------------------------------------------------------------------ */

static void test_put_get(void **state)
{
        static const struct {
                const char *name;
                size_t n_bytes;
        } rows[] = { { "api:empty", 0 }, { "api:one", 1 }, { "api:small", 100 }, { "large", LARGE_BYTES } };
        struct folio_client *client = *state;
        struct folio_namespace space = { .struct_bytes = sizeof(space), .name = "api" };
        uint8_t *bytes = make_pattern(LARGE_BYTES), *copy = malloc(LARGE_BYTES);
        int r;

        assert_non_null(copy);
        r = folio_namespace_add(client, &space);
        assert_true(r == 0 || r == FOLIO_E_EXISTS);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                struct folio_object *object = NULL;
                char full[FOLIO_NAME_BYTES_MAX + 1];

                assert_int_equal(folio_exists(client, rows[i].name), 0);
                assert_int_equal(folio_put(client, rows[i].name, bytes, rows[i].n_bytes, NULL), 0);
                assert_int_equal(folio_put(client, rows[i].name, bytes, rows[i].n_bytes, NULL), FOLIO_E_EXISTS);
                assert_int_equal(folio_exists(client, rows[i].name), 1);
                assert_int_equal(folio_get(client, rows[i].name, 0, 0, &object), 0);
                assert_int_equal(folio_object_size(object), rows[i].n_bytes);
                assert_non_null(folio_object_data(object));
                assert_memory_equal(folio_object_data(object), bytes, rows[i].n_bytes);
                assert_int_equal(folio_object_read(object, 0, copy, rows[i].n_bytes), 0);
                assert_memory_equal(copy, bytes, rows[i].n_bytes);
                assert_int_equal(folio_object_read(object, rows[i].n_bytes, copy, 1), FOLIO_E_RANGE);
                assert_int_equal(folio_object_read(object, UINT64_MAX, copy, 1), FOLIO_E_RANGE);
                assert_int_equal(folio_read(client, rows[i].name, 0, copy, rows[i].n_bytes), 0);
                assert_int_equal(folio_object_stat(object, &stat), 0);
                assert_int_equal(stat.size_bytes, rows[i].n_bytes);
                assert_int_equal(stat.state, FOLIO_STATE_SEALED);
                snprintf(full, sizeof(full), "%s%s", strchr(rows[i].name, ':') ? "" : "default:", rows[i].name);
                assert_string_equal(stat.name, full);
                assert_int_equal(folio_delete(client, rows[i].name, 0), 0);
                assert_memory_equal(folio_object_data(object), bytes, rows[i].n_bytes);
                assert_int_equal(folio_object_release(object), 0);
                assert_int_equal(folio_object_release(object), FOLIO_E_INVALID);
                assert_int_equal(folio_get(client, rows[i].name, 0, 0, &object), FOLIO_E_DELETED);
                assert_int_equal(folio_delete(client, rows[i].name, FOLIO_IF_EXISTS), 0);
        }
        assert_int_equal(folio_namespace_remove(client, "api"), 0);
        free(bytes);
        free(copy);
}

static void test_create_seal_abort(void **state)
{
        struct folio_client *client = *state;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object = NULL;
        uint8_t *bytes = make_pattern(LARGE_BYTES);
        void *memory = NULL;
        uint64_t n_bytes;
        char copy[1000];
        int fds[2];

        assert_int_equal(folio_create(client, "written", LARGE_BYTES, NULL, &object), 0);
        assert_int_equal(folio_object_write(object, 0, bytes, LARGE_BYTES), 0);
        assert_int_equal(folio_object_write(object, LARGE_BYTES, bytes, 1), FOLIO_E_RANGE);
        assert_int_equal(folio_object_seal(object), 0);
        assert_int_equal(folio_object_write(object, 0, bytes, 1), FOLIO_E_STATE);
        assert_memory_equal(folio_object_data(object), bytes, LARGE_BYTES);
        assert_int_equal(folio_object_release(object), 0);

        assert_int_equal(pipe(fds), 0);
        assert_int_equal(write(fds[1], bytes, 1000), 1000);
        assert_int_equal(folio_create(client, "piped", LARGE_BYTES, NULL, &object), 0);
        assert_int_equal(folio_object_write_file(object, 7, fds[0], 1000, &n_bytes), 0);
        assert_int_equal(n_bytes, 1000);
        assert_int_equal(folio_object_write_file(object, LARGE_BYTES, fds[0], 1, &n_bytes), FOLIO_E_RANGE);
        assert_int_equal(folio_object_seal(object), 0);
        assert_int_equal(folio_object_write_file(object, 0, fds[0], 1, &n_bytes), FOLIO_E_STATE);
        assert_int_equal(folio_object_read_file(object, 7, fds[1], 1000), 0);
        assert_int_equal(read(fds[0], copy, 1000), 1000);
        assert_memory_equal(copy, bytes, 1000);
        assert_int_equal(folio_object_read_file(object, LARGE_BYTES, fds[1], 1), FOLIO_E_RANGE);
        assert_int_equal(folio_object_release(object), 0);
        (void)close(fds[0]);
        (void)close(fds[1]);

        assert_int_equal(folio_create(client, "mapped", 1000, NULL, &object), 0);
        assert_int_equal(folio_object_map_write(object, &memory), 0);
        memcpy(memory, bytes, 1000);
        assert_int_equal(folio_stat(client, "mapped", &stat), 0);
        assert_int_equal(stat.state, FOLIO_STATE_WRITING);
        assert_int_equal(folio_object_seal(object), 0);
        assert_memory_equal(folio_object_data(object), bytes, 1000);
        assert_int_equal(folio_object_map_private(object, &memory), 0);
        memset(memory, 0, 1000);
        assert_memory_equal(folio_object_data(object), bytes, 1000);
        assert_int_equal(folio_object_abort(object), FOLIO_E_STATE);

        assert_int_equal(folio_create(client, "aborted", 1000, NULL, &object), 0);
        assert_int_equal(folio_object_abort(object), 0);
        assert_int_equal(folio_exists(client, "aborted"), 0);
        assert_int_equal(folio_delete(client, "written", 0), 0);
        assert_int_equal(folio_delete(client, "mapped", 0), 0);
        free(bytes);
}

static void test_replace(void **state)
{
        struct folio_client *client = *state;
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE };
        struct folio_stat before = { .struct_bytes = sizeof(before) }, after = { .struct_bytes = sizeof(after) };
        struct folio_object *old = NULL, *new = NULL;

        assert_int_equal(folio_put(client, "name", "old", 3, NULL), 0);
        assert_int_equal(folio_get(client, "name", 0, 0, &old), 0);
        assert_int_equal(folio_put(client, "name", "newer", 5, &options), 0);
        assert_int_equal(folio_get(client, "name", 0, 0, &new), 0);
        assert_memory_equal(folio_object_data(old), "old", 3);
        assert_memory_equal(folio_object_data(new), "newer", 5);
        assert_int_equal(folio_object_stat(old, &before), 0);
        assert_int_equal(folio_object_stat(new, &after), 0);
        assert_true(after.generation > before.generation);
        assert_int_equal(folio_object_release(old), 0);
        assert_int_equal(folio_object_release(new), 0);
        assert_int_equal(folio_delete(client, "name", 0), 0);
}

static void test_mutable(void **state)
{
        struct folio_client *client = *state;
        struct folio_create_options options = {
                .struct_bytes = sizeof(options),
                .flags = FOLIO_MUTABLE,
                .capacity_bytes = 4u << 20,
                .metadata = "abc",
                .metadata_bytes = 3,
                .content_type = "text/plain",
        };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object = NULL, *other = NULL;
        char metadata[8], bytes[4] = "";

        assert_int_equal(folio_create(client, "mutable", 1u << 20, &options, &object), 0);
        assert_int_equal(folio_object_write(object, 100, "xyz", 3), 0);
        assert_int_equal(folio_object_metadata(object, metadata, sizeof(metadata)), 3);
        assert_memory_equal(metadata, "abc", 3);
        assert_int_equal(folio_object_metadata(object, metadata, 2), FOLIO_E_RANGE);
        assert_int_equal(folio_get(client, "mutable", FOLIO_GET_WRITABLE, 0, &other), 0);
        assert_int_equal(folio_truncate(client, "mutable", 101), 0);
        assert_int_equal(folio_object_size(other), 101);
        assert_int_equal(folio_object_read(other, 100, bytes, 2), FOLIO_E_RANGE);
        assert_int_equal(folio_object_truncate(object, 4u << 20), 0);
        assert_int_equal(folio_truncate(client, "mutable", (4u << 20) + 1), FOLIO_E_TOO_LARGE);
        assert_int_equal(folio_object_read(other, 100, bytes, 3), 0);
        assert_memory_equal(bytes, "x\0\0", 3);
        assert_int_equal(folio_stat(client, "mutable", &stat), 0);
        assert_int_equal(stat.state, FOLIO_STATE_MUTABLE);
        assert_int_equal(stat.size_bytes, 4u << 20);
        assert_string_equal(stat.content_type, "text/plain");
        assert_int_equal(stat.metadata_bytes, 3);
        assert_int_equal(folio_object_release(other), 0);
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(folio_delete(client, "mutable", 0), 0);
}

/* What a caller has of the struct: nothing behind that is touched, and nothing behind what the library knows. */
static void assert_stat_of(struct folio_client *client, struct folio_object *object, size_t known)
{
        static const char name[] = "default:short/with-a-key-of-more-than-thirty-two-bytes";
        _Alignas(16) uint8_t room[sizeof(struct folio_stat) + 256];
        uint8_t *bytes = room;
        struct folio_stat stat = { .struct_bytes = known }, got = { 0 };
        size_t told = known < sizeof(stat) ? known : sizeof(stat);

        memset(room, 0xa5, sizeof(room));
        memcpy(bytes, &stat.struct_bytes, sizeof(stat.struct_bytes));
        if (object)
                assert_int_equal(folio_object_stat(object, (void *)bytes), 0);
        else
                assert_int_equal(folio_stat(client, name, (void *)bytes), 0);
        for (size_t i = told; i < sizeof(room); i++)
                assert_int_equal(bytes[i], 0xa5);
        memcpy(&got, bytes, told);
        assert_int_equal(got.struct_bytes, known);
        if (known >= offsetof(struct folio_stat, capacity_bytes))
                assert_int_equal(got.size_bytes, 5);
        if (known >= offsetof(struct folio_stat, name))
                assert_string_equal(got.content_type, "text/plain");
        if (known >= offsetof(struct folio_stat, zero_bytes))
                assert_string_equal(got.name, name);
        else if (known > offsetof(struct folio_stat, name) && known < offsetof(struct folio_stat, name) + sizeof(name))
                assert_memory_equal(got.name, name, known - offsetof(struct folio_stat, name));
        if (known >= sizeof(stat))
                assert_int_equal(got.zero_bytes, 0);
}

static void test_older_and_newer_callers(void **state)
{
        static const size_t known[] = {
                sizeof(size_t), sizeof(size_t) + 1, offsetof(struct folio_stat, allocated_bytes),
                offsetof(struct folio_stat, content_type) + 3, offsetof(struct folio_stat, name),
                offsetof(struct folio_stat, name) + 9, offsetof(struct folio_stat, zero_bytes) - 1,
                offsetof(struct folio_stat, zero_bytes), offsetof(struct folio_stat, zero_bytes) + 1,
                sizeof(struct folio_stat) - 1, sizeof(struct folio_stat), sizeof(struct folio_stat) + 1,
                sizeof(struct folio_stat) + 128, SIZE_MAX,
        };
        struct folio_create_options options = { .struct_bytes = sizeof(options), .content_type = "text/plain" };
        struct folio_client *client = *state;
        struct folio_stat stat = { .struct_bytes = 0 };
        struct folio_object *object;

        assert_int_equal(folio_put(client, "short/with-a-key-of-more-than-thirty-two-bytes", "12345", 5, &options), 0);
        assert_int_equal(folio_get(client, "short/with-a-key-of-more-than-thirty-two-bytes", 0, 0, &object), 0);
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                assert_stat_of(client, NULL, known[i]);
                assert_stat_of(client, object, known[i]);
        }
        assert_int_equal(folio_stat(client, "short/with-a-key-of-more-than-thirty-two-bytes", &stat), FOLIO_E_INVALID);
        assert_int_equal(folio_object_stat(object, &stat), FOLIO_E_INVALID);
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(folio_delete(client, "short/with-a-key-of-more-than-thirty-two-bytes", 0), 0);
}

static void test_list(void **state)
{
        struct folio_client *client = *state;
        struct folio_stat page[3] = { { .struct_bytes = sizeof(page[0]) } };
        struct folio_list *list = NULL;
        char name[32], last[FOLIO_NAME_BYTES_MAX + 1] = "";
        int n, n_seen = 0;

        for (int i = 0; i < 10; i++) {
                snprintf(name, sizeof(name), "list/%d", i);
                assert_int_equal(folio_put(client, name, name, strlen(name), NULL), 0);
        }
        assert_int_equal(folio_put(client, "lisp", "", 0, NULL), 0);
        assert_int_equal(folio_list_open(client, "list/", &list), 0);
        while ((n = folio_list_next(list, page, 3)) > 0)
                for (int i = 0; i < n; i++, n_seen++) {
                        assert_true(strcmp(last, page[i].name) < 0);
                        assert_memory_equal(page[i].name, "default:list/", 13);
                        snprintf(last, sizeof(last), "%s", page[i].name);
                }
        assert_int_equal(n, 0);
        assert_int_equal(n_seen, 10);
        folio_list_close(list);
        for (int i = 0; i < 10; i++) {
                snprintf(name, sizeof(name), "list/%d", i);
                assert_int_equal(folio_delete(client, name, 0), 0);
        }
        assert_int_equal(folio_delete(client, "lisp", 0), 0);
}

static void test_batches(void **state)
{
        struct folio_client *client = *state;
        struct folio_put_item *puts = calloc(N_ITEMS, sizeof(*puts));
        struct folio_get_item *gets = calloc(N_ITEMS, sizeof(*gets));
        struct folio_stat_item *stats = calloc(N_ITEMS, sizeof(*stats));
        struct folio_stat *facts = calloc(N_ITEMS, sizeof(*facts));
        struct folio_read_item *reads = calloc(N_ITEMS, sizeof(*reads));
        struct folio_delete_item *deletes = calloc(N_ITEMS, sizeof(*deletes));
        char(*names)[24] = calloc(N_ITEMS, sizeof(*names));
        char(*copies)[24] = calloc(N_ITEMS, sizeof(*copies));

        assert_true(puts && gets && stats && facts && reads && deletes && names && copies);
        for (int i = 0; i < N_ITEMS; i++) {
                snprintf(names[i], sizeof(names[i]), "batch/%d", i);
                puts[i] = (struct folio_put_item){ .name = names[i], .data = names[i], .size_bytes = sizeof(names[i]) };
                gets[i].name = stats[i].name = reads[i].name = deletes[i].name = names[i];
                facts[i].struct_bytes = sizeof(facts[i]);
                stats[i].stat = &facts[i];
                reads[i].buffer = copies[i];
                reads[i].n_bytes = sizeof(copies[i]);
        }
        assert_int_equal(folio_put_many(client, puts, N_ITEMS), 0);
        assert_int_equal(folio_put_many(client, puts, 2), 2);
        assert_int_equal(puts[1].error, FOLIO_E_EXISTS);
        assert_int_equal(folio_get_many(client, gets, N_ITEMS, 0, 0), 0);
        assert_int_equal(folio_stat_many(client, stats, N_ITEMS), 0);
        assert_int_equal(folio_read_many(client, reads, N_ITEMS), 0);
        for (int i = 0; i < N_ITEMS; i++) {
                assert_memory_equal(folio_object_data(gets[i].object), names[i], sizeof(names[i]));
                assert_int_equal(folio_object_release(gets[i].object), 0);
                assert_int_equal(facts[i].size_bytes, sizeof(names[i]));
                assert_memory_equal(copies[i], names[i], sizeof(names[i]));
        }
        assert_int_equal(folio_delete_many(client, deletes, N_ITEMS), 0);
        assert_int_equal(folio_delete_many(client, deletes, 3), 3);
        assert_int_equal(deletes[2].error, FOLIO_E_DELETED);
        assert_int_equal(folio_put_many(client, NULL, 1), FOLIO_E_INVALID);
        free(puts);
        free(gets);
        free(stats);
        free(facts);
        free(reads);
        free(deletes);
        free(names);
        free(copies);
}

static void test_watch(void **state)
{
        struct folio_client *client = *state;
        struct folio_event event = { .struct_bytes = sizeof(event) };
        struct folio_watch *watch = NULL;
        struct pollfd poll_fd = { .events = POLLIN };
        uint64_t first;

        assert_int_equal(folio_watch_open(client, "default:seen/", 0, &watch), 0);
        poll_fd.fd = folio_watch_get_fd(watch);
        assert_true(poll_fd.fd >= 0);
        assert_int_equal(folio_watch_next(watch, 0, &event), 0);
        assert_int_equal(folio_put(client, "unseen", "", 0, NULL), 0);
        assert_int_equal(folio_put(client, "seen/1", "abc", 3, NULL), 0);
        assert_int_equal(folio_delete(client, "seen/1", 0), 0);
        assert_int_equal(poll(&poll_fd, 1, 10000), 1);
        assert_int_equal(folio_watch_next(watch, 10000, &event), 1);
        assert_int_equal(event.type, FOLIO_EVENT_SEALED);
        assert_string_equal(event.name, "default:seen/1");
        assert_int_equal(event.size_bytes, 3);
        first = event.sequence;
        assert_int_equal(folio_watch_next(watch, 10000, &event), 1);
        assert_int_equal(event.type, FOLIO_EVENT_DELETED);
        assert_int_equal(event.sequence, first + 1);
        assert_int_equal(folio_watch_next(watch, 0, &event), 0);
        folio_watch_close(watch);

        assert_int_equal(folio_watch_open(client, "default:", first, &watch), 0);
        assert_int_equal(folio_watch_next(watch, 0, &event), 1);
        assert_int_equal(event.sequence, first + 1);
        folio_watch_close(watch);
        assert_int_equal(folio_delete(client, "unseen", 0), 0);
}

static void test_admin(void **state)
{
        struct folio_client *client = *state;
        struct folio_namespace space = {
                .struct_bytes = sizeof(space),
                .fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES,
                .quota_bytes = 1u << 20,
                .name = "admin-test",
        };
        struct folio_namespace spaces[8] = { { .struct_bytes = sizeof(spaces[0]) } };
        struct folio_status *facts = calloc(256, sizeof(*facts));
        struct folio_holder holder = { .struct_bytes = sizeof(holder) };
        struct folio_object *object = NULL;
        int n;

        assert_non_null(facts);
        assert_int_equal(folio_namespace_add(client, &space), 0);
        assert_int_equal(folio_namespace_add(client, &space), FOLIO_E_EXISTS);
        n = folio_namespace_list(client, NULL, spaces, 8);
        assert_true(n >= 2);
        assert_string_equal(spaces[0].name, "admin-test");
        assert_int_equal(spaces[0].quota_bytes, 1u << 20);
        space.quota_bytes = 2u << 20;
        assert_int_equal(folio_namespace_set(client, &space), 0);
        assert_true(folio_namespace_list(client, "admin-tesS", spaces, 8) >= 1);
        assert_int_equal(spaces[0].quota_bytes, 2u << 20);

        assert_int_equal(folio_put(client, "admin-test:held", "x", 1, NULL), 0);
        assert_int_equal(folio_get(client, "admin-test:held", 0, 0, &object), 0);
        assert_int_equal(folio_holders(client, "admin-test:held", &holder, 1), 1);
        assert_string_equal(holder.comm, "public-api");
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(folio_namespace_remove(client, "admin-test"), 0);
        assert_int_equal(folio_namespace_remove(client, "default"), FOLIO_E_INVALID);

        facts[0].struct_bytes = sizeof(*facts);
        n = folio_status_get(client, facts, 256);
        assert_true(n > 0 && n <= 256);
        for (int i = 0; i < n; i++)
                assert_true(facts[i].name[0] != '\0');
        free(facts);
}

/* --- event loops -------------------------------------------------------------------------------------------------- */

typedef struct Done {
        int n_done;
        int error;
        struct folio_object *object;
} Done;

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Done *done = userdata;

        (void)client;
        done->n_done++;
        done->error = error;
        done->object = object;
}

static void run_until(struct folio_client *client, const Done *done, int n_done)
{
        for (int i = 0; i < 1000 && done->n_done < n_done; i++) {
                struct pollfd poll_fd = {
                        .fd = folio_client_get_fd(client),
                        .events = (short)folio_client_get_events(client),
                };

                assert_true(poll(&poll_fd, 1, 10000) >= 0);
                assert_true(folio_client_process(client) >= 0);
        }
        assert_int_equal(done->n_done, n_done);
}

static void test_asynchronous(void **state)
{
        struct folio_client *client = *state;
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE };
        struct folio_object *object;
        Done done = { 0 };
        char bytes[3];

        assert_int_equal(folio_put_async(client, "async", "abc", 3, NULL, on_done, &done), 0);
        run_until(client, &done, 1);
        assert_int_equal(done.error, 0);
        assert_int_equal(folio_get_async(client, "async", 0, 0, on_done, &done), 0);
        run_until(client, &done, 2);
        assert_int_equal(done.error, 0);
        assert_memory_equal(folio_object_data(done.object), "abc", 3);
        assert_int_equal(folio_object_release(done.object), 0);
        assert_int_equal(folio_read_async(client, "async", 0, bytes, 3, on_done, &done), 0);
        run_until(client, &done, 3);
        assert_memory_equal(bytes, "abc", 3);
        assert_int_equal(folio_delete_async(client, "async", 0, on_done, &done), 0);
        run_until(client, &done, 4);
        assert_int_equal(done.error, 0);

        assert_int_equal(folio_create_async(client, "async", 3, NULL, on_done, &done), 0);
        run_until(client, &done, 5);
        assert_int_equal(done.error, 0);
        object = done.object;
        assert_int_equal(folio_object_write(object, 0, "def", 3), 0);
        assert_int_equal(folio_object_seal_async(object, on_done, &done), 0);
        run_until(client, &done, 6);
        assert_int_equal(done.error, 0);
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(folio_delete(client, "async", 0), 0);

        assert_int_equal(folio_create(client, "async", 3, &mutable, &object), 0);
        assert_int_equal(folio_truncate_async(client, "async", 1, on_done, &done), 0);
        run_until(client, &done, 7);
        assert_int_equal(done.error, 0);
        assert_int_equal(folio_object_size(object), 1);
        assert_int_equal(folio_object_release(object), 0);
        assert_int_equal(folio_delete(client, "async", 0), 0);
        assert_ptr_equal(folio_client_ref(client), client);
        folio_client_unref(client);
}

/* Every other call that can wait, the opening first: all in one loop. */
#define ANSWER(call) (assert_int_equal(call, 0), run_until(client, &done, ++n), done.error)

static void test_asynchronous_rest(void **state)
{
        struct folio_create_options mutable = { .struct_bytes = sizeof(mutable), .flags = FOLIO_MUTABLE, .capacity_bytes = 4096 };
        struct folio_namespace space = { .struct_bytes = sizeof(space), .name = "async" }, spaces[4] = { space };
        struct folio_put_item put = { .name = "async:1", .data = "one", .size_bytes = 3 };
        struct folio_get_item get = { .name = "async:1" };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_stat_item stat_item = { .name = "async:1", .stat = &stat };
        struct folio_delete_item delete = { .name = "async:1" };
        struct folio_status fact = { .struct_bytes = sizeof(fact) };
        struct folio_holder holder = { .struct_bytes = sizeof(holder) };
        struct folio_read_item read = { .name = "async:1", .n_bytes = 3 };
        struct folio_client *client = NULL;
        struct folio_object *object;
        struct folio_watch *watch = NULL;
        struct folio_list *list = NULL;
        char bytes[4] = "";
        Done done = { 0 };
        int n = 0;

        (void)state;
        read.buffer = bytes;
        assert_int_equal(ANSWER(folio_client_open_async(NULL, &client, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_namespace_add_async(client, &space, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_namespace_set_async(client, &space, on_done, &done)), 0);
        assert_true(ANSWER(folio_namespace_list_async(client, NULL, spaces, 4, on_done, &done)) >= 2);
        assert_true(ANSWER(folio_status_get_async(client, &fact, 1, on_done, &done)) > 1);
        assert_int_equal(ANSWER(folio_watch_open_async(client, "async:", 0, &watch, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_put_many_async(client, &put, 1, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_put_many_async(client, &put, 1, on_done, &done)), 1);
        assert_int_equal(ANSWER(folio_stat_many_async(client, &stat_item, 1, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_read_many_async(client, &read, 1, on_done, &done)), 0);
        assert_string_equal(bytes, "one");
        assert_int_equal(ANSWER(folio_get_many_async(client, &get, 1, 0, 0, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_holders_async(client, "async:1", &holder, 1, on_done, &done)), 1);
        assert_int_equal(folio_object_release(get.object), 0);
        assert_int_equal(ANSWER(folio_exists_async(client, "async:1", on_done, &done)), 1);
        assert_int_equal(ANSWER(folio_stat_async(client, "async:1", &stat, on_done, &done)), 0);
        assert_int_equal(stat.size_bytes, 3);
        assert_int_equal(ANSWER(folio_list_open_async(client, "async:", &list, on_done, &done)), 0);
        assert_int_equal(folio_list_next(list, &stat, 1), 1);
        folio_list_close(list);
        assert_int_equal(ANSWER(folio_delete_many_async(client, &delete, 1, on_done, &done)), 0);

        assert_int_equal(ANSWER(folio_create_async(client, "async:2", 3, &mutable, on_done, &done)), 0);
        object = done.object;
        assert_int_equal(ANSWER(folio_object_write_async(object, 0, "two", 3, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_object_map_async(object, FOLIO_GET_WRITABLE, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_object_truncate_async(object, 2, on_done, &done)), 0);
        assert_int_equal(ANSWER(folio_object_read_async(object, 0, bytes, 2, on_done, &done)), 0);
        assert_string_equal(bytes, "twe");
        assert_int_equal(folio_object_release(object), 0);
        folio_watch_close(watch);
        assert_int_equal(ANSWER(folio_namespace_remove_async(client, "async", on_done, &done)), 0);
        folio_client_unref(client);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest alone[] = {
                cmocka_unit_test(test_open_nobody_there),
                cmocka_unit_test(test_open_bad_options),
                cmocka_unit_test(test_strerror),
                cmocka_unit_test(test_nothing_given),
        };
        const struct CMUnitTest store[] = {
                cmocka_unit_test_setup_teardown(test_put_get, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_create_seal_abort, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_replace, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_mutable, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_older_and_newer_callers, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_list, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_batches, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_watch, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_admin, open_client, close_client),
                cmocka_unit_test_setup_teardown(test_asynchronous, open_client, close_client),
                cmocka_unit_test(test_asynchronous_rest),
        };

        if (argc > 1 && strcmp(argv[1], "store") == 0)
                return cmocka_run_group_tests(store, NULL, NULL);
        return cmocka_run_group_tests(alone, NULL, NULL);
}
