/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench-publish [OBJECTS]
 *
 * What the store itself takes to carry out a record: PUT of 64 bytes that lie in a leased region already, DELETE, and
 * PUT over a name that is there, without ring and client. First OBJECTS (1,000,000) new names one after the other, then
 * a thousand names again and again; wake-ups are written after each 64, as after a turn of the loop. Prints nanoseconds
 * of this thread's processor time; asserts nothing.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macro.h"
#include "daemon/store/store.h"
#include "proto/lease.h"
#include "proto/ring.h"

#define HOT 1000u
#define ROUNDS 200u
#define TURN 64u
#define AHEAD 2u                     /* so far the daemon looks ahead in a ring */
#define REGION_BYTES (64 * MIB)

typedef struct Lap {
        StoreOp op;
        ProtoItem item;
        char key[32];
} Lap;

static struct event_base *base;
static WorkerPool *workers;
static Store *store;
static Session *session;
static uint32_t namespace_id;
static RingHeader ring;
static uint64_t regions[RING_LEASES_MAX];
static unsigned n_regions;
static bool is_done;

static uint64_t clock_ns(clockid_t clock)
{
        struct timespec now;

        (void)clock_gettime(clock, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t realtime_ns(void)
{
        return clock_ns(CLOCK_REALTIME);
}

static void check(bool is_good, const char *what, const char *detail)
{
        if (is_good)
                return;
        fprintf(stderr, "bench-publish: %s: %s\n", what, detail ? detail : "failed");
        exit(1);
}

static bool is_drained(void *userdata, uint64_t region_id)
{
        return true;
}

static void on_done(StoreOp *op)
{
        check(op->status == STATUS_OK, "an operation", op->detail);
        is_done = true;
}

static void submit(Lap *lap, ProtoVerb verb)
{
        lap->op = (StoreOp){
                .session = session, .verb = verb, .namespace_id = namespace_id, .item = &lap->item, .done = on_done,
                .leased_region_id = lap->op.leased_region_id,
        };
        is_done = false;
        store_submit(store, &lap->op);
        while (!is_done) {
                store_flush(store);
                (void)event_base_loop(base, EVLOOP_ONCE);
        }
}

static void add_region(void)
{
        Lap lap = { .item = { .size_bytes = REGION_BYTES } };

        submit(&lap, VERB_LEASE);
        close(lap.op.fd);
        close(lap.op.book_fd);
        regions[n_regions++] = lap.op.region_id;
}

static void begin(uint64_t n_objects)
{
        StoreConfig config = {
                .budget_bytes = 16 * GIB, .packed_bytes_max = MIB, .staging_bytes = 4 * MIB,
                .index_objects_max = n_objects + 2 * HOT, .session_bytes_max = GIB, .n_events = 16384,
                .n_namespaces_max = 8, .huge = FOLIO_HUGE_AUTO, .is_user_daemon = true, .now_ns = realtime_ns,
        };
        SessionConfig mine = { .cred = { .uid = geteuid(), .pid = getpid() }, .comm = "bench" };
        int index_fd, pins_fd;
        const char *call = NULL;
        char *detail = NULL;
        ProtoNamespace ns;

        base = event_base_new();
        check(base && worker_pool_new(base, 2, &workers) == 0, "workers", NULL);
        config.workers = workers;
        check(store_new(&config, &store, &call) == 0, "the store", call);
        check(session_new(store, &mine, &session, &detail) == STATUS_OK, "a session", detail);
        check(store_namespace_open(store, session, "default", &ns, &index_fd, &pins_fd, &detail) == STATUS_OK,
              "the namespace", detail);
        namespace_id = ns.id;
        session_set_ring(session, &ring, is_drained, NULL);
}

static void put(Lap *lap, const char *prefix, uint64_t i, uint64_t unit, uint32_t flags)
{
        int n = snprintf(lap->key, sizeof(lap->key), "%s-%07u", prefix, (unsigned)i);

        lap->item = (ProtoItem){ .key = { lap->key, (size_t)n }, .size_bytes = 64, .flags = flags,
                                 .offset_bytes = unit * LEASE_UNIT_BYTES % REGION_BYTES };
        lap->op.leased_region_id = regions[unit * LEASE_UNIT_BYTES / REGION_BYTES];
}

static void report(const char *what, uint64_t ns, uint64_t n)
{
        printf("%-28s %6.1f ns\n", what, (double)ns / (double)n);
}

/* Keys are made in lots, outside the measured time; so are the answers of workers taken. */
static uint64_t run(Lap *laps, ProtoVerb verb)
{
        uint64_t begun_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), ns;

        for (unsigned i = 0; i < TURN; i++) {
                if (i + AHEAD < TURN)
                        store_expect(store, namespace_id, laps[i + AHEAD].item.key);
                submit(&laps[i], verb);
        }
        store_flush(store);
        ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns;
        (void)event_base_loop(base, EVLOOP_NONBLOCK);
        return ns;
}

static void run_new(uint64_t n_objects)
{
        static Lap laps[TURN];
        uint64_t ns = 0;

        for (uint64_t i = 0; i < n_objects; i += TURN) {
                while ((i + TURN) * LEASE_UNIT_BYTES > n_regions * REGION_BYTES)
                        add_region();
                for (unsigned j = 0; j < TURN; j++)
                        put(&laps[j], "new", i + j, i + j, 0);
                ns += run(laps, VERB_PUT);
        }
        report("put of a new name", ns, n_objects);
}

static void run_hot(uint64_t first_unit)
{
        static Lap laps[TURN];
        uint64_t put_ns = 0, delete_ns = 0, replace_ns = 0, n = 0;

        while ((first_unit + 2 * HOT + TURN) * LEASE_UNIT_BYTES > n_regions * REGION_BYTES)
                add_region();
        for (unsigned round = 0; round < ROUNDS; round++)
                for (uint64_t i = 0; i + TURN <= HOT; i += TURN) {
                        for (unsigned j = 0; j < TURN; j++)
                                put(&laps[j], "hot", i + j, first_unit + i + j, 0);
                        put_ns += run(laps, VERB_PUT);
                        for (unsigned j = 0; j < TURN; j++)
                                put(&laps[j], "hot", i + j, first_unit + HOT + i + j, FOLIO_REPLACE);
                        replace_ns += run(laps, VERB_PUT);
                        for (unsigned j = 0; j < TURN; j++)
                                laps[j].item.flags = 0;
                        delete_ns += run(laps, VERB_DELETE);
                        n += TURN;
                }
        report("put of a hot name", put_ns, n);
        report("put over it", replace_ns, n);
        report("delete", delete_ns, n);
}

int main(int argc, char **argv)
{
        uint64_t n_objects = ALIGN_UP(argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000, (uint64_t)TURN);

        begin(n_objects);
        run_new(n_objects);
        run_hot(n_objects);
        session_close(session);
        store_free(store);
        worker_pool_free(workers);
        event_base_free(base);
        return 0;
}
