/* SPDX-License-Identifier: Apache-2.0 */
/* include/base: the arithmetic by table, on both sides of each limit; the list; who owns what after a steal. */
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/macro.h"

#define UNTOUCHED UINT64_C(0xdeadbeefcafef00d)

typedef struct Row {
        uint64_t a;
        uint64_t b;
        bool fits;
        uint64_t result;
} Row;

static void check_rows(const Row *rows, size_t n_rows, bool (*function)(uint64_t a, uint64_t b, uint64_t *ret))
{
        for (size_t i = 0; i < n_rows; i++) {
                uint64_t result = UNTOUCHED;

                assert_int_equal(function(rows[i].a, rows[i].b, &result), rows[i].fits);
                assert_true(result == (rows[i].fits ? rows[i].result : UNTOUCHED));
        }
}

static void test_add(void **state)
{
        static const Row rows[] = {
                { 0, 0, true, 0 },
                { 1, 2, true, 3 },
                { UINT64_MAX, 0, true, UINT64_MAX },
                { 0, UINT64_MAX, true, UINT64_MAX },
                { UINT64_MAX - 1, 1, true, UINT64_MAX },
                { UINT64_MAX, 1, false, 0 },
                { 1, UINT64_MAX, false, 0 },
                { UINT64_MAX, UINT64_MAX, false, 0 },
                { UINT64_C(1) << 63, UINT64_C(1) << 63, false, 0 },
                { UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1, true, UINT64_MAX },
        };

        check_rows(rows, ARRAY_SIZE(rows), checked_add);
}

static void test_mul(void **state)
{
        static const Row rows[] = {
                { 0, UINT64_MAX, true, 0 },
                { UINT64_MAX, 0, true, 0 },
                { 1, UINT64_MAX, true, UINT64_MAX },
                { 3, UINT64_MAX / 3, true, UINT64_MAX },
                { 3, UINT64_MAX / 3 + 1, false, 0 },
                { UINT64_C(1) << 32, UINT64_C(1) << 32, false, 0 },
                { UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, true, UINT64_MAX - UINT32_MAX },
                { UINT64_MAX, 2, false, 0 },
                { UINT64_MAX, UINT64_MAX, false, 0 },
        };

        check_rows(rows, ARRAY_SIZE(rows), checked_mul);
}

static void test_align_up(void **state)
{
        static const Row rows[] = {
                { 0, 4096, true, 0 },
                { 1, 4096, true, 4096 },
                { 4095, 4096, true, 4096 },
                { 4096, 4096, true, 4096 },
                { 4097, 4096, true, 8192 },
                { 7, 1, true, 7 },
                { UINT64_MAX, 1, true, UINT64_MAX },
                { UINT64_MAX - 4095, 4096, true, UINT64_MAX - 4095 },
                { UINT64_MAX - 4094, 4096, false, 0 },
                { UINT64_MAX, 4096, false, 0 },
                { UINT64_MAX, UINT64_C(1) << 63, false, 0 },
                { 1, UINT64_C(1) << 63, true, UINT64_C(1) << 63 },
        };

        check_rows(rows, ARRAY_SIZE(rows), checked_align_up);
}

static void test_range(void **state)
{
        static const struct {
                uint64_t offset, length, size;
                bool is_inside;
        } rows[] = {
                { 0, 0, 0, true },
                { 0, 1, 0, false },
                { 1, 0, 0, false },
                { 0, 10, 10, true },
                { 0, 11, 10, false },
                { 10, 0, 10, true },
                { 10, 1, 10, false },
                { 11, 0, 10, false },
                { 9, 1, 10, true },
                { 9, 2, 10, false },
                { UINT64_MAX, 1, 10, false },
                { 1, UINT64_MAX, 10, false },
                { UINT64_MAX, UINT64_MAX, UINT64_MAX, false },
                { UINT64_MAX, 0, UINT64_MAX, true },
                { 0, UINT64_MAX, UINT64_MAX, true },
                { 1, UINT64_MAX, UINT64_MAX, false },
                { 1, UINT64_MAX - 1, UINT64_MAX, true },
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(checked_range(rows[i].offset, rows[i].length, rows[i].size), rows[i].is_inside);
}

static void test_size(void **state)
{
        size_t size = 7;

        assert_true(checked_size(0, &size));
        assert_int_equal(size, 0);
        assert_true(checked_size(SIZE_MAX, &size));
        assert_true(size == SIZE_MAX);
#if SIZE_MAX < UINT64_MAX
        size = 7;
        assert_false(checked_size((uint64_t)SIZE_MAX + 1, &size));
        assert_false(checked_size(UINT64_MAX, &size));
        assert_int_equal(size, 7);
#endif
}

static void test_macros(void **state)
{
        struct {
                int first;
                int member;
        } outer;

        assert_int_equal(ALIGN_UP(UINT64_C(1), PAGE_BYTES), PAGE_BYTES);
        assert_int_equal(ALIGN_UP(PAGE_BYTES, PAGE_BYTES), PAGE_BYTES);
        assert_int_equal(ALIGN_DOWN(2 * PAGE_BYTES - 1, PAGE_BYTES), PAGE_BYTES);
        assert_true(IS_ALIGNED(HUGE_BYTES, PAGE_BYTES));
        assert_false(IS_ALIGNED(HUGE_BYTES + 1, PAGE_BYTES));
        assert_true(IS_POWER_OF_TWO(UINT64_C(1) << 63));
        assert_true(IS_POWER_OF_TWO(1));
        assert_false(IS_POWER_OF_TWO(0));
        assert_false(IS_POWER_OF_TWO(6));
        assert_int_equal(CLAMP(5, 1, 3), 3);
        assert_int_equal(CLAMP(0, 1, 3), 1);
        assert_int_equal(CLAMP(2, 1, 3), 2);
        assert_ptr_equal(CONTAINER_OF(&outer.member, __typeof__(outer), member), &outer);
}

typedef struct Node {
        int value;
        List link;
} Node;

static void assert_values(List *head, const int *values, size_t n_values)
{
        size_t i = 0;
        List *last = head;

        LIST_FOREACH(node, head)
        {
                assert_true(i < n_values);
                assert_int_equal(LIST_ENTRY(node, Node, link)->value, values[i++]);
                assert_ptr_equal(node->previous, last);
                last = node;
        }
        assert_int_equal(i, n_values);
        assert_ptr_equal(head->previous, last);
}

static void test_list_order(void **state)
{
        List head = LIST_INIT(head);
        Node nodes[4];

        assert_true(list_is_empty(&head));
        assert_null(list_peek_front(&head));
        assert_null(list_take_front(&head));
        for (int i = 0; i < 4; i++) {
                nodes[i].value = i;
                list_init(&nodes[i].link);
                assert_false(list_is_linked(&nodes[i].link));
        }
        list_push_back(&head, &nodes[1].link);
        list_push_back(&head, &nodes[2].link);
        list_push_front(&head, &nodes[0].link);
        list_push_back(&head, &nodes[3].link);
        assert_true(list_is_linked(&nodes[2].link));
        assert_values(&head, (int[]){ 0, 1, 2, 3 }, 4);
        assert_ptr_equal(list_peek_front(&head), &nodes[0].link);
        assert_ptr_equal(list_take_front(&head), &nodes[0].link);
        assert_false(list_is_linked(&nodes[0].link));
        list_unlink(&nodes[2].link);
        assert_values(&head, (int[]){ 1, 3 }, 2);
        list_unlink(&nodes[2].link); /* a second time is legal */
        assert_values(&head, (int[]){ 1, 3 }, 2);
}

static void test_list_of_zeroes_is_unlinked(void **state)
{
        Node node = { 0 };

        assert_false(list_is_linked(&node.link));
        list_unlink(&node.link);
        assert_false(list_is_linked(&node.link));
}

static void test_list_splice(void **state)
{
        List a = LIST_INIT(a), b = LIST_INIT(b);
        Node nodes[4];

        for (int i = 0; i < 4; i++) {
                nodes[i].value = i;
                list_push_back(i < 2 ? &a : &b, &nodes[i].link);
        }
        list_splice_back(&a, &b);
        assert_values(&a, (int[]){ 0, 1, 2, 3 }, 4);
        assert_true(list_is_empty(&b));
        list_splice_back(&a, &b);
        assert_values(&a, (int[]){ 0, 1, 2, 3 }, 4);
        list_splice_back(&b, &a);
        assert_values(&b, (int[]){ 0, 1, 2, 3 }, 4);
        assert_true(list_is_empty(&a));
}

static void test_list_unlink_while_walking(void **state)
{
        List head = LIST_INIT(head);
        Node nodes[5];

        for (int i = 0; i < 5; i++) {
                nodes[i].value = i;
                list_push_back(&head, &nodes[i].link);
        }
        LIST_FOREACH_SAFE(node, &head)
                if (LIST_ENTRY(node, Node, link)->value % 2 == 0)
                        list_unlink(node);
        assert_values(&head, (int[]){ 1, 3 }, 2);
}

static bool is_open(int fd)
{
        return fcntl(fd, F_GETFD) >= 0;
}

static void test_descriptors_close_at_the_end_of_scope(void **state)
{
        int number, kept;

        {
                _cleanup_(cleanup_fd) int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
                _cleanup_(cleanup_fd) int none = -1;

                assert_true(fd >= 0 && none == -1);
                number = fd;
        }
        assert_false(is_open(number));
        {
                _cleanup_(cleanup_fd) int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                number = fd;
                kept = steal_fd(&fd);
                assert_int_equal(fd, -1);
        }
        assert_int_equal(kept, number);
        assert_true(is_open(kept));
        kept = close_fd(kept);
        assert_int_equal(kept, -1);
        assert_int_equal(close_fd(-1), -1);
}

static int n_freed;

static void count_free(int *pointer)
{
        n_freed++;
        free(pointer);
}

DEFINE_CLEANUP(int *, cleanup_counted, count_free)

static void test_pointers_are_freed_once(void **state)
{
        int *kept;

        n_freed = 0;
        {
                _cleanup_(cleanup_counted) int *owned = malloc(sizeof(int));
                _cleanup_(cleanup_counted) int *empty = NULL;
                _cleanup_(cleanup_free) char *plain = malloc(1);

                assert_true(owned && plain && !empty);
        }
        assert_int_equal(n_freed, 1);
        {
                _cleanup_(cleanup_counted) int *owned = malloc(sizeof(int));

                kept = steal_ptr(&owned);
                assert_null(owned);
        }
        assert_int_equal(n_freed, 1);
        assert_non_null(kept);
        free(kept);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_add),
                UNIT_TEST(test_mul),
                UNIT_TEST(test_align_up),
                UNIT_TEST(test_range),
                UNIT_TEST(test_size),
                UNIT_TEST(test_macros),
                UNIT_TEST(test_list_order),
                UNIT_TEST(test_list_of_zeroes_is_unlinked),
                UNIT_TEST(test_list_splice),
                UNIT_TEST(test_list_unlink_while_walking),
                UNIT_TEST(test_descriptors_close_at_the_end_of_scope),
                UNIT_TEST(test_pointers_are_freed_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
