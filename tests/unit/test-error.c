/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about names: which rule is broken, and by how much. */
#include "client/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/key.h"
#include "tests/unit/harness.h"
#include "tests/unit/fail-alloc.h"

static void test_names(void **state)
{
        static const struct {
                const char *name, *wanted;
        } rows[] = {
                { NULL, "the name is NULL" },
                { "", "the name is empty" },
                { ":x", "\":x\" has nothing before its colon" },
                { ":", "nothing before its colon" },
                { "default:", "\"default:\" is a namespace: the key behind the colon is missing" },
                { "a b:x", "the namespace \"a b\" holds ' '" },
                { "Upper:x", "holds 'U'" },
                { "a\nb:x", "holds '?'" },
        };
        Key ignored, key;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_true(!rows[i].name || !key_split_name(rows[i].name, false, &ignored, &key));
                assert_int_equal(error_set_name(rows[i].name, false), FOLIO_E_INVALID);
                if (!strstr(error_get_sentence(), rows[i].wanted))
                        fail_msg("row %zu: %s", i, error_get_sentence());
        }
        assert_int_equal(error_set_name(NULL, true), FOLIO_E_INVALID);
        assert_non_null(strstr(error_get_sentence(), "the prefix is NULL"));
}

static void check_length(size_t n_namespace, size_t n_key, const char *wanted)
{
        char *name = malloc(n_namespace + 1 + n_key + 1), *at = name;
        Key ignored, key;

        assert_non_null(name);
        memset(at, 'n', n_namespace);
        at += n_namespace;
        if (n_namespace > 0)
                *at++ = ':';
        memset(at, 'k', n_key);
        at[n_key] = '\0';
        assert_int_equal(key_split_name(name, false, &ignored, &key), !wanted);
        if (wanted) {
                assert_int_equal(error_set_name(name, false), FOLIO_E_INVALID);
                if (!strstr(error_get_sentence(), wanted) || !strstr(error_get_sentence(), "...\" has"))
                        fail_msg("%zu, %zu: %s", n_namespace, n_key, error_get_sentence());
        }
        free(name);
}

static void test_lengths(void **state)
{
        check_length(0, FOLIO_KEY_BYTES_MAX, NULL);
        check_length(0, FOLIO_KEY_BYTES_MAX + 1, "has 256 bytes, and 255 is the most");
        check_length(FOLIO_NAMESPACE_BYTES_MAX, FOLIO_KEY_BYTES_MAX, NULL);
        check_length(FOLIO_NAMESPACE_BYTES_MAX, FOLIO_KEY_BYTES_MAX + 1, "has 256 bytes, and 255 is the most");
        check_length(FOLIO_NAMESPACE_BYTES_MAX + 1, 1, "has 64 bytes, and 63 is the most");
        check_length(0, 10000, "has 10000 bytes, and 255 is the most");
        check_length(0, 2 << 20, "has 1048576 bytes or more");
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

typedef struct Teller {
        int number;
        bool ok;
        pthread_barrier_t *barrier;
} Teller;

static void *tell(void *userdata)
{
        Teller *teller = userdata;
        char wanted[ERROR_SENTENCE_BYTES];
        bool ok = error_get_sentence()[0] == '\0';

        for (int i = 0; i < 100; i++) {
                snprintf(wanted, sizeof(wanted), "thread %d, number %d", teller->number, i);
                ok &= error_set(-i, "thread %d, number %d", teller->number, i) == -i;
                pthread_barrier_wait(teller->barrier);
                ok &= strcmp(error_get_sentence(), wanted) == 0;
        }
        /* Of its own, and longer than there is room for. */
        ok &= error_set_sentence(-7, error_get_sentence()) == -7 && strcmp(error_get_sentence(), wanted) == 0;
        (void)error_set(-1, "%s: %01000d", error_get_sentence(), 5);
        ok &= strlen(error_get_sentence()) == ERROR_SENTENCE_BYTES - 1;
        ok &= strncmp(error_get_sentence(), wanted, strlen(wanted)) == 0;
        teller->ok = ok;
        return NULL;
}

static void test_each_thread_has_its_own(void **state)
{
        enum { N = 8 };
        pthread_barrier_t barrier;
        pthread_t threads[N];
        Teller tellers[N];

        assert_int_equal(pthread_barrier_init(&barrier, NULL, N), 0);
        (void)error_set(-1, "the first thread's");
        for (int i = 0; i < N; i++) {
                tellers[i] = (Teller){ .number = i, .barrier = &barrier };
                assert_int_equal(pthread_create(&threads[i], NULL, tell, &tellers[i]), 0);
        }
        for (int i = 0; i < N; i++) {
                assert_int_equal(pthread_join(threads[i], NULL), 0);
                assert_true(tellers[i].ok);
        }
        assert_string_equal(error_get_sentence(), "the first thread's");
        (void)pthread_barrier_destroy(&barrier);
}

static pthread_key_t late_key;
static unsigned n_late;

/* A call that fails while its thread is ending, after the sentence has gone, or before. */
static void fail_late(void *value)
{
        (void)error_set(-1, "late");
        n_late += strcmp(error_get_sentence(), "late") == 0;
        if (n_late < 2)
                (void)pthread_setspecific(late_key, value);
}

static void *end_late(void *userdata)
{
        (void)error_set(-1, "early");
        (void)pthread_setspecific(late_key, userdata);
        return NULL;
}

static void test_failing_while_a_thread_ends(void **state)
{
        pthread_t thread;

        assert_int_equal(pthread_key_create(&late_key, fail_late), 0);
        assert_int_equal(pthread_create(&thread, NULL, end_late, &n_late), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(n_late, 2);
        assert_int_equal(pthread_key_delete(late_key), 0);
}

#ifndef FAIL_ALLOC_SANITIZED
static void *tell_without_memory(void *userdata)
{
        bool *ok = userdata;
        bool is_good;

        /* What is armed here is this thread's first allocation. */
        atomic_store(&fail_alloc_countdown, 1);
        is_good = error_set(-5, "number %d", 5) == -5 && strstr(error_get_sentence(), "no memory") != NULL;
        is_good &= atomic_load(&fail_alloc_countdown) == 0;
        atomic_store(&fail_alloc_countdown, 1);
        is_good &= error_set_name("", false) == FOLIO_E_INVALID && strstr(error_get_sentence(), "no memory") != NULL;
        atomic_store(&fail_alloc_countdown, 1);
        is_good &= error_set_sentence(-6, "six") == -6 && strstr(error_get_sentence(), "no memory") != NULL;
        is_good &= error_set_sentence(-6, error_get_sentence()) == -6;
        /* There is some again, and then it is asked for no more. */
        is_good &= error_set_sentence(-6, "six") == -6 && strcmp(error_get_sentence(), "six") == 0;
        atomic_store(&fail_alloc_countdown, 1);
        is_good &= error_set(-7, "seven") == -7 && strcmp(error_get_sentence(), "seven") == 0;
        is_good &= atomic_load(&fail_alloc_countdown) == 1;
        atomic_store(&fail_alloc_countdown, 0);
        *ok = is_good;
        return NULL;
}
#endif

static void test_no_memory(void **state)
{
#ifdef FAIL_ALLOC_SANITIZED
        skip();
#else
        pthread_t thread;
        bool ok = false;

        assert_int_equal(pthread_create(&thread, NULL, tell_without_memory, &ok), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(ok);
#endif
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_names),
                UNIT_TEST(test_lengths),
                UNIT_TEST(test_each_thread_has_its_own),
                UNIT_TEST(test_failing_while_a_thread_ends),
                UNIT_TEST(test_no_memory),
        };

        return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
