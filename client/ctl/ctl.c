/* SPDX-License-Identifier: Apache-2.0 */
/* See ctl.h: the connection, and how a failure is told. Options are in options.c. */
#include "client/ctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/text.h"

/* What the user of this tool, rather than of the library, can do about it. */
static const struct {
        int error;
        const char *advice;
} advices[] = {
        { FOLIO_E_NOT_FOUND, "`folioctl ls` and `folioctl ns ls` show what there is; `folioctl wait` waits for it" },
        { FOLIO_E_DELETED, "put it again, or `folioctl wait` for somebody else to" },
        { FOLIO_E_EVICTED, "put it again" },
        { FOLIO_E_EXPIRED, "put it again, with a longer --expires-in" },
        { FOLIO_E_WRITING, "wait until it is sealed: `folioctl wait`" },
        { FOLIO_E_WRITER_DIED, "put it again" },
        { FOLIO_E_EXISTS, "use --replace to put something else under that name, or remove it first: `folioctl rm`" },
        { FOLIO_E_ACCESS, "`folioctl ns ls` shows who may do what" },
        { FOLIO_E_FULL, "`folioctl ns ls` shows who uses the memory, `folioctl ls -l --sort size` what is large, "
                        "`folioctl ls --holders` who holds it" },
        { FOLIO_E_TOO_LARGE, "`folioctl status memory` shows how large the store is" },
        { FOLIO_E_LIMIT, "`folioctl ns ls` and `folioctl status` show the limits" },
        { FOLIO_E_TIMEOUT, "--timeout gives it longer" },
        { FOLIO_E_STATE, "`folioctl stat` shows what state it is in" },
        { FOLIO_E_UNSUPPORTED, "`folioctl check` shows what this daemon can do" },
};

static const char *advice_for(int error)
{
        for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
                if (advices[i].error == error)
                        return advices[i].advice;
        return NULL;
}

static int status_of(int error)
{
        return error == FOLIO_E_DAEMON_GONE ? CTL_NO_DAEMON : error == FOLIO_E_INVALID ? CTL_USAGE : CTL_REFUSED;
}

static int length_without_stop(const char *sentence)
{
        size_t n = strlen(sentence);

        while (n > 0 && (sentence[n - 1] == '.' || sentence[n - 1] == ' ' || sentence[n - 1] == '\n'))
                n--;
        return (int)n;
}

int ctl_fail(Ctl *ctl, int error, const char *what, const char *name)
{
        const char *why = folio_strerror_full(), *advice = advice_for(error);
        _ctl_cleanup_(ctl_cleanup_free) char *shown_why = text_escape(*why ? why : folio_strerror(error));
        _ctl_cleanup_(ctl_cleanup_free) char *shown_name = name ? text_escape(name) : NULL;

        if (!shown_why || (name && !shown_name))
                return ctl_out_of_memory(ctl);
        if (error == FOLIO_E_DAEMON_GONE)
                advice = ctl->no_spawn ? "start foliod, or leave --no-spawn out"
                                       : "start foliod, or see whether FOLIO_SOCKET "
                                         "and --socket name the right place";
        fprintf(stderr, "folioctl: cannot %s%s%s: %.*s", what, name ? " " : "", name ? shown_name : "",
                length_without_stop(shown_why), shown_why);
        fprintf(stderr, advice ? "; %s\n" : "\n", advice);
        return status_of(error);
}

static void print_line(const char *format, va_list arguments)
{
        fputs("folioctl: ", stderr);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
}

int ctl_complain(Ctl *ctl, const char *format, ...)
{
        va_list arguments;

        (void)ctl;
        va_start(arguments, format);
        print_line(format, arguments);
        va_end(arguments);
        return CTL_REFUSED;
}

void ctl_note(Ctl *ctl, const char *format, ...)
{
        va_list arguments;

        (void)ctl;
        va_start(arguments, format);
        print_line(format, arguments);
        va_end(arguments);
}

int ctl_out_of_memory(Ctl *ctl)
{
        return ctl_complain(ctl, "this process has no memory left");
}

int ctl_open(Ctl *ctl)
{
        const struct folio_open_options options = {
                .struct_bytes = sizeof(options),
                .address = ctl->socket_path,
                .client_name = NULL,
                .flags = ctl->no_spawn ? 0 : FOLIO_OPEN_SPAWN,
                .timeout_ms = ctl->timeout_ms,
        };
        int r;

        if (ctl->client)
                return CTL_OK;
        r = folio_client_open(&options, &ctl->client);
        if (r < 0) {
                ctl->client = NULL;
                r = ctl_fail(ctl, r, "connect to foliod", NULL);
                /* Whatever the reason, there is no daemon to be had, unless the arguments were wrong. */
                return r == CTL_USAGE ? r : CTL_NO_DAEMON;
        }
        return CTL_OK;
}

size_t ctl_namespace_bytes(const char *name)
{
        const char *colon = strchr(name, ':');

        return colon ? (size_t)(colon - name) : 0;
}

uint64_t ctl_now_ns(void)
{
        struct timespec now;

        /* Cannot fail for this clock. */
        (void)clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
