/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases F01 and F02: what the first contact costs a new process. A large object that is gone through once, mapped or
 * read: the same bytes whichever way, and as many page faults and system calls as libfolio(3) says. Hundreds of tiny
 * objects and two large ones, put and read by one call each: round trips and descriptors. Counted, never timed.
 */
#include "tests/integration/alive.h"
#include "tests/integration/trace.h"
#include "tests/integration/faults.h"

#include <inttypes.h>

#define MIB (UINT64_C(1) << 20)
#define HUGE (2 * MIB)

static void mark(const char *what)
{
        CHECK(write(-1, what, strlen(what)) < 0);
}

/* --- F01: map or read --------------------------------------------------------------------------------------------- */

typedef struct Way {
        const char *name;
        uint32_t flags;              /* of the get */
        size_t block_bytes;          /* of the reads; 0: the mapping is gone through */
} Way;

static const Way ways[] = {
        { "map", 0, 0 },
        { "map, populated", FOLIO_GET_POPULATE, 0 },
        { "read by 64 KiB", FOLIO_GET_UNMAPPED, 64 << 10 },
        { "read by 1 MiB", FOLIO_GET_UNMAPPED, 1 << 20 },
        { "read by 16 MiB", FOLIO_GET_UNMAPPED, 16 << 20 },
};

enum { N_WAYS = sizeof(ways) / sizeof(ways[0]), WAY_MAP = 0 };

typedef struct Passage {
        const Way *way;
        uint64_t n_bytes;
} Passage;

/* Order counts: no two pieces can change places. */
static uint64_t add_up(uint64_t sum, const void *bytes, size_t n_bytes)
{
        const uint64_t *words = bytes;

        for (size_t i = 0; i < n_bytes / sizeof(*words); i++)
                sum = sum * 31 + words[i];
        return sum;
}

static uint64_t pass(struct folio_client *client, const Passage *passage, uint8_t *block)
{
        size_t n_block = passage->way->block_bytes;
        struct folio_object *object;
        uint64_t sum = 0;

        CHECK_OK(folio_get(client, "large", passage->way->flags, 0, &object));
        if (n_block == 0) {
                CHECK(folio_object_data(object));
                sum = add_up(0, folio_object_data(object), passage->n_bytes);
        }
        for (uint64_t at = 0; n_block > 0 && at < passage->n_bytes; at += n_block) {
                CHECK_OK(folio_object_read(object, at, block, n_block));
                sum = add_up(sum, block, n_block);
        }
        mark("end");
        CHECK_OK(folio_object_release(object));
        return sum;
}

/* In a process that has seen nothing of it. Says the faults, the stops (UINT64_MAX: not known), and the sum. */
static void go_through(Child *child)
{
        struct folio_client *client = child_connect(child);
        uint8_t *block = malloc(16 * MIB), byte;
        uint64_t sum, n_faults, n_stops;
        struct folio_object *object;
        int fd = faults_open_stops();

        CHECK(block);
        memset(block, 1, 16 * MIB);
        /* What belongs to the namespace and to the library: the index, and which copy loop is best here. */
        CHECK_OK(folio_read(client, "known", 0, &byte, 1));
        CHECK_OK(folio_get(client, "measured", 0, 0, &object));
        CHECK_OK(folio_object_read(object, 0, block, 4 * MIB));
        CHECK_OK(folio_object_release(object));
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        n_stops = faults_read_stops(fd);
        n_faults = faults_count();
        mark("begin");
        sum = pass(client, child->userdata, block);
        child_say(child, faults_count() - n_faults);
        child_say(child, fd >= 0 ? faults_read_stops(fd) - n_stops : UINT64_MAX);
        child_say(child, sum);
        CHECK(child_hear(child) == 1);
        if (fd >= 0)
                close(fd);
        free(block);
        folio_client_unref(client);
}

typedef struct Cost {
        uint64_t n_faults, n_stops, sum;
        unsigned n_calls;
        bool is_traced;
} Cost;

static Cost cost_of(Foliod *foliod, const Way *way, uint64_t n_bytes)
{
        Passage passage = { way, n_bytes };
        Child *child = child_start(foliod, go_through, &passage);
        Cost cost = { .n_calls = 0 };
        Trace trace;

        assert_int_equal(child_hear(child), 1);
        cost.is_traced = trace_begin(&trace, foliod, child->pid, NULL);
        child_say(child, 1);
        cost.n_faults = child_hear(child);
        cost.n_stops = child_hear(child);
        cost.sum = child_hear(child);
        if (cost.is_traced) {
                trace_end(&trace);
                cost.n_calls = trace_count_between(&trace, "write(-1, \"begin\"", "write(-1, \"end\"");
        }
        child_say(child, 1);
        child_finish(child);
        return cost;
}

static uint64_t put_patterned(struct folio_client *client, const char *name, uint64_t n_bytes)
{
        uint8_t *block = malloc(MIB);
        struct folio_object *object;
        uint64_t sum = 0;

        assert_non_null(block);
        ASSERT_OK(folio_create(client, name, n_bytes, NULL, &object));
        for (uint64_t at = 0; at < n_bytes; at += MIB) {
                harness_fill(block, MIB, at);
                sum = add_up(sum, block, MIB);
                ASSERT_OK(folio_object_write(object, at, block, MIB));
        }
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        free(block);
        return sum;
}

/* It becomes so after the seal, by a worker; or never, where the machine has none. */
static bool becomes_huge(struct folio_client *client, uint64_t n_bytes)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        for (unsigned i = 0; i < 2500; i++) {
                ASSERT_OK(folio_stat(client, "large", &stat));
                if (stat.huge_bytes == n_bytes)
                        return true;
                harness_pause();
        }
        return false;
}

/* A sanitizer has memory of its own for all that is touched, and makes calls of its own for each copy. */
static bool can_be_counted(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        return false;
#else
        return true;
#endif
}

/* As libfolio(3) has it, and a few for what is not the object's. */
static void check_cost(const Way *way, const Cost *cost, uint64_t n_bytes, bool is_huge)
{
        const uint64_t n_others = 64;

        if (!can_be_counted())
                return;
        assert_true(cost->n_faults <= n_bytes / (is_huge ? HUGE : 65536) + n_others);
        if (cost->n_stops != UINT64_MAX && way != &ways[WAY_MAP])
                assert_true(cost->n_stops <= n_others);
        if (cost->is_traced)
                assert_true(cost->n_calls <= 24 + (way->block_bytes ? n_bytes / HUGE : 0));
}

static bool compare_ways(const char *policy)
{
        uint64_t n_bytes = getenv("FOLIO_TEST_SLOW") ? 64 * MIB : 256 * MIB, sum;
        Foliod *foliod = foliod_start("--budget", "400M", "--huge", policy, ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool is_huge, is_traced = true;

        ASSERT_OK(folio_put(client, "known", policy, 5, NULL));
        (void)put_patterned(client, "measured", 4 * MIB);
        sum = put_patterned(client, "large", n_bytes);
        is_huge = strcmp(policy, "always") == 0 && becomes_huge(client, n_bytes);
        for (unsigned i = 0; i < N_WAYS; i++) {
                Cost cost = cost_of(foliod, &ways[i], n_bytes);

                print_message("# %s pages, %s: %" PRIu64 " faults, stopped %" PRId64 " times, %u calls\n",
                              is_huge ? "huge" : "small", ways[i].name, cost.n_faults, (int64_t)cost.n_stops,
                              cost.n_calls);
                assert_true(cost.sum == sum);
                check_cost(&ways[i], &cost, n_bytes, is_huge);
                is_traced &= cost.is_traced;
        }
        folio_client_unref(client);
        foliod_stop(foliod);
        return is_traced;
}

static void test_f01_map_or_read(void **state)
{
        bool is_traced = compare_ways("never");

        (void)state;
        is_traced &= compare_ways("always");
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

/* --- F02: a batch of tiny objects --------------------------------------------------------------------------------- */

/* Workload W01: 112 objects of 3,592 bytes together, and two that hold the rest of 65.81 MB. */
enum { N_TINY = 112, N_ALL = 114, LARGE_BYTES = 32903204, N_BATCHES = 3 };

typedef struct Batch {
        char names[N_ALL][24];
        uint8_t *bytes[N_ALL];
        uint8_t *read[N_ALL];
        struct folio_put_item puts[N_ALL];
        struct folio_read_item reads[N_ALL];
        unsigned n_tiny;
} Batch;

static size_t item_bytes(unsigned i)
{
        return i >= N_TINY ? LARGE_BYTES : i < 8 ? 33 : 32;
}

/* @n_tiny of the tiny ones, and both large ones. */
static void batch_prepare(Batch *batch, unsigned which, unsigned n_tiny)
{
        for (unsigned i = 0; i < N_ALL; i++) {
                unsigned to = i < N_TINY ? i : n_tiny + i - N_TINY;

                if (i >= n_tiny && i < N_TINY)
                        continue;
                if (!batch->bytes[i]) {
                        batch->bytes[i] = malloc(item_bytes(i));
                        batch->read[i] = malloc(item_bytes(i));
                }
                CHECK(batch->bytes[i] && batch->read[i]);
                (void)snprintf(batch->names[i], sizeof(batch->names[i]), "batch %u/%u", which, i);
                harness_fill(batch->bytes[i], item_bytes(i), which * 1000 + i);
                memset(batch->read[i], 0, item_bytes(i));
                batch->puts[to] = (struct folio_put_item){ .name = batch->names[i], .data = batch->bytes[i],
                                                           .size_bytes = item_bytes(i) };
                batch->reads[to] = (struct folio_read_item){ .name = batch->names[i], .buffer = batch->read[i],
                                                             .n_bytes = item_bytes(i) };
        }
        batch->n_tiny = n_tiny;
}

static void batch_free(Batch *batch)
{
        for (unsigned i = 0; i < N_ALL; i++) {
                free(batch->bytes[i]);
                free(batch->read[i]);
        }
        free(batch);
}

/* The last batch has few tiny objects: what the others cost more is seen by it. */
static unsigned n_tiny_of(unsigned which)
{
        return which + 1 == N_BATCHES ? 2 : N_TINY;
}

/* Each batch when told: put by one process, read by the other, which knows the namespace and nothing else at first. */
static void run_batches(Child *child)
{
        struct folio_client *client = child_connect(child);
        Batch *batch = calloc(1, sizeof(*batch));
        bool is_reader = child->userdata;

        CHECK(batch);
        CHECK(folio_exists(client, "batch") == 0);
        for (unsigned which = 0; which < N_BATCHES; which++) {
                batch_prepare(batch, which, n_tiny_of(which));
                child_say(child, 1);
                CHECK(child_hear(child) == 1);
                mark("begin");
                if (is_reader)
                        CHECK(folio_read_many(client, batch->reads, batch->n_tiny + 2) == 0);
                else
                        CHECK(folio_put_many(client, batch->puts, batch->n_tiny + 2) == 0);
                mark("end");
                for (unsigned i = 0; is_reader && i < N_ALL; i++)
                        if (i < batch->n_tiny || i >= N_TINY)
                                CHECK(memcmp(batch->read[i], batch->bytes[i], item_bytes(i)) == 0);
                child_say(child, harness_count_own_fds());
                CHECK(child_hear(child) == 2);
        }
        batch_free(batch);
        folio_client_unref(client);
}

typedef struct Talk {
        unsigned n_messages;         /* that were sent */
        unsigned n_trips;            /* how often it had to hear something before it could go on */
        unsigned n_fds;              /* that came */
} Talk;

static unsigned count_fds(const char *line)
{
        const char *at = strstr(line, "cmsg_data=[");
        unsigned n = 0;

        for (; at && *at && *at != ']'; at++)
                n += *at == ',' || *at == '[';
        return n;
}

static Talk listen_to(const Trace *trace)
{
        FILE *lines = fopen(trace->path, "re");
        bool is_asking = false, is_inside = false;
        Talk talk = { 0 };
        char line[1024];

        assert_non_null(lines);
        while (fgets(line, sizeof(line), lines)) {
                if (strstr(line, "\"begin\""))
                        is_inside = true;
                if (strstr(line, "\"end\""))
                        break;
                if (is_inside && strstr(line, "sendmsg(")) {
                        talk.n_messages++;
                        talk.n_trips += !is_asking;
                        is_asking = true;
                } else if (is_inside && strstr(line, "recvmsg(") && !strstr(line, "EAGAIN")) {
                        is_asking = false;
                        talk.n_fds += strstr(line, "SCM_RIGHTS") ? count_fds(line) : 0;
                }
        }
        fclose(lines);
        return talk;
}

/* One batch by one of the two. How many descriptors it has then. */
static unsigned run_one(Foliod *foliod, Child *child, const char *what, Talk *ret, bool *is_traced)
{
        unsigned n_own_fds;
        Trace trace;

        assert_int_equal(child_hear(child), 1);
        *is_traced &= trace_begin(&trace, foliod, child->pid, "sendmsg,recvmsg,write");
        child_say(child, 1);
        n_own_fds = (unsigned)child_hear(child);
        *ret = (Talk){ 0 };
        if (*is_traced) {
                trace_end(&trace);
                *ret = listen_to(&trace);
                print_message("# %s: %u messages, %u round trips, %u descriptors came\n", what, ret->n_messages,
                              ret->n_trips, ret->n_fds);
        }
        child_say(child, 2);
        return n_own_fds;
}

static void test_f02_hundreds_of_tiny_objects(void **state)
{
        Foliod *foliod = foliod_start("--budget", "512M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        Child *writer = child_start(foliod, run_batches, NULL), *reader = child_start(foliod, run_batches, writer);
        unsigned n_fds[2] = { 0 };
        struct folio_client *client;
        Talk put, read, first[2];
        bool is_traced = true;

        (void)state;
        for (unsigned which = 0; which < N_BATCHES; which++) {
                unsigned n_put_fds = run_one(foliod, writer, "put", &put, &is_traced);
                unsigned n_read_fds = run_one(foliod, reader, "read", &read, &is_traced);

                assert_true(put.n_trips <= 2 && put.n_fds <= 2);
                /* Two for the large ones; the first time one more for the region that all small ones are in. */
                assert_true(read.n_trips <= 2 && read.n_fds <= (which == 0 ? 3 : 2));
                if (which == 0) {
                        first[0] = put;
                        first[1] = read;
                        n_fds[0] = n_put_fds;
                        n_fds[1] = n_read_fds;
                }
                /* What came is not kept, and a tiny object more costs no message more. */
                assert_int_equal(n_put_fds, n_fds[0]);
                assert_int_equal(n_read_fds, n_fds[1]);
                assert_int_equal(put.n_messages, first[0].n_messages);
                assert_int_equal(read.n_messages, first[1].n_messages);
        }
        child_finish(writer);
        child_finish(reader);
        client = foliod_connect(foliod);
        for (unsigned which = 0; which < N_BATCHES; which++)
                for (unsigned i = 0; i < N_ALL; i++) {
                        char name[24];

                        (void)snprintf(name, sizeof(name), "batch %u/%u", which, i);
                        ASSERT_OK(folio_delete(client, name, FOLIO_IF_EXISTS));
                }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_f01_map_or_read),
                INTEGRATION_TEST(test_f02_hundreds_of_tiny_objects),
        };

        return cmocka_run_group_tests_name("once", tests, NULL, NULL);
}
