/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call that can wait, in its asynchronous form: one thread, one loop of its own, and nothing that blocks from the
 * opening of the client to its end.
 */
#include "tests/integration/async.h"

#define DO(call) (assert_int_equal(call, 0), async_finish(client, &done))

/* --- objects ------------------------------------------------------------------------------------------------------------ */

static void go_through_objects(struct folio_client *client)
{
        static const size_t lengths[] = { 0, 100, 5 * MIB };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_holder holders[4] = { { .struct_bytes = sizeof(holders[0]) } };
        Done done = { 0 };

        for (size_t i = 0; i < 3; i++) {
                uint8_t *bytes = malloc(lengths[i] + 1), *copy = malloc(lengths[i] + 1);
                struct folio_object *object;
                void *memory = NULL;

                harness_fill(bytes, lengths[i], i);
                assert_int_equal(DO(folio_exists_async(client, "o", async_on_done, &done)), 0);
                assert_int_equal(DO(folio_create_async(client, "o", lengths[i], NULL, async_on_done, &done)), 0);
                object = done.object;
                assert_int_equal(DO(folio_exists_async(client, "o", async_on_done, &done)), 0);
                assert_int_equal(DO(folio_object_map_async(object, FOLIO_GET_WRITABLE, async_on_done, &done)), 0);
                ASSERT_OK(folio_object_map_write(object, &memory));
                assert_int_equal(DO(folio_object_write_async(object, 0, bytes, lengths[i], async_on_done, &done)), 0);
                assert_memory_equal(memory, bytes, lengths[i]);
                assert_int_equal(DO(folio_object_write_async(object, 1, bytes, lengths[i], async_on_done, &done)), FOLIO_E_RANGE);
                assert_int_equal(DO(folio_object_map_async(object, 0, async_on_done, &done)), FOLIO_E_STATE);
                assert_int_equal(DO(folio_object_seal_async(object, async_on_done, &done)), 0);
                assert_int_equal(DO(folio_object_map_async(object, FOLIO_GET_WRITABLE, async_on_done, &done)), FOLIO_E_STATE);
                assert_int_equal(DO(folio_object_map_async(object, 0, async_on_done, &done)), 0);
                assert_memory_equal(folio_object_data(object), bytes, lengths[i]);
                ASSERT_OK(folio_object_release(object));
                assert_int_equal(DO(folio_exists_async(client, "o", async_on_done, &done)), 1);
                assert_int_equal(DO(folio_stat_async(client, "o", &stat, async_on_done, &done)), 0);
                assert_int_equal(stat.size_bytes, lengths[i]);
                assert_string_equal(stat.name, "default:o");
                assert_int_equal(DO(folio_get_async(client, "o", FOLIO_GET_UNMAPPED, 0, async_on_done, &done)), 0);
                object = done.object;
                memset(copy, 0, lengths[i]);
                assert_int_equal(DO(folio_object_read_async(object, 0, copy, lengths[i], async_on_done, &done)), 0);
                assert_memory_equal(copy, bytes, lengths[i]);
                assert_int_equal(DO(folio_object_read_async(object, 1, copy, lengths[i], async_on_done, &done)), FOLIO_E_RANGE);
                assert_non_null(strstr(done.sentence, "inside the object"));
                assert_int_equal(DO(folio_holders_async(client, "o", holders, 4, async_on_done, &done)), 1);
                assert_int_equal(holders[0].pid, getpid());
                ASSERT_OK(folio_object_release(object));
                assert_int_equal(DO(folio_delete_async(client, "o", 0, async_on_done, &done)), 0);
                free(bytes);
                free(copy);
        }
        assert_int_equal(DO(folio_stat_async(client, "o", &stat, async_on_done, &done)), FOLIO_E_DELETED);
        assert_int_equal(DO(folio_stat_async(client, "nowhere:o", &stat, async_on_done, &done)), FOLIO_E_NOT_FOUND);
        assert_int_equal(DO(folio_exists_async(client, "nowhere:o", async_on_done, &done)), FOLIO_E_NOT_FOUND);
        assert_int_equal(DO(folio_holders_async(client, "o", NULL, 0, async_on_done, &done)), FOLIO_E_DELETED);
}

static void go_through_mutable(struct folio_client *client)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_MUTABLE, .capacity_bytes = 8192 };
        struct folio_object *object, *writer;
        Done done = { 0 };
        char copy[4] = "";

        assert_int_equal(DO(folio_create_async(client, "m", 10, &options, async_on_done, &done)), 0);
        object = done.object;
        assert_int_equal(DO(folio_object_truncate_async(object, 5000, async_on_done, &done)), 0);
        assert_int_equal(folio_object_size(object), 5000);
        assert_int_equal(DO(folio_object_truncate_async(object, 5000, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_object_truncate_async(object, 8193, async_on_done, &done)), FOLIO_E_TOO_LARGE);
        assert_int_equal(DO(folio_get_async(client, "m", FOLIO_GET_WRITABLE | FOLIO_GET_UNMAPPED, 0, async_on_done, &done)), 0);
        writer = done.object;
        assert_int_equal(DO(folio_object_write_async(writer, 4000, "abc", 3, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_object_read_async(object, 4000, copy, 3, async_on_done, &done)), 0);
        assert_string_equal(copy, "abc");
        ASSERT_OK(folio_object_release(writer));
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(DO(folio_delete_async(client, "m", 0, async_on_done, &done)), 0);
}

/* Several MiB through staging memory that holds one: the write waits for room, and for its answers, in the loop. */
static void go_through_stream(struct folio_client *client)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM };
        size_t n_bytes = 5 * MIB + 77;
        uint8_t *bytes = malloc(2 * n_bytes), *copy = malloc(2 * n_bytes);
        struct folio_object *object;
        Done done = { 0 }, other = { 0 };

        harness_fill(bytes, 2 * n_bytes, 9);
        assert_int_equal(DO(folio_create_async(client, "s", 0, &options, async_on_done, &done)), 0);
        object = done.object;
        ASSERT_OK(folio_object_write_async(object, 0, bytes, n_bytes, async_on_done, &done));
        ASSERT_OK(folio_object_write_async(object, n_bytes, bytes, 1, async_on_done, &other));
        assert_int_equal(async_finish(client, &done), 0);
        assert_int_equal(async_finish(client, &other), FOLIO_E_STATE);
        assert_int_equal(folio_object_size(object), n_bytes);
        assert_int_equal(DO(folio_object_write_async(object, 5, bytes, 1, async_on_done, &done)), FOLIO_E_RANGE);
        assert_int_equal(DO(folio_object_write_async(object, n_bytes, bytes, SIZE_MAX - n_bytes, async_on_done, &done)), FOLIO_E_TOO_LARGE);
        assert_int_equal(DO(folio_object_map_async(object, FOLIO_GET_WRITABLE, async_on_done, &done)), FOLIO_E_UNSUPPORTED);
        assert_int_equal(DO(folio_object_write_async(object, n_bytes, bytes + n_bytes, n_bytes, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_object_seal_async(object, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_object_read_async(object, 0, copy, 2 * n_bytes, async_on_done, &done)), 0);
        assert_memory_equal(copy, bytes, 2 * n_bytes);
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(DO(folio_delete_async(client, "s", 0, async_on_done, &done)), 0);
        free(bytes);
        free(copy);
}

/* --- namespaces, lists, watches, facts --------------------------------------------------------------------------------------- */

static void go_through_namespaces(struct folio_client *client)
{
        struct folio_namespace space = { .struct_bytes = sizeof(space), .name = "async" }, spaces[2];
        struct folio_status facts[128];
        Done done = { 0 };
        bool found = false;

        assert_int_equal(DO(folio_namespace_add_async(client, &space, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_namespace_add_async(client, &space, async_on_done, &done)), FOLIO_E_EXISTS);
        space.fields = FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
        space.quota_objects = 7;
        assert_int_equal(DO(folio_namespace_set_async(client, &space, async_on_done, &done)), 0);
        spaces[0].struct_bytes = sizeof(spaces[0]);
        assert_int_equal(DO(folio_namespace_list_async(client, NULL, spaces, 2, async_on_done, &done)), 2);
        assert_string_equal(spaces[0].name, "async");
        assert_int_equal(spaces[0].quota_objects, 7);
        assert_string_equal(spaces[1].name, "default");
        assert_int_equal(DO(folio_namespace_list_async(client, "default", spaces, 2, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_namespace_remove_async(client, "async", async_on_done, &done)), 0);
        assert_int_equal(DO(folio_namespace_remove_async(client, "async", async_on_done, &done)), FOLIO_E_NOT_FOUND);
        facts[0].struct_bytes = sizeof(facts[0]);
        assert_in_range(DO(folio_status_get_async(client, facts, 128, async_on_done, &done)), 1, 128);
        for (int i = 0; i < done.error; i++)
                found = found || strcmp(facts[i].name, "memory.budget_bytes") == 0;
        assert_true(found);
}

static void go_through_list_and_watch(struct folio_client *client)
{
        struct folio_event event = { .struct_bytes = sizeof(event) };
        struct folio_stat page[4] = { { .struct_bytes = sizeof(page[0]) } };
        struct folio_watch *watch = NULL, *none = NULL;
        struct folio_list *list = NULL;
        struct pollfd fd = { .events = POLLIN };
        Done done = { 0 };

        assert_int_equal(DO(folio_watch_open_async(client, "default:w", 0, &watch, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_watch_open_async(client, "nowhere:w", 0, &none, async_on_done, &done)), FOLIO_E_NOT_FOUND);
        assert_int_equal(DO(folio_watch_open_async(client, "w", UINT64_MAX, &none, async_on_done, &done)), FOLIO_E_INVALID);
        assert_null(none);
        fd.fd = folio_watch_get_fd(watch);
        assert_true(fd.fd >= 0);
        assert_int_equal(DO(folio_put_async(client, "w1", "1", 1, NULL, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_put_async(client, "w2", "2", 1, NULL, async_on_done, &done)), 0);
        assert_int_equal(poll(&fd, 1, 20000), 1);
        assert_int_equal(folio_watch_next(watch, 0, &event), 1);
        assert_string_equal(event.name, "default:w1");
        assert_int_equal(DO(folio_list_open_async(client, "w", &list, async_on_done, &done)), 0);
        assert_int_equal(folio_list_next(list, page, 4), 2);
        assert_string_equal(page[1].name, "default:w2");
        folio_list_close(list);
        list = NULL;
        assert_int_equal(DO(folio_list_open_async(client, "nowhere:", &list, async_on_done, &done)), FOLIO_E_NOT_FOUND);
        assert_null(list);
        assert_int_equal(folio_list_open_async(client, "?:", &list, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(DO(folio_delete_async(client, "w1", 0, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_delete_async(client, "w2", 0, async_on_done, &done)), 0);
        folio_watch_close(watch);
}

/* --- batches ----------------------------------------------------------------------------------------------------------------- */

static void go_through_batches(struct folio_client *client)
{
        struct folio_namespace space = { .struct_bytes = sizeof(space), .name = "other" };
        AsyncItems *items = async_items_new();
        Done done = { 0 };

        assert_int_equal(DO(folio_stat_many_async(client, items->stats, ASYNC_N_ITEMS, async_on_done, &done)), ASYNC_N_ITEMS);
        assert_int_equal(items->stats[1].error, FOLIO_E_NOT_FOUND);
        assert_int_equal(DO(folio_namespace_add_async(client, &space, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_put_many_async(client, items->puts, ASYNC_N_ITEMS, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_put_many_async(client, items->puts, ASYNC_N_ITEMS, async_on_done, &done)), ASYNC_N_ITEMS);
        assert_non_null(strstr(done.sentence, "taken"));
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++)
                assert_int_equal(items->puts[i].error, FOLIO_E_EXISTS);
        assert_int_equal(DO(folio_stat_many_async(client, items->stats, ASYNC_N_ITEMS, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_read_many_async(client, items->reads, ASYNC_N_ITEMS, async_on_done, &done)), 0);
        assert_int_equal(DO(folio_get_many_async(client, items->gets, ASYNC_N_ITEMS, 0, 0, async_on_done, &done)), 0);
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++) {
                assert_int_equal(items->facts[i].size_bytes, 24);
                assert_memory_equal(items->copies[i], items->names[i], 24);
                assert_memory_equal(folio_object_data(items->gets[i].object), items->names[i], 24);
                ASSERT_OK(folio_object_release(items->gets[i].object));
        }
        items->deletes[3].flags = UINT32_MAX;
        items->deletes[4].name = "never-was";
        assert_int_equal(DO(folio_delete_many_async(client, items->deletes, ASYNC_N_ITEMS, async_on_done, &done)), 2);
        assert_int_equal(items->deletes[3].error, FOLIO_E_INVALID);
        assert_int_equal(items->deletes[4].error, FOLIO_E_NOT_FOUND);
        assert_int_equal(DO(folio_stat_many_async(client, NULL, 0, async_on_done, &done)), 0);
        assert_int_equal(folio_get_many_async(client, NULL, 1, 0, 0, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(DO(folio_namespace_remove_async(client, "other", async_on_done, &done)), 0);
        assert_int_equal(DO(folio_delete_async(client, items->names[4], 0, async_on_done, &done)), 0);
        free(items);
}

/* Of three gets in one batch two must wait, one for ever. */
static void go_through_waiting_batch(struct folio_client *client)
{
        struct folio_get_item gets[3] = { { .name = "g0" }, { .name = "g1" }, { .name = "g2" } };
        Done done = { 0 }, put = { 0 };

        ASSERT_OK(folio_put_async(client, "g0", "0", 1, NULL, async_on_done, &put));
        assert_int_equal(async_finish(client, &put), 0);
        ASSERT_OK(folio_get_many_async(client, gets, 3, 0, FOLIO_TIMEOUT_FOREVER, async_on_done, &done));
        ASSERT_OK(folio_put_async(client, "g2", "2", 1, NULL, async_on_done, &put));
        assert_int_equal(async_finish(client, &put), 0);
        assert_int_equal(done.n, 0);
        ASSERT_OK(folio_put_async(client, "g1", "1", 1, NULL, async_on_done, &put));
        assert_int_equal(async_finish(client, &put), 0);
        assert_int_equal(async_finish(client, &done), 0);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(*(const char *)folio_object_data(gets[i].object), '0' + i);
                ASSERT_OK(folio_object_release(gets[i].object));
                assert_int_equal(DO(folio_delete_async(client, gets[i].name, 0, async_on_done, &done)), 0);
        }
        assert_int_equal(DO(folio_get_many_async(client, gets, 3, 0, 20, async_on_done, &done)), 3);
        assert_int_equal(gets[1].error, FOLIO_E_TIMEOUT);
}

static void test_nothing_blocks(void **state)
{
        Foliod *foliod = foliod_start("--staging=1M", NULL);
        struct folio_open_options options = async_options(foliod);
        struct folio_client *client = NULL;
        Done done = { 0 };

        assert_int_equal(DO(folio_client_open_async(&options, &client, async_on_done, &done)), 0);
        go_through_objects(client);
        go_through_mutable(client);
        go_through_stream(client);
        go_through_namespaces(client);
        go_through_list_and_watch(client);
        go_through_batches(client);
        go_through_waiting_batch(client);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_arguments(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_open_options options = async_options(foliod);
        struct folio_client *client = NULL;
        static const int none = 0;
        struct folio_object *handle = (struct folio_object *)(uintptr_t)&none;
        struct folio_stat stat = { 0 };
        struct folio_list *list;
        Done done = { 0 };
        char byte;

        assert_int_equal(folio_client_open_async(&options, &client, NULL, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_client_open_async(&options, NULL, async_on_done, &done), FOLIO_E_INVALID);
        options.flags = UINT32_MAX;
        assert_int_equal(folio_client_open_async(&options, &client, async_on_done, &done), FOLIO_E_INVALID);
        assert_null(client);
        client = foliod_connect(foliod);
        assert_int_equal(folio_stat_async(client, "a", &stat, async_on_done, &done), FOLIO_E_INVALID);
        stat.struct_bytes = sizeof(stat);
        assert_int_equal(folio_stat_async(NULL, "a", &stat, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_stat_async(client, "", &stat, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_stat_async(client, "a", &stat, NULL, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_exists_async(client, NULL, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_object_read_async(handle, 0, &byte, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_object_write_async(handle, 0, &byte, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_object_truncate_async(handle, 0, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_object_map_async(handle, 0, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_list_open_async(client, "a", NULL, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_list_open_async(client, NULL, &list, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_watch_open_async(client, "a", 0, NULL, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_holders_async(client, "a", NULL, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_namespace_add_async(client, NULL, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_namespace_remove_async(client, "UPPER", async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_namespace_list_async(client, NULL, NULL, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_status_get_async(client, NULL, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_put_many_async(client, NULL, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(folio_read_many_async(client, NULL, 1, async_on_done, &done), FOLIO_E_INVALID);
        assert_int_equal(done.n, 0);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_nothing_blocks),
                INTEGRATION_TEST(test_arguments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
