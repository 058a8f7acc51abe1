/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a line goes, and what it looks like there. A line is one line: control bytes in it (names and reasons can come
 * from a peer) are written as '?', so that nobody can forge another or paint a terminal. Every line is written with
 * one call, whole; what cannot be written is lost, for there is nowhere to complain. The loop's thread only.
 */
#include "daemon/service/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define LINE_BYTES_MAX 1024
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

static struct {
        LogLevel level;
        bool is_journal;
} log_state = { .level = LOG_LEVEL_INFO };

/* $JOURNAL_STREAM names the device and inode of the stream that the service manager gave; is stderr still that? */
static bool is_stderr_the_journal(void)
{
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;
        char end;

        if (!stream || sscanf(stream, "%llu:%llu%c", &device, &inode, &end) != 2)
                return false;
        return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_configure(LogLevel level, LogTarget target)
{
        log_state.level = level;
        switch (target) {
        case LOG_TARGET_AUTO:
                log_state.is_journal = is_stderr_the_journal();
                break;
        case LOG_TARGET_STDERR:
                log_state.is_journal = false;
                break;
        case LOG_TARGET_JOURNAL:
                log_state.is_journal = true;
                break;
        }
        /* sd_journal_send() to nobody succeeds; better a line on stderr. */
        if (log_state.is_journal && access(JOURNAL_SOCKET, W_OK) != 0)
                log_state.is_journal = false;
}

static const char *level_to_text(LogLevel level)
{
        switch (level) {
        case LOG_LEVEL_ERROR:
                return "error";
        case LOG_LEVEL_WARNING:
                return "warning";
        case LOG_LEVEL_NOTICE:
                return "notice";
        case LOG_LEVEL_INFO:
                return "info";
        case LOG_LEVEL_DEBUG:
                return "debug";
        }
        return "?";
}

static void write_to_stderr(LogLevel level, const char *text)
{
        char line[LINE_BYTES_MAX + 64];
        int n;

        /* No stamp: whatever collects a stream stamps its lines itself. */
        n = snprintf(line, sizeof(line), "foliod: %s: %s\n", level_to_text(level), text);
        if (n > 0)
                (void)!write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1)); /* see above */
}

void log_line(LogLevel level, const char *format, ...)
{
        char text[LINE_BYTES_MAX];
        va_list arguments;

        if (level > log_state.level)
                return;
        va_start(arguments, format);
        if (vsnprintf(text, sizeof(text), format, arguments) < 0)
                (void)snprintf(text, sizeof(text), "%s", format); /* a line that cannot be made is better than none */
        va_end(arguments);
        for (char *c = text; *c; c++)
                if ((unsigned char)*c < 0x20 || *c == 0x7f)
                        *c = '?';

        if (log_state.is_journal && sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", (int)level,
                                                    "SYSLOG_IDENTIFIER=foliod", NULL) >= 0)
                return;
        write_to_stderr(level, text);
}

bool log_limit_pass(LogLimit *limit, unsigned n_per_s, uint64_t now_ns, uint64_t *ret_n_dropped)
{
        uint64_t second = now_ns / UINT64_C(1000000000) + 1;

        if (limit->second != second) {
                limit->second = second;
                limit->n_said = 0;
        }
        if (limit->n_said >= n_per_s) {
                limit->n_dropped++;
                return false;
        }
        limit->n_said++;
        *ret_n_dropped = limit->n_dropped;
        limit->n_dropped = 0;
        return true;
}
