/* SPDX-License-Identifier: Apache-2.0 */
/* See ctl.h: the connection, and how a failure is told. Options are in options.c. */
#include "client/ctl/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/hint.h"
#include "client/ctl/text.h"

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

/* The library begins with the name, where it knows it; here it stands before that already. */
static const char *skip_name(const char *sentence, const char *name)
{
        size_t n = name ? strlen(name) : 0;

        return n > 0 && strncmp(sentence, name, n) == 0 && strncmp(sentence + n, ": ", 2) == 0 ? sentence + n + 2 :
                                                                                                sentence;
}

int ctl_fail(Ctl *ctl, int error, const char *what, const char *name)
{
        const char *why = folio_strerror_full(), *advice = hint_find(error, what, why);
        _ctl_cleanup_(ctl_cleanup_free) char *shown_why =
                text_escape(*why ? skip_name(why, name) : folio_strerror(error));
        _ctl_cleanup_(ctl_cleanup_free) char *shown_name = name ? text_escape(*name ? name : "''") : NULL;
        size_t n_name = shown_name ? strlen(shown_name) : 0;

        if (!shown_why || (name && !shown_name))
                return ctl_out_of_memory(ctl);
        if (error == FOLIO_E_DAEMON_GONE && ctl->no_spawn)
                advice = "folioctl starts one itself where --no-spawn and --socket are left out";
        /* A whole namespace is called `model:`; before another colon that looks wrong. */
        if (n_name > 1 && shown_name[n_name - 1] == ':')
                n_name--;
        fprintf(stderr, "folioctl: cannot %s%s%.*s: %.*s", what, name ? " " : "", (int)n_name, name ? shown_name : "",
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
                .flags = FOLIO_OPEN_VISIBLE | FOLIO_OPEN_TOOL | (ctl->no_spawn ? 0 : FOLIO_OPEN_SPAWN),
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
