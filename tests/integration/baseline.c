/* SPDX-License-Identifier: Apache-2.0 */
/* See baseline.h. */
#include "tests/integration/baseline.h"

#include <inttypes.h>

enum {
        LOOKS_MAX = 800,
        LOOK_US = 25000,
        /* Segments that are not full cannot be filled by a later process: there are some more then, up to a bound. */
        SEGMENTS_MORE = 18,
};

static const char *const names[BASELINE_FACTS] = {
        "memory.used_bytes", "memory.held_bytes", "objects.count", "held.count",     "unsealed.count",
        "sessions.count",    "sessions.ghosts",   "leases.count",  "packed.regions", "keeper.volatile",
};

Baseline baseline_take(const Foliod *foliod)
{
        struct folio_client *client = foliod_connect(foliod);
        Baseline baseline = { .n_keeper_fds = foliod_count_fds(foliod) };
        Foliod serving = *foliod;

        AWAIT(foliod_fact(client, "sessions.count") == 1);
        for (size_t i = 0; i < BASELINE_FACTS; i++)
                baseline.facts[i] = foliod_fact(client, names[i]);
        baseline.n_kept = foliod_fact(client, "keeper.parked") + foliod_fact(client, "keeper.direct");
        baseline.n_segments = foliod_fact(client, "keeper.segments");
        (void)snprintf(serving.pid_text, sizeof(serving.pid_text), "%d", (int)foliod_serving_pid(foliod));
        baseline.n_daemon_fds = foliod_count_fds(&serving);
        folio_client_unref(client);
        return baseline;
}

static bool is_back(const Baseline *now, const Baseline *before)
{
        bool is_so = now->n_kept <= before->n_kept && now->n_segments <= before->n_segments + SEGMENTS_MORE &&
                     now->n_daemon_fds <= before->n_daemon_fds + SEGMENTS_MORE &&
                     now->n_keeper_fds <= before->n_keeper_fds + SEGMENTS_MORE;

        for (size_t i = 0; i < BASELINE_FACTS; i++)
                is_so &= now->facts[i] <= before->facts[i];
        return is_so;
}

static void show_facts(const Foliod *foliod)
{
        struct folio_status facts[128] = { { .struct_bytes = sizeof(facts[0]) } };
        struct folio_client *client = foliod_connect(foliod);
        int n = folio_status_get(client, facts, 128);

        for (int i = 0; i < n && i < 128; i++)
                fprintf(stderr, "# %s %" PRIu64 " %s\n", facts[i].name, facts[i].value, facts[i].text);
        folio_client_unref(client);
}

void baseline_check(const Foliod *foliod, const Baseline *before)
{
        Baseline now = { { 0 } };

        for (unsigned i = 0; i < LOOKS_MAX; i++) {
                now = baseline_take(foliod);
                if (is_back(&now, before))
                        return;
                (void)usleep(LOOK_US);
        }
        for (size_t i = 0; i < BASELINE_FACTS; i++)
                fprintf(stderr, "# %s: before %" PRIu64 ", after %" PRIu64 "\n", names[i], before->facts[i],
                        now.facts[i]);
        fprintf(stderr,
                "# kept: before %" PRIu64 ", after %" PRIu64 "; segments: before %" PRIu64 ", after %" PRIu64 "\n",
                before->n_kept, now.n_kept, before->n_segments, now.n_segments);
        fprintf(stderr, "# descriptors: daemon before %u, after %u; keeper before %u, after %u\n", before->n_daemon_fds,
                now.n_daemon_fds, before->n_keeper_fds, now.n_keeper_fds);
        show_facts(foliod);
        fail_msg("something is left");
}

void baseline_kill(const Foliod *foliod)
{
        pid_t pid = foliod_serving_pid(foliod);

        assert_int_equal(kill(pid, SIGKILL), 0);
        AWAIT(foliod_serving_pid(foliod) != pid);
}

static uint64_t now_us(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* In a process that ends: so the sessions it had with whom it has killed end too. */
static void ask(Child *child)
{
        pid_t pid = (pid_t)child_hear(child);
        uint64_t begun = now_us(), answered_by = (uint64_t)pid;

        CHECK(kill(pid, SIGKILL) == 0);
        for (unsigned i = 0; i < 1000 && answered_by == (uint64_t)pid; i++) {
                struct folio_client *client = child_connect_with(child, FOLIO_OPEN_TOOL);

                answered_by = foliod_fact(client, "daemon.pid");
                folio_client_unref(client);
        }
        CHECK(answered_by != (uint64_t)pid);
        child_say(child, now_us() - begun);
}

uint64_t baseline_kill_and_ask(const Foliod *foliod)
{
        Child *child = child_start(foliod, ask, NULL);
        uint64_t us;

        child_say(child, (uint64_t)foliod_serving_pid(foliod));
        us = child_hear(child);
        child_finish(child);
        return us;
}
