/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a line goes, and what it looks like there. A line is one line: control bytes in it (names and reasons can come
 * from a peer) are written as '?', so that nobody can forge another or paint a terminal. Every line is written with
 * one call, whole; what cannot be written is lost, for there is nowhere to complain. The loop's thread only.
 */
#include "daemon/service/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define LINE_BYTES_MAX 1024
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

static struct {
        LogLevel level;
        bool is_journal;             /* lines go to it as entries, with fields */
        bool is_stream_the_journal;  /* what is written to stderr ends there too, as plain text */
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
        log_state.is_stream_the_journal = is_stderr_the_journal();
        switch (target) {
        case LOG_TARGET_AUTO:
                log_state.is_journal = log_state.is_stream_the_journal;
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
        char line[LINE_BYTES_MAX + 64], prefix[8] = "";
        int n;

        /* No stamp: whatever collects a stream stamps its lines itself. The journal takes the level off the front. */
        if (log_state.is_stream_the_journal)
                (void)snprintf(prefix, sizeof(prefix), "<%d>", (int)level);
        n = snprintf(line, sizeof(line), "%sfoliod: %s: %s\n", prefix, level_to_text(level), text);
        if (n > 0)
                (void)!write(STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1)); /* see above */
}

static void make_line(char text[LINE_BYTES_MAX], const char *format, va_list arguments) _printf_(2, 0);

static void make_line(char text[LINE_BYTES_MAX], const char *format, va_list arguments)
{
        if (vsnprintf(text, LINE_BYTES_MAX, format, arguments) < 0)
                (void)snprintf(text, LINE_BYTES_MAX, "%s", format); /* a line that cannot be made is better than none */
        for (char *c = text; *c; c++)
                if ((unsigned char)*c < 0x20 || *c == 0x7f)
                        *c = '?';
}

void log_line(LogLevel level, const char *format, ...)
{
        char text[LINE_BYTES_MAX];
        va_list arguments;

        if (level > log_state.level)
                return;
        va_start(arguments, format);
        make_line(text, format, arguments);
        va_end(arguments);
        if (log_state.is_journal && sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", (int)level,
                                                    "SYSLOG_IDENTIFIER=foliod", NULL) >= 0)
                return;
        write_to_stderr(level, text);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* One entry of the journal while it is put together: `NAME=value`, each in a place of its own. */
typedef struct Entry {
        char texts[LOG_FIELDS_MAX + 4][LINE_BYTES_MAX + 64];
        struct iovec parts[LOG_FIELDS_MAX + 4];
        int n_parts;
} Entry;

static_assert(LINE_BYTES_MAX > LOG_FIELD_BYTES_MAX, "a field is not cut off by its place");

static void add_part(Entry *entry, const char *format, ...) _printf_(2, 3);

static void add_part(Entry *entry, const char *format, ...)
{
        char *text = entry->texts[entry->n_parts];
        va_list arguments;
        int n;

        va_start(arguments, format);
        n = vsnprintf(text, sizeof(entry->texts[0]), format, arguments);
        va_end(arguments);
        if (n <= 0)
                return; /* the others are worth having without it */
        entry->parts[entry->n_parts++] = (struct iovec){ text, MIN((size_t)n, sizeof(entry->texts[0]) - 1) };
}

static const char *event_to_id(LogEvent event)
{
        static const char *const ids[] = {
#define LOG_EVENT_ID(name, id) [LOG_EVENT_##name] = id,
                LOG_EVENTS(LOG_EVENT_ID)
#undef LOG_EVENT_ID
        };

        static_assert(ARRAY_SIZE(ids) == _LOG_EVENT_MAX, "an id for each");
        return ids[event];
}

void log_event(LogEvent event, LogLevel level, const LogField *fields, size_t n_fields, const char *format, ...)
{
        char text[LINE_BYTES_MAX];
        va_list arguments;
        Entry entry;

        assert(event < _LOG_EVENT_MAX && n_fields <= LOG_FIELDS_MAX);
        if (level > log_state.level)
                return;
        va_start(arguments, format);
        make_line(text, format, arguments);
        va_end(arguments);
        entry.n_parts = 0;
        if (log_state.is_journal) {
                add_part(&entry, "MESSAGE=%s", text);
                add_part(&entry, "PRIORITY=%d", (int)level);
                add_part(&entry, "SYSLOG_IDENTIFIER=foliod");
                add_part(&entry, "MESSAGE_ID=%s", event_to_id(event));
                for (size_t i = 0; i < n_fields; i++)
                        if (fields[i].text)
                                add_part(&entry, "%s=%.*s", fields[i].name, LOG_FIELD_BYTES_MAX, fields[i].text);
                        else
                                add_part(&entry, "%s=%" PRIu64, fields[i].name, fields[i].number);
                if (sd_journal_sendv(entry.parts, entry.n_parts) >= 0)
                        return;
        }
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
