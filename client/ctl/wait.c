/* SPDX-License-Identifier: Apache-2.0 */
/* wait and watch: for what is not there yet, and for whatever happens. Both sleep without using the CPU. */
#include "client/ctl/ctl.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "client/ctl/facts.h"
#include "client/ctl/output.h"
#include "client/ctl/text.h"
#include "client/ctl/verbs.h"

enum {
        WAIT_WAIT = 1,
};

static const CtlOption wait_options[] = {
        { WAIT_WAIT, 'w', "wait", "TIME", "so long for all of them together (`10s`, `2m`) [forever]" },
        { 0 },
};

/* A time after which no more is waited; FOLIO_TIMEOUT_FOREVER for none. */
typedef struct Deadline {
        int timeout_ms;
        uint64_t begun_ns;
} Deadline;

static uint64_t monotonic_ns(void)
{
        struct timespec now;

        /* Cannot fail for this clock. */
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int deadline_left_ms(const Deadline *deadline)
{
        /* Only whole milliseconds that are over count: who waits once waits as long as was asked for. */
        uint64_t elapsed_ms = (monotonic_ns() - deadline->begun_ns) / 1000000;

        if (deadline->timeout_ms < 0)
                return FOLIO_TIMEOUT_FOREVER;
        return elapsed_ms >= (uint64_t)deadline->timeout_ms ? 0 : deadline->timeout_ms - (int)elapsed_ms;
}

static int wait_run(Ctl *ctl)
{
        Deadline deadline = { .timeout_ms = FOLIO_TIMEOUT_FOREVER };
        const char *argument;
        int id, r;

        while ((id = ctl_next_option(ctl, &argument)) > 0)
                if (!ctl_take_timeout(ctl, "--wait", argument, &deadline.timeout_ms))
                        return ctl->status;
        if (id < 0 || !ctl_check_arguments(ctl, 1, 1 << 20))
                return ctl->status;
        r = ctl_open(ctl);
        deadline.begun_ns = monotonic_ns();
        for (int i = 0; r == CTL_OK && i < ctl->n_arguments; i++) {
                _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;

                r = folio_get(ctl->client, ctl->arguments[i], FOLIO_GET_UNMAPPED, deadline_left_ms(&deadline), &object);
                if (r < 0)
                        r = ctl_fail(ctl, r, "wait for", ctl->arguments[i]);
        }
        return r;
}

enum {
        WATCH_SINCE = 1,
        WATCH_COUNT,
        WATCH_WAIT,
};

static const CtlOption watch_options[] = {
        { WATCH_SINCE, 0, "since", "N", "what came behind the event of this number [from now on]" },
        { WATCH_COUNT, 'n', "count", "N", "end after so many events [never]" },
        { WATCH_WAIT, 'w', "wait", "TIME",
          "end after so long: with --count and too few events, with status 1 [forever]" },
        { 0 },
};

typedef struct Watch {
        const char *prefix;
        uint64_t since;
        uint64_t n_events_max; /* UINT64_MAX: without end */
        Deadline deadline;
} Watch;

static int print_event(Ctl *ctl, const struct folio_event *event)
{
        char time[TEXT_TIME_BYTES], size[TEXT_SIZE_BYTES];
        _ctl_cleanup_(ctl_cleanup_free) char *name = NULL;

        if (ctl->is_json)
                return output_json_line(ctl, facts_event_json(event));
        if (event->type == FOLIO_EVENT_MISSED) {
                printf("missed %llu events up to number %llu: list again\n", (unsigned long long)event->n_missed,
                       (unsigned long long)event->sequence);
                return fflush(stdout) == 0 ? CTL_OK : CTL_REFUSED;
        }
        name = text_escape(event->name);
        if (!name)
                return ctl_out_of_memory(ctl);
        printf("%s  %8llu  %-8s  %6s  %s\n", text_format_time(event->time_ns, time),
               (unsigned long long)event->sequence, facts_event(event->type), text_format_size(event->size_bytes, size),
               name);
        /* Whoever reads along reads now. */
        return fflush(stdout) == 0 ? CTL_OK : CTL_REFUSED;
}

static int watch_events(Ctl *ctl, const Watch *watch, struct folio_watch *handle)
{
        for (uint64_t n_events = 0; n_events < watch->n_events_max; n_events++) {
                struct folio_event event = { .struct_bytes = sizeof(event) };
                int r = folio_watch_next(handle, deadline_left_ms(&watch->deadline), &event);

                if (r < 0)
                        return ctl_fail(ctl, r, "watch", watch->prefix);
                if (r == 0 && watch->n_events_max == UINT64_MAX)
                        return CTL_OK;
                if (r == 0)
                        return ctl_complain(ctl, "only %llu of %llu events in '%s' came in time",
                                            (unsigned long long)n_events, (unsigned long long)watch->n_events_max,
                                            watch->prefix);
                r = print_event(ctl, &event);
                if (r != CTL_OK)
                        return r;
        }
        return CTL_OK;
}

static int watch_run(Ctl *ctl)
{
        Watch watch = { .prefix = FOLIO_NAMESPACE_DEFAULT ":", .n_events_max = UINT64_MAX };
        struct folio_watch *handle;
        const char *argument;
        int id, r;

        watch.deadline = (Deadline){ .timeout_ms = FOLIO_TIMEOUT_FOREVER, .begun_ns = monotonic_ns() };
        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                bool is_good = id == WATCH_SINCE ? ctl_take_number(ctl, "--since", argument, &watch.since)
                               : id == WATCH_COUNT
                                       ? ctl_take_number(ctl, "--count", argument, &watch.n_events_max)
                                       : ctl_take_timeout(ctl, "--wait", argument, &watch.deadline.timeout_ms);

                if (!is_good)
                        return ctl->status;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 0, 1))
                return ctl->status;
        if (ctl->n_arguments)
                watch.prefix = ctl->arguments[0];
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        r = folio_watch_open(ctl->client, watch.prefix, watch.since, &handle);
        if (r < 0)
                return ctl_fail(ctl, r, "watch", watch.prefix);
        r = watch_events(ctl, &watch, handle);
        folio_watch_close(handle);
        return r;
}

const CtlVerb verb_wait = {
        .name = "wait",
        .usage = "NAME...",
        .summary = "sleep until objects are there and sealed",
        .options = wait_options,
        .run = wait_run,
};

const CtlVerb verb_watch = {
        .name = "watch",
        .usage = "[PREFIX]",
        .summary = "print what happens: sealed, replaced, deleted, evicted, expired",
        .options = watch_options,
        .run = watch_run,
};
