/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines as they arrive at the other end of stderr, and the limit on those that somebody else can cause. */
#include "harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/log.h"

typedef struct Capture {
        int saved;
        int read_end;
} Capture;

static Capture capture_begin(void)
{
        Capture capture;
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        capture.saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        capture.read_end = ends[0];
        assert_true(capture.saved >= 0);
        assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
        close(ends[1]);
        return capture;
}

static void capture_end(Capture capture, char *text, size_t n_text)
{
        ssize_t n = read(capture.read_end, text, n_text - 1);

        text[n > 0 ? n : 0] = '\0';
        assert_true(dup2(capture.saved, STDERR_FILENO) >= 0);
        close(capture.saved);
        close(capture.read_end);
}

static void test_lines_and_levels(void **state)
{
        char text[4096];
        Capture capture = capture_begin();

        log_configure(LOG_LEVEL_NOTICE, LOG_TARGET_STDERR);
        log_error("an %s", "error");
        log_warning("a warning");
        log_notice("a notice");
        log_info("not said");
        log_debug("not said");
        log_configure(LOG_LEVEL_DEBUG, LOG_TARGET_STDERR);
        log_debug("said");
        capture_end(capture, text, sizeof(text));
        assert_string_equal(text, "foliod: error: an error\nfoliod: warning: a warning\nfoliod: notice: a notice\nfoliod: debug: said\n");
}

static void test_a_line_is_one_line(void **state)
{
        char text[4096];
        Capture capture = capture_begin();

        log_configure(LOG_LEVEL_INFO, LOG_TARGET_STDERR);
        log_info("name '%s'", "a\nerror: forged\x1b[31m\r\t\x7f\xc3\xa9");
        capture_end(capture, text, sizeof(text));
        assert_string_equal(text, "foliod: info: name 'a?error: forged?[31m???\xc3\xa9'\n");
}

static void test_endless_line_is_cut(void **state)
{
        static char endless[20000], text[8192];
        Capture capture = capture_begin();

        memset(endless, 'e', sizeof(endless) - 1);
        log_configure(LOG_LEVEL_INFO, LOG_TARGET_STDERR);
        log_info("%s", endless);
        log_info("next");
        capture_end(capture, text, sizeof(text));
        assert_true(strlen(text) < 1200);
        assert_string_equal(strchr(text, '\n'), "\nfoliod: info: next\n");
}

/* AUTO looks at $JOURNAL_STREAM; and where no journal listens, the line still comes out. */
static void test_auto_and_a_journal_that_is_not_there(void **state)
{
        char text[4096], stream[64];
        Capture capture = capture_begin();
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino + 1);
        assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
        log_configure(LOG_LEVEL_INFO, LOG_TARGET_AUTO);
        log_info("not the journal");
        assert_int_equal(setenv("JOURNAL_STREAM", "garbage", 1), 0);
        log_configure(LOG_LEVEL_INFO, LOG_TARGET_AUTO);
        log_info("garbage");
        assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
        log_configure(LOG_LEVEL_INFO, LOG_TARGET_AUTO);
        log_info("unset");
        if (access("/run/systemd/journal/socket", F_OK) != 0) {
                log_configure(LOG_LEVEL_INFO, LOG_TARGET_JOURNAL);
                log_info("fallen back");
        } else {
                log_configure(LOG_LEVEL_INFO, LOG_TARGET_STDERR);
                log_info("fallen back");
        }
        capture_end(capture, text, sizeof(text));
        assert_string_equal(text, "foliod: info: not the journal\nfoliod: info: garbage\nfoliod: info: unset\nfoliod: info: fallen back\n");
}

/* libsystemd keeps a socket to the journal; it must be there before descriptors are counted. */
static int group_setup(void **state)
{
        log_configure(LOG_LEVEL_ERROR, LOG_TARGET_JOURNAL);
        log_error("this line belongs to a test");
        return 0;
}

/* On stderr an event is a line like any other, whatever its fields; and one that the journal reads has its level in front. */
static void test_events_and_a_stream_that_the_journal_reads(void **state)
{
        char text[4096], stream[64], long_text[2000];
        LogField fields[LOG_FIELDS_MAX];
        Capture capture = capture_begin();
        struct stat st;

        memset(long_text, 'x', sizeof(long_text) - 1);
        long_text[sizeof(long_text) - 1] = '\0';
        for (size_t i = 0; i < LOG_FIELDS_MAX; i++)
                fields[i] = i % 2 ? (LogField)LOG_FIELD_TEXT("FOLIO_TEST_TEXT", long_text)
                                  : (LogField)LOG_FIELD_NUMBER("FOLIO_TEST_NUMBER", UINT64_MAX);
        log_configure(LOG_LEVEL_NOTICE, LOG_TARGET_STDERR);
        log_event(LOG_EVENT_STARTED, LOG_LEVEL_NOTICE, fields, LOG_FIELDS_MAX, "an event, %s", "a\nline");
        log_event(LOG_EVENT_STARTED, LOG_LEVEL_INFO, NULL, 0, "not said");
        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
        assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
        log_configure(LOG_LEVEL_NOTICE, LOG_TARGET_STDERR);
        log_event(LOG_EVENT_KEEPER_GONE, LOG_LEVEL_WARNING, NULL, 0, "gone");
        log_error("a line");
        assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
        log_configure(LOG_LEVEL_INFO, LOG_TARGET_STDERR);
        capture_end(capture, text, sizeof(text));
        assert_string_equal(text, "foliod: notice: an event, a?line\n<4>foliod: warning: gone\n<3>foliod: error: a line\n");
}

static void test_limit(void **state)
{
        const uint64_t second = UINT64_C(1000000000);
        LogLimit limit = { 0 };
        uint64_t n_dropped = 99;

        assert_true(log_limit_pass(&limit, 2, 0, &n_dropped));
        assert_int_equal(n_dropped, 0);
        assert_true(log_limit_pass(&limit, 2, second - 1, &n_dropped));
        for (int i = 0; i < 100; i++)
                assert_false(log_limit_pass(&limit, 2, second - 1, &n_dropped));
        assert_true(log_limit_pass(&limit, 2, second, &n_dropped));
        assert_int_equal(n_dropped, 100);
        assert_true(log_limit_pass(&limit, 2, 2 * second, &n_dropped));
        assert_int_equal(n_dropped, 0);
        assert_false(log_limit_pass(&limit, 0, 3 * second, &n_dropped));
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_lines_and_levels),
                UNIT_TEST(test_a_line_is_one_line),
                UNIT_TEST(test_endless_line_is_cut),
                UNIT_TEST(test_auto_and_a_journal_that_is_not_there),
                UNIT_TEST(test_events_and_a_stream_that_the_journal_reads),
                UNIT_TEST(test_limit),
        };

        return cmocka_run_group_tests_name("log", tests, group_setup, NULL);
}
