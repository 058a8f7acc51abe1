/* SPDX-License-Identifier: Apache-2.0 */
/* Rights by class, validity of settings, what is fixed. */
#include "harness.h"

#include <stdlib.h>

#include "base/macro.h"
#include "daemon/store/namespace.h"
#include "folio/admin.h"

#define DAEMON_UID 900

static const NamespaceDefaults defaults = { .owner_uid = 1, .owner_gid = 10, .mode = 0700, .objects_max = 100,
                                            .huge = FOLIO_HUGE_AUTO };

static void test_rights(void **state)
{
        static const struct {
                uid_t uid;
                gid_t gid, group;
                uint32_t mode, rights;
        } rows[] = {
                { 0, 0, 0, 0000, 7 }, { DAEMON_UID, 5, 5, 0000, 7 },
                { 1, 5, 5, 0700, 7 }, { 1, 5, 5, 0077, 0 }, { 1, 10, 10, 0477, 4 },
                { 2, 10, 5, 0760, 6 }, { 2, 5, 10, 0760, 6 }, { 2, 10, 5, 0707, 0 }, { 2, 5, 10, 0777, 7 },
                { 2, 5, 5, 0770, 0 }, { 2, 5, 5, 0774, 4 }, { 2, 5, 5, 0001, 1 }, { 2, 5, 5, 0766, 6 },
        };
        ProtoNamespace settings = { .name = "n" };
        Namespace ns;

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                gid_t groups[] = { 77, rows[i].group };
                Cred cred = { .uid = rows[i].uid, .gid = rows[i].gid, .n_groups = 2, .groups = groups };

                namespace_init(&ns, 3, &settings, &defaults);
                ns.mode = rows[i].mode;
                assert_int_equal(namespace_rights(&ns, &cred, DAEMON_UID), rows[i].rights);
                namespace_deinit(&ns);
        }
}

static void test_check(void **state)
{
        static const struct {
                ProtoNamespace settings;
                Status status;
        } rows[] = {
                { { .name = "default" }, STATUS_OK },
                { { .name = "" }, STATUS_INVALID },
                { { .name = "Upper" }, STATUS_INVALID },
                { { .name = "a:b" }, STATUS_INVALID },
                { { .name = "../x" }, STATUS_INVALID },
                { { .name = "012345678901234567890123456789012345678901234567890123456789012" }, STATUS_OK },
                { { .name = "n", .mode = 01000 }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 0777 }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = 01000 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_MODE, .mode = UINT32_MAX }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = 0 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = 1 }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = NAMESPACE_OBJECTS_MAX },
                        STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX,
                        .objects_max = NAMESPACE_OBJECTS_MAX + 1 },
                  STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX, .objects_max = UINT64_MAX },
                        STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = 0 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = FOLIO_BACKING_TMPFS }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = FOLIO_BACKING_HUGETLB },
                        STATUS_UNSUPPORTED },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_BACKING, .backing = 4 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_HUGE, .huge = FOLIO_HUGE_NEVER }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_HUGE, .huge = 3 }, STATUS_INVALID },
                { { .name = "n", .writers = 9 }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 0 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = FOLIO_WRITERS_UNTRUSTED }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = FOLIO_WRITERS_TRUSTED }, STATUS_OK },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = 3 }, STATUS_INVALID },
                { { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_WRITERS, .writers = UINT32_MAX }, STATUS_INVALID },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                char *detail = NULL;

                assert_int_equal(namespace_check_settings(&rows[i].settings, &detail), rows[i].status);
                assert_true((rows[i].status == STATUS_OK) == (detail == NULL));
                free(detail);
        }
}

static void test_apply(void **state)
{
        ProtoNamespace settings = { .name = "n", .fields = FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS, .quota_objects = 5,
                                    .quota_bytes = 9, .mode = 0111 };
        ProtoNamespace seen;
        Namespace ns;

        (void)state;
        namespace_init(&ns, 3, &settings, &defaults);
        assert_int_equal(ns.quota.count_max, 5);
        assert_int_equal(ns.quota.bytes_max, UINT64_MAX);
        namespace_describe(&ns, &seen);
        assert_string_equal(seen.name, "n");
        assert_int_equal(seen.id, 3);
        assert_int_equal(seen.mode, 0700);
        assert_int_equal(seen.owner_uid, 1);
        assert_int_equal(seen.owner_gid, 10);
        assert_int_equal(seen.objects_max, 100);
        assert_int_equal(seen.backing, FOLIO_BACKING_MEMFD);
        assert_int_equal(seen.quota_objects, 5);
        assert_int_equal(seen.quota_bytes, 0);

        settings.fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS |
                          FOLIO_NAMESPACE_FIELD_MODE;
        settings.quota_objects = 0;
        assert_false(namespace_is_fixed_change(&ns, &settings));
        namespace_apply(&ns, &settings);
        assert_int_equal(ns.quota.count_max, 100);
        assert_int_equal(ns.quota.bytes_max, 9);
        assert_int_equal(ns.mode, 0111);
        settings.fields = FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_BACKING;
        settings.objects_max = 100;
        settings.backing = FOLIO_BACKING_MEMFD;
        assert_false(namespace_is_fixed_change(&ns, &settings));
        settings.objects_max = 101;
        assert_true(namespace_is_fixed_change(&ns, &settings));
        settings.objects_max = 100;
        settings.backing = FOLIO_BACKING_TMPFS;
        assert_true(namespace_is_fixed_change(&ns, &settings));
        namespace_deinit(&ns);
}

/* Who may write is what was said when it was made, or the default, for ever. */
static void test_writers(void **state)
{
        static const struct { uint32_t given, otherwise, expected; } rows[] = {
                { 0, FOLIO_WRITERS_TRUSTED, FOLIO_WRITERS_TRUSTED },
                { 0, FOLIO_WRITERS_UNTRUSTED, FOLIO_WRITERS_UNTRUSTED },
                { FOLIO_WRITERS_UNTRUSTED, FOLIO_WRITERS_TRUSTED, FOLIO_WRITERS_UNTRUSTED },
                { FOLIO_WRITERS_TRUSTED, FOLIO_WRITERS_UNTRUSTED, FOLIO_WRITERS_TRUSTED },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                NamespaceDefaults made = defaults;
                ProtoNamespace settings = { .name = "n", .writers = rows[i].given }, seen;
                Namespace ns;

                made.writers = rows[i].otherwise;
                settings.fields = rows[i].given ? FOLIO_NAMESPACE_FIELD_WRITERS : 0;
                namespace_init(&ns, 1, &settings, &made);
                namespace_describe(&ns, &seen);
                assert_true(seen.fields & FOLIO_NAMESPACE_FIELD_WRITERS);
                assert_int_equal(seen.writers, rows[i].expected);
                settings.fields = FOLIO_NAMESPACE_FIELD_WRITERS;
                settings.writers = rows[i].expected;
                assert_false(namespace_is_fixed_change(&ns, &settings));
                settings.writers = FOLIO_WRITERS_TRUSTED + FOLIO_WRITERS_UNTRUSTED - rows[i].expected;
                assert_true(namespace_is_fixed_change(&ns, &settings));
                settings.fields = 0;
                assert_false(namespace_is_fixed_change(&ns, &settings));
                namespace_apply(&ns, &settings);
                assert_int_equal(ns.writers, rows[i].expected);
                namespace_deinit(&ns);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_rights),
                UNIT_TEST(test_check),
                UNIT_TEST(test_apply),
                UNIT_TEST(test_writers),
        };

        return cmocka_run_group_tests_name("namespace", tests, NULL, NULL);
}
