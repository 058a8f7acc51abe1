/* SPDX-License-Identifier: Apache-2.0 */
/* The words and the JSON that scripts read: every field by its name and its type, and numbers that must stay exact. */
#include "harness.h"

#include <stdlib.h>

#include "client/ctl/facts.h"

/* What it says, parsed again from the text a script would get. */
static json_t *reparse(json_t *consume_value)
{
        char *text = json_dumps(consume_value, 0);
        json_t *again;
        json_error_t error;

        assert_non_null(text);
        again = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        assert_non_null(again);
        json_decref(consume_value);
        free(text);
        return again;
}

static struct folio_stat example(void)
{
        struct folio_stat stat = {
                .struct_bytes = sizeof(stat),
                .generation = 42,
                .size_bytes = UINT64_C(1) << 46,
                .capacity_bytes = UINT64_C(1) << 46,
                .allocated_bytes = 4096,
                .huge_bytes = 0,
                .created_ns = UINT64_C(1700000000000000001),
                .changed_ns = UINT64_C(1700000001000000000),
                .state = FOLIO_STATE_SEALED,
                .protection = FOLIO_PROTECTION_KERNEL,
                .backing = FOLIO_BACKING_MEMFD,
                .placement = FOLIO_PLACEMENT_OWN,
                .owner_uid = 1000,
                .has_holes = 1,
                .zero_bytes = 8192,
                .metadata_bytes = 17,
                .name = "default:weights",
        };

        return stat;
}

static const char *text_of(const json_t *object, const char *key)
{
        const json_t *value = json_object_get(object, key);

        assert_true(json_is_string(value));
        return json_string_value(value);
}

static int64_t number_of(const json_t *object, const char *key)
{
        const json_t *value = json_object_get(object, key);

        assert_true(json_is_integer(value));
        return json_integer_value(value);
}

static void test_stat(void **state)
{
        struct folio_stat stat = example();
        struct folio_holder holder = { .pid = 12, .uid = 7, .n_pins = 2, .comm = "reader", .connected_ns = 1 };
        json_t *json = reparse(facts_stat_json(&stat, &holder, 1)), *seals, *holders;

        assert_string_equal(text_of(json, "name"), "default:weights");
        assert_int_equal(number_of(json, "size_bytes"), INT64_C(1) << 46);
        assert_int_equal(number_of(json, "capacity_bytes"), INT64_C(1) << 46);
        assert_int_equal(number_of(json, "allocated_bytes"), 4096);
        assert_int_equal(number_of(json, "huge_bytes"), 0);
        assert_string_equal(text_of(json, "state"), "sealed");
        assert_string_equal(text_of(json, "protection"), "kernel-sealed");
        assert_string_equal(text_of(json, "backing"), "memfd");
        assert_string_equal(text_of(json, "placement"), "own");
        assert_int_equal(number_of(json, "generation"), 42);
        assert_string_equal(text_of(json, "created"), "2023-11-14T22:13:20.000000001Z");
        assert_string_equal(text_of(json, "changed"), "2023-11-14T22:13:21.000000000Z");
        assert_true(json_is_null(json_object_get(json, "expires")));
        assert_string_equal(text_of(json, "lifetime"), "until-deleted");
        assert_int_equal(number_of(json, "owner_uid"), 1000);
        assert_true(json_is_null(json_object_get(json, "content_type")));
        assert_int_equal(number_of(json, "metadata_bytes"), 17);
        assert_true(json_is_true(json_object_get(json, "has_holes")));
        assert_int_equal(number_of(json, "zero_bytes"), 8192);
        seals = json_object_get(json, "seals");
        assert_int_equal(json_array_size(seals), 4);
        assert_string_equal(json_string_value(json_array_get(seals, 0)), "write");
        holders = json_object_get(json, "holders");
        assert_int_equal(json_array_size(holders), 1);
        assert_int_equal(number_of(json_array_get(holders, 0), "pid"), 12);
        assert_int_equal(number_of(json_array_get(holders, 0), "uid"), 7);
        assert_int_equal(number_of(json_array_get(holders, 0), "pins"), 2);
        assert_string_equal(text_of(json_array_get(holders, 0), "comm"), "reader");
        assert_int_equal(json_object_size(json), 21);
        json_decref(json);
        (void)state;
}

/* `ls` asks for no holders: then nothing is said of them, rather than that there are none. */
static void test_stat_without_holders(void **state)
{
        struct folio_stat stat = example();
        struct folio_holder none = { 0 };
        json_t *json = reparse(facts_stat_json(&stat, NULL, 0));

        assert_null(json_object_get(json, "holders"));
        json_decref(json);
        json = reparse(facts_stat_json(&stat, &none, 0));
        assert_int_equal(json_array_size(json_object_get(json, "holders")), 0);
        assert_true(json_is_array(json_object_get(json, "holders")));
        json_decref(json);
        (void)state;
}

static void test_seals(void **state)
{
        struct folio_stat stat = example();

        assert_string_equal(facts_seals(&stat), "write shrink grow seal");
        stat.placement = FOLIO_PLACEMENT_PACKED;
        assert_string_equal(facts_seals(&stat), "future-write shrink grow seal");
        stat.protection = FOLIO_PROTECTION_MODE;
        assert_string_equal(facts_seals(&stat), "");
        stat.protection = FOLIO_PROTECTION_NONE;
        assert_string_equal(facts_seals(&stat), "");
        (void)state;
}

static void test_odd_names(void **state)
{
        struct folio_stat stat = example();
        json_t *json;

        snprintf(stat.name, sizeof(stat.name), "default:\"\\\n\033\303\274");
        snprintf(stat.content_type, sizeof(stat.content_type), "text/plain");
        json = reparse(facts_stat_json(&stat, NULL, 0));
        assert_string_equal(text_of(json, "name"), stat.name);
        assert_string_equal(text_of(json, "content_type"), "text/plain");
        assert_null(json_object_get(json, "name_hex"));
        json_decref(json);

        snprintf(stat.name, sizeof(stat.name), "d:\377a");
        json = reparse(facts_stat_json(&stat, NULL, 0));
        assert_string_equal(text_of(json, "name"), "d:\357\277\275a");
        assert_string_equal(text_of(json, "name_hex"), "643aff61");
        json_decref(json);

        memset(stat.name, 0xff, FOLIO_NAME_BYTES_MAX);
        stat.name[FOLIO_NAME_BYTES_MAX] = '\0';
        json = reparse(facts_stat_json(&stat, NULL, 0));
        assert_int_equal(strlen(text_of(json, "name_hex")), 2 * FOLIO_NAME_BYTES_MAX);
        json_decref(json);
        (void)state;
}

static void test_numbers_stay_exact(void **state)
{
        json_t *json = facts_number_json(INT64_MAX);

        assert_true(json_is_integer(json));
        assert_int_equal(json_integer_value(json), INT64_MAX);
        json_decref(json);
        json = facts_number_json((uint64_t)INT64_MAX + 1);
        assert_string_equal(json_string_value(json), "9223372036854775808");
        json_decref(json);
        json = facts_number_json(UINT64_MAX);
        assert_string_equal(json_string_value(json), "18446744073709551615");
        json_decref(json);
        (void)state;
}

static void test_namespace(void **state)
{
        struct folio_namespace ns = {
                .owner_uid = 1,
                .owner_gid = 2,
                .mode = 0760,
                .quota_bytes = 1 << 20,
                .objects_max = 1000,
                .backing = FOLIO_BACKING_TMPFS,
                .huge = FOLIO_HUGE_NEVER,
                .writers = FOLIO_WRITERS_TRUSTED,
                .leased_bytes = 4 << 20,
                .rights = FOLIO_RIGHT_READ | FOLIO_RIGHT_ADMIN,
                .used_bytes = 5,
                .n_objects = 3,
                .held_bytes = 4,
                .n_held = 1,
                .name = "model",
        };
        json_t *json = reparse(facts_namespace_json(&ns)), *rights;

        assert_string_equal(text_of(json, "name"), "model");
        assert_string_equal(text_of(json, "mode"), "0760");
        assert_string_equal(text_of(json, "backing"), "tmpfs");
        assert_string_equal(text_of(json, "huge"), "never");
        assert_string_equal(text_of(json, "writers"), "trusted");
        assert_int_equal(number_of(json, "leased_bytes"), 4 << 20);
        assert_int_equal(number_of(json, "quota_bytes"), 1 << 20);
        assert_int_equal(number_of(json, "n_objects"), 3);
        assert_int_equal(number_of(json, "held_bytes"), 4);
        rights = json_object_get(json, "rights");
        assert_int_equal(json_array_size(rights), 2);
        assert_string_equal(json_string_value(json_array_get(rights, 1)), "admin");
        json_decref(json);
        (void)state;
}

static void test_event(void **state)
{
        struct folio_event event = {
                .sequence = 9,
                .generation = 8,
                .size_bytes = 7,
                .time_ns = 1,
                .type = FOLIO_EVENT_REPLACED,
                .name = "default:a",
        };
        json_t *json = reparse(facts_event_json(&event));

        assert_string_equal(text_of(json, "event"), "replaced");
        assert_string_equal(text_of(json, "name"), "default:a");
        assert_int_equal(number_of(json, "sequence"), 9);
        assert_int_equal(number_of(json, "generation"), 8);
        json_decref(json);
        event.type = FOLIO_EVENT_MISSED;
        event.n_missed = 1000;
        json = reparse(facts_event_json(&event));
        assert_string_equal(text_of(json, "event"), "missed");
        assert_int_equal(number_of(json, "n_missed"), 1000);
        assert_null(json_object_get(json, "name"));
        json_decref(json);
        (void)state;
}

static void test_status(void **state)
{
        struct folio_status facts[2] = { { .name = "memory.budget_bytes", .value = 1 << 30 },
                                         { .name = "huge.policy", .text = "auto" } };
        json_t *json = reparse(facts_status_json(facts, 2));

        assert_int_equal(number_of(json, "memory.budget_bytes"), 1 << 30);
        assert_string_equal(text_of(json, "huge.policy"), "auto");
        json_decref(json);
        json = reparse(facts_status_json(facts, 0));
        assert_int_equal(json_object_size(json), 0);
        json_decref(json);
        (void)state;
}

static void test_modes(void **state)
{
        static const char *const bad[] = { "",      "8",        "0778",      "1777",      "07777",
                                           "77777", "rwarwarw", "rwarwarwx", "arwarwarw", "-rwa-----" };
        char buffer[FACTS_MODE_BYTES];
        uint32_t mode;

        for (uint32_t i = 0; i <= 0777; i++) {
                char octal[8];

                assert_true(facts_parse_mode(facts_format_mode(i, buffer), &mode));
                assert_int_equal(mode, i);
                snprintf(octal, sizeof(octal), "%04o", i);
                assert_true(facts_parse_mode(octal, &mode));
                assert_int_equal(mode, i);
        }
        assert_string_equal(facts_format_mode(0751, buffer), "0751");
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                mode = 12345;
                assert_false(facts_parse_mode(bad[i], &mode));
                assert_int_equal(mode, 12345);
        }
        (void)state;
}

/* Words for what a newer daemon may say; and words that people may get wrong. */
static void test_words(void **state)
{
        uint32_t number = 99;

        assert_string_equal(facts_state(0), "?");
        assert_string_equal(facts_state(4), "?");
        assert_string_equal(facts_state(UINT32_MAX), "?");
        assert_string_equal(facts_event(FOLIO_EVENT_MISSED), "missed");
        assert_string_equal(facts_event(7), "?");
        assert_string_equal(facts_placement(FOLIO_PLACEMENT_PACKED), "packed");
        assert_string_equal(facts_protection(FOLIO_PROTECTION_TRUSTED), "trusted-writer");
        assert_true(facts_parse_lifetime("with-creator", &number));
        assert_int_equal(number, FOLIO_WITH_CREATOR);
        assert_true(facts_parse_backing("tmpfs", &number));
        assert_int_equal(number, FOLIO_BACKING_TMPFS);
        assert_true(facts_parse_huge("auto", &number));
        assert_int_equal(number, FOLIO_HUGE_AUTO);
        assert_true(facts_parse_writers("untrusted", &number));
        assert_int_equal(number, FOLIO_WRITERS_UNTRUSTED);
        assert_true(facts_parse_writers(facts_writers(FOLIO_WRITERS_TRUSTED), &number));
        assert_int_equal(number, FOLIO_WRITERS_TRUSTED);
        assert_string_equal(facts_writers(0), "?");
        assert_string_equal(facts_writers(3), "?");
        number = 99;
        assert_false(facts_parse_lifetime("", &number));
        assert_false(facts_parse_backing("disk", &number));
        assert_false(facts_parse_backing("hugetlb", &number));
        assert_false(facts_parse_huge("Auto", &number));
        assert_false(facts_parse_writers("", &number));
        assert_false(facts_parse_writers("trust", &number));
        assert_int_equal(number, 99);
        (void)state;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_stat),
                UNIT_TEST(test_stat_without_holders),
                UNIT_TEST(test_seals),
                UNIT_TEST(test_odd_names),
                UNIT_TEST(test_numbers_stay_exact),
                UNIT_TEST(test_namespace),
                UNIT_TEST(test_event),
                UNIT_TEST(test_status),
                UNIT_TEST(test_modes),
                UNIT_TEST(test_words),
        };

        return cmocka_run_group_tests_name("ctl-facts", tests, NULL, NULL);
}
