/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that the program fills itself: created, written, mapped, streamed, sealed, given up; and mutable ones. */
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

/* --- create, seal, abort, stream ------------------------------------------------------------------------------------------ */

static void test_create_and_seal(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (int maps = 0; maps < 2; maps++) {
                        void *bytes = filled(sizes[i], i), *memory = NULL;
                        struct folio_object *object, *seen;
                        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                        char name[64];

                        snprintf(name, sizeof(name), "create/%d/%zu", maps, sizes[i]);
                        ASSERT_OK(folio_create(client, name, sizes[i], NULL, &object));
                        assert_int_equal(folio_get(other, name, 0, 0, &seen), FOLIO_E_WRITING);
                        assert_int_equal(folio_exists(other, name), 0);
                        ASSERT_OK(folio_stat(other, name, &stat));
                        assert_int_equal(stat.state, FOLIO_STATE_WRITING);
                        assert_int_equal(folio_put(other, name, "x", 1, NULL), FOLIO_E_EXISTS);
                        assert_int_equal(folio_delete(other, name, 0), FOLIO_E_WRITING);
                        assert_int_equal(folio_object_size(object), sizes[i]);
                        assert_null(folio_object_data(object));
                        if (maps) {
                                ASSERT_OK(folio_object_map_write(object, &memory));
                                assert_non_null(memory);
                                memcpy(memory, bytes, sizes[i]);
                        } else {
                                size_t half = sizes[i] / 2;

                                ASSERT_OK(folio_object_write(object, half, (char *)bytes + half, sizes[i] - half));
                                ASSERT_OK(folio_object_write(object, 0, bytes, half));
                                assert_int_equal(folio_object_write(object, sizes[i], "x", 1), FOLIO_E_RANGE);
                                assert_int_equal(folio_object_write(object, UINT64_MAX, "x", 1), FOLIO_E_RANGE);
                        }
                        if (sizes[i] > 0) {
                                char byte;

                                ASSERT_OK(folio_object_read(object, sizes[i] - 1, &byte, 1));
                                assert_int_equal(byte, ((char *)bytes)[sizes[i] - 1]);
                        }
                        ASSERT_OK(folio_object_seal(object));
                        assert_int_equal(folio_object_seal(object), FOLIO_E_STATE);
                        assert_int_equal(folio_object_write(object, 0, "x", 1), FOLIO_E_STATE);
                        assert_int_equal(folio_object_map_write(object, &memory), FOLIO_E_STATE);
                        ASSERT_OK(folio_get(other, name, 0, 0, &seen));
                        assert_memory_equal(folio_object_data(seen), bytes, sizes[i]);
                        assert_memory_equal(folio_object_data(object), bytes, sizes[i]);
                        ASSERT_OK(folio_delete(other, name, 0));
                        assert_memory_equal(folio_object_data(object), bytes, sizes[i]);
                        ASSERT_OK(folio_object_release(seen));
                        ASSERT_OK(folio_object_release(object));
                        free(bytes);
                }
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* What was not written reads as zeros, though the memory has been used before. */
static void test_unwritten_is_zero(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        static const size_t lengths[] = { 1000, 100000, 3 * MIB };

        for (size_t i = 0; i < 3; i++) {
                void *bytes = filled(lengths[i], 9);
                struct folio_object *object;
                const uint8_t *data;

                ASSERT_OK(folio_put(client, "dirt", bytes, lengths[i], NULL));
                ASSERT_OK(folio_delete(client, "dirt", 0));
                ASSERT_OK(folio_create(client, "clean", lengths[i], NULL, &object));
                ASSERT_OK(folio_object_write(object, 10, "x", 1));
                ASSERT_OK(folio_object_seal(object));
                data = folio_object_data(object);
                for (size_t j = 0; j < lengths[i]; j++)
                        assert_int_equal(data[j], j == 10 ? 'x' : 0);
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_delete(client, "clean", 0));
                free(bytes);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_abort(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        static const size_t lengths[] = { 0, 1000, 3 * MIB };

        for (size_t i = 0; i < 3; i++)
                for (int how = 0; how < 3; how++) {
                        struct folio_object *object;

                        ASSERT_OK(folio_create(client, "a", lengths[i], NULL, &object));
                        if (how == 0)
                                ASSERT_OK(folio_object_abort(object));
                        else if (how == 1)
                                ASSERT_OK(folio_object_release(object));
                        else
                                folio_client_unref(client);
                        if (how == 2) {
                                /* Of a client that is closed the handle is still one. */
                                assert_int_equal(folio_object_seal(object), FOLIO_E_DAEMON_GONE);
                                ASSERT_OK(folio_object_release(object));
                                client = foliod_connect(foliod);
                        }
                        assert_int_equal(folio_object_release(object), FOLIO_E_INVALID);
                        AWAIT(folio_put(other, "a", "x", 1, NULL) == 0);
                        ASSERT_OK(folio_delete(other, "a", 0));
                }
        {
                struct folio_object *object;

                ASSERT_OK(folio_put(client, "b", "x", 1, NULL));
                ASSERT_OK(folio_get(client, "b", 0, 0, &object));
                assert_int_equal(folio_object_abort(object), FOLIO_E_STATE);
                assert_int_equal(folio_object_release(object), FOLIO_E_INVALID);
                assert_int_equal(folio_exists(client, "b"), 1);
        }
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_create_replace(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *second;
        static const size_t lengths[] = { 100, 3 * MIB };

        for (size_t i = 0; i < 2; i++) {
                void *bytes = filled(lengths[i], i);

                ASSERT_OK(folio_put(client, "r", "old", 3, &replace));
                ASSERT_OK(folio_create(client, "r", lengths[i], &replace, &object));
                ASSERT_OK(folio_object_write(object, 0, bytes, lengths[i]));
                /* Until the seal the name is the old one's. */
                ASSERT_OK(folio_get(client, "r", 0, 0, &second));
                assert_memory_equal(folio_object_data(second), "old", 3);
                ASSERT_OK(folio_object_release(second));
                ASSERT_OK(folio_object_seal(object));
                ASSERT_OK(folio_get(client, "r", 0, 0, &second));
                assert_int_equal(folio_object_size(second), lengths[i]);
                assert_memory_equal(folio_object_data(second), bytes, lengths[i]);
                ASSERT_OK(folio_object_release(second));
                ASSERT_OK(folio_object_release(object));
                free(bytes);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_stream(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM };
        static const size_t lengths[] = { 0, 1, 5000, 3 * MIB + 17, 40 * MIB + 1 };

        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                uint8_t *bytes = filled(lengths[i], i);
                struct folio_object *object;
                void *memory;
                char byte;

                ASSERT_OK(folio_create(client, "s", 0, &options, &object));
                assert_int_equal(folio_object_map_write(object, &memory), FOLIO_E_UNSUPPORTED);
                assert_int_equal(folio_object_read(object, 0, &byte, 0), FOLIO_E_INVALID);
                for (size_t at = 0, n; at < lengths[i]; at += n) {
                        /* Pieces of every length, from a byte to several blocks. */
                        n = at % 3 == 0 ? 1 : at % 3 == 1 ? 100000 : 9 * MIB;
                        n = n < lengths[i] - at ? n : lengths[i] - at;
                        ASSERT_OK(folio_object_write(object, at, bytes + at, n));
                        assert_int_equal(folio_object_write(object, at, "x", 1), FOLIO_E_RANGE);
                }
                assert_int_equal(folio_object_size(object), lengths[i]);
                ASSERT_OK(folio_object_seal(object));
                assert_int_equal(folio_object_size(object), lengths[i]);
                assert_memory_equal(folio_object_data(object), bytes, lengths[i]);
                ASSERT_OK(folio_object_release(object));
                ASSERT_OK(folio_delete(client, "s", 0));
                free(bytes);
        }
        assert_int_equal(folio_create(client, "s", 1, &options, &(struct folio_object *){ 0 }), FOLIO_E_INVALID);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- mutable ----------------------------------------------------------------------------------------------------------------- */

static void test_mutable(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        struct folio_create_options options = { .struct_bytes = sizeof(options),
                                                .flags = FOLIO_MUTABLE,
                                                .capacity_bytes = 4 * MIB };
        struct folio_object *owner, *reader, *writer;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        const volatile uint8_t *seen;
        uint8_t *memory, *elsewhere, byte;

        ASSERT_OK(folio_create(client, "m", 1000, &options, &owner));
        ASSERT_OK(folio_object_map_write(owner, (void **)&memory));
        memory[999] = 7;
        ASSERT_OK(folio_get(other, "m", 0, 0, &reader));
        assert_int_equal(folio_object_size(reader), 1000);
        seen = folio_object_data(reader);
        assert_int_equal(seen[999], 7);
        ASSERT_OK(folio_get(other, "m", FOLIO_GET_WRITABLE, 0, &writer));
        ASSERT_OK(folio_object_map_write(writer, (void **)&elsewhere));
        elsewhere[0] = 8;
        assert_int_equal(seen[0], 8);
        ASSERT_OK(folio_object_write(writer, 1, "z", 1));
        assert_int_equal(memory[1], 'z');
        assert_int_equal(folio_object_write(writer, 1000, "z", 1), FOLIO_E_RANGE);
        assert_int_equal(folio_object_seal(owner), FOLIO_E_STATE);
        ASSERT_OK(folio_stat(other, "m", &stat));
        assert_int_equal(stat.state, FOLIO_STATE_MUTABLE);
        assert_int_equal(stat.capacity_bytes, 4 * MIB);

        ASSERT_OK(folio_truncate(other, "m", 4 * MIB));
        assert_int_equal(folio_object_size(reader), 4 * MIB);
        assert_int_equal(folio_object_size(owner), 4 * MIB);
        assert_int_equal(folio_truncate(other, "m", 4 * MIB + 1), FOLIO_E_TOO_LARGE);
        memory[4 * MIB - 1] = 9;
        ASSERT_OK(folio_object_truncate(owner, 500));
        assert_int_equal(folio_object_size(reader), 500);
        assert_int_equal(folio_object_read(reader, 499, &byte, 2), FOLIO_E_RANGE);
        /* Nobody gets a signal for what is beyond the size now. */
        assert_int_equal(seen[4 * MIB - 1], 0);
        memory[700] = 5;
        ASSERT_OK(folio_object_truncate(writer, 2 * MIB));
        assert_int_equal(seen[700], 0);
        assert_int_equal(seen[999], 0);
        ASSERT_OK(folio_truncate(client, "m", 2 * MIB));
        ASSERT_OK(folio_truncate(client, "m", 0));
        ASSERT_OK(folio_object_truncate(owner, 100));
        ASSERT_OK(folio_delete(client, "m", 0));
        memory[0] = 1;
        assert_int_equal(seen[0], 1);
        ASSERT_OK(folio_object_release(owner));
        ASSERT_OK(folio_object_release(writer));
        assert_int_equal(seen[0], 1);
        ASSERT_OK(folio_object_release(reader));

        ASSERT_OK(folio_put(client, "fixed", "x", 1, NULL));
        assert_int_equal(folio_truncate(client, "fixed", 0), FOLIO_E_STATE);
        assert_int_equal(folio_truncate(client, "not-there", 0), FOLIO_E_NOT_FOUND);
        assert_int_equal(folio_get(client, "fixed", FOLIO_GET_WRITABLE, 0, &writer), FOLIO_E_STATE);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_create_and_seal),
                INTEGRATION_TEST(test_unwritten_is_zero),
                INTEGRATION_TEST(test_abort),
                INTEGRATION_TEST(test_create_replace),
                INTEGRATION_TEST(test_stream),
                INTEGRATION_TEST(test_mutable),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
