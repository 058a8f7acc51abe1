/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench-restore [OBJECTS]
 *
 * How long a store takes to be there again with OBJECTS (1,000,000) small objects that an earlier one has left, half of
 * them in packed and half in leased regions, against one that begins with nothing. The keeper is a table in this
 * process, so what a real one needs to hand descriptors over is not in it. Prints milliseconds; asserts nothing but that
 * all of them are there.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
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
#include "tests/unit/fake-keeper.h"

#define REGION_BYTES (64 * MIB)

typedef struct Home {
        struct event_base *base;
        WorkerPool *workers;
        Store *store;
} Home;

static bool is_done;

static uint64_t now_ns(clockid_t clock)
{
        struct timespec now;

        (void)clock_gettime(clock, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t realtime_ns(void)
{
        return now_ns(CLOCK_REALTIME);
}

static void check(bool is_good, const char *what, const char *detail)
{
        if (is_good)
                return;
        fprintf(stderr, "bench-restore: %s: %s\n", what, detail ? detail : "failed");
        exit(1);
}

static void begin(Home *home, Keeper *keeper, uint64_t n_objects, const char *what)
{
        StoreConfig config = {
                .budget_bytes = 16 * GIB, .packed_bytes_max = MIB, .staging_bytes = 4 * MIB,
                .index_objects_max = n_objects + 1000, .session_bytes_max = GIB, .n_events = 16384,
                .n_namespaces_max = 8, .huge = FOLIO_HUGE_AUTO, .is_user_daemon = true, .now_ns = realtime_ns,
                .keeper = keeper,
        };
        uint64_t begun_ns, new_ns;
        StoreRestoreFacts facts;
        const char *call = NULL;
        char *message = NULL;

        home->base = event_base_new();
        check(home->base && worker_pool_new(home->base, 2, &home->workers) == 0, "workers", NULL);
        config.workers = home->workers;
        begun_ns = now_ns(CLOCK_MONOTONIC);
        check(store_new(&config, &home->store, &call) == 0, "the store", call);
        new_ns = now_ns(CLOCK_MONOTONIC);
        check(store_restore(home->store, &facts, &message) == 0, "the restore", message);
        printf("%-28s %9.1f ms, of which the restore of %llu objects %9.1f ms\n", what,
               (double)(now_ns(CLOCK_MONOTONIC) - begun_ns) / 1e6, (unsigned long long)facts.n_objects,
               (double)(now_ns(CLOCK_MONOTONIC) - new_ns) / 1e6);
        check(facts.n_dropped == 0, "dropped", NULL);
}

static void end(Home *home)
{
        Session *ghost;

        while ((ghost = session_next_ghost(home->store, NULL)))
                session_leave(ghost);
        store_leave(home->store);
        worker_pool_free(home->workers);
        event_base_free(home->base);
}

static void on_done(StoreOp *op)
{
        check(op->status == STATUS_OK, "an operation", op->detail);
        is_done = true;
}

static bool is_drained(void *userdata, uint64_t region_id)
{
        return true;
}

static void submit(Home *home, StoreOp *op)
{
        op->done = on_done;
        is_done = false;
        store_submit(home->store, op);
        while (!is_done) {
                store_flush(home->store);
                (void)event_base_loop(home->base, EVLOOP_ONCE);
        }
}

static uint64_t ask_region(Home *home, Session *session, uint32_t namespace_id)
{
        ProtoItem item = { .size_bytes = REGION_BYTES };
        StoreOp op = { .session = session, .verb = VERB_LEASE, .namespace_id = namespace_id, .item = &item };

        submit(home, &op);
        close(op.fd);
        close(op.book_fd);
        return op.region_id;
}

static void fill(Home *home, uint64_t n_objects)
{
        SessionConfig mine = { .cred = { .uid = geteuid(), .pid = getpid() }, .comm = "bench" };
        static RingHeader ring;
        uint64_t unit = 0, region_id = 0;
        int index_fd, pins_fd;
        char *detail = NULL;
        Session *session;
        ProtoNamespace ns;

        check(session_new(home->store, &mine, &session, &detail) == STATUS_OK, "a session", detail);
        check(store_namespace_open(home->store, session, "default", &ns, &index_fd, &pins_fd, &detail) == STATUS_OK,
              "the namespace", detail);
        session_set_ring(session, &ring, is_drained, NULL);
        for (uint64_t i = 0; i < n_objects; i++) {
                char key[32];
                ProtoItem item = { .key = { key, (size_t)snprintf(key, sizeof(key), "key-%09llu", (unsigned long long)i) },
                                   .size_bytes = 64, .flags = i % 2 ? PROTO_ITEM_STAGED : 0 };
                StoreOp op = { .session = session, .verb = VERB_PUT, .namespace_id = ns.id, .item = &item };

                if (i % 2 == 0) {
                        if (unit * LEASE_UNIT_BYTES % REGION_BYTES == 0)
                                region_id = ask_region(home, session, ns.id);
                        op.leased_region_id = region_id;
                        item.offset_bytes = unit++ * LEASE_UNIT_BYTES % REGION_BYTES;
                }
                submit(home, &op);
        }
        session_leave(session);
}

int main(int argc, char **argv)
{
        uint64_t n_objects = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
        Keeper *keeper = fake_keeper_new();
        Home home;

        begin(&home, keeper, n_objects, "with nothing");
        fill(&home, n_objects);
        end(&home);
        for (unsigned i = 0; i < 3; i++) {
                begin(&home, keeper, n_objects, "with all of them");
                end(&home);
        }
        fake_keeper_free(keeper);
        return 0;
}
