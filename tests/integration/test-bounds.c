/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What many clients, or one that does its worst, can make foliod take of memory and stack: no more than is said. What
 * is counted is memory of its own (anonymous pages), not that of the store; no time is looked at.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/raw.h"

#include <sys/resource.h>
#include <sys/socket.h>

#define MIB (UINT64_C(1) << 20)
#define HUGE_BYTES (2 * MIB)
#define PAGE_BYTES 4096u

enum {
        N_CLIENTS = 1000,
        N_OBJECTS = 100000,
        BATCH = 1000,
        OBJECT_BYTES = 100,
        FDS_PER_CLIENT = 12, /* more than a client has, on either side */
};

/* Sanitizers keep memory of their own beside the program's: what is counted then says nothing. */
static bool is_counted(void)
{
        return !getenv("FOLIO_TEST_SLOW");
}

static FILE *open_proc(const Foliod *foliod, const char *name)
{
        char path[64];
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/%s/%s", foliod->pid_text, name);
        file = fopen(path, "re");
        assert_non_null(file);
        return file;
}

/* Anonymous memory that foliod has. */
static uint64_t own_bytes(const Foliod *foliod)
{
        FILE *status = open_proc(foliod, "status");
        unsigned long long n_kib = 0;
        char line[256];

        while (fgets(line, sizeof(line), status) && sscanf(line, "RssAnon: %llu kB", &n_kib) != 1)
                ;
        fclose(status);
        assert_true(n_kib > 0);
        return (uint64_t)n_kib * 1024;
}

/* Of a mapping: its bytes if each whole piece of 2 MiB in which one page is there were all there. */
static uint64_t bloated_bytes(int pagemap, uint64_t begin, uint64_t end, bool can_be_huge)
{
        uint64_t total = 0;

        for (uint64_t piece = begin & ~(HUGE_BYTES - 1); piece < end; piece += HUGE_BYTES) {
                uint64_t from = piece < begin ? begin : piece;
                uint64_t to = piece + HUGE_BYTES > end ? end : piece + HUGE_BYTES;
                uint64_t entries[HUGE_BYTES / PAGE_BYTES], n = 0;
                ssize_t n_bytes = (ssize_t)((to - from) / PAGE_BYTES * sizeof(entries[0]));

                if (pread(pagemap, entries, (size_t)n_bytes, (off_t)(from / PAGE_BYTES * sizeof(entries[0]))) !=
                    n_bytes)
                        continue; /* gone meanwhile */
                for (uint64_t i = 0; i < (to - from) / PAGE_BYTES; i++)
                        n += entries[i] >> 62 ? 1 : 0; /* present, or swapped out */
                total += can_be_huge && n > 0 && to - from == HUGE_BYTES ? HUGE_BYTES : n * PAGE_BYTES;
        }
        return total;
}

/*
 * The most that anonymous memory of foliod, as it lies now, could come to where
 * /sys/kernel/mm/transparent_hugepage/enabled is `always`: the kernel makes whole aligned pieces of a mapping huge,
 * unless it is told not to. The machine's setting is not touched.
 */
static uint64_t own_bytes_if_always(const Foliod *foliod)
{
        FILE *smaps = open_proc(foliod, "smaps");
        FILE *pagemap = open_proc(foliod, "pagemap");
        unsigned long long begin = 0, end = 0, inode = 0, n_anonymous_kib = 0;
        uint64_t total = 0;
        char line[1024];

        while (fgets(line, sizeof(line), smaps)) {
                unsigned long long first, last, number;

                /* A fact's name can begin like a number, so only a whole line is one. */
                if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &first, &last, &number) == 3) {
                        begin = first;
                        end = last;
                        inode = number;
                        n_anonymous_kib = 0;
                        continue;
                }
                (void)sscanf(line, "Anonymous: %llu kB", &n_anonymous_kib);
                if (strncmp(line, "VmFlags:", 8) != 0 || n_anonymous_kib == 0)
                        continue;
                if (inode)
                        total += n_anonymous_kib * 1024; /* copied pages of a file: never huge */
                else
                        total += bloated_bytes(fileno(pagemap), begin, end, !strstr(line, " nh"));
        }
        fclose(smaps);
        fclose(pagemap);
        return total;
}

/* Is own_bytes_if_always() worth anything? A page in each piece of a mapping of ours, which may be huge or may not. */
static void check_what_is_counted(void)
{
        const Foliod self = { .pid_text = "self" };
        uint64_t n_before = own_bytes_if_always(&self), n_sparse, n_never;
        uint8_t *bytes = mmap(NULL, 16 * HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(bytes != MAP_FAILED);
        for (unsigned i = 0; i < 16; i++)
                bytes[i * HUGE_BYTES] = 1;
        n_sparse = own_bytes_if_always(&self);
        (void)madvise(bytes, 16 * HUGE_BYTES, MADV_NOHUGEPAGE); /* refused where the kernel knows no huge pages */
        n_never = own_bytes_if_always(&self);
        assert_int_equal(munmap(bytes, 16 * HUGE_BYTES), 0);
        assert_true(n_sparse >= n_before + 14 * HUGE_BYTES);
        /* Where the machine's setting is `always` they are there in truth. */
        assert_true(n_never <= n_sparse);
}

/* So many descriptors, here and in the foliod that is started next; false: the hard limit does not let us. */
static bool raise_fds(rlim_t n_fds, struct rlimit *ret_before)
{
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        *ret_before = limit;
        if (limit.rlim_cur >= n_fds)
                return true;
        if (limit.rlim_max < n_fds) {
                print_message("# the limit of descriptors is %llu, %llu are needed\n",
                              (unsigned long long)limit.rlim_max, (unsigned long long)n_fds);
                return false;
        }
        limit.rlim_cur = n_fds;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        return true;
}

/* Each name is `event N`; each object 100 bytes that tell which one it is. */
static void put_batch(struct folio_client *client, size_t first, size_t n)
{
        struct folio_put_item *items = calloc(n, sizeof(*items));
        char(*names)[OBJECT_BYTES] = calloc(n, sizeof(*names));

        assert_true(items && names);
        for (size_t i = 0; i < n; i++) {
                (void)snprintf(names[i], sizeof(names[i]), "event %zu", first + i);
                items[i] = (struct folio_put_item){ .name = names[i], .data = names[i], .size_bytes = OBJECT_BYTES };
        }
        ASSERT_OK(folio_put_many(client, items, n));
        free(names);
        free(items);
}

static void delete_batch(struct folio_client *client, size_t first, size_t n)
{
        struct folio_delete_item *items = calloc(n, sizeof(*items));
        char(*names)[24] = calloc(n, sizeof(*names));

        assert_true(items && names);
        for (size_t i = 0; i < n; i++) {
                (void)snprintf(names[i], sizeof(names[i]), "event %zu", first + i);
                items[i] = (struct folio_delete_item){ .name = names[i] };
        }
        ASSERT_OK(folio_delete_many(client, items, n));
        free(names);
        free(items);
}

/*
 * B05: a thousand connections that do nothing, and a hundred thousand small objects: foliod itself stays under 64 MiB
 * and 1 KiB an object, also as it would be where the kernel makes every mapping huge that it can.
 */
static void test_b05_own_memory(void **state)
{
        unsigned n_clients = alive_scaled(N_CLIENTS), n_objects = alive_scaled(N_OBJECTS);
        uint64_t bound = 64 * MIB + (uint64_t)n_objects * 1024, n_now, n_always;
        Raw *idle[N_CLIENTS];
        struct folio_client *client;
        struct rlimit limit;
        Foliod *foliod;
        Alive before;

        (void)state;
        if (is_counted())
                check_what_is_counted();
        if (!raise_fds(N_CLIENTS * FDS_PER_CLIENT, &limit))
                skip();
        foliod = foliod_start("--budget", "512M", "--session-max", "16G", ALIVE_NO_POOL, NULL);
        before = alive_begin(foliod);
        for (unsigned i = 0; i < n_clients; i++) {
                idle[i] = raw_open(foliod);
                (void)raw_namespace(idle[i], "default");
        }
        client = foliod_connect(foliod);
        for (unsigned i = 0; i < n_objects; i += BATCH)
                put_batch(client, i, BATCH);
        assert_int_equal(alive_charges(client).n_objects, n_objects);
        n_now = own_bytes(foliod);
        n_always = own_bytes_if_always(foliod);
        print_message("# own memory: %.1f MiB, at most %.1f MiB with huge pages everywhere; bound %.1f MiB\n",
                      (double)n_now / (double)MIB, (double)n_always / (double)MIB, (double)bound / (double)MIB);
        if (is_counted()) {
                assert_true(n_now <= bound);
                assert_true(n_always <= bound);
        }
        for (unsigned i = 0; i < n_objects; i += BATCH)
                delete_batch(client, i, BATCH);
        for (unsigned i = 0; i < n_clients; i++)
                raw_close(idle[i]);
        folio_client_unref(client);
        /* An index that has been full keeps its pages: it is memory of the store. */
        before.memory_bytes += N_OBJECTS * UINT64_C(200);
        alive_check(&before);
        foliod_stop(foliod);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* --- E11 ---------------------------------------------------------------------------------------------------------- */

static void watch_late(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_event event = { .struct_bytes = sizeof(event) };
        uint64_t n_seen = 0, n_missed = 0, n_wanted, next = 0;
        struct folio_watch *watch;

        CHECK_OK(folio_watch_open(client, "", 0, &watch));
        CHECK(folio_watch_get_fd(watch) >= 0);
        child_say(child, 1);
        n_wanted = child_hear(child); /* stopped in here */
        while (n_seen + n_missed < n_wanted) {
                CHECK(folio_watch_next(watch, 20000, &event) == 1);
                if (event.type == FOLIO_EVENT_MISSED) {
                        CHECK(event.n_missed > 0);
                        n_missed += event.n_missed;
                        next = 0;
                        continue;
                }
                CHECK(next == 0 || event.sequence == next);
                next = event.sequence + 1;
                n_seen++;
        }
        CHECK(n_seen + n_missed == n_wanted && n_seen > 0);
        CHECK(folio_watch_next(watch, 0, &event) == 0);
        child_say(child, n_missed);
        folio_watch_close(watch);
        folio_client_unref(client);
}

static void make_events(struct folio_client *client, size_t n_events)
{
        for (size_t i = 0; i < n_events; i += 2 * BATCH) {
                put_batch(client, i, BATCH);
                delete_batch(client, i, BATCH);
        }
}

/*
 * E11: a watcher that is stopped while a hundred thousand events pass costs nothing: foliod keeps none of them for it,
 * others connect and are served, and the watcher learns how many it has missed.
 */
static void test_e11_stopped_watcher(void **state)
{
        unsigned n_events = alive_scaled(N_OBJECTS);
        Foliod *foliod = foliod_start("--budget", "256M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod), *fresh;
        struct folio_object *object;
        Child *watcher = child_start(foliod, watch_late, NULL);
        uint64_t n_own, n_after;
        unsigned n_fds;
        int status;

        (void)state;
        assert_int_equal(child_hear(watcher), 1);
        assert_int_equal(kill(watcher->pid, SIGSTOP), 0);
        assert_int_equal(waitpid(watcher->pid, &status, WUNTRACED), watcher->pid);
        assert_true(WIFSTOPPED(status));
        /* What the first events ever take is not the watcher's. */
        make_events(client, 10 * BATCH);
        n_own = own_bytes(foliod);
        n_fds = foliod_count_fds(foliod);
        make_events(client, n_events);
        n_after = own_bytes(foliod);
        print_message("# own memory: %llu KiB before, %llu KiB after %u events\n", (unsigned long long)n_own / 1024,
                      (unsigned long long)n_after / 1024, n_events);
        if (is_counted())
                assert_true(n_after <= n_own + MIB); /* 10 bytes for each event would be more */
        assert_true(foliod_count_fds(foliod) <= n_fds + 4); /* the store may take a region more, or give one back */
        fresh = foliod_connect(foliod);
        ASSERT_OK(folio_put(fresh, "fresh", "0123456789", 10, NULL));
        ASSERT_OK(folio_get(client, "fresh", 0, 0, &object));
        assert_memory_equal(folio_object_data(object), "0123456789", 10);
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(fresh, "fresh", 0));
        assert_true(foliod_fact(fresh, "memory.budget_bytes") > 0);
        folio_client_unref(fresh);
        assert_int_equal(kill(watcher->pid, SIGCONT), 0);
        child_say(watcher, 10 * BATCH + n_events + 2);
        assert_true(child_hear(watcher) > 0);
        child_finish(watcher);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- C20 ---------------------------------------------------------------------------------------------------------- */

/* DELETE with @n_items items of two bytes each: what is sent is @ret_bytes, the caller's to free. */
static size_t pack_items(size_t n_items, uint8_t **ret_bytes)
{
        static const uint8_t head[] = { 0x08, 0x05, 0x10, VERB_DELETE, 0x18, 0x01 };
        uint8_t *bytes = malloc(sizeof(head) + 2 * n_items);

        assert_non_null(bytes);
        memcpy(bytes, head, sizeof(head));
        for (size_t i = 0; i < n_items; i++) {
                bytes[sizeof(head) + 2 * i] = 0x22;
                bytes[sizeof(head) + 2 * i + 1] = 0;
        }
        *ret_bytes = bytes;
        return sizeof(head) + 2 * n_items;
}

/* A PING, and in it @n_levels messages one in the other, of field @field: no schema has so many. */
static size_t pack_nested(size_t n_levels, uint8_t field, uint8_t **ret_bytes)
{
        static const uint8_t head[] = { 0x08, 0x05, 0x10, VERB_PING };
        size_t n_max = sizeof(head) + 4 * n_levels, begin = n_max;
        uint8_t *bytes = malloc(n_max);

        assert_non_null(bytes);
        /* From the innermost outwards. */
        for (size_t i = 0; i < n_levels; i++) {
                size_t n = n_max - begin, n_length = n < 128 ? 1 : n < 16384 ? 2 : 3;

                begin -= n_length + 1;
                bytes[begin] = (uint8_t)(field << 3 | 2);
                for (size_t j = 0; j < n_length; j++)
                        bytes[begin + 1 + j] = (uint8_t)((n >> (7 * j) & 0x7f) | (j + 1 < n_length ? 0x80 : 0));
        }
        assert_true(begin >= sizeof(head));
        memcpy(bytes + begin - sizeof(head), head, sizeof(head));
        memmove(bytes, bytes + begin - sizeof(head), n_max - begin + sizeof(head));
        *ret_bytes = bytes;
        return n_max - begin + sizeof(head);
}

/* On a connection of its own. True: answered; false: hung up on, or the kernel did not take it. */
static bool is_answered(const Foliod *foliod, uint8_t *consume_bytes, size_t n_bytes)
{
        Raw *raw = raw_open(foliod);
        int room = 8 << 20;
        bool is;

        (void)raw_namespace(raw, "default");
        (void)setsockopt(raw->socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)); /* without it: not sent */
        is = raw_send_bytes(raw, consume_bytes, n_bytes, NULL, 0) && raw_receive(raw);
        raw_close(raw);
        free(consume_bytes);
        return is;
}

static void read_in_pieces(struct folio_client *client, const uint8_t *bytes, size_t n_pieces)
{
        struct folio_read_item *reads = calloc(n_pieces, sizeof(*reads));
        uint8_t *buffer = calloc(n_pieces, 2);

        assert_true(reads && buffer);
        for (size_t i = 0; i < n_pieces; i++)
                reads[i] = (struct folio_read_item){
                        .name = "pieces", .offset_bytes = 2 * i, .buffer = buffer + 2 * i, .n_bytes = 2
                };
        ASSERT_OK(folio_read_many(client, reads, n_pieces));
        assert_memory_equal(buffer, bytes, 2 * n_pieces);
        free(reads);
        free(buffer);
}

/*
 * C20: counts and depths out of small inputs, at a foliod with a stack of 64 KiB. One message holds 256 items, and the
 * library splits what is more.
 */
static void test_c20_counts_and_stack(void **state)
{
        static const struct {
                size_t n_items;
                bool is_answered;
        } counts[] = { { 1, true },      { 255, true },    { 256, true },           { 257, false },
                       { 1024, false },  { 8000, false },  { UINT64_C(1) << 16, false }, { UINT64_C(1) << 20, false } };
        static const size_t depths[] = { 1, 100, 5000, 10000 };
        struct folio_client *client;
        uint8_t *bytes = malloc(2 * MIB), *packet;
        uint64_t n_own;
        Foliod *foliod;
        Alive before;

        (void)state;
        assert_non_null(bytes);
        if (is_counted())
                program_set_world("stack=65536");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        before = alive_begin(foliod);
        n_own = own_bytes(foliod);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                size_t n_bytes = pack_items(counts[i].n_items, &packet);

                assert_int_equal(is_answered(foliod, packet, n_bytes), counts[i].is_answered);
        }
        for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++)
                for (uint8_t field = 4; field <= 15; field++) {
                        size_t n_bytes = pack_nested(depths[i], field, &packet);

                        if (is_answered(foliod, packet, n_bytes))
                                assert_true(n_bytes <= PROTO_MESSAGE_BYTES_MAX);
                }
        for (uint8_t kind = 3; kind <= 7; kind++) {
                /* Groups that begin and never end, and types that there are not. */
                packet = malloc(10000);
                assert_non_null(packet);
                memset(packet, 4 << 3 | kind, 10000);
                assert_false(is_answered(foliod, packet, 10000));
        }
        client = foliod_connect(foliod);
        harness_fill(bytes, 2 * MIB, 20);
        ASSERT_OK(folio_put(client, "pieces", bytes, 2 * MIB, NULL));
        read_in_pieces(client, bytes, 1 << 16);
        read_in_pieces(client, bytes, 1 << 20);
        ASSERT_OK(folio_delete(client, "pieces", 0));
        folio_client_unref(client);
        if (is_counted())
                assert_true(own_bytes(foliod) <= n_own + MIB);
        free(bytes);
        alive_check(&before);
        foliod_stop(foliod);
}

/* --- a thousand --------------------------------------------------------------------------------------------------- */

static void be_a_thousand(Child *child)
{
        unsigned n = alive_scaled(N_CLIENTS);
        struct folio_client **clients = calloc(n, sizeof(struct folio_client *));
        struct folio_object **objects = calloc(n, sizeof(struct folio_object *));
        char name[32], bytes[64];

        CHECK(clients && objects);
        for (unsigned i = 0; i < n; i++) {
                clients[i] = child_connect(child);
                (void)snprintf(name, sizeof(name), "client %u", i);
                harness_fill(bytes, sizeof(bytes), i);
                CHECK_OK(folio_put(clients[i], name, bytes, sizeof(bytes), NULL));
        }
        /* Each gets what another has put, and all of them hold at once. */
        for (unsigned i = 0; i < n; i++) {
                unsigned other = (i * 7 + 1) % n;

                (void)snprintf(name, sizeof(name), "client %u", other);
                CHECK_OK(folio_get(clients[i], name, 0, 0, &objects[i]));
                CHECK(folio_object_size(objects[i]) == sizeof(bytes));
                CHECK(harness_is_filled(folio_object_data(objects[i]), sizeof(bytes), other, 0));
        }
        child_say(child, n);
        CHECK(child_hear(child) == 1);
        for (unsigned i = 0; i < n; i++) {
                (void)snprintf(name, sizeof(name), "client %u", i);
                CHECK_OK(folio_delete(clients[i], name, 0));
                /* Deleted under its handle: the bytes stay. */
                CHECK(harness_is_filled(folio_object_data(objects[i]), sizeof(bytes), (i * 7 + 1) % n, 0));
                CHECK_OK(folio_object_release(objects[i]));
        }
        for (unsigned i = 0; i < n; i++)
                folio_client_unref(clients[i]);
        free(objects);
        free(clients);
}

/* A thousand connections of one process, all of them in use; others are served meanwhile. */
static void test_thousand_clients(void **state)
{
        struct folio_client *client;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct rlimit limit;
        Foliod *foliod;
        Alive before;
        Child *child;

        (void)state;
        if (!raise_fds(N_CLIENTS * FDS_PER_CLIENT, &limit))
                skip();
        foliod = foliod_start("--budget", "512M", "--session-max", "16G", ALIVE_NO_POOL, NULL);
        before = alive_begin(foliod);
        child = child_start(foliod, be_a_thousand, NULL);
        assert_int_equal(child_hear(child), alive_scaled(N_CLIENTS));
        client = foliod_connect(foliod);
        assert_int_equal(alive_charges(client).n_objects, alive_scaled(N_CLIENTS));
        ASSERT_OK(folio_stat(client, "client 0", &stat));
        assert_int_equal(stat.size_bytes, 64);
        child_say(child, 1);
        child_finish(child);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_b05_own_memory),
                INTEGRATION_TEST(test_c20_counts_and_stack),
                INTEGRATION_TEST(test_e11_stopped_watcher),
                INTEGRATION_TEST(test_thousand_clients),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
