/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pressure from a descriptor of our own that shows EPOLLPRI: a stream socket with urgent data. */
#include "tests/unit/harness.h"
#include "tests/unit/urgent-pair.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/service/pressure.h"

static struct event_base *base;
static int n_calls;

static void on_pressure(void *userdata)
{
        assert_ptr_equal(userdata, &n_calls);
        n_calls++;
}

static int set_up(void **state)
{
        harness_setup(state);
        n_calls = 0;
        base = event_base_new();
        return base ? 0 : -1;
}

static int tear_down(void **state)
{
        event_base_free(base);
        return harness_teardown(state);
}

static void test_tells_when_it_goes_off(void **state)
{
        Pressure *pressure;
        int fds[2];
        char byte;

        urgent_pair_make(fds);
        assert_int_equal(pressure_new_fd(base, fds[1], on_pressure, &n_calls, &pressure), 0);
        event_base_loop(base, EVLOOP_NONBLOCK);
        assert_int_equal(n_calls, 0);
        /* What is only readable is no pressure: a trigger is that all the time. */
        assert_int_equal(send(fds[0], "x", 1, 0), 1);
        event_base_loop(base, EVLOOP_NONBLOCK);
        assert_int_equal(n_calls, 0);
        assert_int_equal(send(fds[0], "!", 1, MSG_OOB), 1);
        while (n_calls == 0)
                assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0);
        assert_int_equal(n_calls, 1);
        /* A socket goes on saying it until it is read; then there is silence. */
        while (recv(fds[1], &byte, 1, MSG_OOB) == 1)
                ;
        event_base_loop(base, EVLOOP_NONBLOCK);
        n_calls = 0;
        event_base_loop(base, EVLOOP_NONBLOCK);
        assert_int_equal(n_calls, 0);
        pressure_free(pressure);
        close(fds[0]);
}

static void test_what_cannot_be_watched(void **state)
{
        char root[] = "/tmp/test-pressure-XXXXXX", path[128];
        Pressure *pressure = NULL;
        int fd;

        assert_int_equal(pressure_new(base, "/nowhere", on_pressure, &n_calls, &pressure), -ENOENT);
        assert_non_null(mkdtemp(root));
        snprintf(path, sizeof(path), "%s/proc", root);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/proc/pressure", root);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/proc/pressure/memory", root);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
        /* A file of a disk shows no events. */
        assert_int_equal(pressure_new(base, root, on_pressure, &n_calls, &pressure), -EPERM);
        assert_int_equal(unlink(path), 0);
        /* One that takes no triggers. */
        assert_int_equal(symlink("/dev/full", path), 0);
        assert_int_equal(pressure_new(base, root, on_pressure, &n_calls, &pressure), -ENOSPC);
        assert_null(pressure);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof(path), "%s/proc/pressure", root);
        assert_int_equal(rmdir(path), 0);
        snprintf(path, sizeof(path), "%s/proc", root);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(rmdir(root), 0);
        pressure_free(NULL);
}

static void test_the_kernels_own(void **state)
{
        Pressure *pressure;
        int r = pressure_new(base, "", on_pressure, &n_calls, &pressure);

        if (r < 0)
                skip();
        event_base_loop(base, EVLOOP_NONBLOCK);
        pressure_free(pressure);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_tells_when_it_goes_off),
                TEST(test_what_cannot_be_watched),
                TEST(test_the_kernels_own),
        };

        return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
