/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting, getting, reading, asking, replacing, deleting, listing against a real foliod: what a user does in the first
 * hour, and what the header promises about each of it.
 */
#include "tests/integration/harness.h"

#define MIB (1024u * 1024u)

static const struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };

static void *filled(size_t n_bytes, uint64_t seed)
{
        void *bytes = malloc(n_bytes ? n_bytes : 1);

        assert_non_null(bytes);
        harness_fill(bytes, n_bytes, seed);
        return bytes;
}

/* Sizes on both sides of every limit that matters inside. */
static const size_t sizes[] = { 0,    1,    7,     63,      64,  65,      100,     4095,
                                4096, 4097, 65536, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 3 };

/* --- put, get, read, stat --------------------------------------------------------------------------------------------- */

static void test_put_get_read(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *writer = foliod_connect(foliod), *reader = foliod_connect(foliod);

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                void *bytes = filled(sizes[i], i), *copy = malloc(sizes[i] + 1);
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                struct folio_object *object;
                char name[64];

                snprintf(name, sizeof(name), "size/%zu", sizes[i]);
                ASSERT_OK(folio_put(writer, name, bytes, sizes[i], NULL));
                ASSERT_OK(folio_get(reader, name, 0, 0, &object));
                assert_int_equal(folio_object_size(object), sizes[i]);
                assert_non_null(folio_object_data(object));
                assert_memory_equal(folio_object_data(object), bytes, sizes[i]);
                ASSERT_OK(folio_object_read(object, 0, copy, sizes[i]));
                assert_memory_equal(copy, bytes, sizes[i]);
                assert_int_equal(folio_object_read(object, 0, copy, sizes[i] + 1), FOLIO_E_RANGE);
                assert_int_equal(folio_object_read(object, sizes[i] + 1, copy, 0), FOLIO_E_RANGE);
                assert_int_equal(folio_object_read(object, UINT64_MAX, copy, 1), FOLIO_E_RANGE);
                ASSERT_OK(folio_object_read(object, sizes[i], copy, 0));
                ASSERT_OK(folio_object_release(object));

                memset(copy, 0, sizes[i]);
                ASSERT_OK(folio_read(writer, name, 0, copy, sizes[i]));
                assert_memory_equal(copy, bytes, sizes[i]);
                if (sizes[i] > 10) {
                        ASSERT_OK(folio_read(reader, name, 3, copy, sizes[i] - 7));
                        assert_true(harness_is_filled(copy, sizes[i] - 7, i, 3));
                }
                ASSERT_OK(folio_stat(reader, name, &stat));
                assert_int_equal(stat.size_bytes, sizes[i]);
                assert_int_equal(stat.capacity_bytes, sizes[i]);
                assert_int_equal(stat.state, FOLIO_STATE_SEALED);
                assert_int_equal(stat.lifetime, FOLIO_UNTIL_DELETED);
                assert_int_equal(stat.owner_uid, getuid());
                assert_true(stat.created_ns > 0 && stat.created_ns <= stat.changed_ns);
                snprintf(name, sizeof(name), "default:size/%zu", sizes[i]);
                assert_string_equal(stat.name, name);
                assert_int_equal(folio_exists(reader, name), 1);
                free(bytes);
                free(copy);
        }
        folio_client_unref(reader);
        folio_client_unref(writer);
        foliod_stop(foliod);
}

/* A large object that is only read, by name and by an unmapped handle. */
static void test_read_unmapped(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *writer = foliod_connect(foliod), *reader = foliod_connect(foliod);
        size_t n_bytes = 9 * MIB + 11;
        void *bytes = filled(n_bytes, 1), *copy = malloc(n_bytes);
        struct folio_object *object;

        ASSERT_OK(folio_put(writer, "large", bytes, n_bytes, NULL));
        ASSERT_OK(folio_read(reader, "large", 0, copy, n_bytes));
        assert_memory_equal(copy, bytes, n_bytes);
        ASSERT_OK(folio_read(reader, "large", 5 * MIB, copy, 1000));
        assert_true(harness_is_filled(copy, 1000, 1, 5 * MIB));
        folio_client_unref(reader);

        reader = foliod_connect(foliod);
        ASSERT_OK(folio_get(reader, "large", FOLIO_GET_UNMAPPED, 0, &object));
        ASSERT_OK(folio_delete(writer, "large", 0));
        memset(copy, 0, n_bytes);
        ASSERT_OK(folio_object_read(object, 0, copy, n_bytes));
        assert_memory_equal(copy, bytes, n_bytes);
        assert_non_null(folio_object_data(object));
        assert_memory_equal(folio_object_data(object), bytes, n_bytes);
        ASSERT_OK(folio_object_release(object));
        assert_int_equal(folio_read(reader, "large", 0, copy, 1), FOLIO_E_DELETED);
        folio_client_unref(reader);
        folio_client_unref(writer);
        free(bytes);
        free(copy);
        foliod_stop(foliod);
}

static void test_names_and_arguments(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        char key[FOLIO_KEY_BYTES_MAX + 2], long_name[600];
        static const char *const bad[] = { "", ":", "default:", "UPPER:k", "a b:k", "-\x01:k" };
        struct folio_create_options options = { .struct_bytes = sizeof(options) };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        static const uint64_t too_large[] = { (UINT64_C(1) << 46) + 1, UINT64_C(1) << 62, INT64_MAX, UINT64_MAX };
        struct folio_object *object = NULL;

        memset(key, 'k', sizeof(key));
        key[FOLIO_KEY_BYTES_MAX] = '\0';
        ASSERT_OK(folio_put(client, key, "x", 1, NULL));
        assert_int_equal(folio_exists(client, key), 1);
        ASSERT_OK(folio_stat(client, key, &stat));
        assert_string_equal(stat.name + 8, key);
        key[FOLIO_KEY_BYTES_MAX] = 'k';
        key[FOLIO_KEY_BYTES_MAX + 1] = '\0';
        assert_int_equal(folio_put(client, key, "x", 1, NULL), FOLIO_E_INVALID);
        memset(long_name, 'k', sizeof(long_name));
        long_name[sizeof(long_name) - 1] = '\0';
        assert_int_equal(folio_put(client, long_name, "x", 1, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_put(client, NULL, "x", 1, NULL), FOLIO_E_INVALID);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                assert_int_equal(folio_put(client, bad[i], "x", 1, NULL), FOLIO_E_INVALID);
                assert_int_equal(folio_get(client, bad[i], 0, 0, &object), FOLIO_E_INVALID);
                assert_int_equal(folio_delete(client, bad[i], 0), FOLIO_E_INVALID);
                assert_int_equal(folio_stat(client, bad[i], &stat), FOLIO_E_INVALID);
        }
        ASSERT_OK(folio_put(client, "default:a:colon", "x", 1, NULL));
        assert_int_equal(folio_exists(client, "default:a:colon"), 1);
        assert_int_equal(folio_put(client, "nowhere:k", "x", 1, NULL), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_stat(client, "nowhere:k", &stat), FOLIO_E_NOT_FOUND);

        assert_int_equal(folio_put(NULL, "k", "x", 1, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_put(client, "k", NULL, 1, NULL), FOLIO_E_INVALID);
        ASSERT_OK(folio_put(client, "nothing", NULL, 0, NULL));
        assert_int_equal(folio_get(client, "k", 0, 0, NULL), FOLIO_E_INVALID);
        assert_int_equal(folio_get(client, "k", 1u << 30, 0, &object), FOLIO_E_INVALID);
        assert_int_equal(folio_get(client, "k", 0, -2, &object), FOLIO_E_INVALID);
        stat.struct_bytes = 0;
        assert_int_equal(folio_stat(client, "nothing", &stat), FOLIO_E_INVALID);
        options.struct_bytes = 0;
        assert_int_equal(folio_put(client, "k", "x", 1, &options), FOLIO_E_INVALID);
        options.struct_bytes = sizeof(options);
        for (unsigned bit = 0; bit < 32; bit++) {
                options.flags = 1u << bit;
                if (options.flags & (FOLIO_REPLACE | FOLIO_OWN_REGION | FOLIO_PUT_VISIBLE))
                        continue;
                assert_int_equal(folio_put(client, "k", "x", 1, &options), FOLIO_E_INVALID);
        }
        options.flags = 0;
        options.lifetime = 3;
        assert_int_equal(folio_put(client, "k", "x", 1, &options), FOLIO_E_INVALID);
        options.lifetime = FOLIO_UNTIL_TIME;
        assert_int_equal(folio_put(client, "k", "x", 1, &options), FOLIO_E_INVALID);
        /* A07: refused before anything is asked of the kernel. */
        for (size_t i = 0; i < sizeof(too_large) / sizeof(too_large[0]); i++) {
                assert_int_equal(folio_create(client, "k", too_large[i], NULL, &object), FOLIO_E_TOO_LARGE);
                assert_int_equal(folio_truncate(client, "k", too_large[i]), FOLIO_E_TOO_LARGE);
        }
        assert_int_equal(folio_exists(client, "k"), 0);
        assert_true(strlen(folio_strerror_full()) > 0);
        assert_null(object);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_handles(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *other, *never = (struct folio_object *)(void *)foliod;
        char byte;

        ASSERT_OK(folio_put(client, "k", "abc", 3, NULL));
        ASSERT_OK(folio_get(client, "k", 0, 0, &object));
        ASSERT_OK(folio_get(client, "k", 0, 0, &other));
        ASSERT_OK(folio_object_release(object));
        /* D21 */
        assert_int_equal(folio_object_release(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_read(object, 0, &byte, 1), FOLIO_E_INVALID);
        assert_null(folio_object_data(object));
        assert_int_equal(folio_object_size(object), 0);
        assert_int_equal(folio_object_seal(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_abort(object), FOLIO_E_INVALID);
        assert_int_equal(folio_object_release(never), FOLIO_E_INVALID);
        assert_int_equal(folio_object_release(NULL), FOLIO_E_INVALID);
        assert_memory_equal(folio_object_data(other), "abc", 3);
        assert_int_equal(folio_object_write(other, 0, "x", 1), FOLIO_E_STATE);
        assert_int_equal(folio_object_seal(other), FOLIO_E_STATE);
        assert_int_equal(folio_object_truncate(other, 1), FOLIO_E_STATE);
        ASSERT_OK(folio_object_release(other));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- replace, delete, list ----------------------------------------------------------------------------------------------- */

static void test_replace_and_delete(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat before = { .struct_bytes = sizeof(before) }, after = before, held = before;
        static const size_t lengths[] = { 100, 3 * MIB };

        for (size_t i = 0; i < 2; i++) {
                void *first = filled(lengths[i], 1), *second = filled(lengths[i], 2);
                struct folio_object *object;

                assert_int_equal(folio_delete(client, "r", 0), i == 0 ? FOLIO_E_NOT_FOUND : FOLIO_E_DELETED);
                ASSERT_OK(folio_delete(client, "r", FOLIO_IF_EXISTS));
                ASSERT_OK(folio_put(client, "r", first, lengths[i], NULL));
                ASSERT_OK(folio_stat(client, "r", &before));
                ASSERT_OK(folio_get(client, "r", 0, 0, &object));
                assert_int_equal(folio_put(client, "r", second, lengths[i], NULL), FOLIO_E_EXISTS);
                ASSERT_OK(folio_put(client, "r", second, lengths[i], &replace));
                ASSERT_OK(folio_stat(client, "r", &after));
                assert_true(after.generation != before.generation);
                /* C04, C13: who holds the old one keeps the old one. */
                assert_memory_equal(folio_object_data(object), first, lengths[i]);
                ASSERT_OK(folio_object_stat(object, &held));
                assert_int_equal(held.generation, before.generation);
                ASSERT_OK(folio_delete(client, "r", 0));
                assert_int_equal(folio_exists(client, "r"), 0);
                assert_int_equal(folio_stat(client, "r", &after), FOLIO_E_DELETED);
                assert_memory_equal(folio_object_data(object), first, lengths[i]);
                ASSERT_OK(folio_object_release(object));
                free(first);
                free(second);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_list(void **state)
{
        enum { N = 3000, PAGE = 37 };
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat entries[PAGE];
        struct folio_list *list;
        char name[64], previous[FOLIO_NAME_BYTES_MAX + 1] = "";
        size_t n_seen = 0;
        int n;

        for (int i = 0; i < N; i++) {
                snprintf(name, sizeof(name), "list/%s%05d",
                         i % 7 == 0 ? "a-very-long-key-that-does-not-fit-into-a-slot/" : "", i);
                ASSERT_OK(folio_put(client, name, name, strlen(name), NULL));
        }
        ASSERT_OK(folio_put(client, "lis", "", 0, NULL));
        ASSERT_OK(folio_put(client, "list0", "", 0, NULL));
        ASSERT_OK(folio_put(client, "list/00001", "other", 5, &replace));
        ASSERT_OK(folio_delete(client, "list/00002", 0));

        ASSERT_OK(folio_list_open(client, "list/", &list));
        memset(entries, 0, sizeof(entries));
        entries[0].struct_bytes = sizeof(entries[0]);
        /* Gone after the opening, before its page: left out. */
        ASSERT_OK(folio_delete(client, "list/00003", 0));
        ASSERT_OK(folio_put(client, "list/00004", "changed", 7, &replace));
        while ((n = folio_list_next(list, entries, PAGE)) > 0)
                for (int i = 0; i < n; i++) {
                        assert_true(strcmp(previous, entries[i].name) < 0);
                        assert_int_equal(strncmp(entries[i].name, "default:list/", 13), 0);
                        if (strcmp(entries[i].name, "default:list/00004") == 0)
                                assert_int_equal(entries[i].size_bytes, 7);
                        strcpy(previous, entries[i].name);
                        n_seen++;
                }
        assert_int_equal(n, 0);
        assert_int_equal(n_seen, N - 2);
        assert_int_equal(folio_list_next(list, entries, PAGE), 0);
        folio_list_close(list);

        ASSERT_OK(folio_list_open(client, "", &list));
        for (n_seen = 0; (n = folio_list_next(list, entries, PAGE)) > 0;)
                n_seen += (size_t)n;
        assert_int_equal(n_seen, N);
        folio_list_close(list);
        ASSERT_OK(folio_list_open(client, "none-begins-so", &list));
        assert_int_equal(folio_list_next(list, entries, PAGE), 0);
        assert_int_equal(folio_list_next(list, entries, 0), FOLIO_E_INVALID);
        folio_list_close(list);
        folio_list_close(NULL);
        assert_int_equal(folio_list_open(client, "nowhere:", &list), FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- metadata, lifetimes ----------------------------------------------------------------------------------------------------- */

static void test_metadata(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        static uint8_t metadata[FOLIO_METADATA_BYTES_MAX + 1], copy[FOLIO_METADATA_BYTES_MAX];
        char content_type[FOLIO_CONTENT_TYPE_BYTES_MAX + 2];
        struct folio_create_options options = { .struct_bytes = sizeof(options), .metadata = metadata };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object;

        harness_fill(metadata, sizeof(metadata), 3);
        memset(content_type, 't', sizeof(content_type));
        content_type[FOLIO_CONTENT_TYPE_BYTES_MAX] = '\0';
        options.metadata_bytes = FOLIO_METADATA_BYTES_MAX;
        options.content_type = content_type;
        ASSERT_OK(folio_put(client, "a-key-of-more-than-thirty-two-bytes/m", "x", 1, &options));
        ASSERT_OK(folio_get(client, "a-key-of-more-than-thirty-two-bytes/m", 0, 0, &object));
        assert_int_equal(folio_object_metadata(object, copy, sizeof(copy)), FOLIO_METADATA_BYTES_MAX);
        assert_memory_equal(copy, metadata, FOLIO_METADATA_BYTES_MAX);
        assert_int_equal(folio_object_metadata(object, copy, FOLIO_METADATA_BYTES_MAX - 1), FOLIO_E_RANGE);
        ASSERT_OK(folio_object_stat(object, &stat));
        assert_int_equal(stat.metadata_bytes, FOLIO_METADATA_BYTES_MAX);
        assert_string_equal(stat.content_type, content_type);
        ASSERT_OK(folio_object_release(object));
        options.metadata_bytes++;
        assert_int_equal(folio_put(client, "m2", "x", 1, &options), FOLIO_E_INVALID);
        options.metadata_bytes = 0;
        content_type[FOLIO_CONTENT_TYPE_BYTES_MAX] = 't';
        content_type[FOLIO_CONTENT_TYPE_BYTES_MAX + 1] = '\0';
        assert_int_equal(folio_put(client, "m2", "x", 1, &options), FOLIO_E_INVALID);
        options.content_type = NULL;
        ASSERT_OK(folio_put(client, "m2", "x", 1, &options));
        ASSERT_OK(folio_get(client, "m2", 0, 0, &object));
        assert_int_equal(folio_object_metadata(object, NULL, 0), 0);
        ASSERT_OK(folio_object_release(object));
        /* An older caller's struct ends earlier; what it does not have stays untouched. */
        memset(&stat, 0xee, sizeof(stat));
        stat.struct_bytes = offsetof(struct folio_stat, created_ns);
        ASSERT_OK(folio_stat(client, "m2", &stat));
        assert_int_equal(stat.size_bytes, 1);
        assert_int_equal((uint8_t)stat.name[0], 0xee);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static uint64_t realtime_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void test_lifetimes(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .lifetime = FOLIO_WITH_CREATOR };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        ASSERT_OK(folio_put(client, "mine", "x", 1, &options));
        ASSERT_OK(folio_stat(other, "mine", &stat));
        assert_int_equal(stat.lifetime, FOLIO_WITH_CREATOR);
        options.lifetime = FOLIO_UNTIL_TIME;
        options.expires_ns = realtime_ns() + UINT64_C(300000000);
        ASSERT_OK(folio_put(client, "short", "x", 1, &options));
        folio_client_unref(client);
        AWAIT(folio_stat(other, "mine", &stat) == FOLIO_E_DELETED);
        AWAIT(folio_stat(other, "short", &stat) == FOLIO_E_EXPIRED);
        assert_true(realtime_ns() >= options.expires_ns);
        AWAIT(foliod_fact(other, "objects.count") == 0);
        assert_int_equal(folio_stat(other, "short", &stat), FOLIO_E_EXPIRED);
        folio_client_unref(other);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_put_get_read),
                INTEGRATION_TEST(test_read_unmapped),
                INTEGRATION_TEST(test_names_and_arguments),
                INTEGRATION_TEST(test_handles),
                INTEGRATION_TEST(test_replace_and_delete),
                INTEGRATION_TEST(test_list),
                INTEGRATION_TEST(test_metadata),
                INTEGRATION_TEST(test_lifetimes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
