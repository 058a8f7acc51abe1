/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an object: how large it is, and the arrows of its state machine. */
#include "harness.h"

#include <assert.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/store/object.h"

/* A million of these. */
static_assert(sizeof(Object) <= 128, "object");

static void test_new(void **state)
{
        int space;
        Slabs slabs;
        Object *object;

        slabs_init(&slabs, sizeof(Object));
        object = object_new(&slabs, &space, FOLIO_WITH_CREATOR);
        (void)state;
        assert_non_null(object);
        assert_int_equal(object->state, OBJECT_DRAFT);
        assert_int_equal(object->lifetime, FOLIO_WITH_CREATOR);
        assert_int_equal(object->expiry_place, OBJECT_NOT_PLACED);
        assert_ptr_equal(object->space, &space);
        assert_null(object_region(object));
        assert_int_equal(object_offset_bytes(object), 0);
        object_free(object);
        object_free(NULL);
        slabs_deinit(&slabs);
}

/* What is not an arrow is a bug, and ends the process that has it. */
static bool can_go(ObjectState from, ObjectState to)
{
        Object object = { .state = (uint8_t)from };
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
                (void)signal(SIGABRT, SIG_DFL);
                (void)close(STDERR_FILENO);
                object_set_state(&object, to);
                _exit(object.state == to ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) || WIFSIGNALED(status));
        return WIFEXITED(status);
}

static void test_arrows(void **state)
{
        static const char arrows[_OBJECT_STATE_MAX][_OBJECT_STATE_MAX + 1] = {
                [OBJECT_DRAFT] = "-www-",
                [OBJECT_WRITING] = "--w-w",
                [OBJECT_SEALED] = "----w",
                [OBJECT_MUTABLE] = "----w",
                [OBJECT_RETRACTED] = "-----",
        };

        (void)state;
        for (int from = 0; from < _OBJECT_STATE_MAX; from++)
                for (int to = 0; to < _OBJECT_STATE_MAX; to++)
                        assert_int_equal(can_go(from, to), arrows[from][to] == 'w');
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_new),
                UNIT_TEST(test_arrows),
        };

        return cmocka_run_group_tests_name("object", tests, NULL, NULL);
}
