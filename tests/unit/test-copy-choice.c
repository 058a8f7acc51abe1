/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which loop is taken: by size, by what the environment says, by a scripted clock. The choice is made once in a
 * process: what makes it runs in a child.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/macro.h"
#include "client/lib/copy-choice.h"
#include "tests/unit/harness.h"
#include "tests/unit/child.h"

static bool has_choice(void)
{
        return copy_kernel_find(COPY_KERNEL_VECTOR) != NULL;
}

static void child_by_size(void *userdata)
{
        const Choice *choice = choice_get();
        size_t large_bytes_max = choice->large_bytes_max;
        const struct {
                size_t n_bytes;
                ChoiceClass class;
        } cases[] = {
                { CHOICE_BYTES_MIN, CHOICE_SMALL },          { CHOICE_SMALL_BYTES_MAX, CHOICE_SMALL },
                { CHOICE_SMALL_BYTES_MAX + 1, CHOICE_MIDDLE }, { CHOICE_MIDDLE_BYTES_MAX, CHOICE_MIDDLE },
                { CHOICE_MIDDLE_BYTES_MAX + 1, CHOICE_LARGE }, { large_bytes_max, CHOICE_LARGE },
                { large_bytes_max + 1, CHOICE_BEYOND },      { SIZE_MAX, CHOICE_BEYOND },
        };

        CHECK(choice->origin == CHOICE_ASSUMED && large_bytes_max > CHOICE_MIDDLE_BYTES_MAX);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                CHECK(choice_find(cases[i].n_bytes) == choice->copies[cases[i].class]);
                CHECK(choice->copies[cases[i].class] == copy_kernel_find(choice->kernels[cases[i].class]));
                CHECK(choice->copies[cases[i].class]);
        }
        CHECK(strstr(choice->text, "assumed"));
}

static void child_told(void *userdata)
{
        const char *name = userdata;
        CopyKernel kernel = copy_kernel_by_name(name);
        const Choice *choice;

        CHECK(setenv("FOLIO_COPY", name, 1) == 0);
        choice = choice_get();
        if (kernel == _COPY_KERNEL_MAX || !copy_kernel_find(kernel)) {
                CHECK(choice->origin == CHOICE_ASSUMED);
                return;
        }
        CHECK(choice->origin == CHOICE_TOLD && strstr(choice->text, "FOLIO_COPY") && strstr(choice->text, name));
        for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++)
                CHECK(choice->kernels[class] == kernel && choice->copies[class] == copy_kernel_find(kernel));
        /* Never measured. */
        CHECK(choice_find_counted(SIZE_MAX, SIZE_MAX) == copy_kernel_find(kernel));
        CHECK(choice_get() == choice);
}

static void test_by_size(void **state)
{
        unsetenv("FOLIO_COPY");
        child_run(child_by_size, NULL);
}

static void test_told(void **state)
{
        static const char *const names[] = { "libc", "movsb", "vector", "lanes", "stream", "", "none", "LIBC" };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                child_run(child_told, (void *)(uintptr_t)names[i]);
}

static void child_counts(void *userdata)
{
        const Choice *assumed = choice_get();
        size_t n = CHOICE_MEASURE_BYTES / CHOICE_BYTES_MIN;

        for (size_t i = 0; i + 1 < n; i++)
                CHECK(choice_find_counted(CHOICE_BYTES_MIN, CHOICE_BYTES_MIN));
        CHECK(choice_get() == assumed);
        CHECK(choice_find_counted(CHOICE_BYTES_MIN, CHOICE_BYTES_MIN));
        CHECK(choice_get()->origin == (has_choice() ? CHOICE_MEASURED : CHOICE_ASSUMED));
        assumed = choice_get();
        CHECK(choice_find_counted(SIZE_MAX, SIZE_MAX));
        CHECK(choice_get() == assumed);
}

static void child_one_large(void *userdata)
{
        CHECK(choice_find_counted(CHOICE_MEASURE_BYTES - 1, CHOICE_MEASURE_BYTES - 1) && choice_get()->origin == CHOICE_ASSUMED);
        CHECK(choice_find_counted(SIZE_MAX, SIZE_MAX));
        CHECK(choice_get()->origin == (has_choice() ? CHOICE_MEASURED : CHOICE_ASSUMED));
}

static void *choose(void *userdata)
{
        static const size_t sizes[] = { CHOICE_BYTES_MIN, CHOICE_MEASURE_BYTES, 1 << 20 };

        for (unsigned i = 0; i < 300; i++)
                if (!choice_find_counted(sizes[i % ARRAY_SIZE(sizes)], sizes[i % ARRAY_SIZE(sizes)]))
                        return NULL;
        return userdata;
}

static void child_threads(void *userdata)
{
        pthread_t threads[8];
        int mark;

        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                CHECK(pthread_create(&threads[i], NULL, choose, &mark) == 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
                void *result;

                CHECK(pthread_join(threads[i], &result) == 0 && result == &mark);
        }
        CHECK(choice_get()->origin == (has_choice() ? CHOICE_MEASURED : CHOICE_ASSUMED));
}

static void test_measured_once_when_due(void **state)
{
        unsetenv("FOLIO_COPY");
        child_run(child_counts, NULL);
        child_run(child_one_large, NULL);
        child_run(child_threads, NULL);
}

/* --- the measurement, by a scripted clock --- */

static unsigned n_asked;
static unsigned fast_sample; /* the one that takes no time; of all others each takes a hundred steps */
static int64_t step_ns, script_ns;

/* Asked at the start, and then three times a sample: is there time left, begin, end. */
static int64_t scripted_ns(void)
{
        unsigned sample = n_asked > 0 ? (n_asked - 1) / 3 : 0;

        if (n_asked > 0 && (n_asked - 1) % 3 == 2)
                script_ns += sample == fast_sample ? step_ns : 100 * step_ns;
        n_asked++;
        return script_ns;
}

static void measure_scripted(unsigned fast, int64_t step, const Choice *assumed, Choice *ret)
{
        n_asked = 0;
        script_ns = 1000;
        fast_sample = fast;
        step_ns = step;
        assert_int_equal(choice_measure(assumed, scripted_ns, ret), 0);
        assert_int_equal(ret->origin, CHOICE_MEASURED);
}

static void test_the_fastest_is_taken(void **state)
{
        Choice assumed = { .large_bytes_max = 8 << 20 }, found;
        bool was_taken[_CHOICE_CLASS_MAX][_COPY_KERNEL_MAX] = { 0 };

        /* What is assumed is what cannot win: it would hide the case. */
        for (unsigned sample = 0; sample < _CHOICE_CLASS_MAX * _COPY_KERNEL_MAX; sample++) {
                unsigned n_changed = 0;

                measure_scripted(sample, 10, &assumed, &found);
                for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++) {
                        assert_ptr_equal(found.copies[class], copy_kernel_find(found.kernels[class]));
                        was_taken[class][found.kernels[class]] = true;
                        n_changed += found.kernels[class] != assumed.kernels[class];
                }
                assert_true(n_changed <= 1);
                assert_int_equal(found.large_bytes_max, assumed.large_bytes_max);
        }
        for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++)
                for (CopyKernel kernel = 0; kernel < _COPY_KERNEL_MAX; kernel++) {
                        bool is_wide = kernel == COPY_KERNEL_VECTOR || kernel == COPY_KERNEL_LANES;
                        bool is_fit = class == CHOICE_BEYOND ? !is_wide : kernel != COPY_KERNEL_STREAM;

                        assert_int_equal(was_taken[class][kernel], is_fit && copy_kernel_find(kernel));
                }
}

/* No difference, no change; and no time, no sample. */
static void test_noise_changes_nothing(void **state)
{
        static const int64_t steps_ns[] = { 0, 1, 100, CHOICE_MEASURE_NS_MAX, INT64_MAX / 1000 };
        Choice assumed = { .large_bytes_max = 8 << 20 }, found;

        for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++)
                assumed.kernels[class] = copy_kernel_find(COPY_KERNEL_MOVSB) ? COPY_KERNEL_MOVSB : COPY_KERNEL_LIBC;
        for (size_t i = 0; i < ARRAY_SIZE(steps_ns); i++) {
                measure_scripted(UINT32_MAX, steps_ns[i], &assumed, &found);
                for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++)
                        assert_int_equal(found.kernels[class], assumed.kernels[class]);
                /* Bounded, however little time passes; and after the first that takes all there is, none. */
                assert_true(n_asked <= 1 + 3 * 4 * _CHOICE_CLASS_MAX * _COPY_KERNEL_MAX);
                if (steps_ns[i] >= CHOICE_MEASURE_NS_MAX)
                        assert_int_equal(n_asked, 1 + 3 + 1);
        }
}

/* Time for one round at most: one that looks fast is not believed yet. */
static void test_too_little_time_changes_nothing(void **state)
{
        Choice assumed = { .large_bytes_max = 8 << 20 }, found;

        for (unsigned sample = 0; sample < _CHOICE_CLASS_MAX * _COPY_KERNEL_MAX; sample++) {
                measure_scripted(sample, CHOICE_MEASURE_NS_MAX / 100 / 8, &assumed, &found);
                assert_true(n_asked <= 1 + 3 * 10 + 1);
                for (ChoiceClass class = 0; class < _CHOICE_CLASS_MAX; class++)
                        assert_int_equal(found.kernels[class], assumed.kernels[class]);
        }
}

static size_t count_mapped_pages(void)
{
        FILE *file = fopen("/proc/self/statm", "re");
        unsigned long n = 0;

        assert_non_null(file);
        assert_int_equal(fscanf(file, "%lu", &n), 1);
        fclose(file);
        return n;
}

static void test_memory_is_given_back(void **state)
{
        Choice assumed = { .large_bytes_max = 8 << 20 }, found;
        size_t before;

        (void)count_mapped_pages();
        before = count_mapped_pages();
        for (unsigned i = 0; i < 20; i++)
                measure_scripted(UINT32_MAX, CHOICE_MEASURE_NS_MAX, &assumed, &found);
        assert_true(count_mapped_pages() < before + 1024);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_by_size),
                UNIT_TEST(test_told),
                UNIT_TEST(test_measured_once_when_due),
                UNIT_TEST(test_the_fastest_is_taken),
                UNIT_TEST(test_noise_changes_nothing),
                UNIT_TEST(test_too_little_time_changes_nothing),
                UNIT_TEST(test_memory_is_given_back),
        };

        return cmocka_run_group_tests_name("copy-choice", tests, NULL, NULL);
}
